"""Which rows of a table expire next.

Every row has an entry in a queue, at the time of its field `by` or earlier. A row that is written with a later time
keeps its entry. When the entry comes out, because the limit has passed it, the caller looks at the row, and puts it
back if it has not expired (lazy deletion):

    written    a at 3      a at 9      limit 5: a comes out, and goes back at 9      limit 10: a comes out

So a row comes out once for each time that it was put in, and taking rows out costs time for them alone, times the
logarithm of the size of the queue. A slot that another row got keeps its entries: they are as good for that row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.engine.kernels.deadlines import pop_below, push_earlier
from tidegate.operations.layout import Kind

Array = npt.NDArray[Any]
SMALLEST = 64
LOWEST: dict[Kind, Any] = {Kind.INT: np.iinfo(np.int64).min, Kind.FLOAT: -np.inf}
"""A limit that no row is below."""
_NEVER: dict[Kind, Any] = {Kind.INT: np.iinfo(np.int64).max, Kind.FLOAT: np.inf}
"""A time that is below no limit: rows with it need no entry."""


class Deadlines:
    """The rows of one table, by slot, in the order of their times."""

    def __init__(self, kind: Kind) -> None:
        self._never = _NEVER[kind]
        self._times, self._slots = np.empty(SMALLEST, kind.dtype), np.empty(SMALLEST, np.int64)
        self._count = 0
        self._first = np.empty(0, kind.dtype)

    def add(self, slots: Array, times: Array, capacity: int) -> None:
        """Rows have these times now; `capacity` is the number of slots of the table."""
        if capacity > len(self._first):
            self._first = np.concatenate([self._first, np.full(capacity - len(self._first), self._never)])
        if self._count + len(slots) > len(self._times):
            self._make_room(len(slots))
        self._count = push_earlier(self._times, self._slots, self._count, self._first, times, slots)

    def take_below(self, limit: Any) -> Array:
        """The slots of rows that may have a time below the limit, each once; they have no entry any more."""
        found: list[Array] = []
        size = SMALLEST
        while self._count and self._times[0] < limit:
            popped = np.empty(size, np.int64)
            arrays = (self._times, self._slots, self._count, self._first)
            self._count, taken = pop_below(*arrays, self._never, limit, popped)
            found.append(popped[:taken])
            size *= 2
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def _make_room(self, more: int) -> None:
        """Drop entries that are not the first of their slot if they are many; make the arrays larger otherwise."""
        times, slots = self._times[: self._count], self._slots[: self._count]
        if self._count > 2 * len(self._first):
            valid = np.flatnonzero(self._first != self._never)
            times, slots = self._first[valid], valid
            order = np.argsort(times)  # what is sorted is a heap
            times, slots = times[order], slots[order]
        self._count = len(slots)
        size = max(2 * self._count, self._count + more, SMALLEST)
        self._times, self._slots = np.empty(size, times.dtype), np.empty(size, np.int64)
        self._times[: self._count], self._slots[: self._count] = times, slots
