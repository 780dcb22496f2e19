"""One table in memory: an array per field, an index over the keys.

    slot      0     1     2     3          a row keeps its slot for as long as it exists
    exists    T     T     F     T
    keys      17    -4    9     ...        one 64-bit word per key field
    balance   100   0     0     ...        one array per other field

A slot that does not exist reads as the defaults: its arrays hold them. A key that transactions only
look at gets such a slot for the time of its batch (`fresh`); `sweep` frees it again. Arrays grow by
doubling; nothing ever costs time in proportion to the table except growing it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.engine.kernels.index import (
    COUNT,
    FREE,
    FRESH,
    NEXT,
    find_all,
    list_slots,
    rebuild,
    remove_absent,
    resolve_all,
    resolve_events,
    resolve_lists,
)
from tidegate.engine.state.columns import value_column
from tidegate.engine.state.deadlines import Deadlines
from tidegate.engine.state.strings import StringPool
from tidegate.engine.state.touched import Touched
from tidegate.operations.layout import Column, Kind, TableLayout
from tidegate.operations.values import none_word

Array = npt.NDArray[Any]
SMALLEST = 16
BLOCK_ROWS = 1024  # 8 KiB: stays in the first-level cache


class TableState:
    """The rows of one table."""

    def __init__(self, layout: TableLayout, strings: StringPool) -> None:
        self.layout = layout
        self.pins: Callable[[Array], Array] | None = None  # which slots must stay though their row does not exist
        self._use(strings)
        self.clear()

    def _use(self, strings: StringPool) -> None:
        self.strings = strings
        self.defaults = {column.name: default_word(column, strings) for column in self.layout.value_columns}

    def clear(self) -> None:
        """Forget all rows."""
        self._entries = np.full(4 * SMALLEST, -1, np.int64)
        self.keys = np.zeros((SMALLEST, len(self.layout.key)), np.int64)
        self.exists = np.zeros(SMALLEST, np.bool_)
        self.columns = {
            column.name: np.full(SMALLEST, self.defaults[column.name], column.kind.dtype)
            for column in self.layout.value_columns
        }
        self._counters = np.zeros(4, np.int64)
        self._free = np.zeros(SMALLEST, np.int64)
        self._fresh = np.zeros(SMALLEST, np.int64)
        self._marks = np.zeros(SMALLEST, np.bool_)
        self._noted = np.zeros(SMALLEST, np.bool_)
        self.touched = Touched(len(self.layout.key))
        self.deadlines = Deadlines(self.layout.by_kind) if self.layout.expires else None

    @property
    def float_keys(self) -> Array:
        """The keys as floats."""
        return self.keys.view(np.float64)

    @property
    def marks(self) -> Array:
        """One flag per slot for passes over the rows; false between passes."""
        return self._marks

    @property
    def fresh(self) -> Array:
        """The slots made since the last sweep."""
        return self._fresh[: self._counters[FRESH]]

    @property
    def count(self) -> int:
        """How many keys have a slot."""
        return int(self._counters[COUNT])

    # --- keys to slots ----------------------------------------------------------------------------

    @property
    def index(self) -> tuple[Array, ...]:
        """What kernels need to find and add keys."""
        return self._index

    def make_room(self) -> None:
        """Make room for one key at least; slots stay as they are."""
        self._grow(1)

    @property
    def _index(self) -> tuple[Array, ...]:
        return (self._entries, self.keys, self._counters, self._free, self._fresh)

    def resolve(self, words: Array) -> Array:
        """The slots of keys; new keys get a slot."""
        slots = np.empty(len(words), np.int64)
        self.resolve_into(words, slots)
        return slots

    def resolve_into(self, words: Array, slots_out: Array) -> None:
        """The same into an array that is there."""
        position = 0
        while (position := resolve_all(self._index, words, position, slots_out)) < len(words):
            self._grow(len(words) - position)

    def resolve_events(self, words: Array, events: tuple[Array, Array, Array]) -> Array:
        """The slots of a key column, for the events whose transaction needs it."""
        slots = np.zeros(len(words), np.int64)
        block = np.empty(BLOCK_ROWS, np.int64)
        position = 0
        while (position := resolve_events(self._index, words, position, events, block, slots)) < len(words):
            self._grow(1)
        return slots

    def resolve_lists(self, words: Array, events: tuple[Array, Array, Array], offsets: Array) -> Array:
        """The slots of a column of key lists, flat."""
        slots = np.zeros(len(words), np.int64)
        position = 0
        while (position := resolve_lists(self._index, words, position, events, offsets, slots)) < len(events[0]):
            self._grow(1)
        return slots

    def find(self, words: Array) -> Array:
        """The slots of keys, -1 for those that are not there."""
        slots = np.empty(len(words), np.int64)
        find_all(self._index, words, slots)
        return slots

    def slots(self) -> Array:
        """The slots of all rows that exist, in no particular order."""
        found = self._known()
        return found[self.exists[found]]

    def _known(self) -> Array:
        """The slots of all keys, also those whose row does not exist and that must stay (`pins`)."""
        found = np.empty(int(self._counters[COUNT]), np.int64)
        return found[: list_slots(self._entries, found)]

    def sweep(self, touched: Array) -> None:
        """Free the slots of rows that do not exist: deleted ones, and those that were only looked at."""
        for slots in (touched, self.fresh):
            absent = slots[~self.exists[slots]]
            if self.pins is not None:
                absent = absent[~self.pins(absent)]
            needed = int(self._counters[FREE]) + len(absent)
            if needed > len(self._free):
                self._free = _extended(self._free, max(2 * len(self._free), needed), 0)
            if len(noted := absent[self._noted[absent]]):
                self.touched.add_gone(self.keys[noted])
                self._noted[noted] = False  # the next key in this slot is another row
            remove_absent(self._index, self.exists, absent)
        self._counters[FRESH] = 0

    # --- rows that were written -----------------------------------------------------------------------

    @property
    def noted(self) -> Array:
        """A mark for each slot that is noted as written; to set one is to add the slot to `touched`."""
        return self._noted

    def note(self, slots: Array) -> None:
        """The rows in these slots were written; no slot stands there twice."""
        new = slots[~self._noted[slots]]
        self._noted[new] = True
        self.touched.add(new)
        self.touched.reduce(self._noted)

    def note_keys(self, keys: Array) -> None:
        """The rows with these keys were written, or are gone; no key stands there twice."""
        slots = self.find(keys)
        self.note(slots[slots >= 0])
        if len(gone := keys[slots < 0]):
            self.touched.add_gone(gone)

    def take_noted(self) -> tuple[Array, Array]:
        """The slots of the rows written since the last call, and the keys of those that are gone."""
        gone = self.touched.gone_keys()
        found = self.find(gone)
        self.note(found[found >= 0])  # of a row that has a slot again, the slot says what became of it
        return self.touched.take(self._noted), gone[found < 0]

    def keep_fresh(self) -> None:
        """Keep the slots made since the last sweep: their rows are about to be written."""
        self._counters[FRESH] = 0

    def reserve(self, rows: int) -> None:
        """Make room for this many more rows at once."""
        self._grow_rows(rows)

    def _grow(self, more: int) -> None:
        if self._counters[FRESH] + more > len(self._fresh):
            size = max(2 * len(self._fresh), int(self._counters[FRESH]) + more)
            self._fresh = _extended(self._fresh, size, 0)
        self._grow_rows(more)

    def _grow_rows(self, more: int) -> None:
        counters = self._counters
        capacity = len(self.exists)
        if counters[NEXT] - counters[FREE] + more > capacity:
            self._extend(max(2 * capacity, int(counters[NEXT]) + more))
        buckets = len(self._entries) // 2
        if 4 * (counters[COUNT] + more) > 3 * buckets:
            while 4 * (counters[COUNT] + more) > 3 * buckets:
                buckets *= 2
            self._reindex(buckets)

    def _extend(self, capacity: int) -> None:
        self.keys = _extended(self.keys, capacity, 0)
        self.exists = _extended(self.exists, capacity, False)
        self._marks = _extended(self._marks, capacity, False)
        self._noted = _extended(self._noted, capacity, False)
        for name, column in self.columns.items():
            self.columns[name] = _extended(column, capacity, self.defaults[name])

    # --- versions: rows that live for the time of a batch ------------------------------------------

    def lend(self, rows: int) -> int:
        """Slots behind those in use, for the versions of a batch; returns the first. No key may be new until
        they are given back.
        """
        first = int(self._counters[NEXT])
        if first + rows > len(self.exists):
            self._extend(max(first + rows, len(self.exists) * 5 // 4))
        return first

    def give_back(self, rows: int) -> None:
        """Make the slots that were lent read as the defaults again."""
        lent = slice(int(self._counters[NEXT]), int(self._counters[NEXT]) + rows)
        self.exists[lent] = False
        for name, column in self.columns.items():
            column[lent] = self.defaults[name]

    def _reindex(self, buckets: int) -> None:
        slots = np.empty(int(self._counters[COUNT]), np.int64)
        list_slots(self._entries, slots)
        self._entries = np.full(2 * buckets, -1, np.int64)
        rebuild((self._entries, self.keys, self._counters, self._free, slots))

    # --- strings ---

    def string_numbers(self) -> list[Array]:
        """The numbers of all strings that rows and keys hold."""
        slots, known = self.slots(), self._known()
        found = [self.columns[c.name][slots] for c in self.layout.value_columns if c.kind is Kind.STR]
        keys = enumerate(self.layout.key_columns)
        return found + [self.keys[known, position] for position, key in keys if key.kind is Kind.STR]

    def renumber(self, strings: StringPool, numbers: Array) -> None:
        """Use another pool: string number n is number `numbers[n]` there. No slot may be fresh."""
        self._use(strings)
        slots = self.slots()
        for column in self.layout.value_columns:
            if column.kind is Kind.STR:
                held = self.columns[column.name][slots]
                self.columns[column.name][:] = self.defaults[column.name]
                self.columns[column.name][slots] = numbers[held]
        positions = [n for n, key in enumerate(self.layout.key_columns) if key.kind is Kind.STR]
        known = self._known()
        for position in positions:
            self.keys[known, position] = numbers[self.keys[known, position]]
        if positions:
            self._reindex(len(self._entries) // 2)

    # --- rows in and out -----------------------------------------------------------------------------

    def store(self, slots: Array, rows: dict[str, Array], exists: Array | bool) -> None:
        """Write whole rows: the columns named in `rows`, defaults elsewhere."""
        for name, column in self.columns.items():
            column[slots] = rows.get(name, self.defaults[name])
        self.exists[slots] = exists
        if self.deadlines is not None:
            self.add_deadlines(slots)

    # --- rows that expire -------------------------------------------------------------------------------

    def times(self, slots: Array) -> Array:
        """The times by which the rows in these slots expire."""
        by, key = self.layout.by, self.layout.key
        if by not in key:
            return self.columns[by][slots]
        keys = self.float_keys if self.layout.by_kind is Kind.FLOAT else self.keys
        return np.ascontiguousarray(keys[slots, key.index(by)])

    def add_deadlines(self, slots: Array) -> None:
        """The rows in these slots were written: those that exist may expire at other times now."""
        assert self.deadlines is not None
        slots = slots[self.exists[slots]]
        self.deadlines.add(slots, self.times(slots), len(self.exists))

    def rows(self, slots: Array) -> pa.Table:
        """The rows in some slots as Arrow, columns in declared order."""
        found = []
        for column in self.layout.columns:
            if column.name in self.layout.key:
                words = self.keys[slots, self.layout.key.index(column.name)]
                values = words.view(np.float64) if column.kind is Kind.FLOAT else words
                values = values != 0 if column.kind is Kind.BOOL else values
            else:
                values = self.columns[column.name][slots]
            found.append(value_column(values, column.type, self.strings))
        return pa.Table.from_arrays(found, schema=self.layout.arrow_schema)


def default_word(column: Column, strings: StringPool) -> Any:
    """What an absent row holds in a column."""
    if column.default is None:
        return none_word(column.kind)
    return strings.number(str(column.default)) if column.kind is Kind.STR else column.default


def _extended(array: Array, size: int, fill: Any) -> Array:
    larger = np.full((size, *array.shape[1:]), fill, array.dtype)
    larger[: len(array)] = array
    return larger
