"""`tidegate state`: look into the state that queries keep, and check it.

    ls        which versions there are, what made them, who owns the state
    served    which batches were applied, by whom
    show      rows of a table at a version
    get       one row                                              state_rows.py
    diff      what changed between two versions
    release   release the state when its owner is known to be gone

    verify, scrub      is it as it was written?                    state_check.py
    adopt, rollback    what a person decides about it              state_repair.py
    rename-table, rename-field, drop-field                         state_reshape.py
    backup, restore    copies                                      state_copies.py
    export, import     tables as Parquet files                     state_rows.py

What only reads works beside a running query. `--json` prints one JSON value and nothing else.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from tidegate.commands import state_check, state_copies, state_repair, state_reshape, state_rows, version_list
from tidegate.commands.literal import literal
from tidegate.commands.state_printing import (
    Json,
    Path,
    Version,
    complete_table,
    empty_table,
    open_state,
    print_json,
    say,
)

if TYPE_CHECKING:
    from tidegate.commands.row_differences import Difference
    from tidegate.durability.versions import VersionInfo, VersionStore

app = typer.Typer(
    no_args_is_help=True, help="Look into stored state, check it, copy it, and tell it what it cannot know."
)

VERSIONS_SHOWN = 20

TableName = Annotated[
    str | None,
    typer.Option("--table", help="Which table; not needed if there is one.", autocompletion=complete_table),
]
Limit = Annotated[int, typer.Option(min=0, help="Show at most this many rows; 0 shows all.")]


@app.command("ls")
def list_versions(
    path: Path,
    limit: Annotated[
        int | None, typer.Option(min=1, help="List at most this many, the newest; 20 if not given.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="List all of them.")] = False,
    as_json: Json = False,
) -> None:
    """List the newest versions that can be read, what made each of them, the state's id, and who owns it.

    A version of the kind `events` holds its batch's events in place of rows: only the program that ran them reads it.
    One of the kind `whole` holds all rows, because tables or fields got other names. A narrow terminal shows fewer
    columns; `--json` has everything, and all versions unless `--limit` is given.

    Examples:

    * `tidegate state ls state/ledger`

    * `tidegate state ls state/ledger --all`
    """
    store = _open(path)
    versions = store.refresh()
    if not versions:
        store.load(None)  # raises, and says that there is no state here
    count = limit or (len(versions) if every or as_json else VERSIONS_SHOWN)
    infos = [store.info(version) for version in versions[-count:]]
    newest, older = infos[-1], len(versions) - len(infos)
    owner = _owner_record(store, newest)
    if as_json:
        listed = [_version_record(info) for info in infos]
        record = {"path": store.storage.path, "state": newest.state, "owner": owner, "versions": listed, "older": older}
        print_json(record)
        return
    console = Console()
    left_out = version_list.show(console, store.storage.path, infos)
    if older:
        say(f"and {older:,} older; --all lists them")
    if left_out:
        console.print(f"no room for: {', '.join(left_out)}; a wider terminal or --json shows them", highlight=False)
    say(f"state {newest.state}", _owner_line(owner))


@app.command("served")
def list_served(path: Path, as_json: Json = False) -> None:
    """List who had batches applied, the last one of each, and the version that it made.

    A batch is never applied again. The calls of a foreachBatch are listed as QUERY/0, QUERY/1 and so on, batch
    DataFrames as batch-NAME; a batch without a version was adopted (`tidegate state adopt`).

    Example: `tidegate state served state/ledger`
    """
    store = _open(path)
    if store.tip() is None:
        store.load(None)  # raises, and says that there is no state here
    lines = sorted(store.served.lines().items(), key=lambda item: (item[1].version, item[0]))
    if as_json:
        found = [{"applicant": name, "batch": line.batch, "version": line.version or None} for name, line in lines]
        print_json({"path": store.storage.path, "horizon": store.served.horizon, "served": found})
        return
    table = empty_table(store.storage.path)
    for heading in ("applicant", "last batch", "version"):
        table.add_column(heading, justify="left" if heading == "applicant" else "right", overflow="fold")
    for name, line in lines:
        table.add_row(literal(name), f"{line.batch}", f"{line.version}" if line.version else "adopted")
    Console().print(table)
    if store.served.horizon:
        say(f"batch DataFrames up to version {store.served.horizon} are no longer remembered one by one")


@app.command("show")
def show_rows(
    path: Path,
    table: TableName = None,
    version: Version = None,
    key: Annotated[
        list[str] | None, typer.Option(help="Only the row of this key; once for each field of the key.")
    ] = None,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """Show the rows of a table at a version, in the order of their keys.

    Examples:

    * `tidegate state show state/ledger`

    * `tidegate state show state/ledger --table Account --version 12 --key 42`
    """
    from tidegate.commands import row_differences
    from tidegate.durability.stored_rows import rows_at

    store = _open(path)
    layout = row_differences.choose_table(row_differences.layouts_at(store, version), table)
    rows = rows_at(store, layout, version)
    if key:
        rows = row_differences.with_key(layout, rows, key)
    shown = rows.slice(0, limit) if limit else rows
    if as_json:
        print_json(shown.to_pylist())
        return
    expires = f", each until {layout.lifetime} after {layout.by}" if layout.expires else ""
    view = empty_table(f"{layout.name}: {rows.num_rows:,} rows{expires}")
    for column in layout.columns:
        heading = literal(f"{column.name}{' (key)' if column.name in layout.key else ''}")
        view.add_column(heading, justify="right", overflow="fold")
    for row in shown.to_pylist():
        view.add_row(*map(literal, row.values()))
    console = Console()
    console.print(view)
    _print_rest(console, rows.num_rows - shown.num_rows)
    if version is None:
        _note_uncovered(store)


@app.command("diff")
def show_difference(
    path: Path,
    before: Annotated[int, typer.Argument(help="The older version; 0 is the empty state.")],
    after: Annotated[int | None, typer.Argument(help="The newer version; the newest if not given.")] = None,
    table: TableName = None,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """Show which rows were added, removed or changed between two versions.

    Example: `tidegate state diff state/ledger 11 12`
    """
    from tidegate.commands import row_differences
    from tidegate.durability.stored_rows import rows_at

    store = _open(path)
    layouts = row_differences.layouts_at(store, after)
    chosen = [row_differences.choose_table(layouts, table)] if table else list(layouts.values())
    older = row_differences.layouts_at(store, before) if before else {}
    found: list[Difference] = []
    for layout in chosen:
        known = layout.name in older
        old = rows_at(store, layout, before) if known else layout.arrow_schema.empty_table()
        found += row_differences.difference(layout, old, rows_at(store, layout, after))
    shown = found[:limit] if limit else found
    if as_json:
        print_json([{**asdict(each), "what": each.what} for each in shown])
        return
    counts = {what: sum(each.what == what for each in found) for what in ("added", "removed", "changed")}
    console = Console()
    view = empty_table(", ".join(f"{count:,} {what}" for what, count in counts.items()))
    for heading in ("table", "key", "", "before", "after"):
        view.add_column(heading, overflow="fold")
    styles = {"added": "green", "removed": "red", "changed": ""}
    for each in shown:
        key = ", ".join(f"{value}" for value in each.key.values())
        view.add_row(*map(literal, (each.table, key, each.what, *_cells(each))), style=styles[each.what])
    console.print(view)
    _print_rest(console, len(found) - len(shown))


@app.command("release")
def release_owner(
    path: Path,
    force: Annotated[bool, typer.Option("--force", help="Also when the owner's process still runs.")] = False,
    as_json: Json = False,
) -> None:
    """Release the state, when you know that its owner is gone and Tidegate cannot see it.

    The same query takes its state over by itself, and so does any other where locks show that the owner is gone. This
    is needed on object stores, which have no locks, to let another query in: only you can know.

    Example: `tidegate state release state/ledger`
    """
    from tidegate.durability import ownership
    from tidegate.foundation.errors import StateOwned

    storage = open_state(path)
    owner = ownership.current(storage)
    named = "no query" if owner is None else f"query {owner.query} ({owner.name})"
    if owner is not None and not force and ownership.is_alive(storage, owner):
        raise StateOwned(
            f"{storage.path}: owned by {named}, and a process of it still runs. Stop the query, or use --force if you "
            "are sure that it does not use this state any more."
        )
    released = owner is not None and ownership.release(storage, owner.query)
    if as_json:
        print_json({"path": storage.path, "released": released, "owner": None if owner is None else asdict(owner)})
    else:
        told = f"released; it was owned by {named}" if released else "nothing to release: no query owns it"
        say(f"{storage.path}: {told}")


app.command("verify")(state_check.verify)
app.command("scrub")(state_check.scrub)
app.command("adopt")(state_repair.adopt)
app.command("rollback")(state_repair.rollback)
app.command("get", context_settings={"ignore_unknown_options": True})(state_rows.get)  # keys may be negative
app.command("export")(state_rows.export_rows)
app.command("import")(state_rows.import_rows)
app.command("rename-table")(state_reshape.rename_table)
app.command("rename-field")(state_reshape.rename_field)
app.command("drop-field")(state_reshape.drop_field)
app.command("backup")(state_copies.backup)
app.command("restore")(state_copies.restore)


def _open(path: str) -> VersionStore:
    from tidegate.durability.versions import VersionStore

    return VersionStore(open_state(path))


def _version_record(info: VersionInfo) -> dict[str, Any]:
    record = asdict(info)
    record["tables"] = [layout.to_json() for layout in info.layouts]
    del record["layouts"]
    return record


def _owner_record(store: VersionStore, newest: VersionInfo) -> dict[str, Any] | None:
    """The owner, its epoch, and whether one of its processes still runs (None: unknown)."""
    from tidegate.durability import ownership

    if newest.owner is None or ownership.is_released(store.storage, newest.epoch):
        return None
    alive = ownership.is_alive(store.storage, newest.owner)
    return {**asdict(newest.owner), "epoch": newest.epoch, "alive": alive}


def _owner_line(owner: dict[str, Any] | None) -> str:
    if owner is None:
        return "owned by no query"
    alive = {True: "it is running", False: "it is not running", None: "whether it runs cannot be seen here"}
    return f"owned by query {owner['query']} ({owner['name']}) in epoch {owner['epoch']}; {alive[owner['alive']]}"


def _cells(difference: Difference) -> tuple[str, str]:
    """The fields that differ, as they were and as they are."""
    before, after = difference.before or {}, difference.after or {}
    names = [
        name
        for name in before or after
        if name not in difference.key and (not before or not after or before[name] != after[name])
    ]
    old = ", ".join(f"{name}={before[name]}" for name in names if before)
    new = ", ".join(f"{name}={after[name]}" for name in names if after)
    return old, new


def _note_uncovered(store: VersionStore) -> None:
    """Say that there is more than can be shown, where an engine logged commands behind its newest checkpoint."""
    from tidegate.durability import log_segments
    from tidegate.foundation.errors import RecoveryImpossible

    try:
        log_segments.require_covered(store.storage, store.newest())
    except RecoveryImpossible:
        say("note: an engine has done more than this: what it logged behind its newest checkpoint is not shown")


def _print_rest(console: Console, left_out: int) -> None:
    if left_out > 0:
        console.print(f"and {left_out:,} more; --limit 0 shows all", style="dim", highlight=False)
