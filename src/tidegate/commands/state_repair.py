"""`tidegate state adopt` and `rollback`: what a person decides about a state is written down as a version.

Both refuse while a query works on the state. `durability.adoption` and `durability.rollback` explain what they do;
here, options become calls, and what was done becomes sentences that end with what to do next.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.commands.state_printing import Json, Path, open_state, print_json, say

if TYPE_CHECKING:
    from tidegate.foundation.storage import Storage

_NEXT = "Start the query again."

_Done = tuple[dict[str, Any], list[str]]
"""What a step of `adopt` did: as a JSON value, and as lines of text."""


def adopt(
    path: Path,
    query: Annotated[str | None, typer.Option(help="The query that is to go on here; together with --batch.")] = None,
    batch: Annotated[int | None, typer.Option(help="The batch that it goes on with; what is below is done.")] = None,
    lost: Annotated[bool, typer.Option("--lost", help="Accept that the newest versions are lost.")] = False,
    rename: Annotated[str | None, typer.Option(metavar="OLD=NEW", help="Table OLD is called NEW now.")] = None,
    new_table: Annotated[
        str | None, typer.Option(metavar="NEW=OLD", help="NEW is another table, though it looks like OLD.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Tell a state what it cannot know: where a query goes on, what is lost, what was renamed.

    A state refuses a query when going on could apply events twice, lose some, or hide rows, and its message says which
    of these commands helps if all is well. Nothing is deleted, and no batch is ever applied twice. With `--query` on a
    path without a state, a new and empty one is made.

    Examples:

    * `tidegate state adopt state/ledger --query 5b1f --batch 42`

    * `tidegate state adopt state/ledger --lost`

    * `tidegate state adopt state/ledger --rename Account=Konto`

    * `tidegate state adopt state/ledger --new-table Konto=Account`
    """
    if (query is None) != (batch is None):
        raise typer.BadParameter("--query and --batch go together: which query, and the batch that it goes on with.")
    if query is None and not lost and rename is None and new_table is None:
        raise typer.BadParameter("say what to adopt: --query and --batch, --lost, --rename or --new-table.")
    tables = [None if pair is None else _pair(pair) for pair in (rename, new_table)]
    storage = open_state(path)
    steps: list[_Done] = []
    if lost:
        steps.append(_accept_loss(storage))
    for pair, act in zip(tables, (_rename, _add), strict=True):
        if pair is not None:
            steps.append(act(storage, *pair))
    if query is not None and batch is not None:
        steps.append(_adopt_query(storage, query, batch))
    if as_json:
        print_json({"path": storage.path, "done": [record for record, _ in steps]})
    else:
        say(*(line for _, lines in steps for line in lines), _NEXT)


def rollback(
    path: Path,
    to: Annotated[int, typer.Option("--to", help="The version whose rows are wanted again.")],
    as_json: Json = False,
) -> None:
    """Make the rows what they were at an earlier version, as a new version on top.

    All tables go back together, windows and waiting events among them. What was applied counts as applied: queries go
    on with their next batch, and the batches that are undone do not come again. Nothing is deleted: roll back to the
    version before this one to undo it.

    Example: `tidegate state rollback state/ledger --to 41`
    """
    from tidegate.durability.rollback import roll_back

    storage = open_state(path)
    result = roll_back(storage, to)
    version = None if result.version is None else result.version.version
    if as_json:
        print_json({"path": storage.path, "from": result.newest, "to": to, "rows": result.rows, "version": version})
    elif version is None:
        say(f"{storage.path}: nothing to do: version {result.newest} has the rows of version {to}")
    else:
        tables = ", ".join(f"{name} {count:,}" for name, count in result.rows.items())
        what = "rows in all" if result.whole else "rows changed"
        say(
            f"{storage.path}: version {version} has the rows of version {to}: {sum(result.rows.values()):,} {what} "
            f"({tables})",
            f"What the state had applied stays applied. {_NEXT}",
        )


def _pair(text: str) -> tuple[str, str]:
    first, separator, second = text.partition("=")
    if not (separator and first.strip() and second.strip()):
        raise typer.BadParameter(f"required two names of tables, as Old=New, got {text!r}")
    return first.strip(), second.strip()


def _accept_loss(storage: Storage) -> _Done:
    from tidegate.durability.adoption import accept_loss

    loss = accept_loss(storage)
    newest = 0 if loss.newest is None else loss.newest.version
    record = {"lost": None if loss.noted is None else asdict(loss.noted), "newest": newest}
    if loss.noted is None:
        return record, [f"{storage.path}: nothing is known to be lost; the newest version is {newest or 'none'}"]
    left = f"the state goes on from version {newest}" if newest else "no version is left, the state is empty"
    lines = [f"{storage.path}: version {loss.noted.version} counts as lost: {left}"]
    if newest:
        lines.append(
            "If a query's checkpoint is past what this version has applied, the query is refused, and its message says "
            "which --query and --batch to adopt."
        )
    return record, lines


def _rename(storage: Storage, old: str, new: str) -> _Done:
    from tidegate.durability.reshaping import Reshaping

    result = Reshaping(storage).rename_table(old, new)
    version, rows = result.version.version, "1 row" if result.rows == 1 else f"{result.rows:,} rows"
    record = {"renamed": old, "to": new, "rows": result.rows, "version": version}
    return record, [f"{storage.path}: version {version}: {new} has the {rows} that {old} had"]


def _add(storage: Storage, new: str, like: str) -> _Done:
    from tidegate.durability.adoption import add_table

    version = add_table(storage, new, like).version
    told = f"{storage.path}: version {version}: there is a table {new}, without rows; {like} keeps its own"
    return {"new_table": new, "like": like, "version": version}, [told]


def _adopt_query(storage: Storage, query: str, batch: int) -> _Done:
    from tidegate.durability.adoption import adopt_query

    result = adopt_query(storage, query, batch)
    version = None if result.version is None else result.version.version
    record = {"query": query, "batch": batch, "version": version, "new_state": result.is_new}
    if version is None:
        return record, [f"{storage.path}: nothing to do: query {query} goes on with batch {batch} already"]
    applied = "batch 0 counts" if batch == 1 else f"batches 0 to {batch - 1} count"
    lines = [
        f"{storage.path}: version {version}: query {query} goes on with batch {batch}",
        f"Its {applied} as applied, and outcomes of theirs are not given again.",
    ]
    if result.is_new:
        lines.append("There was no state here: this one is new and has no rows. initial={...} is not loaded into it.")
    return record, lines
