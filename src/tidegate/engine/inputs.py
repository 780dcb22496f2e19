"""Where a transaction that runs as plain Python finds its arguments: in the columns of an event, or in a tuple.

Both give words, as arrays hold them: numbers, strings by their number. The row of a tuple is known by its key alone,
and gets a slot if it has none; an event's rows have theirs since the batch was taken in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tidegate.api.control import Abort
from tidegate.engine.batch import Batch
from tidegate.engine.state.streams import StreamState
from tidegate.engine.state.table import TableState
from tidegate.operations.flow import StreamField
from tidegate.operations.layout import Kind
from tidegate.operations.plan import Parameter, RowParameter, ValueParameter

Array = npt.NDArray[Any]


class Input(Protocol):
    """What one execution of a transaction works on."""

    def value(self, parameter: ValueParameter) -> Any:
        """The word of a parameter, or an array of them where it is a list."""

    def slot(self, parameter: RowParameter) -> Any:
        """The slot of a row, or an array of them where the parameter is a list."""

    def words(self, field: StreamField) -> list[Any]:
        """The words of a field of the stream: one, or one for each part of a key."""


@dataclass(frozen=True, slots=True)
class EventInput:
    """An event of a batch; `columns` are the places of parameters among the bound columns."""

    batch: Batch
    event: int
    columns: Mapping[Parameter, int]
    tables: Mapping[str, TableState]

    def value(self, parameter: ValueParameter) -> Any:
        """The word of a parameter, or an array of them where it is a list."""
        bound = self.batch.values[self.columns[parameter]]
        return self._of_event(bound.values, bound.offsets)

    def slot(self, parameter: RowParameter) -> Any:
        """The slot of a row, or an array of them where the parameter is a list."""
        place = self.columns[parameter]
        return self._of_event(self.batch.slots[place], self.batch.rows[place].offsets)

    def _of_event(self, values: Array, offsets: Array | None) -> Any:
        return values[self.event] if offsets is None else values[offsets[self.event] : offsets[self.event + 1]]

    def words(self, field: StreamField) -> list[Any]:
        """The words of a field of the border stream."""
        if field.table is None:
            return [self.value(ValueParameter(field.name, field.types[0], many=False))]
        keys = self.tables[field.table.name].keys[self.slot(RowParameter(field.name, field.table, many=False))]
        kinds = zip(keys, field.kinds, strict=True)
        return [word.view(np.float64) if kind is Kind.FLOAT else word for word, kind in kinds]


@dataclass(frozen=True, slots=True)
class TupleInput:
    """A tuple of a stream inside a graph."""

    stream: StreamState
    place: int
    tables: Mapping[str, TableState]

    def value(self, parameter: ValueParameter) -> Any:
        """The word of a parameter."""
        return self.stream.columns[parameter.name, 0][self.place]

    def slot(self, parameter: RowParameter) -> int:
        """The slot of a row."""
        field = self.stream.layout.field(parameter.name)
        assert field is not None
        return slot_of_key(self.tables[parameter.table.name], self.words(field), f"in column {parameter.name!r}")

    def words(self, field: StreamField) -> list[Any]:
        """The words of a field."""
        return [self.stream.columns[field.name, part][self.place] for part in range(len(field.kinds))]


def slot_of_key(table: TableState, words: list[Any], where: str) -> int:
    """The slot of a key, made if it is new; a NaN aborts."""
    wanted = np.zeros((1, len(words)), np.int64)
    for part, (word, column) in enumerate(zip(words, table.layout.key_columns, strict=True)):
        if column.kind is Kind.FLOAT:
            if word != word:
                raise Abort(f"NaN key {where}")
            wanted.view(np.float64)[0, part] = word + 0.0  # -0.0 is 0.0
        else:
            wanted[0, part] = word
    return int(table.resolve(wanted)[0])
