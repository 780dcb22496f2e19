"""Checks a recorded history: does the model of dataflow graphs allow this order of executions?

An engine made with `record=True` keeps its steps: which transaction ran in which round, on how many tuples, and
whether it committed. For a graph a ──> b with two rounds, and a plain transaction p:

    a1 b1 a2 b2     right: round after round
    a1 a2 b1 b2     right: a round may begin before the previous one has ended
    a1 p b1         right, unless a and b are nested
    b1 a1           graph order: b needs what a emits
    a2 a1           stream order: a transaction takes its batches in increasing order
    a1 a1  a1 a3    exactly once: a batch twice, a batch lost
    a1 p b1         nested isolation, where a and b are nested
    a1 b1-          all or nothing, where a and b are nested and only b aborted

The rules need only the graph's edges and groups, and the steps: no state, no engine. They do not check whether the
transactions computed the right rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Protocol

from tidegate.foundation.arguments import items, refusal, whole
from tidegate.foundation.errors import InputError
from tidegate.operations.outcomes import Step


class Named(Protocol):
    """A transaction, of which only the name is used."""

    @property
    def __name__(self) -> str: ...


class Graph(Protocol):
    """The graph that a history is checked against, for example a `tg.dataflow`."""

    @property
    def name(self) -> str:
        """The name that its steps carry in `Step.dataflow`."""

    @property
    def transactions(self) -> Sequence[Named]:
        """Its members."""

    @property
    def groups(self) -> Sequence[Sequence[str]]:
        """The names of the transactions that commit together, in order of execution."""

    @property
    def edges(self) -> Set[tuple[str, str]]:
        """Pairs of names: the first precedes the second in every round."""


def check_history(dataflow: Graph, steps: Sequence[Step], *, first_batch: int = 1) -> list[str]:
    """One sentence for each violation of the model, beginning with the broken rule; empty if there is none.

    Args:
        dataflow: the graph whose steps are checked.
        steps: the whole history, in order of execution; steps of plain transactions and of other dataflows matter
            if they lie between the members of a nested group.
        first_batch: the number of the first round, for a history that does not begin with the graph's first one.
    """
    if not all(hasattr(dataflow, name) for name in ("name", "transactions", "groups", "edges")):
        raise refusal("check_history", "a tg.dataflow(...) first", dataflow, InputError)
    found = items("check_history", steps, "the steps of a history, such as engine.history", InputError)
    for step in found:
        if not isinstance(step, Step):
            raise refusal("check_history", "steps of a history, such as those of engine.history", step, InputError)
    whole("check_history: first_batch", first_batch, least=0, error=InputError)
    return list(_History(dataflow, found, first_batch).violations())


class _History:
    """The steps of one dataflow by position in the whole history; repeated batches of a transaction are kept apart."""

    def __init__(self, dataflow: Graph, steps: Sequence[Step], first_batch: int) -> None:
        self.dataflow, self.steps, self.first_batch = dataflow, steps, first_batch
        self.group_of = {name: number for number, group in enumerate(dataflow.groups) for name in group}
        self.before = _closure({member.__name__ for member in dataflow.transactions}, dataflow.edges)
        self.positions: dict[tuple[int, str], int] = {}
        self.repeated: list[tuple[int, int]] = []
        self.unknown: list[int] = []
        for position, step in enumerate(steps):
            if step.dataflow != dataflow.name:
                continue
            if step.transaction not in self.group_of:
                self.unknown.append(position)
                continue
            earlier = self.positions.setdefault((step.batch, step.transaction), position)
            if earlier != position:
                self.repeated.append((earlier, position))

    def violations(self) -> Iterator[str]:
        """All violations, rule by rule."""
        yield from self.record()
        yield from self.graph_order()
        yield from self.stream_order()
        yield from self.exactly_once()
        yield from self.nested_isolation()
        yield from self.all_or_nothing()

    def record(self) -> Iterator[str]:
        """The record is consistent: steps belong to the graph and to their groups, have tuples, and are in sequence."""
        for position in self.unknown:
            yield f"record: {self.shown(position)} is not a transaction of the dataflow {self.dataflow.name!r}"
        for position in self.positions.values():
            step = self.steps[position]
            group = self.group_of[step.transaction]
            if step.group != group:
                yield f"record: {self.shown(position)} ran in group {step.group}, but belongs to group {group}"
            if step.tuples < 1:
                yield f"record: {self.shown(position)} ran on {step.tuples} tuples; without a tuple nothing runs"
        for position in range(1, len(self.steps)):
            earlier, later = self.steps[position - 1].sequence, self.steps[position].sequence
            if later <= earlier:
                yield f"record: step {later} stands behind step {earlier}; the sequence must increase"

    def graph_order(self) -> Iterator[str]:
        """In a round, a transaction runs after all that precede it in the graph."""
        for (batch, name), position in self.positions.items():
            for earlier in sorted(self.before[name]):
                other = self.positions.get((batch, earlier))
                if other is not None and other > position:
                    shown = f"{self.shown(position)} ran before {self.shown(other)}"
                    yield f"graph order: {shown}, which precedes it in the graph"

    def stream_order(self) -> Iterator[str]:
        """A transaction takes the batches of its stream in increasing order."""
        latest: dict[str, int] = {}
        for (batch, name), position in self.positions.items():
            other = latest.get(name)
            if other is not None and self.steps[other].batch > batch:
                yield f"stream order: {self.shown(position)} ran after {self.shown(other)}, a later batch"
            else:
                latest[name] = position

    def exactly_once(self) -> Iterator[str]:
        """A transaction takes no batch twice, and every batch entered the graph.

        Every round begins with a transaction that has no predecessor. If there are several of them, a round may
        begin with any.
        """
        for earlier, later in self.repeated:
            yield f"exactly once: {self.shown(later)} took a batch that {self.shown(earlier)} had taken already"
        entered = {batch for batch, name in self.positions if not self.before[name]}
        known = {batch for batch, _ in self.positions}
        borders = " or ".join(sorted(repr(name) for name, earlier in self.before.items() if not earlier))
        for batch in range(self.first_batch, max(known, default=self.first_batch - 1) + 1):
            if batch not in entered:
                yield f"exactly once: batch {batch} was never taken in by {borders}, though a later one was run"
        for batch in sorted(found for found in known if found < self.first_batch):
            yield f"exactly once: batch {batch} was run, but the first one is {self.first_batch}"

    def nested_isolation(self) -> Iterator[str]:
        """Between the first and the last member of a group in a round, nothing else runs."""
        for (batch, group), positions in self.by_group().items():
            inside = set(positions)
            for position in range(min(positions), max(positions) + 1):
                step = self.steps[position]
                again = step.dataflow == self.dataflow.name and (step.batch, self.group_of.get(step.transaction)) == (
                    batch,
                    group,
                )
                if position not in inside and not again:
                    members = ", ".join(repr(self.steps[p].transaction) for p in sorted(inside))
                    yield f"nested isolation: {self.shown(position)} ran between {members} of round {batch}"

    def all_or_nothing(self) -> Iterator[str]:
        """The members of a group agree on whether they committed."""
        for (batch, _), positions in self.by_group().items():
            committed = [p for p in sorted(positions) if self.steps[p].committed]
            aborted = [p for p in sorted(positions) if not self.steps[p].committed]
            if committed and aborted:
                yield (
                    f"all or nothing: in round {batch} {self.shown(committed[0])} committed and "
                    f"{self.shown(aborted[0])} aborted, though they are one group"
                )

    def by_group(self) -> dict[tuple[int, int], list[int]]:
        """The positions of each group's steps, by round."""
        found: dict[tuple[int, int], list[int]] = {}
        for (batch, name), position in self.positions.items():
            found.setdefault((batch, self.group_of[name]), []).append(position)
        return found

    def shown(self, position: int) -> str:
        """A step as the messages show it."""
        step = self.steps[position]
        what = f"{step.transaction!r} in round {step.batch}"
        if step.dataflow != self.dataflow.name:
            what = (
                f"{step.transaction!r} of dataflow {step.dataflow!r}"
                if step.dataflow
                else f"plain {step.transaction!r}"
            )
        return f"{what} (step {step.sequence})"


def _closure(names: set[str], edges: Set[tuple[str, str]]) -> dict[str, set[str]]:
    """The transitive closure: for each name all names that precede it."""
    before: dict[str, set[str]] = {name: set() for name in names}
    growing = True
    while growing:
        growing = False
        for first, second in edges:
            found = before[second] | before[first] | {first}
            growing = growing or found != before[second]
            before[second] = found
    return before
