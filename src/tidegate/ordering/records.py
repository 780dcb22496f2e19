"""Records in their four forms: the user's dataclass, its layout, rows of words, and Arrow columns.

    @dataclass
    class Click:                             RecordLayout("Click", (ts: int, user: int, price: float))
        ts: int; user: int; price: float     | ORIGIN | ENDS | ts | user | bits of price |
                                             pa.table({"ts": int64, "user": int64, "price": double})

A field may have any type that a field of a table may have. An object is made from words without its `__init__`: it was
made before, and is only handed on.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.api.annotations import CHOICES, Unsuitable, value_type
from tidegate.engine.state.columns import column_values, one_piece, python_value, value_column, word_of
from tidegate.engine.state.strings import StringPool
from tidegate.foundation.arguments import shown
from tidegate.foundation.arrow_tables import as_table
from tidegate.foundation.errors import DefinitionError, InputError
from tidegate.operations.kinds import TooLarge
from tidegate.operations.layout import Column, Kind
from tidegate.operations.pipeline import HEADER, RecordLayout

Words = npt.NDArray[np.int64]


def record_layout(what: str, declared: Any, names: Mapping[str, Any]) -> RecordLayout:
    """The layout of a dataclass; `names` are what its annotations may mention besides its module's names."""
    if not isinstance(declared, type) or not dataclasses.is_dataclass(declared):
        raise DefinitionError(
            f"{what}: required a dataclass, got {shown(declared)}; decorate the class with @dataclass"
        )
    try:
        hints = typing.get_type_hints(declared, localns=dict(names), include_extras=True)
    except NameError as error:
        raise DefinitionError(f"{what}: an annotation of {declared.__name__} cannot be resolved: {error}") from error
    fields = []
    for field in dataclasses.fields(declared):
        try:
            found = value_type(hints[field.name])
        except Unsuitable as error:
            problem = f"{what}: field {declared.__name__}.{field.name}: {error.problem}; {error.advice}"
            raise DefinitionError(problem) from None
        if found is None:
            raise DefinitionError(
                f"{what}: field {declared.__name__}.{field.name} has type {hints[field.name]!r}, which a column cannot "
                f"hold; required: {CHOICES}. What an operator keeps between records may be anything: it is its state"
            )
        fields.append(Column(field.name, found, None))
    if not fields:
        raise DefinitionError(f"{what}: {declared.__name__} has no fields, and a record without fields says nothing")
    return RecordLayout(declared.__name__, tuple(fields), declared)


class Rows:
    """Turns records of one layout into rows of words and back; strings become numbers of a pool."""

    def __init__(self, layout: RecordLayout, strings: StringPool) -> None:
        self.layout, self._strings = layout, strings
        self._floats = [column.kind is Kind.FLOAT for column in layout.fields]

    def write(self, record: Any, row: Words, what: str) -> None:
        """Write a record into a row; `what` says whose record it is, for the message."""
        floats = row.view(np.float64)
        if type(record) is not self.layout.python and not isinstance(record, self.layout.python):
            raise InputError(f"{what}: required a {self.layout.name}, got {shown(record)}")
        for place, column in enumerate(self.layout.fields, HEADER):
            value = getattr(record, column.name)
            try:
                word = word_of(column.type.fit(value), column.type, self._strings)
            except (TypeError, ValueError, TooLarge) as error:
                limit = " of 64 bits" if isinstance(error, TooLarge) and column.kind is Kind.INT else ""
                where = f"{self.layout.name}.{column.name}"
                raise InputError(f"{what}: {where} holds {column.type.label}{limit}, got {shown(value)}") from None
            if column.kind is Kind.FLOAT:
                floats[place] = word
            else:
                row[place] = word

    def read(self, row: Words) -> Any:
        """The record in a row."""
        made: Any = object.__new__(self.layout.python)
        floats = row.view(np.float64)
        for place, column in enumerate(self.layout.fields, HEADER):
            word = floats[place] if column.kind is Kind.FLOAT else row[place]
            object.__setattr__(made, column.name, python_value(word, column.type, self._strings))
        return made

    def from_arrow(self, what: str, given: Any) -> Words:
        """Rows from data in any form that can become an Arrow table; columns that are no fields are left out."""
        table = as_table(what, given)
        rows = np.zeros((len(table), self.layout.stride), np.int64)
        for place, column in enumerate(self.layout.fields, HEADER):
            values = self._column(what, table, column)
            (rows.view(np.float64) if column.kind is Kind.FLOAT else rows)[:, place] = values
        return rows

    def _column(self, what: str, table: pa.Table, column: Column) -> npt.NDArray[Any]:
        name = column.name
        if name not in table.column_names:
            raise InputError(
                f"{what}: the column {name!r} of {self.layout.name} is missing; columns are: "
                f"{', '.join(table.column_names) or 'none'}"
            )
        found = one_piece(table.column(name))
        if not column.type.accepts(found.type):
            raise InputError(
                f"{what}: column {name!r} has type {found.type}, required: {column.type.label}; "
                f"{column.type.advice(found.type)}"
            )
        if found.null_count and not column.type.optional:
            row = found.is_null().index(True).as_py()
            raise InputError(
                f"{what}: column {name!r} is null in row {row}; fill or drop it, or declare {column.type.label} | None"
            )
        try:
            return column_values(found, column.type, self._strings)
        except pa.ArrowInvalid as error:
            raise InputError(f"{what}: column {name!r} does not fit {column.type.label}: {error}") from None

    def to_arrow(self, rows: Words) -> pa.Table:
        """Rows as columns."""
        columns = []
        for place, column in enumerate(self.layout.fields, HEADER):
            words = rows[:, place]
            if column.kind is Kind.FLOAT:
                words = np.ascontiguousarray(words).view(np.float64)
            elif column.kind is Kind.BOOL and not column.type.optional:
                words = words != 0
            columns.append(value_column(np.ascontiguousarray(words), column.type, self._strings))
        return pa.Table.from_arrays(columns, schema=arrow_schema(self.layout))


def arrow_schema(layout: RecordLayout) -> pa.Schema:
    """The Arrow schema of records."""
    return pa.schema([pa.field(c.name, c.type.arrow, nullable=c.type.optional) for c in layout.fields])
