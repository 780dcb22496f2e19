"""The states that operations go through while a batch runs: only the transitions of the table happen.

The program runs as plain Python, so every operation can note all states at the moment in which it runs. With one
worker nothing is missed between two notes but what the kernels do around one operation.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tidegate.compiler.program import build_program
from tidegate.engine.core import EngineCore
from tidegate.engine.execution import scheduler
from tidegate.engine.execution.scheduler import Run
from tidegate.engine.kernels import aborts
from tidegate.engine.kernels.lifecycle import ABORTED, BLOCKED, EXECUTED, READY, STATES, TRANSITIONS
from tidegate.foundation.jit import Entry, uncompiled
from tidegate.operations.decision import DECISIONS, Chains, Decision, Strategy

from ...accounts import deposit, transfer
from ..example_graphs import SHAPES, random_events, swap

EAGER = [decision for decision in DECISIONS if decision.abort == "eager"]
LAZY = [decision for decision in DECISIONS if decision.abort == "lazy"]
ALLOWED = {pair for pairs in TRANSITIONS.values() for pair in pairs}
EAGER_ALLOWED = {pair for name in ("T1", "T2", "T4") for pair in TRANSITIONS[name]}


@dataclass(slots=True)
class Note:
    """All states at one moment, and which transactions had failed by then; `when` is what happened next.

    Where that is a call, `operation` is the operation that is called.
    """

    when: str
    state: Any
    failure: Any
    operation: int = -1


@dataclass(slots=True)
class Recorder:
    """Notes of one run, in order."""

    runs: list[Run] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def run(self) -> Run:
        return self.runs[-1]

    def note(self, when: str, operation: int = -1) -> None:
        with self.lock:
            progress = self.run.progress
            self.notes.append(Note(when, progress.state.copy(), progress.failure.copy(), operation))

    def operation(self, kind: int, event: int) -> int:
        """The operation of a kind that an event has."""
        graph = self.run.plan.graph
        transaction = int(np.flatnonzero(graph.event == event)[0])
        own = range(graph.operation_first[transaction], graph.operation_first[transaction + 1])
        return next(operation for operation in own if graph.kind[operation] == kind)


def recorded(strategy: Strategy, workers: int, program: list[Any], events: Any, patch: pytest.MonkeyPatch) -> Recorder:
    """Run events, and note the states before every operation and around what takes aborts back."""
    found = Recorder()
    with uncompiled():
        core = EngineCore(build_program(program), strategy=strategy, workers=workers)
        module = core.runner._module

        def operate(context: int, kind: int, event: int, slots: int) -> int:
            found.note("operate", found.operation(kind, event))
            return module.operate.function(context, kind, event, slots)  # type: ignore[no-any-return]

        core.runner._module = SimpleNamespace(operate=Entry(operate, True))  # type: ignore[assignment]
        start = core.runner._scheduler.start

        def starting(*arguments: Any) -> Run:
            found.runs.append(start(*arguments))
            return found.run

        patch.setattr(core.runner._scheduler, "start", starting)
        for name in ("take_back", "repair"):
            patch.setattr(aborts, name, noting(found, name, getattr(aborts, name)))
        outcomes = core.run(events).outcomes
        found.note("end")
        core.runner.workers.close()
    assert len(found.runs) == 1 and not found.run.stopped
    check_end(found, outcomes["committed"].to_pylist())
    return found


def noting(found: Recorder, name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    def noted(*arguments: Any) -> Any:
        found.note(name)
        result = kernel(*arguments)
        found.note(f"after {name}")
        return result

    return noted


def check_end(found: Recorder, committed: list[bool]) -> None:
    """What failed is aborted, and what belongs to a committed transaction is executed."""
    graph, progress = found.run.plan.graph, found.run.progress
    for operation, state in enumerate(progress.state):
        if committed[graph.event[graph.transaction[operation]]]:
            assert state == EXECUTED
        elif progress.operation_failure[operation] != 0:
            assert state == ABORTED


def transitions(notes: list[Note]) -> list[tuple[int, int, int, Note]]:
    """Operation, state before, state after, and the note that saw it first."""
    return [
        (int(operation), int(before.state[operation]), int(after.state[operation]), after)
        for before, after in itertools.pairwise(notes)
        for operation in np.flatnonzero(before.state != after.state)
    ]


def contended(seed: int, program: list[Any], count: int = 40, keys: int = 4) -> Any:
    return random_events(np.random.default_rng(seed), program, count, keys)


def names(pairs: set[tuple[int, int]]) -> set[str]:
    return {f"{STATES[before]}->{STATES[after]}" for before, after in pairs}


@pytest.mark.parametrize("decision", EAGER, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_with_eager_aborts_only_three_transitions_happen(
    decision: Decision, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = recorded(decision, 1, SHAPES, contended(seed, SHAPES), monkeypatch)
    graph = found.run.plan.graph
    seen = set()
    for operation, before, after, note in transitions(found.notes):
        if (before, after) == (BLOCKED, EXECUTED):  # it had nothing to do: a sibling had failed before it
            assert note.failure[graph.transaction[operation]] != 0
        else:
            seen.add((before, after))
    assert names(seen) <= names(EAGER_ALLOWED)
    assert not any((before == EXECUTED and after != ABORTED) or before == ABORTED for before, after in seen)
    assert {(BLOCKED, READY), (READY, EXECUTED)} <= seen


@pytest.mark.parametrize("decision", EAGER, ids=str)
def test_with_eager_aborts_every_operation_of_an_aborted_transaction_ends_aborted(
    decision: Decision, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = recorded(decision, 2, [transfer, swap], contended(5, [transfer, swap]), monkeypatch)
    progress, graph = found.run.progress, found.run.plan.graph
    failed = progress.failure[graph.transaction] != 0
    assert np.array_equal(progress.state == ABORTED, failed) and failed.any() and not failed.all()


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("decision", EAGER, ids=str)
def test_with_eager_aborts_nothing_is_taken_back_whoever_runs_it(
    decision: Decision, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two notes others go on, so steps are missed; but states only ever go forward."""
    found = recorded(decision, workers, SHAPES, contended(7, SHAPES, 120), monkeypatch)
    assert all(before < after for _, before, after, _ in transitions(found.notes))
    assert not any(note.when == "take_back" for note in found.notes)


@pytest.mark.parametrize("decision", LAZY, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_with_lazy_aborts_all_transitions_are_of_the_table(
    decision: Decision, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = [deposit, transfer, swap]
    found = recorded(decision, 1, program, contended(seed, program), monkeypatch)
    seen = {(before, after) for _, before, after, _ in transitions(found.notes)}
    assert names(seen) <= names(ALLOWED)
    assert {(EXECUTED, BLOCKED), (EXECUTED, READY)} <= seen  # something was taken back, or the test says nothing


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("decision", LAZY, ids=str)
def test_aborts_are_taken_back_when_everything_ran(
    decision: Decision, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing waits at that moment. What must run again is blocked if it reads from what must run again, else ready."""
    program = [deposit, transfer, swap]
    found = recorded(decision, workers, program, contended(11, program, 120), monkeypatch)
    for before, after in zip(found.notes, found.notes[1:], strict=False):
        if before.when == "take_back":
            assert set(before.state.tolist()) <= {EXECUTED, ABORTED}
            assert after.when == "after take_back"
            check_taken_back(found.run.plan.graph, np.isin(after.state, (BLOCKED, READY)), after.state)
    rounds = [note for note in found.notes if note.when == "after take_back"]
    assert len(rounds) > 1 and np.any(rounds[0].state == READY) and np.any(rounds[0].state == BLOCKED)
    assert set(rounds[-1].state.tolist()) <= {EXECUTED, ABORTED}


def check_taken_back(graph: Any, again: Any, state: Any) -> None:
    waiting = {
        int(graph.operation[access])
        for access, link in enumerate(graph.link)
        if graph.alias[access] == access and link >= 0 and again[graph.operation[link]]
    }
    for operation in np.flatnonzero(again):
        assert state[operation] == (BLOCKED if operation in waiting else READY)


@pytest.mark.parametrize("decision", LAZY, ids=str)
def test_an_operation_that_runs_is_ready(decision: Decision, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every call, of the first exploration and of those that follow."""
    program = [deposit, transfer, swap]
    found = recorded(decision, 1, program, contended(3, program), monkeypatch)
    calls = [note for note in found.notes if note.when == "operate"]
    assert len(calls) > found.run.plan.operations  # some ran again
    assert all(note.state[note.operation] == READY for note in calls)


@pytest.mark.parametrize("placement", ["shared-nothing", "shared-everything"])
def test_in_chains_nobody_is_told_to_be_ready(placement: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    program = [deposit, transfer, swap]
    found = recorded(Chains(placement), 1, program, contended(2, program), monkeypatch)
    taken_back = next(n for n, note in enumerate(found.notes) if note.when == "take_back")
    seen = {(before, after) for _, before, after, _ in transitions(found.notes[: taken_back + 1])}
    assert seen == {(BLOCKED, EXECUTED)}


@pytest.mark.parametrize("decision", LAZY, ids=str)
def test_what_one_worker_repairs_stays_in_the_table(decision: Decision, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "ROUNDS_MAX", 0)
    program = [deposit, transfer, swap]
    found = recorded(decision, 2, program, contended(9, program, 120), monkeypatch)
    assert [note.when for note in found.notes if "repair" in note.when] == ["repair", "after repair"]
    repairing = [note for note in found.notes if "repair" in note.when]
    seen = {(before, after) for _, before, after, _ in transitions(repairing)}
    assert names(seen) <= names(ALLOWED)
