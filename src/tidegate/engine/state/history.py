"""Earlier states of a table's rows, as long as some transaction may ask for them.

    ring     time  slot  exists  columns  before      one entry for each state, in the order of commits
    heads    slot -> its newest state                  `before` leads to the one before, and so on

States are numbered from 0 as they come; number n lies at n % capacity, and links are numbers plus one, so that 0 is
none. Those below `first` are forgotten: their time is not above the latest time minus what is kept. A row that was
deleted keeps its slot as long as it has a state (`pinned`), because the slot stands for its key.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.engine.state.table import TableState
from tidegate.operations.flow import HISTORY_FIRST, HISTORY_LATEST, HISTORY_NEXT
from tidegate.operations.layout import Kind

Array = npt.NDArray[Any]
SMALLEST = 64
LONG_AGO = -(1 << 63)


class History:
    """The earlier states of one table's rows; `keep` units of time are kept."""

    def __init__(self, table: TableState, keep: int) -> None:
        self.table, self.keep = table, keep
        self.state = np.array([0, 0, LONG_AGO], np.int64)
        self._heads, self._last_entry = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._waiting = np.empty(0, np.int64)  # slots of rows that are gone but had states when last looked at
        self._allocate(SMALLEST)
        table.pins = self.pinned

    def _allocate(self, size: int) -> None:
        self.before, self.time, self.slots = (np.zeros(size, np.int64) for _ in range(3))
        self.exists = np.zeros(size, np.bool_)
        kinds = self.table.layout.value_columns
        self.columns = {column.name: np.zeros(size, column.kind.dtype) for column in kinds}

    def grow(self) -> None:
        """Twice the room."""
        numbers = np.arange(self.state[HISTORY_FIRST], self.state[HISTORY_NEXT])
        old = (self.before, self.time, self.slots, self.exists, self.columns)
        size = len(self.time)
        self._allocate(2 * size)
        now, then = numbers & (2 * size - 1), numbers & (size - 1)
        for new_array, old_array in zip((self.before, self.time, self.slots, self.exists), old[:4], strict=True):
            new_array[now] = old_array[then]
        for name, column in self.columns.items():
            column[now] = old[4][name][then]

    @property
    def heads(self) -> Array:
        """Per slot of the table: the link to its newest state."""
        self._follow()
        return self._heads

    @property
    def last_entry(self) -> Array:
        """Per slot: 0, but for the time in which generated code goes through a journal."""
        self._follow()
        return self._last_entry

    def _follow(self) -> None:
        more = len(self.table.exists) - len(self._heads)
        if more > 0:
            self._heads = np.concatenate([self._heads, np.zeros(more, np.int64)])
            self._last_entry = np.concatenate([self._last_entry, np.zeros(more, np.int64)])

    def pinned(self, slots: Array) -> Array:
        """Which slots have states, so that they must stay even if their row does not exist."""
        return np.asarray(self.heads[slots] > self.state[HISTORY_FIRST])

    def sweep(self, touched: Array) -> None:
        """Free the slots of rows that are gone and whose states are forgotten by now."""
        gone = np.concatenate([self._waiting, touched])
        gone = np.unique(gone[~self.table.exists[gone]])
        kept = self.pinned(gone)
        self._waiting = gone[kept]
        self.table.sweep(gone[~kept])

    def string_numbers(self) -> list[Array]:
        """The numbers of all strings that states hold."""
        places = self._places()
        return [column[places] for column in self._string_columns()]

    def renumber(self, numbers: Array) -> None:
        """String number n is number `numbers[n]` from now on."""
        places = self._places()
        for column in self._string_columns():
            column[places] = numbers[column[places]]

    def _places(self) -> Array:
        """Where the states lie that are not forgotten."""
        return np.arange(self.state[HISTORY_FIRST], self.state[HISTORY_NEXT]) & (len(self.time) - 1)

    def _string_columns(self) -> list[Array]:
        kinds = self.table.layout.value_columns
        return [self.columns[column.name] for column in kinds if column.kind is Kind.STR]

    def add(self, slot: int, time: int) -> None:
        """Note the state that a row has now."""
        if self.state[HISTORY_NEXT] - self.state[HISTORY_FIRST] >= len(self.time):
            self.grow()
        place = int(self.state[HISTORY_NEXT]) & (len(self.time) - 1)
        self.before[place], self.time[place], self.slots[place] = self.heads[slot], time, slot
        self.exists[place] = self.table.exists[slot]
        for name, column in self.columns.items():
            column[place] = self.table.columns[name][slot]
        self.state[HISTORY_NEXT] += 1
        self.heads[slot] = self.state[HISTORY_NEXT]
        self.state[HISTORY_LATEST] = max(int(self.state[HISTORY_LATEST]), time)
        self.forget()

    def forget(self) -> None:
        """Forget the states that are too old to be asked for."""
        while self.state[HISTORY_FIRST] < self.state[HISTORY_NEXT]:
            place = int(self.state[HISTORY_FIRST]) & (len(self.time) - 1)
            if not self._is_forgotten(place):
                return
            self.state[HISTORY_FIRST] += 1

    def _is_forgotten(self, place: int) -> bool:
        return int(self.time[place]) + self.keep <= int(self.state[HISTORY_LATEST])

    def of(self, slot: int, now: int, last: int) -> list[int]:
        """Where the states of a row lie that one may ask for, the newest first."""
        found, link = [], int(self.heads[slot])
        while link > self.state[HISTORY_FIRST]:
            place = (link - 1) & (len(self.time) - 1)
            link = int(self.before[place])
            if now - last < int(self.time[place]) <= now and not self._is_forgotten(place):
                found.append(place)
        return found

    def restore(
        self, first: int, slots: Array, times: Array, exists: Array, columns: dict[str, Array], latest: int
    ) -> None:
        """Become what was kept: the states from number `first` on."""
        self.state[:] = (first, first, latest)
        self.heads[:] = 0
        while len(self.time) <= len(slots):
            self._allocate(2 * len(self.time))
        for number in range(len(slots)):
            place = (first + number) & (len(self.time) - 1)
            slot = int(slots[number])
            self.before[place], self.time[place], self.slots[place] = self.heads[slot], times[number], slot
            self.exists[place] = exists[number]
            for name, column in self.columns.items():
                column[place] = columns[name][number]
            self.heads[slot] = first + number + 1
        self.state[HISTORY_NEXT] = first + len(slots)
        gone = np.unique(slots)
        self._waiting = gone[~self.table.exists[gone]]
