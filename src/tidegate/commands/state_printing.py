"""What the commands on states share: their arguments, and how they print.

Everything that was not written in this package goes through `literal`. With `--json` a command prints one JSON value
and nothing else; progress is shown on a terminal only, on standard error.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidegate.commands.literal import literal

if TYPE_CHECKING:
    from tidegate.durability.version_reader import VersionReader
    from tidegate.foundation.storage import Storage


def complete_table(context: typer.Context, incomplete: str) -> list[str]:
    """The tables of the state that was typed before; none where it cannot be read."""
    from tidegate.durability.administration import HIDDEN

    reader = _typed(context)
    names = [] if reader is None else [layout.name for layout in reader.locate().layouts]
    return [name for name in names if name.startswith(incomplete) and not name.startswith(HIDDEN)]


def complete_version(context: typer.Context, incomplete: str) -> list[str]:
    """The versions of the state that was typed before, the newest first."""
    reader = _typed(context)
    versions = [] if reader is None else reversed(reader.refresh())
    return [f"{version}" for version in versions if f"{version}".startswith(incomplete)]


def _typed(context: typer.Context) -> VersionReader | None:
    """The state that was typed before, if it can be read: a shell that completes must not be told of errors."""
    from tidegate.durability.version_reader import VersionReader
    from tidegate.foundation.errors import TidegateError

    path = context.params.get("path") or next(iter(context.args), "")  # behind an option nothing is parsed yet
    try:
        reader = VersionReader(open_state(path))
        return None if reader.newest() is None else reader
    except TidegateError:
        return None


Path = Annotated[str, typer.Argument(help="The state's path, as it was given to transact(state=...).")]
TableArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help="The table, as the state calls it.", autocompletion=complete_table)
]
Version = Annotated[
    int | None,
    typer.Option("--version", help="Which version; the newest if not given.", autocompletion=complete_version),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

_PLAIN_HEAD = box.Box("    \n    \n -- \n" + 5 * "    \n", ascii=True)
"""SIMPLE_HEAD where only ASCII is shown."""

PROGRESS_BYTES_MIN = 16 << 20
"""Fewer bytes are read or copied so fast that a progress bar would only flicker."""


def open_state(path: str) -> Storage:
    """The storage at a path or URL."""
    from tidegate.foundation.storage import open_storage

    return open_storage(path)


def print_json(value: Any) -> None:
    """One JSON value, on standard output."""
    typer.echo(json.dumps(value, indent=2, default=str))


def empty_table(title: str) -> Table:
    """An empty table that fits many columns into a narrow terminal."""
    frame = _PLAIN_HEAD if Console().options.ascii_only else box.SIMPLE_HEAD
    return Table(title=literal(title, "bold"), title_justify="left", box=frame, pad_edge=False, padding=(0, 1, 0, 0))


def say(*lines: object) -> None:
    """Lines of text, as they are: the first one is what was done, the others what to know or to do next."""
    console = Console()
    for line in lines:
        console.print(literal(line), soft_wrap=True)


def say_wrong(problem: object) -> None:
    """One thing that is wrong."""
    Console().print(Text.assemble(("✗ ", "red"), literal(problem)), soft_wrap=True)


def say_right(text: object) -> None:
    """One thing that is as it should be."""
    Console().print(Text.assemble(("✓ ", "green"), literal(text)), soft_wrap=True)


@contextlib.contextmanager
def progress(what: str) -> Iterator[tuple[Callable[[int], None], Callable[[int], None]]]:
    """A progress bar for reading many bytes: two functions, to call with bytes that were read, and with the total."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar if bar.console.is_terminal else contextlib.nullcontext():
        task = bar.add_task(what, total=None, visible=False)

        def started(size: int) -> None:
            bar.update(task, total=size, visible=size >= PROGRESS_BYTES_MIN)

        yield (lambda size: bar.advance(task, size)), started
