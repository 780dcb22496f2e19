"""`tidegate state get`, `export` and `import`: one row, and tables as Parquet files.

`durability.row_reading` and `durability.transfer` explain what is read and written.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from tidegate.commands.literal import literal
from tidegate.commands.state_printing import (
    Json,
    Path,
    TableArgument,
    Version,
    empty_table,
    open_state,
    print_json,
    progress,
    say,
)

if TYPE_CHECKING:
    from tidegate.foundation.storage import Storage
    from tidegate.operations.layout import TableLayout


def get(
    path: Path,
    table: TableArgument,
    key: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY...", help="The row's key: a value for each of its fields, or all as one JSON array."
        ),
    ],
    version: Version = None,
    as_json: Json = False,
) -> None:
    """Show one row, or say that there is none, with exit code 1; works beside a running query.

    Examples:

    * `tidegate state get state/ledger Account 42`

    * `tidegate state get state/cinema Seat B 7 --version 12 --json`

    * `tidegate state get state/cinema Seat '["row B", 7]'`
    """
    from tidegate.commands.row_differences import key_from
    from tidegate.durability.row_reading import find_row

    storage = open_state(path)
    layout = _layout(storage, table, version)
    wanted = key_from(layout, key)
    row = find_row(storage, layout, wanted, version)
    if as_json:
        print_json(row)
    elif row is not None:
        view = empty_table(layout.name)
        view.add_column("field", overflow="fold")
        view.add_column("value", overflow="fold")
        for name, value in row.items():
            view.add_row(literal(f"{name} (key)" if name in layout.key else name), literal(value))
        Console().print(view)
    else:
        shown = ", ".join(f"{name}={value!r}" for name, value in zip(layout.key, wanted, strict=True))
        Console(stderr=True).print(literal(f"{table} has no row with {shown}"), soft_wrap=True)
    if row is None:
        raise typer.Exit(1)


def export_rows(
    path: Path,
    table: TableArgument,
    to: Annotated[str, typer.Argument(metavar="OUT.parquet", help="The file to write.")],
    version: Version = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if there is one.")] = False,
    as_json: Json = False,
) -> None:
    """Write the rows of a table to a Parquet file, in no order; works beside a running query.

    Example: `tidegate state export state/ledger Account accounts.parquet`
    """
    from tidegate.durability.transfer import export_table
    from tidegate.foundation.errors import InputError

    storage = open_state(path)
    if os.path.exists(to) and not overwrite:
        raise InputError(f"{to}: there is something of that name already. Choose another, or use --overwrite.")
    with progress("exporting") as (told, started):
        done = export_table(storage, table, to, version, told, started)
    if as_json:
        print_json({"path": storage.path, "version": done.version.version, "rows": done.rows, "file": to})
    else:
        say(f"{to}: {_rows(done.rows)} of {table}, version {done.version.version} of {storage.path}")


def import_rows(
    path: Path,
    table: TableArgument,
    source: Annotated[str, typer.Argument(metavar="IN.parquet", help="A Parquet file with the columns of the table.")],
    replace: Annotated[bool, typer.Option("--replace", help="Remove rows whose keys are not in the file.")] = False,
    key: Annotated[
        list[str] | None, typer.Option("--key", help="Make a new table with this key; once for each of its fields.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Put the rows of a Parquet file into a table, as a new version; no query may be running on the state.

    Each row replaces the one with its key. Fields that the file lacks take their defaults. A path without a state
    becomes a new one: of a file that was exported, or with `--key`.

    Examples:

    * `tidegate state import state/ledger Account accounts.parquet`

    * `tidegate state import state/new Account accounts.parquet --key id`
    """
    from tidegate.durability.transfer import import_table, read_parquet

    storage = open_state(path)
    with progress("reading") as (told, started):
        rows = read_parquet(source, told, started)
        done = import_table(storage, table, rows, replace, key or ())
    undo = f"tidegate state rollback {storage.path} --to {done.below}" if done.below and done.version else None
    number = None if done.version is None else done.version.version
    if as_json:
        record = {"path": storage.path, "version": number, "rows": done.rows, "removed": done.removed, "undo": undo}
        print_json(record)
        return
    if number is None:
        say(f"{storage.path}: nothing to do: {table} has these rows already")
        return
    removed = f", {_rows(done.removed)} removed" if done.removed else ""
    say(f"{storage.path}: version {number}: {_rows(done.rows)} of {table} written{removed}")
    if undo is not None:
        say(f"To undo it: {undo}")


def _layout(storage: Storage, table: str, version: int | None) -> TableLayout:
    from tidegate.durability.row_reading import require_covered, require_table
    from tidegate.durability.version_reader import VersionReader

    info = VersionReader(storage).locate(version)
    if version is None:
        require_covered(storage, info)
    return require_table(storage.path, info, table)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"
