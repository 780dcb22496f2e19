"""From Python values to Arrow: the arguments of one transaction as columns of one row, and the key of one row.

Values of a wrong type are refused here, with a message. `single` handles plain values without this step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.engine.intake import arrow_type
from tidegate.foundation.arguments import shown
from tidegate.foundation.errors import InputError
from tidegate.operations.layout import Kind, TableLayout, ValueType
from tidegate.operations.plan import Parameter, ProgramPlan, RowParameter, TransactionPlan


def argument_columns(plan: TransactionPlan, arguments: Mapping[str, Any]) -> dict[str, pa.Array]:
    """The arguments of a transaction as event columns of one row."""
    columns = {}
    for parameter in plan.parameters:
        value = arguments[parameter.name]
        try:
            columns[parameter.name] = _column_of_one(value, parameter)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError, KeyError) as error:
            raise InputError(
                f"transaction {plan.name!r}: argument {parameter.name!r} does not fit: got {shown(value)} ({error})"
            ) from error
    return columns


def key_values(layout: TableLayout, key: Any) -> tuple[Any, ...]:
    """A key as users write it, a value for each of its fields: one value, a tuple, or a dict."""
    if isinstance(key, dict):
        key = tuple(key.get(field) for field in layout.key)
    values = key if isinstance(key, tuple) else (key,)
    if len(values) != len(layout.key):
        raise InputError(f"{layout.name}: the key is ({', '.join(layout.key)}), got {shown(key)}")
    return values


def key_columns(layout: TableLayout, key: tuple[Any, ...]) -> list[pa.Array]:
    """A key as columns of one row."""
    try:
        parts = []
        for value, column in zip(key, layout.key_columns, strict=True):
            parts.append(pa.array([_given(value, column.type)], column.type.arrow))
            if value is None or value != value:
                raise ValueError("a key is never null or NaN")
        return parts
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError) as error:
        expected = ", ".join(f"{k.name}: {k.type.label}" for k in layout.key_columns)
        raise InputError(f"{layout.name}: the key is ({expected}), got {shown(key)} ({error})") from error


def _column_of_one(value: Any, parameter: Parameter) -> pa.Array:
    if parameter.many and isinstance(value, str | bytes):
        raise TypeError("required a list")
    return pa.array([converted(parameter, value, _given)], arrow_type(parameter))


def taken_arguments(plan: TransactionPlan, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a transaction as a batch takes them, in Python's types: converted, or refused."""
    columns = argument_columns(plan, arguments)
    return {p.name: converted(p, columns[p.name][0].as_py(), _taken) for p in plan.parameters}


def converted(parameter: Parameter, value: Any, convert: Callable[[Any, ValueType], Any]) -> Any:
    """An argument with each of its values converted: those of a list, and of a key's fields, which become a dict."""
    if value is None:
        return None if parameter.many else convert(None, _first_type(parameter))
    if parameter.many:
        return [_one(parameter, found, convert) for found in value]
    return _one(parameter, value, convert)


def _one(parameter: Parameter, value: Any, convert: Callable[[Any, ValueType], Any]) -> Any:
    if not isinstance(parameter, RowParameter) or len(parameter.table.key) == 1 or value is None:
        return convert(value, _first_type(parameter))
    parts = dict(zip(parameter.table.key, value, strict=True)) if isinstance(value, tuple) else value
    if not isinstance(parts, dict):
        raise TypeError(f"required a tuple or a dict with {', '.join(parameter.table.key)}")
    return {key.name: convert(parts[key.name], key.type) for key in parameter.table.key_columns}


def _first_type(parameter: Parameter) -> ValueType:
    return parameter.table.key_columns[0].type if isinstance(parameter, RowParameter) else parameter.type


def _given(value: Any, value_type: ValueType) -> Any:
    """A Python value as Arrow takes it; one of another type is refused: Arrow would cut a float down to an int."""
    if value is None:
        return None
    if isinstance(value_type, Kind):
        if not isinstance(value, _PLAIN_TYPES[value_type]):
            raise TypeError(f"required {value_type.label}")
        return value
    try:
        return value_type.give(value_type.fit(value))
    except TypeError:
        raise TypeError(f"required {value_type.label}") from None


def _taken(value: Any, value_type: ValueType) -> Any:
    return None if value is None else value_type.take(value)


_PLAIN_TYPES: dict[Kind, tuple[type, ...]] = {
    Kind.INT: (int, np.integer),
    Kind.FLOAT: (float, int, np.floating, np.integer),
    Kind.BOOL: (bool, np.bool_),
    Kind.STR: (str,),
}


def completed(plan: ProgramPlan, events: pa.Table) -> pa.Table:
    """Events of one transaction, with null columns for what the other transactions need."""
    for name in plan.columns:
        if name not in events.column_names:
            events = events.append_column(name, pa.nulls(events.num_rows))
    return events
