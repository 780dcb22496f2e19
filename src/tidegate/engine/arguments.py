"""From Python values to Arrow: the arguments of one transaction as columns of one row, and the key of one row.

Values of a wrong type are refused here, with a message. `single` handles plain values without this step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.engine.intake import arrow_type
from tidegate.foundation.arguments import shown
from tidegate.foundation.errors import InputError
from tidegate.operations.layout import Kind, TableLayout
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
            _check_plain(value, column.kind)
            parts.append(pa.array([value], column.kind.arrow))
            if value is None or value != value:
                raise ValueError("a key is never null or NaN")
        return parts
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError) as error:
        expected = ", ".join(f"{k.name}: {k.kind.value}" for k in layout.key_columns)
        raise InputError(f"{layout.name}: the key is ({expected}), got {shown(key)} ({error})") from error


def _column_of_one(value: Any, parameter: Parameter) -> pa.Array:
    if parameter.many and isinstance(value, str | bytes):
        raise TypeError("required a list")
    values = list(value) if parameter.many and value is not None else [value]
    if isinstance(parameter, RowParameter):
        keys = parameter.table.key_columns
        if len(keys) > 1:
            values = [dict(zip(parameter.table.key, v, strict=True)) if isinstance(v, tuple) else v for v in values]
        for key in keys:
            for found in values:
                _check_plain(found[key.name] if isinstance(found, dict) else found, key.kind)
    else:
        for found in values:
            _check_plain(found, parameter.kind)
    if value is not None:
        value = values if parameter.many else values[0]
    return pa.array([value], arrow_type(parameter))


def _check_plain(value: Any, kind: Kind) -> None:
    """Refuse a Python value of another type: Arrow would cut a float down to an int without a word."""
    if value is not None and not isinstance(value, _PLAIN_TYPES[kind]):
        raise TypeError(f"required {kind.value}")


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
