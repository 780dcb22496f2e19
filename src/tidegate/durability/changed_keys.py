"""Which keys of one table a run of changes touched, and which row of the changes is the last of each.

    change 4    (A, 100, exists)   (B, 50, exists)        rows 0, 1
    change 5    (B, 0, gone)       (C, 5, exists)         rows 2, 3

    key    last row
    A      0                       of the changes remain: row 0 and row 3, the last of their keys, existing
    B      2                       of an older snapshot remain: the rows of all keys but A, B and C
    C      3

Only keys are held; the rows are streamed from their files again. So the memory is that of an index over the changed
keys, about 40 bytes each for a key of one field, and does not grow with the state: strings are looked up in the pool of
the changed keys and none is added.

`surpassed` must be given the same pieces in the same order as `note`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.engine.state.columns import key_words, one_piece
from tidegate.engine.state.strings import KnownStrings, Numbering, StringPool
from tidegate.engine.state.table import TableState
from tidegate.operations.layout import TableLayout

Positions = npt.NDArray[np.uint32]


class ChangedKeys:
    """The keys that changes touched."""

    def __init__(self, layout: TableLayout) -> None:
        self._layout = TableLayout(layout.name, layout.key_columns, layout.key)
        self._strings = StringPool()
        self._index = TableState(self._layout, self._strings)
        self._last: npt.NDArray[np.int64] = np.zeros(0, np.int64)  # slot -> row
        self._noted = 0

    def note(self, rows: pa.Table) -> None:
        """Takes in the next rows of the changes."""
        slots = self._index.resolve(self._words(rows, self._strings))
        self._index.keep_fresh()
        capacity = len(self._index.exists)
        if len(self._last) < capacity:
            larger = np.zeros(capacity, np.int64)
            larger[: len(self._last)] = self._last
            self._last = larger
        self._last[slots] = np.arange(self._noted, self._noted + len(slots))  # of a key that stands twice, the later
        self._noted += len(slots)

    def surpassed(self, rows: pa.Table, first: int) -> Positions:
        """The positions of noted rows, the first of which was row number `first`, that do not remain."""
        slots = self._find(rows)
        remains = self._last[slots] == np.arange(first, first + len(slots))
        remains &= np.asarray(one_piece(rows.column("exists")).to_numpy(zero_copy_only=False))
        return np.flatnonzero(~remains).astype(np.uint32)

    def touched(self, rows: pa.Table) -> Positions:
        """The positions of rows, of a state before the changes, whose keys were touched by them."""
        if self._noted == 0:
            return np.zeros(0, np.uint32)
        return np.flatnonzero(self._find(rows) >= 0).astype(np.uint32)

    def _find(self, rows: pa.Table) -> npt.NDArray[np.int64]:
        """The slots of the rows' keys, -1 for those that were not noted."""
        return self._index.find(self._words(rows, KnownStrings(self._strings)))

    def _words(self, rows: pa.Table, strings: Numbering) -> npt.NDArray[np.int64]:
        return key_words([one_piece(rows.column(name)) for name in self._layout.key], self._layout, strings)
