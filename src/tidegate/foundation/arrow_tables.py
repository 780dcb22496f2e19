"""Data in the forms that people have it in, as one Arrow table.

    pyarrow.Table, RecordBatch                  as they are
    pandas.DataFrame                            its columns; a named index is a column, too
    [{"id": 1, "balance": 100}, ...]            a column for each key that any of the rows has, null where it lacks
    {"id": [1, 2], "balance": [100, 0]}         a column for each entry
    anything else that Arrow can read           `__arrow_c_stream__`: polars, DuckDB and others

What cannot become a table is refused with what was required and got. Types are checked by whoever takes the table.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from tidegate.foundation.arguments import refusal
from tidegate.foundation.errors import InputError


class ArrowStream(Protocol):
    """Data that Arrow can read: tables of pyarrow, pandas, polars and others."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


RowData: TypeAlias = pa.Table | pa.RecordBatch | ArrowStream | Sequence[Mapping[str, Any]] | Mapping[str, Sequence[Any]]
"""Rows, or events, in any form that `as_table` takes."""

_REQUIRED = "a pyarrow.Table, a RecordBatch, a pandas.DataFrame or a list of dicts"


def as_table(what: str, given: Any) -> pa.Table:
    """The rows as an Arrow table; InputError for anything that is none, or has two columns of one name."""
    table = given if isinstance(given, pa.Table) else _converted(what, given)
    names = table.column_names
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{what}: {names.count(repeated)} columns are called {repeated!r}; rename or drop all but one")
    return table


def _converted(what: str, given: Any) -> pa.Table:
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    try:
        return _made(what, given)
    except (ValueError, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise InputError(
            f"{what}: {type(given).__name__} cannot become an Arrow table: {error}; give each column values of one type"
        ) from error


def _made(what: str, given: Any) -> pa.Table:
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(given, pandas.DataFrame):
        named = all(name is not None for name in given.index.names)
        return pa.Table.from_pandas(given, preserve_index=named).replace_schema_metadata(None)
    if type(given).__module__.startswith("pyspark."):
        raise InputError(
            f"{what}: required {_REQUIRED}, got a Spark {type(given).__name__}; collect it with .toArrow(), or let "
            "Spark run the transactions: tidegate.spark.transact"
        )
    if isinstance(given, list | tuple) and all(isinstance(row, Mapping) for row in given):
        names = dict.fromkeys(name for row in given for name in row)
        if all(isinstance(name, str) for name in names):
            return pa.table({name: pa.array([row.get(name) for row in given]) for name in names})
    elif isinstance(given, Mapping):
        if all(isinstance(name, str) for name in given) and all(_is_column(values) for values in given.values()):
            return pa.table(dict(given))
    elif hasattr(given, "__arrow_c_stream__"):
        return pa.table(given)
    raise refusal(what, _REQUIRED, given, InputError)


def _is_column(values: Any) -> bool:
    return hasattr(values, "__len__") and not isinstance(values, str | bytes | Mapping)
