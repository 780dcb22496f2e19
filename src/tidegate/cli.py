"""The command line: `tidegate demo`, `explain`, `state ...`, `log ...`, `recover`, `bench ...`, `warm` and
`schedule ...`.

This module only wires the commands together and decides how errors are shown. An error that Tidegate
raises on purpose is printed as a message that says what to do, and the exit code is 1. Any other error is
a bug and keeps its traceback.
"""

from __future__ import annotations

import sys
from importlib import metadata
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from tidegate.commands import bench, demo, explain, schedule, state, state_copies, warm
from tidegate.commands.literal import literal
from tidegate.commands.log import app as log_app
from tidegate.commands.plain_output import plain_streams
from tidegate.foundation.errors import TidegateError


class _Commands(TyperGroup):
    """A group of commands that prints Tidegate's own errors as messages, and in ASCII where no more can be shown."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        with plain_streams():
            return super().main(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except TidegateError as error:
            Console(stderr=True).print(
                Text.assemble(("error: ", "bold red"), literal(error, keep="\n\t")), soft_wrap=True
            )
            sys.exit(1)


app = typer.Typer(
    name="tidegate",
    cls=_Commands,
    help="ACID transactions over shared mutable state, inside PySpark streams.",
    epilog="Start with `tidegate demo`: a streaming ledger on Spark, live, verified at the end.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tidegate {metadata.version('tidegate')}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


app.command("demo")(demo.demo)
app.command("explain")(explain.explain)
app.add_typer(state.app, name="state")
app.command("recover")(state_copies.recover)
app.add_typer(log_app, name="log")
app.add_typer(bench.app, name="bench")
app.command("warm")(warm.warm)
app.add_typer(schedule.app, name="schedule")
