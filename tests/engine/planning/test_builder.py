"""The graph of a batch against one that plain Python makes of the same events, row by row and link by link."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidegate.engine.kernels.graph import measure
from tidegate.engine.planning import builder
from tidegate.operations.plan import ProgramPlan, RowParameter
from tidegate.workloads.streaming_ledger import LedgerSettings, StreamingLedger

from ...accounts import deposit, transfer
from ..example_graphs import SHAPES, Built, built, pledge, random_events, random_program, spend, swap, total

Row = tuple[str, int]


@dataclass(slots=True)
class NaiveAccess:
    """One row that an operation touches; `first` is the first access of the same row in the same operation."""

    operation: int
    transaction: int
    row: Row
    write: bool
    first: int = -1
    link: int = -1
    readers: set[int] = field(default_factory=set)


@dataclass(slots=True)
class NaiveGraph:
    """What the engine's arrays must say."""

    events: list[int] = field(default_factory=list)
    operations: list[tuple[int, int]] = field(default_factory=list)  # transaction, kind
    accesses: list[NaiveAccess] = field(default_factory=list)


def keys_of(event: dict[str, Any], parameter: RowParameter) -> list[Row]:
    found = event[parameter.name] if parameter.many else [event[parameter.name]]
    return [(parameter.table.name, key) for key in found]


def may_alias(rows: list[RowParameter], event: dict[str, Any]) -> bool:
    """Whether two parameters can be the same row; a list may hold any row of its table."""
    for number, one in enumerate(rows):
        for other in rows[:number]:
            if one.table.name == other.table.name and (one.many or other.many or event[one.name] == event[other.name]):
                return True
    return False


def naive_graph(plan: ProgramPlan, events: list[dict[str, Any]], split: bool) -> NaiveGraph:
    """All transactions of the events, in their order; an event without a name does not take part."""
    graph = NaiveGraph()
    for number, event in enumerate(events):
        if event["transaction"] is None:
            continue
        kind = plan.names.index(event["transaction"])
        rows = [p for p in plan.transactions[kind].parameters if isinstance(p, RowParameter)]
        parts = plan.slices[kind] if split and not may_alias(rows, event) else ()
        for part in parts or (kind,):
            shape = plan.operations[part]
            for parameter in rows:
                if parameter.name in shape.rows:
                    graph.accesses += [
                        NaiveAccess(len(graph.operations), len(graph.events), row, parameter.name in shape.writes)
                        for row in keys_of(event, parameter)
                    ]
            graph.operations.append((len(graph.events), part))
        graph.events.append(number)
    link_naively(graph.accesses)
    return graph


def link_naively(accesses: list[NaiveAccess]) -> None:
    """Look back from every access, as far as it takes."""
    for number, access in enumerate(accesses):
        same = [n for n in range(number + 1) if accesses[n].row == access.row]
        access.first = next(n for n in same if accesses[n].operation == access.operation)
        if access.first != number:
            accesses[access.first].write |= access.write
    for number, access in enumerate(accesses):
        if access.first != number:
            continue
        for before in range(number - 1, -1, -1):
            candidate = accesses[before]
            older = candidate.transaction < access.transaction and candidate.first == before
            if older and candidate.write and candidate.row == access.row:
                access.link = before
                candidate.readers.add(number)
                break


def readers_of(graph: Any, access: int) -> list[int]:
    found = []
    reader = graph.reader_first[access]
    while reader >= 0:
        found.append(int(reader))
        reader = graph.reader_next[reader]
    return found


def rows_in(found: Built, tables: Any, slots: Any) -> list[Row]:
    names = [layout.name for layout in found.core.plan.tables]
    states = [found.core.tables[name] for name in names]
    return [(names[t], int(states[t].keys[s, 0])) for t, s in zip(tables, slots, strict=True)]


def check_graph(found: Built, start: int, split: bool) -> None:
    graph = found.plan.graph
    events = found.events.to_pylist()
    expected = naive_graph(found.core.plan, [events[position] for position in found.order[start:]], split)
    assert graph.event.tolist() == [found.order[start + number] for number in expected.events]
    assert list(zip(graph.transaction.tolist(), graph.kind.tolist(), strict=True)) == expected.operations
    firsts = np.searchsorted([transaction for transaction, _ in expected.operations], range(len(expected.events) + 1))
    assert graph.operation_first.tolist() == firsts.tolist()
    accesses = expected.accesses
    assert graph.operation.tolist() == [access.operation for access in accesses]
    counts = np.searchsorted(graph.operation, np.arange(len(expected.operations) + 1))
    assert graph.access_first.tolist() == counts.tolist()
    assert rows_in(found, graph.table, graph.slot) == [access.row for access in accesses]
    assert graph.alias.tolist() == [access.first for access in accesses]
    roots = [number for number, access in enumerate(accesses) if access.first == number]
    assert [bool(graph.write[n]) for n in roots] == [accesses[n].write for n in roots]
    assert [int(graph.link[n]) for n in roots] == [accesses[n].link for n in roots]
    for number in roots:
        listed = readers_of(graph, number)
        assert len(listed) == len(set(listed)) and set(listed) == accesses[number].readers
    check_versions(found, [number for number in roots if accesses[number].write])


def check_versions(found: Built, writes: list[int]) -> None:
    """Every write has a slot of its own that no row of the state has."""
    graph = found.plan.graph
    for number, layout in enumerate(found.core.plan.tables):
        own = [int(graph.version[n]) for n in writes if graph.table[n] == number]
        assert len(own) == len(set(own)) <= found.plan.versions[layout.name]
        taken = found.core.tables[layout.name].slots()
        rows = {int(slot) for slot, table in zip(graph.slot, graph.table, strict=True) if table == number}
        assert not set(own) & (rows | set(taken.tolist()))
        assert max(own, default=0) < len(found.core.tables[layout.name].exists)


def check_marks(found: Built) -> None:
    marks = (found.builder.latest, found.builder.latest_write, found.builder.group_of_row)
    assert all(np.all(mark == -1) for mark in marks)
    for layout in found.core.plan.tables:
        table = found.core.tables[layout.name]
        absent = ~table.exists
        assert all(np.all(column[absent] == table.defaults[name]) for name, column in table.columns.items())


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("split", [True, False], ids=["split", "whole"])
@pytest.mark.parametrize("seed", range(8))
def test_random_batches_give_the_naive_graph(
    seed: int, split: bool, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "PARALLEL_EVENTS", 4)
    rng = np.random.default_rng(1000 + seed)
    program = random_program(rng)
    for keys in (1, 3, 40):
        count = int(rng.integers(1, 90))
        events = random_events(rng, program, count, keys)
        order, start = rng.permutation(count), int(rng.integers(0, count))
        with built(program, events, workers, split, order, start) as found:
            check_graph(found, start, split)
        check_marks(found)


@pytest.mark.parametrize("workers", [2, 3])
def test_rows_of_many_partitions_keep_the_order_of_time(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough keys that every worker links some, enough events that every row is met by every worker."""
    monkeypatch.setattr(builder, "PARALLEL_EVENTS", 4)
    rng = np.random.default_rng(5)
    events = random_events(rng, SHAPES, 500, 150)
    with built(SHAPES, events, workers) as found:
        check_graph(found, 0, True)
    check_marks(found)


def test_the_program_of_these_tests_has_every_kind_of_operation() -> None:
    events = random_events(np.random.default_rng(3), SHAPES, 300, 6)
    with built(SHAPES, events) as found:
        plan, graph = found.core.plan, found.plan.graph
        assert len(plan.slices[SHAPES.index(transfer)]) == 2 and len(plan.slices[SHAPES.index(swap)]) == 4
        assert len(plan.slices[SHAPES.index(pledge)]) == 2
        assert not plan.slices[SHAPES.index(deposit)] and not plan.slices[SHAPES.index(total)]
        never_whole = {SHAPES.index(pledge), SHAPES.index(spend)}  # rows of two tables: none can be an alias
        assert set(graph.kind.tolist()) == set(range(len(plan.operations))) - never_whole
        assert np.any(graph.alias != np.arange(len(graph.alias)))
        assert np.any(np.diff(graph.access_first) == 0)  # an empty list
        first, second = (plan.operations[kind] for kind in plan.slices[SHAPES.index(spend)])
        assert set(first.writes) & set(second.rows)  # what one operation writes, a later one of the same event reads
        assert found.plan.transactions < len(events)  # some were refused


def test_an_empty_batch_and_one_of_refused_events_have_empty_graphs() -> None:
    events = random_events(np.random.default_rng(0), [deposit, transfer], 20, 3)
    nameless = events.set_column(0, "transaction", pa.nulls(20, pa.string()))
    for batch in (events.slice(0, 0), nameless):
        with built([deposit, transfer], batch, workers=2) as found:
            assert found.plan.transactions == found.plan.operations == len(found.plan.graph.slot) == 0
            assert measure(found.plan.graph, np.empty(0, np.int32)) == (0, 0, 0, 0, 0)


def test_dependencies_are_counted_by_kind() -> None:
    """Two deposits to A, and then a transfer from A to B: one operation that writes B looks at nobody's version."""
    events = pa.table(
        {
            "transaction": ["deposit", "deposit", "transfer", "deposit"],
            "src": [1, 1, 1, 1],
            "dst": [1, 1, 2, 2],
            "value": [1, 1, 1, 1],
        }
    )
    with built([deposit, transfer], events) as found:
        graph = found.plan.graph
        measured = measure(graph, np.empty(len(graph.slot), np.int32))
    # writes: A A, A B, B; after another: A, A, B; the two operations of the transfer; A three times
    assert measured == (5, 3, 0, 1, 3)


def test_a_ledger_batch_takes_at_most_200_bytes_per_operation() -> None:
    workload = StreamingLedger(LedgerSettings(keys=1000, batch_events=5000))
    with built(list(workload.program), workload.batch(0)) as found:
        assert found.plan.operations >= 10_000
        assert found.plan.size <= 200 * found.plan.operations
