"""Rows on their way into tables and out of them: those that a user loads must fit, and each key comes once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.engine.state.columns import column_values, key_words, one_piece
from tidegate.engine.state.strings import StringPool
from tidegate.engine.state.table import TableState
from tidegate.foundation.errors import InputError
from tidegate.operations.layout import Column, Kind, TableLayout

Array = npt.NDArray[Any]


def columns_in(table: TableState, rows: pa.Table) -> tuple[Array, dict[str, Array]]:
    """Rows as a table's arrays hold them: the words of their keys, and the columns that they have."""
    parts = [one_piece(rows.column(key)) for key in table.layout.key]
    columns = {
        column.name: column_values(one_piece(rows.column(column.name)), column.type, table.strings)
        for column in table.layout.value_columns
        if column.name in rows.column_names
    }
    return key_words(parts, table.layout, table.strings), columns


def check_rows(layout: TableLayout, rows: pa.Table) -> None:
    """Raise InputError unless rows that a user gives have the columns of a table."""
    for name in rows.column_names:
        if name not in layout.arrow_schema.names:
            raise InputError(
                f"rows of {layout.name}: column {name!r} is not a field; fields are: "
                f"{', '.join(layout.arrow_schema.names)}; drop or rename it"
            )
    for column in layout.columns:
        if column.name not in rows.column_names:
            if column.name in layout.key:
                raise InputError(f"rows of {layout.name}: the key column {column.name!r} is missing; add it")
            continue
        found = rows.column(column.name)
        if not column.type.accepts(found.type):
            advice = "cast it" if isinstance(column.type, Kind) else column.type.advice(found.type)
            raise InputError(
                f"rows of {layout.name}: column {column.name!r} has type {found.type}, "
                f"required: {column.type.label}; {advice}"
            )
        if found.null_count and not column.type.optional:
            row = one_piece(found).is_null().index(True).as_py()
            raise InputError(f"rows of {layout.name}: column {column.name!r} is null in row {row}; fill it")
        _require_values(layout.name, column, one_piece(found))
        if column.name in layout.key and pa.types.is_floating(found.type):
            bad = np.flatnonzero(np.isnan(found.to_numpy()))
            if len(bad):
                raise InputError(f"rows of {layout.name}: the key {column.name!r} is NaN in row {bad[0]}")


def _require_values(table: str, column: Column, values: pa.Array) -> None:
    """Raise InputError unless all values of a column that may hold others are of its type."""
    if isinstance(column.type, Kind) or pa.types.is_null(values.type):
        return
    _, unfit = column.type.unpack(values)
    if unfit is not None and (there := unfit & values.is_valid().to_numpy(zero_copy_only=False)).any():
        row = int(np.argmax(there))
        raise InputError(
            f"rows of {table}: column {column.name!r} is {values[row].as_py()!r} in row {row}, required: "
            f"{column.type.label}"
        )


def store_rows(
    table: TableState,
    keys: Array,
    columns: dict[str, Array],
    piece_rows: int,
    note: Callable[[TableState, Array], None],
) -> int | None:
    """Write rows, in pieces; writes nothing, and returns the row of a key that stands there again, if there is one."""
    known = table.find(keys[:piece_rows]).max(initial=-1) >= 0  # else most keys are new: make room at once
    table.reserve(0 if known else len(keys))
    pieces = [slice(start, start + piece_rows) for start in range(0, len(keys), piece_rows)]
    again = mark_all(table, keys, pieces)
    for piece in pieces:
        slots = table.find(keys[piece])
        slots = slots[slots >= 0]
        table.marks[slots] = False
        if again is None:
            table.store(slots, {column: values[piece] for column, values in columns.items()}, True)
            note(table, slots)
        else:
            table.sweep(slots)
    return again


def mark_all(table: TableState, keys: Array, pieces: list[slice]) -> int | None:
    """Give every key a slot and a mark; stops at, and returns, the row of a key that stands there again."""
    for piece in pieces:
        slots = table.resolve(keys[piece])
        table.keep_fresh()
        repeated = np.ones(len(slots), np.bool_)
        repeated[np.unique(slots, return_index=True)[1]] = False
        repeated |= table.marks[slots]
        table.marks[slots] = True
        if repeated.any():
            return int(piece.start + np.argmax(repeated))
    return None


def duplicate_message(layout: TableLayout, rows: pa.Table, again: int) -> str:
    """What is wrong with rows of which one has the key of an earlier one."""
    keys = {name: rows.column(name) for name in layout.key}
    key = {name: column[again].as_py() for name, column in keys.items()}
    before = next(row for row in range(again) if all(keys[name][row].as_py() == key[name] for name in keys))
    return f"rows of {layout.name}: the key {key} is in row {before} and again in row {again}; load each key once"


def stored_rows(layout: TableLayout, rows: pa.Table) -> pa.Table:
    """Rows that a user gives, as a table of that layout holds them once they are loaded."""
    check_rows(layout, rows)
    table = TableState(layout, StringPool())
    keys, columns = columns_in(table, rows)
    again = store_rows(table, keys, columns, max(len(keys), 1), lambda table, slots: None)
    if again is not None:
        raise InputError(duplicate_message(layout, rows, again))
    return table.rows(table.find(keys))


def change_table(table: TableState, slots: Array, keys: Array) -> pa.Table:
    """The rows in some slots, and of some keys that have none, with `exists`."""
    exists = pa.field("exists", pa.bool_(), nullable=False)
    kept = table.rows(slots).append_column(exists, pa.array(table.exists[slots]))
    if not len(keys):
        return kept
    gone = TableState(table.layout, table.strings)
    absent = gone.rows(gone.resolve(np.ascontiguousarray(keys)))
    return pa.concat_tables([kept, absent.append_column(exists, pa.array(np.zeros(absent.num_rows, np.bool_)))])
