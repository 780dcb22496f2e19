"""Breadth-first search over all states of a model: the shortest way to a violation, or the proof that there is none.

    states     0 ──> 1 ──> 3           every state once, by its hash
               └──> 2 ──> 3 ──> ...    every state remembers the step by which it was first reached

A model gives the first state, the steps out of a state, and what is wrong with a state. A step may itself be wrong
(`Step.problem`): it did something that must never happen, whatever the state after it looks like.

Because the search goes by distance, the first violation that it meets has a trace of the fewest steps.

`stuck` looks at the whole graph afterwards: the states from which no continuation reaches a goal. That is how "nobody
is locked out for good" is checked; an invariant of single states could not say it.
"""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol


class Step(NamedTuple):
    """One atomic step: what happens, in words; the state after it; what is wrong with it, or nothing."""

    words: str
    state: Hashable
    problem: str = ""


class Model(Protocol):
    """What can be searched."""

    def first(self) -> Any:
        """The state that everything begins in."""

    def steps(self, state: Any) -> Iterable[Step]:
        """Everything that may happen next."""

    def problem(self, state: Any) -> str:
        """What is wrong with a state; empty when nothing is."""


@dataclass(slots=True)
class Exploration:
    """What a search has found: all states in the order of their distance, and the violation that ended it, if any."""

    states: list[Any] = field(default_factory=list)
    violation: str = ""
    steps: int = 0
    _came_from: array[int] = field(default_factory=lambda: array("q"))
    _words: list[str] = field(default_factory=list)
    _edges: array[int] = field(default_factory=lambda: array("q"))
    _edge_starts: array[int] = field(default_factory=lambda: array("q"))

    def trace(self, number: int) -> list[str]:
        """The steps that lead to a state, in words."""
        words = []
        while number > 0:
            words.append(self._words[number])
            number = self._came_from[number]
        return words[::-1]

    def told(self, number: int, problem: str, last: str = "") -> str:
        """A violation and the shortest way to it, as people read it."""
        steps = [*self.trace(number), *([last] if last else [])]
        return "\n".join([problem, *(f"  {place:2d}. {step}" for place, step in enumerate(steps, start=1))])

    def stuck(self, is_goal: Callable[[Any], bool], counts: Callable[[Any], bool]) -> str:
        """The nearest state that counts and from which no goal can be reached, with its trace; empty if there is none.

        A search that a violation ended has no whole graph to look at.
        """
        backwards: list[list[int]] = [[] for _ in self.states]
        for number in range(len(self.states)):
            for edge in range(self._edge_starts[number], self._edge_starts[number + 1]):
                backwards[self._edges[edge]].append(number)
        reaches = [is_goal(state) for state in self.states]
        waiting = [number for number, goal in enumerate(reaches) if goal]
        while waiting:
            for before in backwards[waiting.pop()]:
                if not reaches[before]:
                    reaches[before] = True
                    waiting.append(before)
        for number, state in enumerate(self.states):
            if not reaches[number] and counts(state):
                return self.told(number, "locked out: no continuation reaches the goal")
        return ""


def explore(model: Model, states_max: int = 5_000_000) -> Exploration:
    """All states that a model reaches, until the first violation."""
    collects = gc.isenabled()
    gc.disable()  # nothing here is garbage: looking for some took a third of the time
    try:
        return _search(model, states_max)
    finally:
        if collects:
            gc.enable()


def _search(model: Model, states_max: int) -> Exploration:
    found = Exploration()
    known: dict[Hashable, int] = {}

    def number_of(state: Hashable, before: int, words: str) -> int:
        number = known.setdefault(state, len(known))
        if number == len(found.states):
            found.states.append(state)
            found._came_from.append(before)
            found._words.append(words)
        return number

    number_of(model.first(), -1, "")
    current = 0
    while current < len(found.states):
        if len(found.states) > states_max:
            raise AssertionError(f"more than {states_max:,} states: choose smaller bounds")
        state = found.states[current]
        problem = model.problem(state)
        if problem:
            found.violation = found.told(current, problem)
            return found
        found._edge_starts.append(len(found._edges))
        for step in model.steps(state):
            found.steps += 1
            if step.problem:
                found.violation = found.told(current, step.problem, step.words)
                return found
            found._edges.append(number_of(step.state, current, step.words))
        current += 1
    found._edge_starts.append(len(found._edges))
    return found
