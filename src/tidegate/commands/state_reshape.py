"""`tidegate state rename-table`, `rename-field` and `drop-field`: tables and fields as the program calls them now.

Each makes one new version, while no query runs, and says how to undo it. `durability.reshaping` explains how.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.commands.state_printing import (
    Json,
    Path,
    TableArgument,
    complete_table,
    open_state,
    print_json,
    progress,
    say,
)

if TYPE_CHECKING:
    from tidegate.durability.reshaping import Reshaped, Reshaping


def rename_table(
    path: Path,
    old: Annotated[str, typer.Argument(help="The table, as the state calls it.", autocompletion=complete_table)],
    new: Annotated[str, typer.Argument(help="What the program calls it now.")],
    as_json: Json = False,
) -> None:
    """Give a table of the state another name, as a new version; no query may be running on it.

    Queries go on with their next batch, with a program that has the new name.

    Example: `tidegate state rename-table state/ledger Account Konto`
    """
    _reshape(path, lambda state: state.rename_table(old, new), f"{old} is called {new}", as_json)


def rename_field(
    path: Path,
    table: TableArgument,
    old: Annotated[str, typer.Argument(help="The field, as the state calls it.")],
    new: Annotated[str, typer.Argument(help="What the program calls it now.")],
    as_json: Json = False,
) -> None:
    """Give a field of a table another name, as a new version; no query may be running on the state.

    Example: `tidegate state rename-field state/ledger Account balance saldo`
    """
    named = f"{table}.{old} is called {table}.{new}"
    _reshape(path, lambda state: state.rename_field(table, old, new), named, as_json)


def drop_field(
    path: Path,
    table: TableArgument,
    field: Annotated[str, typer.Argument(metavar="FIELD", help="The field; not one of the key.")],
    as_json: Json = False,
) -> None:
    """Remove a field of a table with its values, as a new version; no query may be running on the state.

    Earlier versions keep the values for as long as they are kept.

    Example: `tidegate state drop-field state/ledger Account nickname`
    """
    _reshape(path, lambda state: state.drop_field(table, field), f"{table} has no field {field} any more", as_json)


def _reshape(path: str, act: Callable[[Reshaping], Reshaped], what: str, as_json: bool) -> None:
    from tidegate.durability.reshaping import Reshaping

    storage = open_state(path)
    with progress("rewriting") as (told, started):
        done = act(Reshaping(storage, told, started))
    undo = f"tidegate state rollback {storage.path} --to {done.below}"
    version, rows = done.version.version, "1 row" if done.rows == 1 else f"{done.rows:,} rows"
    if as_json:
        print_json({"path": storage.path, "version": version, "rows": done.rows, "undo": undo})
        return
    say(
        f"{storage.path}: version {version}: {what} ({rows})",
        f"To undo it: {undo}",
        "Start the query again, with a program that declares it so.",
    )
