"""All strings of an engine, each stored once and known by a number.

Columns, keys and parameters of type `str` hold such numbers, so compiled code compares strings as it
compares integers. Strings enter and leave as Arrow. Numbers are private to one engine and one run.

A string that nothing refers to any more stays until `EngineCore` rebuilds the pool.

Compiled code reads strings while plain Python may add some, in another worker. A string that is there never changes,
and `places` always says where the arrays are now; arrays that became too small are kept until `let_go`.

Number 0 is the empty string. Number 1 (`STR_NONE`) stands for None where that is a value: under it lies a byte that no
text has, so that it is renumbered as all others are, to itself.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.engine.kernels.strings import BYTES, STRINGS, fill_buckets, find_texts, intern
from tidegate.engine.kernels.texts import HELD, STARTS
from tidegate.operations.kinds import STR_NONE

Numbers = npt.NDArray[np.int64]
_NO_TEXT = b"\xff"


class Numbering(Protocol):
    """What gives strings their numbers: a pool, or what a pool already holds."""

    def numbers(self, column: pa.Array) -> Numbers:
        """The numbers of an Arrow string column."""


class StringPool:
    """Gives every distinct string a number, and gives the strings back."""

    def __init__(self, capacity: int = 64) -> None:
        self._buckets = np.full(2 * capacity, -1, np.int64)
        self._starts = np.zeros(capacity + 1, np.int64)
        self._hashes = np.zeros(capacity, np.uint64)
        self._held = np.zeros(16 * capacity, np.uint8)
        self._counters = np.zeros(2, np.int64)
        self._outgrown: list[npt.NDArray[Any]] = []
        self.places = np.zeros(2, np.int64)
        """Where the arrays are that compiled code reads strings from."""
        self._tell()
        self.number("")
        self._add(_NO_TEXT)

    def __len__(self) -> int:
        return int(self._counters[STRINGS])

    @property
    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """What kernels need to find and add strings."""
        return (self._buckets, self._starts, self._hashes, self._held, self._counters)

    def number(self, text: str) -> int:
        """The number of one string."""
        return self._add(text.encode())

    def _add(self, encoded: bytes) -> int:
        data = np.frombuffer(encoded, np.uint8)  # without Arrow: 5 us instead of 16
        return int(self._intern(read_only(np.array([0, len(data)])), read_only(data))[0])

    def numbers(self, column: pa.Array) -> Numbers:
        """The numbers of an Arrow string column; where it is null the number means nothing."""
        return self._intern(*string_buffers(column))

    def _intern(self, offsets: Numbers, data: npt.NDArray[np.uint8]) -> Numbers:
        found = np.empty(len(offsets) - 1, np.int64)
        position = 0
        while True:
            position = intern(self.arrays, offsets, data, position, found)
            if position >= len(found):
                return found
            self._grow(int(offsets[position + 1] - offsets[position]))

    def text(self, number: int) -> str:
        """The string with a number."""
        return bytes(self._held[self._starts[number] : self._starts[number + 1]]).decode()

    def texts(self, numbers: Numbers) -> pa.Array:
        """The strings with these numbers, as an Arrow column."""
        count = len(self)
        buffers = [None, pa.py_buffer(self._starts[: count + 1]), pa.py_buffer(self._held)]
        whole = pa.Array.from_buffers(pa.large_string(), count, buffers)
        return pc.take(whole, pa.array(numbers)).cast(pa.string())

    def let_go(self) -> None:
        """Nobody reads strings now: free the arrays that became too small."""
        self._outgrown.clear()

    def _tell(self) -> None:
        self.places[STARTS], self.places[HELD] = self._starts.ctypes.data, self._held.ctypes.data

    def texts_or_none(self, numbers: Numbers) -> pa.Array:
        """The same, null for the number of None."""
        absent = numbers == STR_NONE
        texts = self.texts(np.where(absent, 0, numbers))
        return pc.if_else(pa.array(absent), pa.scalar(None, pa.string()), texts) if absent.any() else texts

    def numbers_or_none(self, column: pa.Array) -> Numbers:
        """The numbers of an Arrow string column, that of None where it is null."""
        found = self.numbers(column)
        return (
            np.where(column.is_null().to_numpy(zero_copy_only=False), STR_NONE, found) if column.null_count else found
        )

    def _grow(self, size: int) -> None:
        self._outgrown += [self._starts, self._held]
        count, used = len(self), int(self._counters[BYTES])
        if used + size > len(self._held):
            self._held = _extended(self._held, used, max(2 * len(self._held), used + size))
        if count + 1 >= len(self._hashes) or 4 * (count + 1) > 3 * len(self._buckets):
            capacity = 2 * len(self._hashes)
            self._hashes = _extended(self._hashes, count, capacity)
            self._starts = _extended(self._starts, count + 1, capacity + 1)
            self._buckets = np.full(2 * capacity, -1, np.int64)
            fill_buckets(self._buckets, self._hashes, count)
        self._tell()


class KnownStrings:
    """A pool that is only looked at: strings that it does not hold have the number -1."""

    def __init__(self, pool: StringPool) -> None:
        self._pool = pool

    def numbers(self, column: pa.Array) -> Numbers:
        """The numbers of an Arrow string column without nulls."""
        offsets, data = string_buffers(column)
        found = np.empty(len(offsets) - 1, np.int64)
        find_texts(self._pool.arrays, offsets, data, found)
        return found


def string_buffers(column: pa.Array, wide: bool = True) -> tuple[Numbers, npt.NDArray[np.uint8]]:
    """The offsets and bytes of an Arrow string column, as arrays; offsets of 64 bits, or as they are if not `wide`."""
    narrow = not wide and pa.types.is_string(column.type)
    if not narrow and not pa.types.is_large_string(column.type):
        column = column.cast(pa.large_string())
    dtype = np.dtype(np.int32 if narrow else np.int64)
    if len(column) == 0:
        return np.zeros(1, dtype), np.zeros(0, np.uint8)
    _, offsets, data = column.buffers()
    positions = np.frombuffer(offsets, dtype, len(column) + 1, dtype.itemsize * column.offset)
    held = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    return read_only(positions), read_only(held)


def words_of(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """Bytes eight at a time, as far as they go."""
    words = data[: len(data) & ~7].view(np.uint64)
    return read_only(words if words.flags.aligned else words.copy())


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array as compiled code expects its inputs: one type, whether Arrow or NumPy owns the memory."""
    view = array.view()
    view.flags.writeable = False
    return view


def _extended(array: npt.NDArray[Any], used: int, capacity: int) -> npt.NDArray[Any]:
    larger = np.zeros(capacity, array.dtype)
    larger[:used] = array[:used]
    return larger
