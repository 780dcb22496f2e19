"""`tidegate state`: look into the state that queries keep, and check it.

    ls        which versions there are, what made them, who owns the state
    show      rows of a table at a version
    diff      what changed between two versions
    verify    every byte of every file against its checksum, and the history for holes
    release   give the state free when its owner is known to be gone

All of them but `release` only read; they work beside a running query. Every one takes `--json`, which
prints one JSON value and nothing else.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box, filesize
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidegate.commands.literal import literal, visible

if TYPE_CHECKING:
    from tidegate.commands.row_differences import Difference
    from tidegate.durability.version_info import Owner
    from tidegate.durability.versions import VersionInfo, VersionStore

app = typer.Typer(no_args_is_help=True, help="Look into stored state: versions, rows, changes, checksums.")

Path = Annotated[str, typer.Argument(help="The state's path, as it was given to transact(state=...).")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
TableName = Annotated[str | None, typer.Option("--table", help="Which table; not needed if there is one.")]
Limit = Annotated[int, typer.Option(min=0, help="Show at most this many rows; 0 shows all.")]


@app.command("ls")
def list_versions(path: Path, as_json: Json = False) -> None:
    """List the versions that can be read, what made each of them, and who owns the state.

    Example: `tidegate state ls state/ledger`
    """
    from tidegate.durability import ownership

    store = _open(path)
    infos, owner = store.infos(), ownership.current(store.storage)
    if not infos:
        store.load(None)  # raises, and says that there is no state here
    if as_json:
        versions = [_version_record(info) for info in infos]
        _print_json({"path": store.storage.path, "owner": _owner_record(owner), "versions": versions})
        return
    console = Console()
    table = _table(store.storage.path)
    for heading in ("version", "kind", "query", "batch", "made at"):
        table.add_column(heading, no_wrap=True, justify="right" if heading in ("version", "batch") else "left")
    for heading in ("events", "aborted", "rows", "size"):
        table.add_column(heading, no_wrap=True, justify="right")
    moments = [datetime.fromtimestamp(info.created_at) for info in infos]
    one_day = len({moment.date() for moment in moments}) == 1
    for info, moment in zip(infos, moments, strict=True):
        one_table = len(info.rows) == 1
        table.add_row(
            f"{info.version}",
            info.kind,
            literal(info.query[:8]),
            f"{info.batch}" if info.events else "",
            f"{moment:%H:%M:%S}" if one_day else f"{moment:%Y-%m-%d %H:%M:%S}",
            f"{info.events:,}",
            f"{info.events - info.committed:,}",
            Text("\n".join(f"{n:,}" if one_table else f"{visible(name)} {n:,}" for name, n in info.rows.items())),
            filesize.decimal(info.size, precision=0),
        )
    console.print(table)
    console.print(literal(_owner_line(owner)))


@app.command("show")
def show_rows(
    path: Path,
    table: TableName = None,
    version: Annotated[int | None, typer.Option(help="Which version; the newest if not given.")] = None,
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
        _print_json(shown.to_pylist())
        return
    view = _table(f"{layout.name}: {rows.num_rows:,} rows")
    for column in layout.columns:
        view.add_column(literal(f"{column.name}{' (key)' if column.name in layout.key else ''}"), justify="right")
    for row in shown.to_pylist():
        view.add_row(*map(literal, row.values()))
    console = Console()
    console.print(view)
    _print_rest(console, rows.num_rows - shown.num_rows)


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
        _print_json([{**asdict(each), "what": each.what} for each in shown])
        return
    counts = {what: sum(each.what == what for each in found) for what in ("added", "removed", "changed")}
    console = Console()
    view = _table(", ".join(f"{count:,} {what}" for what, count in counts.items()))
    for heading in ("table", "key", "", "before", "after"):
        view.add_column(heading)
    styles = {"added": "green", "removed": "red", "changed": ""}
    for each in shown:
        key = ", ".join(f"{value}" for value in each.key.values())
        view.add_row(*map(literal, (each.table, key, each.what, *_cells(each))), style=styles[each.what])
    console.print(view)
    _print_rest(console, len(found) - len(shown))


@app.command("verify")
def verify_files(path: Path, as_json: Json = False) -> None:
    """Read every file, compare it with its checksums, and look for holes in the history.

    Ends with exit code 1 when anything is wrong. Example: `tidegate state verify state/ledger`
    """
    from tidegate.commands.state_check import check_files

    store = _open(path)
    report = check_files(store)
    if as_json:
        _print_json(asdict(report) | {"sound": report.sound})
    else:
        console = Console()
        view = _table(store.storage.path)
        for heading in ("file", "rows", "bytes", "checksums"):
            view.add_column(heading, justify="right" if heading in ("rows", "bytes") else "left")
        for file in report.files:
            verdict = literal(file.problem, "red") if file.problem else Text("✓", "green")
            view.add_row(literal(file.name), f"{file.rows:,}", f"{file.size:,}", verdict)
        console.print(view)
        for problem in report.history_problems:
            console.print(Text.assemble(("✗ ", "red"), literal(problem)), soft_wrap=True)
        if report.sound:
            size = sum(file.size for file in report.files)
            console.print(
                f"[green]✓[/green] {len(report.files)} files, {size:,} bytes: all as they were written; "
                f"versions {report.oldest} to {report.newest} can be read",
                highlight=False,
            )
    if not report.sound:
        raise typer.Exit(1)


@app.command("release")
def release_owner(
    path: Path,
    force: Annotated[bool, typer.Option("--force", help="Also when the owner's process still runs.")] = False,
    as_json: Json = False,
) -> None:
    """Give the state free, for when its owner is known to be gone but nobody can tell.

    The same query takes its state over by itself, and so does any other where locks show that the owner is gone. This
    is needed on object stores, which have no locks, to let another query in: only you can know.

    Example: `tidegate state release state/ledger`
    """
    from tidegate.durability import ownership
    from tidegate.foundation.errors import StateOwned

    storage = _open(path).storage
    owner = ownership.current(storage)
    if owner is not None and not force and ownership.is_alive(storage, owner):
        raise StateOwned(
            f"{storage.path}: {_owner_line(owner)}, and a process of it still runs. Stop the query, or use "
            "--force if you are sure that it does not use this state any more."
        )
    released = owner is not None and ownership.release(storage, owner.query)
    if as_json:
        _print_json({"path": storage.path, "released": released, "owner": _owner_record(owner)})
    else:
        told = f"released; it was {_owner_line(owner)}" if released else "nothing to release: no query owns it"
        Console().print(literal(f"{storage.path}: {told}"), soft_wrap=True)


def _table(title: str) -> Table:
    """An empty table that fits many columns into a narrow terminal."""
    return Table(
        title=literal(title, "bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )


def _open(path: str) -> VersionStore:
    from tidegate.durability.versions import VersionStore
    from tidegate.foundation.storage import open_storage

    return VersionStore(open_storage(path))


def _version_record(info: VersionInfo) -> dict[str, Any]:
    record = asdict(info)
    record["tables"] = [layout.to_json() for layout in info.layouts]
    del record["layouts"]
    return record


def _owner_record(owner: Owner | None) -> dict[str, Any] | None:
    return None if owner is None else asdict(owner)


def _owner_line(owner: Owner | None) -> str:
    if owner is None:
        return "owned by no query"
    return f"owned by query {owner.query} ({owner.name})"


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


def _print_rest(console: Console, left_out: int) -> None:
    if left_out > 0:
        console.print(f"and {left_out:,} more; --limit 0 shows all", style="dim", highlight=False)


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2))
