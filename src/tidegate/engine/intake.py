"""From Arrow columns to arrays: checks that an event table fits the program, and binds its columns.

What does not fit as a whole (a missing column, a wrong type) raises InputError before anything runs.
What does not fit in one event (a null where the named transaction needs a value, a NaN as key, a text that is no
UUID) is noted per row, so that this event alone is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.engine.state.columns import checked_values, checked_words, one_piece
from tidegate.engine.state.strings import StringPool, read_only
from tidegate.foundation.errors import InputError
from tidegate.operations.layout import Column, Kind, TableLayout, ValueType
from tidegate.operations.outcomes import OUTCOME_COLUMNS, TRANSACTION_COLUMN
from tidegate.operations.plan import Parameter, ProgramPlan, RowParameter

Array = npt.NDArray[Any]


@dataclass(slots=True)
class Bound:
    """A column as arrays. `valid` is None where nothing is null; `offsets` where it is no list.

    `values` are the typed values of a plain column, or the 64-bit words of keys, one row per key.
    `nan` marks events with a NaN in their key, `unfit` those with a value that is none of its type.
    """

    values: Array
    offsets: Array | None = None
    valid: Array | None = None
    nan: Array | None = None
    unfit: Array | None = None


def require_column(events: pa.Table, parameter: Parameter, what: str) -> pa.Array:
    """The event column of a parameter, in one piece."""
    if parameter.name not in events.column_names:
        raise InputError(
            f"{what}: column {parameter.name!r} is missing; required: {required_type(parameter)}; "
            f"the columns are: {', '.join(events.column_names) or 'none'}; add it or rename one"
        )
    column = events.column(parameter.name)
    check_type(column.type, parameter, what)
    return one_piece(column)


def name_column(events: pa.Table, plan: ProgramPlan, what: str) -> pa.Array | None:
    """The names of the events' transactions, in one piece; None where there is one, and no need to name it."""
    if TRANSACTION_COLUMN not in events.column_names:
        if len(plan.entries) == 1:
            return None
        known = ", ".join(plan.event_names[number] for number in plan.entries)
        raise InputError(
            f"{what}: column {TRANSACTION_COLUMN!r} is missing; a program of several transactions needs it to name "
            f"one of: {known}; the columns are: {', '.join(events.column_names)}"
        )
    column = events.column(TRANSACTION_COLUMN)
    if not Kind.STR.accepts(column.type):
        if len(plan.entries) == 1 and TRANSACTION_COLUMN in plan.columns:
            return None
        raise InputError(
            f"{what}: column {TRANSACTION_COLUMN!r} has type {column.type}, required: str (string), the name of a "
            "transaction"
        )
    found = one_piece(column)
    return found.dictionary_decode() if pa.types.is_dictionary(found.type) else found


def required_type(parameter: Parameter) -> str:
    """The column type that a parameter needs, in words."""
    inner = _key_type(parameter.table) if isinstance(parameter, RowParameter) else type_name(parameter.type)
    return f"a list of {inner}" if parameter.many else inner


def check_type(found: pa.DataType, parameter: Parameter, what: str) -> None:
    """Refuse a column whose type cannot carry the parameter."""
    inner = found
    if parameter.many and not pa.types.is_null(found):
        is_list = pa.types.is_list(found) or pa.types.is_large_list(found) or pa.types.is_fixed_size_list(found)
        inner = found.value_type if is_list else None
    if inner is None or not _fits(inner, parameter):
        raise InputError(
            f"{what}: column {parameter.name!r} has type {found}, required: {required_type(parameter)}; "
            f"{_advice(inner, parameter)}"
        )


def bind(column: pa.Array, parameter: Parameter, strings: StringPool) -> Bound:
    """A checked column as arrays."""
    if pa.types.is_null(column.type):
        column = pa.nulls(len(column), arrow_type(parameter))
    if not parameter.many:
        return _bind_flat(column, parameter, strings)
    if not pa.types.is_large_list(column.type):
        column = column.cast(pa.large_list(column.type.value_type))
    offsets = np.asarray(column.offsets)
    first, last = int(offsets[0]), int(offsets[-1])
    flat = _bind_flat(column.values.slice(first, last - first), parameter, strings)
    offsets = offsets - first
    return Bound(
        flat.values,
        read_only(np.ascontiguousarray(offsets)),
        _merge_valid(valid_mask(column), _rows_without(offsets, None if flat.valid is None else ~flat.valid)),
        _rows_with(offsets, flat.nan),
        _rows_with(offsets, flat.unfit),
    )


def require_free_names(events: pa.Table) -> None:
    """Refuse events with a column that outcomes have."""
    taken = [name for name in OUTCOME_COLUMNS if name in events.column_names]
    if taken:
        raise InputError(
            f"events: column {taken[0]!r} is what the outcome is called; rename the event's column of that name"
        )


def bind_events(column: pa.Array, parameter: Parameter, strings: StringPool) -> Bound:
    """The same for a column of events; InputError for a value that does not fit."""
    try:
        return bind(column, parameter, strings)
    except pa.ArrowInvalid as error:
        raise InputError(
            f"events: column {parameter.name!r} of type {column.type} holds a value that does not fit: {error}"
        ) from error


def join_bounds(parts: Sequence[Bound]) -> Bound:
    """The columns of several tables, bound by themselves, as one."""
    if len(parts) == 1:
        return parts[0]
    sizes = [len(part.values) if part.offsets is None else len(part.offsets) - 1 for part in parts]
    starts = np.cumsum([0, *(len(part.values) for part in parts)])
    shifted = [
        part.offsets[:-1] + start for part, start in zip(parts, starts, strict=False) if part.offsets is not None
    ]
    return Bound(
        read_only(np.concatenate([part.values for part in parts])),
        read_only(np.concatenate([*shifted, starts[-1:]])) if shifted else None,
        _joined_marks([part.valid for part in parts], sizes, True),
        _joined_marks([part.nan for part in parts], sizes, False),
        _joined_marks([part.unfit for part in parts], sizes, False),
    )


def _joined_marks(parts: list[Array | None], sizes: list[int], absent: bool) -> Array | None:
    if all(part is None for part in parts):
        return None
    filled = (np.full(size, absent) if part is None else part for part, size in zip(parts, sizes, strict=True))
    return np.concatenate([*filled])


def valid_mask(column: pa.Array) -> Array | None:
    """True where a value is present; None where all are."""
    if column.null_count == 0:
        return None
    bitmap = column.buffers()[0]
    if bitmap is None or pa.types.is_union(column.type):
        return np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False))
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), count=column.offset + len(column), bitorder="little")
    return bits[column.offset :].view(np.bool_)


def unfit_reason(parameter: Parameter) -> str:
    """Why an event is refused whose value for a parameter is none of its type."""
    return f"no {_unfit_label(parameter)} in column {parameter.name!r}"


def _unfit_label(parameter: Parameter) -> str:
    if not isinstance(parameter, RowParameter):
        return parameter.type.label
    keys = parameter.table.key_columns
    return keys[0].type.label if len(keys) == 1 else f"key of {parameter.table.name}"


def type_name(value_type: ValueType) -> str:
    """A type as messages name it, with the Arrow type that carries it."""
    known: dict[ValueType, str] = {Kind.FLOAT: "float (double)", Kind.BOOL: "bool"}
    return known.get(value_type) or f"{value_type.label} ({value_type.arrow})"


def _key_type(table: TableLayout) -> str:
    keys = table.key_columns
    if len(keys) == 1:
        return f"{type_name(keys[0].type)}, the key of {table.name}"
    return f"a struct with {', '.join(f'{k.name}: {k.type.label}' for k in keys)}, the key of {table.name}"


def _advice(found: pa.DataType | None, parameter: Parameter) -> str:
    """What to do with a column whose type does not fit; the element's type is None if it is no list but should be."""
    if found is None or isinstance(parameter, RowParameter):
        keys = parameter.table.key_columns if isinstance(parameter, RowParameter) else ()
        return keys[0].type.advice(found) if found is not None and len(keys) == 1 else Kind.INT.advice(pa.null())
    return parameter.type.advice(found)


def arrow_type(parameter: Parameter) -> pa.DataType:
    """The Arrow type that carries a parameter."""
    if isinstance(parameter, RowParameter):
        keys = parameter.table.key_columns
        inner = keys[0].type.arrow if len(keys) == 1 else pa.struct([(k.name, k.type.arrow) for k in keys])
    else:
        inner = parameter.type.arrow
    return pa.large_list(inner) if parameter.many else inner


def _fits(found: pa.DataType, parameter: Parameter) -> bool:
    if pa.types.is_null(found):
        return True
    if not isinstance(parameter, RowParameter):
        return parameter.type.accepts(found)
    keys = parameter.table.key_columns
    if len(keys) == 1:
        return keys[0].type.accepts(found)
    if not pa.types.is_struct(found):
        return False
    types = {found.field(i).name: found.field(i).type for i in range(found.num_fields)}
    return all(key.name in types and key.type.accepts(types[key.name]) for key in keys)


def _bind_flat(column: pa.Array, parameter: Parameter, strings: StringPool) -> Bound:
    if not isinstance(parameter, RowParameter):
        values, unfit = checked_values(column, parameter.type, strings)
        valid = None if parameter.type.optional else valid_mask(column)
        return Bound(read_only(values), None, valid, None, unfit)
    keys = parameter.table.key_columns
    parts = [column] if len(keys) == 1 else [_struct_field(column, key) for key in keys]
    valid = valid_mask(column)
    nan: Array | None = None
    for part, key in zip(parts, keys, strict=True):
        valid = _merge_valid(valid, valid_mask(part))
        if key.kind is Kind.FLOAT and pa.types.is_floating(part.type):
            found = np.isnan(np.asarray(part.to_numpy(zero_copy_only=False)))
            found &= valid_mask(part) if part.null_count else True
            nan = found if nan is None else nan | found
    words, unfit = checked_words(parts, parameter.table, strings)
    return Bound(read_only(words), None, valid, nan if nan is not None and nan.any() else None, unfit)


def _struct_field(column: pa.StructArray, key: Column) -> pa.Array:
    return pc.struct_field(column, key.name)


def _merge_valid(first: Array | None, second: Array | None) -> Array | None:
    if first is None or second is None:
        return second if first is None else first
    return first & second


def _rows_with(offsets: Array, marked: Array | None) -> Array | None:
    """Which lists contain a marked element."""
    if marked is None:
        return None
    before = np.concatenate([[0], np.cumsum(marked)])
    return np.asarray(before[offsets[1:]] > before[offsets[:-1]])


def _rows_without(offsets: Array, marked: Array | None) -> Array | None:
    found = _rows_with(offsets, marked)
    return None if found is None else ~found
