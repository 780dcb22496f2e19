"""The rows of a table that were written since they were last collected.

A row is noted by its slot. A row that was deleted has lost its slot, and is noted by its key:

    slots    7  9  |  2  4  9          9 was freed in between, and another row got it
    gone     key 31                    the one that had it before

Noting a row takes constant time, however many were noted before: slots are appended to a list of arrays of fixed size,
so nothing is copied or sorted. The table marks the slots that it has noted, so each is added once; only a slot that was
freed and used again can occur twice. The keys of deleted rows may repeat, too; duplicates are removed whenever their
number has doubled.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.engine.kernels.events import take_marked

Array = npt.NDArray[Any]
SMALLEST, LARGEST = 64, 1 << 16
"""How many slots an array has room for, the first one and at most."""


class Touched:
    """The written rows of one table; a key is a row of `width` words."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._forget()

    def _forget(self) -> None:
        self._full: list[Array] = []
        self._last = np.empty(SMALLEST, np.int64)
        self._count = self._slots = 0
        self._gone = np.empty((0, self._width), np.int64)
        self._gone_count = 0

    def __bool__(self) -> bool:
        return bool(self._slots or self._gone_count)

    def add(self, slots: Array) -> None:
        """The rows in these slots were written; each slot has just got its mark."""
        self._slots += len(slots)
        while len(slots):
            room = len(self._last) - self._count
            taken, slots = slots[:room], slots[room:]
            self._last[self._count : self._count + len(taken)] = taken
            self._count += len(taken)
            if len(taken) == room:
                self._full.append(self._last)
                self._last, self._count = np.empty(min(2 * len(self._last), LARGEST), np.int64), 0

    def add_gone(self, keys: Array) -> None:
        """The rows with these keys were written, and have no slot any more; their slots have no mark any more."""
        end = self._gone_count + len(keys)
        if end > len(self._gone):
            kept = self.gone_keys()
            end = len(kept) + len(keys)
            self._gone = np.empty((max(2 * end, SMALLEST), self._width), np.int64)
            self._gone[: len(kept)] = kept
            self._gone_count = len(kept)
        self._gone[self._gone_count : end] = keys
        self._gone_count = end

    def reduce(self, marks: Array) -> None:
        """Where most slots stand there twice, leave each once; `marks` has a mark for each slot of the table."""
        if self._slots > 2 * len(marks):
            slots, gone, count = self._marked(marks), self._gone, self._gone_count
            self._forget()
            self._gone, self._gone_count = gone, count
            self.add(slots)
            marks[slots] = True

    def take(self, marks: Array) -> Array:
        """The slots that have a mark, each once; all is forgotten, marks and the keys of rows without a slot too."""
        slots = self._marked(marks)
        self._forget()
        return slots

    def gone_keys(self) -> Array:
        """The keys of rows that lost their slots, each once."""
        keys = self._gone[: self._gone_count]
        return np.unique(keys, axis=0) if self._width > 1 else np.unique(keys[:, 0])[:, None]

    def _marked(self, marks: Array) -> Array:
        """The slots that have a mark, each once; they have none afterwards."""
        slots = np.concatenate([*self._full, self._last[: self._count]])
        return slots[: take_marked(slots, marks)]
