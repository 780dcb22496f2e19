"""A table in memory against a dict: keys, slots, deletions, growth, and what a reused slot reads as.

The operations are those of a batch: keys are resolved to slots (which makes slots for new keys), some
rows are written, some deleted, and a sweep frees what does not exist.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tidegate.engine.kernels import index
from tidegate.engine.state.strings import StringPool
from tidegate.engine.state.table import TableState
from tidegate.operations.layout import Column, Kind, TableLayout

WORDS = st.one_of(st.integers(-20, 20), st.sampled_from([2**63 - 1, -(2**63), -1, 0]), st.integers(-(2**63), 2**63 - 1))
ACTIONS = st.sampled_from(["look", "write", "delete"])


def layout(parts: int) -> TableLayout:
    keys = tuple(Column(f"k{part}", Kind.INT, 0) for part in range(parts))
    return TableLayout("Table", (*keys, Column("value", Kind.INT, 7)), tuple(key.name for key in keys))


@pytest.mark.parametrize("parts", [1, 3])
@settings(max_examples=60, deadline=None, database=None)
@given(data=st.data())
def test_a_table_is_a_dict(parts: int, data: st.DataObject) -> None:
    table, model = TableState(layout(parts), StringPool()), {}
    key = st.tuples(*[WORDS] * parts)
    batches = data.draw(st.lists(st.lists(st.tuples(ACTIONS, key), max_size=60), max_size=6))
    for number, batch in enumerate(batches):
        slots = table.resolve(np.array([words for _, words in batch], np.int64).reshape(-1, parts))
        for (action, words), slot in zip(batch, slots, strict=True):
            assert table.columns["value"][slot] == model.get(words, 7)
            assert table.exists[slot] == (words in model)
            if action == "write":
                model[words] = table.columns["value"][slot] = number
                table.exists[slot] = True
            elif action == "delete":
                model.pop(words, None)
                table.columns["value"][slot] = 7
                table.exists[slot] = False
        table.sweep(slots)
        rows = table.rows(table.slots()).to_pylist()
        assert {tuple(row[f"k{part}"] for part in range(parts)): row["value"] for row in rows} == model
        assert len(rows) == len(model)


def test_keys_that_fall_into_one_bucket_survive_each_others_removal() -> None:
    """Every key below has the same last bits after mixing; removal must close the gap in the run."""
    mask = 31
    wanted = [word for word in range(20_000) if int(index.scramble(word)) & mask in (29, 30, 31, 0)][:11]
    for gone in range(len(wanted)):
        table = TableState(layout(1), StringPool())
        slots = table.resolve(np.array(wanted, np.int64).reshape(-1, 1))
        table.exists[slots] = True
        table.exists[slots[gone]] = False
        table.sweep(slots)
        found = table.find(np.array(wanted, np.int64).reshape(-1, 1))
        assert [int(slot) for slot in found] == [-1 if n == gone else int(slots[n]) for n in range(len(wanted))]


def test_keys_that_are_only_looked_at_leave_no_trace() -> None:
    """A stream that asks for ever new absent keys must not fill the memory."""

    @tg.table(key="id")
    class Account:
        id: int
        name: str = "x"

    @tg.transaction
    def look(src: Account, dst: Account) -> bool:
        tg.require(src.exists or dst.id % 2 == 0, "absent")
        return dst.exists

    @tg.transaction
    def open_and_close(src: Account) -> None:
        src.name = "y"
        tg.delete(src)

    engine: Any = tg.Engine([look, open_and_close])
    for batch in range(50):
        keys = np.arange(batch * 100, batch * 100 + 100)
        names = ["look", "open_and_close"] * 50
        engine.run(pa.table({"transaction": names, "src": keys, "dst": keys + 10**6}))
    table = engine._core.tables["Account"]
    assert engine.scan(Account).num_rows == 0
    assert len(table.exists) <= 512


def test_rows_keep_their_values_while_the_table_grows() -> None:
    table = TableState(layout(2), StringPool())
    words = np.stack([np.arange(5000), -np.arange(5000)], axis=1)
    for start in range(0, 5000, 250):
        slots = table.resolve(np.ascontiguousarray(words[start : start + 250]))
        table.columns["value"][slots] = words[start : start + 250, 0] * 3
        table.exists[slots] = True
        table.sweep(slots)
    found = table.find(words)
    assert (found >= 0).all()
    assert (table.columns["value"][found] == words[:, 0] * 3).all()
