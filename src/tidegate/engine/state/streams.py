"""One stream in memory: the tuples of the current round, or those of an output stream that were not taken yet."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.engine.state.columns import column_values, one_piece, value_column
from tidegate.engine.state.strings import StringPool
from tidegate.operations.flow import StreamField, StreamLayout
from tidegate.operations.layout import Kind

Array = npt.NDArray[Any]
SMALLEST = 64


class StreamState:
    """Arrays for the fields of a stream's tuples, and how many there are."""

    def __init__(self, layout: StreamLayout, output: bool) -> None:
        self.layout, self.output = layout, output
        self.span = np.zeros(2, np.int64)
        """Where the current round begins, and how many tuples there are."""
        self.count = self.span[1:]
        self.round_ends = self.span
        """Where each round of a batch ends, for the stages that take the stream's tuples while others emit them."""
        self.batches = np.empty(SMALLEST, np.int64)
        self.columns = {
            (field.name, part): np.empty(SMALLEST, kind.dtype)
            for field in layout.fields
            for part, kind in enumerate(field.kinds)
        }

    def grow(self) -> None:
        """Make room for twice as many tuples."""
        for place, column in self.columns.items():
            self.columns[place] = np.concatenate([column, np.empty_like(column)])
        self.batches = np.concatenate([self.batches, np.empty_like(self.batches)])

    def append(self, values: dict[str, tuple[Any, ...]]) -> None:
        """Add a tuple: each field's parts, as arrays hold them."""
        place = int(self.count[0])
        if place >= len(self.batches):
            self.grow()
        for (field, part), column in self.columns.items():
            column[place] = values[field][part]
        self.count[0] = place + 1

    def reserve(self, count: int) -> bool:
        """Have room for `count` tuples; returns whether arrays were replaced for it."""
        enough = count <= len(self.batches)
        while count > len(self.batches):
            self.grow()
        return not enough

    def clear(self) -> None:
        """Forget all tuples."""
        self.span[:], self.round_ends = 0, self.span

    def drop(self, count: int) -> None:
        """Forget the first tuples."""
        left = int(self.count[0]) - count
        for column in (self.batches, *self.columns.values()):
            column[:left] = column[count : count + left].copy()
        self.count[0] = left

    def restore(self, tuples: pa.Table, strings: StringPool) -> None:
        """Hold what `table` gave, whatever is held now."""
        self.reserve(tuples.num_rows)
        for field in self.layout.fields:
            found = one_piece(tuples.column(field.name))
            parts = found.flatten() if pa.types.is_struct(found.type) else [found]
            for part, (values, kind) in enumerate(zip(parts, field.types, strict=True)):
                self.columns[field.name, part][: tuples.num_rows] = column_values(values, kind, strings)
        self.batches[: tuples.num_rows] = tuples.column("batch").to_numpy()
        self.span[:] = 0, tuples.num_rows

    def table(self, strings: StringPool, first: int | None = None) -> pa.Table:
        """The tuples as Arrow, each with the number of its round; all, or the first ones."""
        count = int(self.count[0]) if first is None else min(first, int(self.count[0]))
        columns: dict[str, pa.Array] = {}
        for field in self.layout.fields:
            types = enumerate(field.types)
            parts = [value_column(self.columns[field.name, part][:count].copy(), of, strings) for part, of in types]
            columns[field.name] = field_array(field, parts)
        return pa.table({**columns, "batch": pa.array(self.batches[:count].copy())})

    def string_numbers(self) -> list[Array]:
        """The numbers of all strings that tuples hold."""
        return [column[: self.count[0]] for column in self._string_columns()]

    def renumber(self, numbers: Array) -> None:
        """String number n is number `numbers[n]` from now on."""
        for column in self._string_columns():
            held = column[: self.count[0]]
            held[:] = numbers[held]

    def _string_columns(self) -> list[Array]:
        places = [(field.name, part, kind) for field in self.layout.fields for part, kind in enumerate(field.kinds)]
        return [self.columns[name, part] for name, part, kind in places if kind is Kind.STR]


def tuple_schema(layout: StreamLayout) -> pa.Schema:
    """The columns of a stream's tuples as Arrow, with the number of their round."""
    return StreamState(layout, True).table(StringPool()).schema


def field_parts(field: StreamField) -> list[str]:
    """What the columns are called that carry a field: one, or one for each field of its key."""
    if field.table is None or len(field.kinds) == 1:
        return [field.name]
    return [f"{field.name}.{key}" for key in field.table.key]


def field_array(field: StreamField, parts: list[pa.Array]) -> pa.Array:
    """A field as Arrow: a key of several fields is a struct."""
    if field.table is None or len(parts) == 1:
        return parts[0]
    return pa.StructArray.from_arrays(parts, list(field.table.key))
