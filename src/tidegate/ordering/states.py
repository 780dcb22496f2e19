"""The states of an operator: one for each key, in arrays for generated code, as objects for plain Python.

    slot       0     1     2          a key gets the next slot when its first record comes
    clicks     3     0     12         an array for each field, filled with the defaults
    objects    ...                    the user's own objects, of an operator that runs as plain Python

The key index is read and written by kernels (`kernels.putting`); this module makes it larger.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.engine.kernels.index import scramble
from tidegate.engine.state.columns import python_value, word_of
from tidegate.engine.state.strings import StringPool
from tidegate.foundation.arguments import shown
from tidegate.foundation.errors import InputError
from tidegate.foundation.jit import kernel
from tidegate.operations.kinds import TooLarge
from tidegate.ordering.steps import Operator

SMALLEST = 64


@kernel
def _fill(entries, mask, old):  # type: ignore[no-untyped-def]
    """Enter all keys of an index into a larger one."""
    for place in range(old.shape[0] // 2):
        slot = old[2 * place + 1]
        if slot >= 0:
            bucket = np.int64(scramble(old[2 * place]) & mask)
            while entries[2 * bucket + 1] >= 0:
                bucket = np.int64(np.uint64(bucket + 1) & mask)
            entries[2 * bucket] = old[2 * place]
            entries[2 * bucket + 1] = slot


class States:
    """The states of one operator; `room` is for how many keys there is space."""

    def __init__(self, operator: Operator, strings: StringPool) -> None:
        assert operator.state is not None
        self._operator, self._strings = operator, strings
        self.room = SMALLEST
        self.index = np.full(4 * SMALLEST, -1, np.int64)
        self._objects: dict[int, Any] = {}
        layout = operator.state_layout
        self._columns = layout.value_columns if layout is not None and operator.plan is not None else ()
        self._defaults = {c.name: word_of(c.type.decode(c.default), c.type, strings) for c in self._columns}
        self.columns = {c.name: np.full(SMALLEST, self._defaults[c.name], c.kind.dtype) for c in self._columns}
        self.exists = np.zeros(SMALLEST, np.bool_)

    @property
    def index_mask(self) -> int:
        """The number of the index's entries, less one."""
        return len(self.index) // 2 - 1

    def grow(self) -> None:
        """Make room for twice as many keys; nobody works now."""
        self.room *= 2
        larger = np.full(4 * self.room, -1, np.int64)
        _fill(larger, np.uint64(len(larger) // 2 - 1), self.index)
        self.index = larger
        self.exists = _extended(self.exists, self.room, False)
        self.columns = {name: _extended(array, self.room, self._defaults[name]) for name, array in self.columns.items()}

    def load(self, slot: int) -> Any:
        """The state in a slot, as the object that the user's function gets."""
        state = self._operator.state
        assert state is not None
        if self._operator.plan is None:
            found = self._objects.get(slot)
            if found is None:
                found = self._objects[slot] = state()
            return found
        made: Any = object.__new__(state)
        for column in self._columns:
            value = python_value(self.columns[column.name][slot], column.type, self._strings)
            object.__setattr__(made, column.name, value)
        return made

    def save(self, slot: int, state: Any) -> None:
        """Keep what a function did to a state."""
        words = {}
        for column in self._columns:
            value = getattr(state, column.name)
            try:
                words[column.name] = word_of(column.type.fit(value), column.type, self._strings)
            except (TypeError, ValueError, TooLarge) as error:
                limit = " of 64 bits" if isinstance(error, TooLarge) else ""
                raise InputError(
                    f"operator {self._operator.name!r}: {type(state).__name__}.{column.name} holds "
                    f"{column.type.label}{limit}, got {shown(value)}"
                ) from None
        for name, word in words.items():
            self.columns[name][slot] = word


def _extended(array: npt.NDArray[Any], size: int, filling: Any) -> npt.NDArray[Any]:
    larger = np.full(size, filling, array.dtype)
    larger[: len(array)] = array
    return larger
