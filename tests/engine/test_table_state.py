"""Traps of a table in memory that random comparison with a dict would rarely find."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

import tidegate as tg
from tidegate.engine.kernels import index
from tidegate.engine.state.strings import StringPool
from tidegate.engine.state.table import TableState
from tidegate.operations.layout import Column, Kind, TableLayout

LAYOUT = TableLayout("Table", (Column("id", Kind.INT, 0), Column("value", Kind.INT, 7)), ("id",))


def test_keys_that_fall_into_one_bucket_survive_each_others_removal() -> None:
    """Every key below has the same last bits after mixing; removal must close the gap in the run."""
    mask = 31
    wanted = [word for word in range(20_000) if int(index.scramble(word)) & mask in (29, 30, 31, 0)][:11]
    for gone in range(len(wanted)):
        table = TableState(LAYOUT, StringPool())
        slots = table.resolve(np.array(wanted, np.int64).reshape(-1, 1))
        table.exists[slots] = True
        table.exists[slots[gone]] = False
        table.sweep(slots)
        found = table.find(np.array(wanted, np.int64).reshape(-1, 1))
        assert [int(slot) for slot in found] == [-1 if n == gone else int(slots[n]) for n in range(len(wanted))]


def test_a_deleted_row_whose_key_got_a_slot_again_without_being_written_is_still_noted() -> None:
    """Such as a row that is looked at after it was deleted, where something else keeps its slot."""
    table, key = TableState(LAYOUT, StringPool()), np.array([[3]])
    slots = table.resolve(key)
    table.keep_fresh()
    table.exists[slots] = True
    table.note(slots)
    table.exists[slots] = False
    table.sweep(slots)  # its slot is free now
    table.pins = lambda slots: np.ones(len(slots), np.bool_)
    table.resolve(key)
    table.sweep(np.empty(0, np.int64))
    found, gone = table.take_noted()
    assert table.keys[found].tolist() == [[3]] and not table.exists[found].any() and len(gone) == 0
    assert [len(part) for part in table.take_noted()] == [0, 0]


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
