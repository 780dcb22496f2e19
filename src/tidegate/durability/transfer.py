"""Tables of a state as Parquet files, out and in.

    state ── export_table ──> Account.parquet ── (any tool) ──> import_table ──> state, one version later

Exporting reads a version that may be in use, and holds some sections in memory, never a table: rows come in no order.
The file appears under its name when it is complete. It says in its metadata which table it is of, so that importing it
into an empty state needs no more.

Importing is a version of its own (administration.py), made while nobody works on the state. Rows are checked as
`engine.load` checks them; fields that the file lacks take their defaults. Each row replaces the one with its key; with
`replace` rows whose keys are not in the file go.

Cost of importing: the file's rows in memory, and with `replace` those of the table as well.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidegate.api.table import RESERVED
from tidegate.durability import evolution
from tidegate.durability.administration import HIDDEN, Administration
from tidegate.durability.row_changes import changes_between
from tidegate.durability.row_reading import read_files, require_table
from tidegate.durability.stored_rows import rows_at
from tidegate.durability.version_files import Told, VersionFiles
from tidegate.durability.version_info import VersionInfo
from tidegate.durability.versions import VersionStore
from tidegate.engine.loading import stored_rows
from tidegate.foundation.errors import InputError
from tidegate.foundation.storage import Storage
from tidegate.operations.layout import Column, TableLayout
from tidegate.operations.values import type_of_column

ROW_GROUP_BYTES = 32 << 20
"""What a row group has at least, as rows in memory: small ones are slow to read, large ones take memory to write."""

_TABLE = b"tidegate.table"


@dataclass(frozen=True, slots=True)
class Exported:
    """How many rows of which version were written."""

    version: VersionInfo
    rows: int


@dataclass(frozen=True, slots=True)
class Imported:
    """The new version, the one below it (0: there was no state), and how many rows were read and how many went.

    `version` is None when all rows were as they are in the file, and nothing was written.
    """

    version: VersionInfo | None
    below: int
    rows: int
    removed: int


def export_table(
    storage: Storage,
    table: str,
    target: str,
    version: int | None = None,
    told: Told = lambda size: None,
    started: Callable[[int], None] = lambda size: None,
) -> Exported:
    """Writes the rows of a table at a version (None: the newest) to a Parquet file."""
    from pyarrow import parquet

    unfinished = f"{target}.{uuid.uuid4().hex}"

    def write(info: VersionInfo, files: VersionFiles) -> Exported:
        layout = require_table(storage.path, info, table)
        started(files.size(table))
        schema = layout.arrow_schema.with_metadata({_TABLE: json.dumps(layout.to_json()).encode()})
        count = 0
        with open(unfinished, "wb") as file, parquet.ParquetWriter(file, schema) as writer:
            for rows in _grouped(files.rows(layout)):
                writer.write_table(rows.replace_schema_metadata(schema.metadata))
                count += rows.num_rows
        os.replace(unfinished, target)
        return Exported(info, count)

    try:
        return read_files(storage, version, write, told)
    except OSError as error:
        raise InputError(f"{target}: could not write it: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)


def _grouped(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables that are large enough for a row group each."""
    held: list[pa.Table] = []
    for table in tables:
        held.append(table)
        if sum(part.nbytes for part in held) >= ROW_GROUP_BYTES:
            yield pa.concat_tables(held)
            held = []
    if held:
        yield pa.concat_tables(held)


def read_parquet(
    source: str, told: Told = lambda size: None, started: Callable[[int], None] = lambda size: None
) -> pa.Table:
    """All rows of a Parquet file."""
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(source) as file:
            sizes = [file.metadata.row_group(number).total_byte_size for number in range(file.num_row_groups)]
            started(sum(sizes))
            groups = [file.schema_arrow.empty_table()]
            for number, size in enumerate(sizes):
                groups.append(file.read_row_group(number))
                told(size)
    except FileNotFoundError:
        raise InputError(f"{source}: there is no such file") from None
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{source}: required a Parquet file, could not read it: {error}") from error
    return pa.concat_tables(groups)


def import_table(
    storage: Storage, table: str, rows: pa.Table, replace: bool = False, key: Sequence[str] = ()
) -> Imported:
    """Puts rows into a table of a state, in one version; with `key` the table, or the state, may be new."""
    administration = Administration(VersionStore(storage))
    newest = administration.newest
    layouts = {layout.name: layout for layout in newest.layouts} if newest else {}
    layout = layouts.get(table)
    if layout is None:
        layout = _new_table(storage.path, table, rows.schema, tuple(key), None if newest is None else sorted(layouts))
    elif key and set(key) != set(layout.key):
        raise InputError(f"{storage.path}: the key of {table} is ({', '.join(layout.key)}), got ({', '.join(key)})")
    below = 0 if newest is None else newest.version
    given = stored_rows(layout, rows)
    if replace and table in layouts:
        changes = changes_between(layout, rows_at(administration.store, layout), given)
    else:
        changes = evolution.upgrade(given, layout)
    if table in layouts and changes.num_rows == 0:
        return Imported(None, below, given.num_rows, 0)
    kept = changes.column(evolution.EXISTS.name).to_pylist() if replace else []
    written = administration.commit({table: changes}, layouts=tuple({**layouts, table: layout}.values()))
    return Imported(written, below, given.num_rows, kept.count(False))


def _new_table(path: str, name: str, schema: pa.Schema, key: tuple[str, ...], known: list[str] | None) -> TableLayout:
    """The layout of a table that is not there yet: as the file says, or by its columns and the key."""
    told = _layout_in(schema)
    if not key and known is None and told is not None:
        key = told.key
    if not key:
        there = "no state yet" if known is None else f"no table {name!r}: this state has {', '.join(known) or 'none'}"
        raise InputError(
            f"{path}: there is {there}. To make {name} of the columns of the file, say which of them are its key: "
            f"--key {schema.names[0] if schema.names else 'FIELD'}"
        )
    if not name.isidentifier() or name.startswith(HIDDEN):
        raise InputError(f"{path}: required the name of a table, as a program declares it, got {name!r}")
    missing = [field for field in key if field not in schema.names]
    if missing or len(set(key)) != len(key):
        raise InputError(f"{path}: the key ({', '.join(key)}) is not among the columns: {', '.join(schema.names)}")
    if told is not None:
        return dataclasses.replace(told, name=name, key=key)
    return TableLayout(name, tuple(_column(path, field) for field in schema), key)


def _layout_in(schema: pa.Schema) -> TableLayout | None:
    """The layout that an exported file says it is of; None where the columns are others by now."""
    written: Any = (schema.metadata or {}).get(_TABLE)
    if written is None:
        return None
    layout = TableLayout.from_json(json.loads(written))
    same = {field.name: field.type for field in layout.arrow_schema} == {field.name: field.type for field in schema}
    return layout if same else None


def _column(path: str, field: pa.Field) -> Column:
    if field.name in RESERVED or field.name.startswith("_") or not field.name.isidentifier():
        raise InputError(f"{path}: no field of a table can be called {field.name!r}; rename the column")
    kind = type_of_column(field.type)
    if kind is None:
        raise InputError(f"{path}: column {field.name!r} has type {field.type}, which no field of a table can hold")
    return Column(field.name, kind, kind.zero)
