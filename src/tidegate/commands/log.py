"""`tidegate log`: look into the command log of a `tg.Engine`, and check it.

    ls        the segments: which commands they hold, what wrote them, whether a checkpoint covers them
    show      the commands, the newest last
    verify    every byte of every segment, and that they go on from each other and from the newest checkpoint

They need no program and only read, so they work beside a running engine. Every one takes `--json`, which prints one
JSON value and nothing else.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from tidegate.commands.literal import literal
from tidegate.commands.state_printing import Json, empty_table, open_state, print_json, say, say_right, say_wrong

if TYPE_CHECKING:
    from tidegate.commands.log_check import LogCheck, SegmentCheck
    from tidegate.commands.log_records import Logged
    from tidegate.foundation.storage import Storage

app = typer.Typer(no_args_is_help=True, help="Look into the command log of an engine: segments, commands, checksums.")

Path = Annotated[str, typer.Argument(help="The state's path, as it was given to tg.Engine(directory=...).")]


@app.command("ls")
def list_segments(path: Path, as_json: Json = False) -> None:
    """List the segments of the log: their commands, the program that wrote them, what covers them.

    Example: `tidegate log ls state/ledger`
    """
    from tidegate.commands.log_check import check_log

    storage = open_state(path)
    found = check_log(storage)
    if as_json:
        print_json({"path": storage.path, "segments": [_segment_record(each) for each in found.segments]})
        return
    console, view = Console(), empty_table(storage.path)
    headings = ["segment", "first", "commands", "bytes", "program", "in a checkpoint", "end"]
    if console.width < 80:  # a segment is called by its first command, and the last line tells the rest
        headings = ["segment", "commands", "end"]
    for heading in headings:
        view.add_column(heading, no_wrap=heading != "end", justify="right" if heading in _NUMBERS else "left")
    for each in found.segments:
        cells: dict[str, str | Text] = {
            "segment": literal(each.name),
            "first": f"{each.first}",
            "commands": f"{each.commands:,}",
            "bytes": f"{each.used:,}",
            "program": literal("" if each.segment is None else each.segment.program[:8]),
            "in a checkpoint": "yes" if each.covered else "" if not each.commands else "no",
            "end": _end(each),
        }
        view.add_row(*(cells[heading] for heading in headings))
    console.print(view)
    say(_told(found))


@app.command("show")
def show_commands(
    path: Path,
    first: Annotated[int | None, typer.Option("--from", min=1, help="Show commands from this number on.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="Show at most this many commands; 0 shows all.")] = 20,
    as_json: Json = False,
) -> None:
    """Show the commands of the log, the newest last: the newest ones, or those from a number on.

    Examples:

    * `tidegate log show state/ledger`

    * `tidegate log show state/ledger --from 700 --limit 0`
    """
    from tidegate.commands.log_records import read_commands, text, to_json

    storage = open_state(path)
    _require_state(storage)
    shown: deque[Logged] = deque(maxlen=(limit or None) if first is None else None)
    wanted = read_commands(storage, first or 1)
    damage: Exception | None = None
    try:
        shown.extend(wanted if first is None or not limit else islice(wanted, limit))
    except Exception as error:  # what was read before the damage is shown, then what is wrong
        damage = error
    if as_json:
        print_json([to_json(each) for each in shown])
    else:
        view = empty_table(storage.path)
        view.add_column("number", justify="right")
        view.add_column("command", overflow="fold")
        for each in shown:
            view.add_row(f"{each.number}", literal(text(each)))
        Console().print(view)
    if damage is not None:
        raise damage


@app.command("verify")
def verify_log(path: Path, as_json: Json = False) -> None:
    """Read every segment, compare it with its checksums, the one before it and the newest checkpoint.

    Ends with exit code 1 when anything is wrong. A torn tail is not: a crash leaves it, and nothing that was
    acknowledged is in it. Example: `tidegate log verify state/ledger`
    """
    from tidegate.commands.log_check import check_log

    storage = open_state(path)
    found = check_log(storage)
    if as_json:
        segments = [_segment_record(each) for each in found.segments]
        print_json({"path": storage.path, "sound": found.sound, "segments": segments, "problems": found.problems})
    else:
        for problem in (*(each.problem for each in found.segments if each.problem), *found.problems):
            say_wrong(problem)
        if found.sound:
            used = sum(each.used for each in found.segments)
            say_right(f"{len(found.segments)} segments, {used:,} bytes: all as they were written; {_told(found)}")
    if not found.sound:
        raise typer.Exit(1)


_NUMBERS = ("first", "commands", "bytes")


def _told(found: LogCheck) -> str:
    """What is in the log, and in the newest checkpoint, in a line."""
    covered = found.checkpoint.commands if found.checkpoint is not None else 0
    last = max((each.next - 1 for each in found.segments), default=covered)
    version = f"checkpoint {found.checkpoint.version}" if found.checkpoint is not None else "no checkpoint"
    torn = ", a torn tail behind them" if found.segments and found.segments[-1].torn else ""
    return f"{version} covers {covered:,} commands, {max(0, last - covered):,} are behind it{torn}"


def _end(each: SegmentCheck) -> Text:
    if each.problem is not None:
        return literal(each.problem, "red")
    return Text("torn", "yellow") if each.torn else Text("whole", "green")


def _segment_record(each: SegmentCheck) -> dict[str, Any]:
    record = asdict(each)
    del record["segment"]
    if each.segment is not None:
        record |= {name: getattr(each.segment, name) for name in ("state", "epoch", "parent", "program", "created_at")}
    return record


def _require_state(storage: Storage) -> None:
    from tidegate.durability.log_segments import numbers
    from tidegate.durability.version_reader import VersionReader

    reader = VersionReader(storage)
    if not reader.refresh() and not numbers(storage):
        reader.load(None)  # raises, and says that there is no state here
