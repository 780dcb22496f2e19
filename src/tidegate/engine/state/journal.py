"""The undo log of a dataflow graph's group for one table, and the rows that a batch wrote there."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.engine.state.table import TableState

Array = npt.NDArray[Any]
SMALLEST = 64


class Journal:
    """The previous contents of one table's rows that the current group wrote, and the rows written in this batch."""

    def __init__(self, table: TableState) -> None:
        self.table = table
        self.count, self.touched_count = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self.touched = np.empty(SMALLEST, np.int64)
        self.grow(SMALLEST)

    def grow(self, size: int) -> None:
        """Make room for `size` rows; the previous contents are discarded."""
        self.slots, self.times, self.begins = (np.empty(size, np.int64) for _ in range(3))
        self.exists = np.empty(size, np.bool_)
        kinds = {column.name: column.kind.dtype for column in self.table.layout.value_columns}
        self.columns = {name: np.empty(size, kind) for name, kind in kinds.items()}

    def touch(self, slot: int) -> None:
        """Note that a row was written."""
        if not self.table.marks[slot]:
            self.table.marks[slot] = True
            if self.touched_count[0] >= len(self.touched):
                self.grow_touched()
            self.touched[self.touched_count[0]] = slot
            self.touched_count[0] += 1

    def grow_touched(self) -> None:
        """Make room for twice as many rows that were written."""
        self.touched = np.concatenate([self.touched, np.empty_like(self.touched)])

    def take_touched(self) -> Array:
        """The slots that were written since the last call."""
        found = self.touched[: self.touched_count[0]].copy()
        self.table.marks[found] = False
        self.touched_count[0] = 0
        return found
