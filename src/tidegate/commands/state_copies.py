"""`tidegate state backup` and `restore`, and `tidegate recover`: states made of states.

A backup is the newest version of a live state, and restoring it gives the same state. What can still be had of a
damaged state, or of an earlier version, becomes a state of its own by `recover`. `durability.copying` and
`durability.recovery` explain how they stay consistent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.commands.state_printing import Json, Path, open_state, print_json, progress, say

if TYPE_CHECKING:
    from tidegate.durability.copying import Copied
    from tidegate.foundation.storage import Storage


def backup(
    path: Path,
    to: Annotated[str, typer.Argument(help="Where the backup is, or is to be: a folder or a URL of its own.")],
    as_json: Json = False,
) -> None:
    """Copy the newest version of a state, while queries go on.

    Every byte is checked on the way. A backup that is there already is brought up to date: only what is missing is
    copied, and nothing is removed from it. An interrupted backup can be run again.

    Examples:

    * `tidegate state backup state/ledger backups/ledger`

    * `tidegate state backup state/ledger s3://bucket/ledger`
    """
    from tidegate.durability.copying import back_up

    source, target = open_state(path), open_state(to)
    with progress("copying") as (told, started):
        result = back_up(source, target, told, started)
    if as_json:
        print_json(_record(target, result))
    else:
        version = result.version.version
        copied = f"{result.files} files, {result.size:,} bytes copied" if result.files else "nothing was missing"
        say(
            f"{target.path}: version {version} of state {result.version.state}; {copied}",
            f"To check it: tidegate state verify {target.path}",
            f"To get it back: tidegate state restore {target.path} PLACE",
        )


def restore(
    source: Annotated[str, typer.Argument(metavar="FROM", help="A backup.")],
    to: Annotated[str, typer.Argument(help="A new or an empty place for the state.")],
    as_json: Json = False,
) -> None:
    """Make a state of a backup, in an empty place.

    It is the same state, with the same id, at the version that the backup has: let only one of the two go on. A query
    that went on after the backup was made is refused, and its message says how to adopt it.

    Example: `tidegate state restore backups/ledger state/ledger`
    """
    from tidegate.durability import copying

    backed_up, target = open_state(source), open_state(to)
    with progress("copying") as (told, started):
        result = copying.restore(backed_up, target, told, started)
    if as_json:
        print_json(_record(target, result))
    else:
        say(
            f"{target.path}: version {result.version.version} of state {result.version.state}; {result.files} files, "
            f"{result.size:,} bytes copied and checked",
            "Start the query again. If it went on after the backup was made, its message says how to adopt it.",
        )


def recover(
    path: Path,
    into: Annotated[str, typer.Option("--into", help="A new or an empty place for the new state.")],
    to: Annotated[
        int | None, typer.Option("--to", help="Which version; the newest that can be rebuilt if not given.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a new state of one version of a state that is damaged, or should go on from earlier.

    Only the files that this version needs have to be sound. The new state has an id of its own and knows what was
    applied up to that version: a query whose checkpoint is newer is refused until it is adopted. The old state is left
    as it is.

    Examples:

    * `tidegate recover state/ledger --into state/recovered`

    * `tidegate recover state/ledger --to 41 --into state/recovered`
    """
    from tidegate.durability import recovery

    source, target = open_state(path), open_state(into)
    result = recovery.recover(source, target, to)
    version = result.version
    if as_json:
        rows = {"rows": version.rows, "newest": result.newest}
        print_json({"path": target.path, "state": version.state, "version": version.version, **rows})
        return
    tables = ", ".join(f"{name} {count:,}" for name, count in version.rows.items()) or "no tables"
    lines = [f"{target.path}: state {version.state}, at version {version.version} ({tables})"]
    following = version.version + 1
    if result.newest >= following:
        left_out = f"Version {following} of {source.path} is" if result.newest == following else ""
        lines.append(f"{left_out or f'Versions {following} to {result.newest} of {source.path} are'} not in it.")
    say(*lines, "Start the query with this path. If its checkpoint is newer, its message says how to adopt it.")


def _record(target: Storage, result: Copied) -> dict[str, Any]:
    version = result.version
    return {
        "path": target.path,
        "state": version.state,
        "version": version.version,
        "files": result.files,
        "bytes": result.size,
    }
