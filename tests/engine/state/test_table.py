"""A table against a dict: any sequence of loads, look-ups, deletions and growth."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.engine.state.strings import StringPool
from tidegate.engine.state.table import TableState
from tidegate.operations.layout import Column, Kind, TableLayout

ONE = TableLayout("One", (Column("id", Kind.INT, 0), Column("n", Kind.INT, 9)), ("id",))
TWO = TableLayout("Two", (Column("a", Kind.INT, 0), Column("n", Kind.INT, 9), Column("b", Kind.INT, 0)), ("a", "b"))

keys = st.one_of(st.integers(-3, 12), st.sampled_from([2**63 - 1, -(2**63), 2**62, 1 << 40, 3 << 40, 5 << 40]))
steps = st.lists(st.tuples(st.sampled_from(["write", "read", "delete"]), st.lists(keys, max_size=30)), max_size=12)


@settings(max_examples=150, deadline=None)
@given(steps, st.booleans())
def test_a_table_behaves_as_a_dict(steps: list[tuple[str, list[int]]], composite: bool) -> None:
    table = TableState(TWO if composite else ONE, StringPool())
    model: dict[tuple[int, ...], int] = {}
    for number, (action, wanted) in enumerate(steps):
        words = np.array([(key, key % 3) if composite else (key,) for key in wanted], np.int64)
        words = words.reshape(len(wanted), 2 if composite else 1)
        slots = table.resolve(words)
        found = [tuple(map(int, row)) for row in words]
        assert [int(v) for v in table.columns["n"][slots]] == [model.get(key, 9) for key in found]
        assert table.exists[slots].tolist() == [key in model for key in found]
        if action == "write":
            table.store(slots, {"n": np.full(len(slots), number)}, True)
            model.update(dict.fromkeys(found, number))
        if action == "delete":
            table.store(slots, {}, False)
            for key in found:
                model.pop(key, None)
        table.sweep(slots)
        assert (table.find(words) >= 0).tolist() == [key in model for key in found]
    assert as_dict(table) == model and table.count == len(model)
    assert not table.marks.any() and len(table.fresh) == 0


def as_dict(table: TableState) -> dict[tuple[int, ...], int]:
    rows: list[dict[str, Any]] = table.rows(table.slots()).to_pylist()
    return {tuple(row[name] for name in table.layout.key): row["n"] for row in rows}


def test_looking_at_absent_rows_leaves_no_trace() -> None:
    table = TableState(ONE, StringPool())
    for start in range(0, 100_000, 1000):
        table.resolve(np.arange(start, start + 1000).reshape(-1, 1))
        table.sweep(np.empty(0, np.int64))
    assert len(table.slots()) == 0
    assert len(table.exists) <= 4096


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(-40, 4000), st.booleans()), max_size=1500), st.integers(0, 1500))
def test_keys_of_events_get_the_slots_that_they_would_get_one_by_one(
    events: list[tuple[int, bool]], known: int
) -> None:
    """In blocks, with keys that collide, that are new, that repeat, and with tables that grow in between."""
    wanted = np.array([key for key, _ in events], np.int64).reshape(-1, 1)
    kinds = np.array([0 if needed else -1 for _, needed in events], np.int16)
    status, needed = np.zeros(len(events), np.int32), np.array([True, False])
    one_by_one, together = TableState(ONE, StringPool()), TableState(ONE, StringPool())
    for table in (one_by_one, together):
        table.resolve(np.arange(known).reshape(-1, 1))
    expected = np.where(kinds == 0, 0, -1)
    for row in np.flatnonzero(kinds == 0):
        expected[row] = one_by_one.resolve(wanted[row : row + 1])[0]
    found = together.resolve_events(wanted, (kinds, status, needed))
    assert found[kinds == 0].tolist() == expected[kinds == 0].tolist()
    assert together.count == one_by_one.count
