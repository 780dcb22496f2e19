"""Events that wait for the rest of their atomic batch.

    run 1    a b c │ d              d waits: it is kept as it came, with the columns and types of its run
    run 2    d │ e f                both tables are checked and bound by themselves, then their arrays are joined

So what a run may look like does not depend on whether something waits. Only where outcomes of several runs leave in one
table do their columns meet (`join`): a column that one of them lacks is null there; where types differ, the common one
is taken, and text where there is none.

Tables of equal columns are joined as they come, so that there are as many tables as the events had different columns.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.engine.intake import require_column, required_type
from tidegate.engine.state.columns import one_piece
from tidegate.foundation.errors import InputError
from tidegate.operations.outcomes import TRANSACTION_COLUMN
from tidegate.operations.plan import Parameter

Array = npt.NDArray[Any]

_STREAM = b"tidegate stream"
"""Says in a table without the column `transaction` which stream its events are of: the only one, when they came."""


class Waiting:
    """The events that wait, oldest first, as tables that are shaped like the runs that brought them."""

    def __init__(self, tables: Sequence[pa.Table] = ()) -> None:
        self.tables = list(tables)

    def __len__(self) -> int:
        return sum(table.num_rows for table in self.tables)

    def rows(self) -> list[dict[str, Any]]:
        """The events as they came."""
        return [row for table in self.tables for row in table.to_pylist()]

    def of_stream(self, name: str) -> list[pa.Table]:
        """The events of one border stream."""
        found = [table.filter(pc.equal(names_in(table), name)) for table in self.tables]
        return [table for table in found if table.num_rows]

    def part(self, events: pa.Table, waiting: Array, only_stream: str) -> pa.Table:
        """Let some of all events wait, those that waited before and a run's own; returns the others.

        Args:
            events: the events of the run.
            waiting: the positions of those that wait, in the order in which they came; those that waited count first.
            only_stream: the stream of the events where the program has no other; needed where no column names it.
        """
        waits = np.zeros(len(self) + events.num_rows, np.bool_)
        waits[waiting] = True
        before, self.tables = self.tables, []
        decided, start = [], 0
        for table in before:
            marked = pa.array(waits[start : start + table.num_rows])
            start += table.num_rows
            self._add(table.filter(marked))
            decided.append(table.filter(pc.invert(marked)))
        own = waiting[waiting >= start] - start
        if len(own):
            self._add(_described(events.take(pa.array(own)), only_stream))
            events = events.filter(pa.array(~waits[start:]))
        return join([*decided, events])

    def _add(self, events: pa.Table) -> None:
        if events.num_rows == 0:
            return
        if self.tables and self.tables[-1].schema.equals(events.schema, check_metadata=True):
            events = pa.concat_tables([self.tables.pop(), events])
        self.tables.append(events.combine_chunks())

    def column(self, table: pa.Table, parameter: Parameter) -> pa.Array:
        """The column of waiting events for a parameter; nulls where only events of other transactions need it."""
        if parameter.name not in table.column_names:
            return pa.nulls(table.num_rows)
        try:
            return require_column(table, parameter, "events")
        except InputError as error:
            raise InputError(
                f"events wait for the rest of their atomic batch, and do not fit the program any more: their column "
                f"{parameter.name!r} has type {table.schema.field(parameter.name).type}, required: "
                f"{required_type(parameter)}; declare the stream as it was until the batch is complete"
            ) from error

    def names_before(self, names: pa.Array | None, events: pa.Table, only: str) -> pa.Array | None:
        """The names of the events behind those of the ones that wait; `only` is what events without a name are."""
        if not self.tables:
            return names
        own = pa.array([only] * events.num_rows, pa.string()) if names is None else names
        return one_piece(pa.chunked_array([chunk for c in (*map(names_in, self.tables), own) for chunk in _texts(c)]))

    def packed(self) -> str:
        """All of it as text."""
        return " ".join(_packed(table) for table in self.tables)

    @staticmethod
    def unpacked(text: str, only_stream: str) -> Waiting:
        """What `packed` gave; states of earlier versions do not say which stream events without a name are for."""
        tables = [_unpacked(part) for part in text.split()]
        return Waiting([t if _STREAM in (t.schema.metadata or {}) else _described(t, only_stream) for t in tables])


NOTHING_WAITS = Waiting()


def _texts(names: pa.ChunkedArray | pa.Array) -> list[pa.Array]:
    found = names.cast(pa.string())
    return found.chunks if isinstance(found, pa.ChunkedArray) else [found]


def names_in(events: pa.Table) -> pa.ChunkedArray:
    """The names of the streams, or transactions, that waiting events are for."""
    if TRANSACTION_COLUMN in events.column_names:
        return events.column(TRANSACTION_COLUMN)
    name = (events.schema.metadata or {})[_STREAM].decode()
    return pa.chunked_array([pa.array([name] * events.num_rows, pa.string())])


def _described(events: pa.Table, only_stream: str) -> pa.Table:
    """The events with nothing in their schema that differs from run to run, and the stream that no column names."""
    named = TRANSACTION_COLUMN in events.column_names
    events = events.replace_schema_metadata(None if named else {_STREAM: only_stream})
    for position, field in enumerate(events.schema):
        if pa.types.is_dictionary(field.type) or pa.types.is_string_view(field.type):
            plain = field.type.value_type if pa.types.is_dictionary(field.type) else pa.string()
            events = events.set_column(position, field.name, events.column(position).cast(plain))
    return events


def join(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of all tables in one, with the columns of the last one and of all that have rows."""
    *before, last = tables
    parts = [table for table in before if table.num_rows]
    if not parts:
        return last
    parts = [table.replace_schema_metadata(None) for table in (*parts, last)]
    names = dict.fromkeys(name for table in parts for name in table.column_names)
    return pa.table({name: _joined([_column(table, name) for table in parts]) for name in names})


def _column(table: pa.Table, name: str) -> pa.ChunkedArray:
    return table.column(name) if name in table.column_names else pa.chunked_array([pa.nulls(table.num_rows)])


def _joined(columns: list[pa.ChunkedArray]) -> pa.ChunkedArray:
    """Columns of several types as one: of their common type if that holds all values, else as text."""
    kinds = [column.type for column in columns]
    if any(kind != kinds[0] for kind in kinds):
        try:
            fields = [pa.schema([("", kind)]) for kind in kinds]
            common = pa.unify_schemas(fields, promote_options="permissive").field(0).type
            columns = [column.cast(common) for column in columns]
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            columns = [_as_text(column) for column in columns]
    return pa.chunked_array([chunk for column in columns for chunk in column.chunks], columns[0].type)


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return column.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # such as lists: as Python writes them
        texts = [None if value is None else str(value) for value in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])


def _packed(events: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, events.schema) as writer:
        writer.write_table(events)
    return base64.b64encode(sink.getvalue().to_pybytes()).decode("ascii")


def _unpacked(text: str) -> pa.Table:
    with pa.ipc.open_stream(base64.b64decode(text)) as reader:
        return reader.read_all()
