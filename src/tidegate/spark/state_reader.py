"""`read_state`: a table of a state as a DataFrame, at the newest version or at one that is kept.

The version is chosen when `read_state` is called and stays what it is, whatever a running query commits
afterwards. The rows are read by a task when an action runs: a one-row DataFrame is turned into the
table's rows, so the plan holds a path and a number, never data.

What cannot be read is refused at the call: no state, no such table, a version that is not kept, a table
declared otherwise than it is stored. Reading needs no owner and makes no file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from tidegate.api.table import layout_of
from tidegate.durability.stored_rows import rows_at
from tidegate.durability.versions import VersionStore
from tidegate.foundation.errors import InputError
from tidegate.foundation.storage import open_storage
from tidegate.operations.layout import TableLayout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_ROWS = 1 << 16


def read_state(spark: SparkSession, path: str | os.PathLike[str], table: type, version: int | None = None) -> DataFrame:
    """The rows of a table of a state.

    Args:
        spark: the session that reads them.
        path: what `transact` was given as `state`.
        table: the class declared with `@tg.table`; fields that are new since then have their defaults.
        version: a version as `tidegate state ls` lists them; None is the newest.
    """
    layout = layout_of(table)
    if layout is None:
        raise InputError(f"read_state: required a class declared with @tg.table, got {table!r}")
    storage = open_storage(os.fspath(path))
    store = VersionStore(storage)
    if store.newest() is None:
        raise InputError(
            f"read_state: there is no state at {storage.path}: no batch was committed there yet, or the path "
            "is another one than transact(..., state=...) got."
        )
    info, _ = store.load(version, layouts=[layout])
    held = {stored.name for stored in info.layouts}
    if layout.name not in held:
        raise InputError(
            f"read_state: the state at {storage.path} holds no table {layout.name!r} in version "
            f"{info.version}; its tables are {', '.join(sorted(held))}"
        )
    reader = make_reader(storage.path, layout, info.version)
    return spark.range(0, 1, 1, 1).mapInArrow(reader, from_arrow_schema(layout.arrow_schema))


def make_reader(
    path: str, layout: TableLayout, version: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`: one row in, the table's rows out."""

    def reader(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if any([batch.num_rows for batch in batches]):  # a list: the input is to be read to its end
            yield from _read(path, layout, version)

    return reader


def _read(path: str, layout: TableLayout, version: int) -> Iterator[pa.RecordBatch]:
    rows = rows_at(VersionStore(open_storage(path)), layout, version)
    yield from rows.to_batches(max_chunksize=BATCH_ROWS)
