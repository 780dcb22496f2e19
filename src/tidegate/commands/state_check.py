"""`tidegate state verify` and `scrub`: is a state as it was written?

`verify` reads everything once and says all that is wrong; `scrub` reads it again and again, slowly, beside a running
query, and reports damage as soon as it is found. `durability.verification` and `durability.scrubbing` explain what is
checked, and how.
"""

from __future__ import annotations

import logging
import time
from dataclasses import asdict
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from tidegate.commands.literal import literal
from tidegate.commands.state_printing import (
    Json,
    Path,
    empty_table,
    open_state,
    print_json,
    progress,
    say,
    say_right,
    say_wrong,
)

_STEP_SECONDS = 0.1


def verify(
    path: Path,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also rebuild each snapshot from the one before, and compare the rows.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Read every byte of every file, follow the history, and say which versions can really be rebuilt.

    Checked are the checksums, that the versions are one chain of one state, snapshots against the changes beside them,
    the head, and what was served. Works beside a running query. Ends with exit code 1 when anything is wrong.

    Examples:

    * `tidegate state verify state/ledger`

    * `tidegate state verify backups/ledger --deep --json`
    """
    from tidegate.durability.verification import check_state

    storage = open_state(path)
    with progress("reading") as (told, started):
        report = check_state(storage, deep, told, started)
    if as_json:
        print_json(asdict(report) | {"sound": report.sound})
    else:
        view = empty_table(report.path)
        for heading in ("file", "rows", "bytes", "checked"):
            view.add_column(heading, justify="right" if heading in ("rows", "bytes") else "left", overflow="fold")
        for file in report.files:
            verdict = literal(file.problem, "red") if file.problem else Text("✓", "green")
            view.add_row(literal(file.name), f"{file.rows:,}", f"{file.size:,}", verdict)
        Console().print(view)
        for problem in report.problems:
            say_wrong(problem)
        for remark in report.remarks:
            say(f"note: {remark}")
        if report.sound:
            size = sum(file.size for file in report.files)
            say_right(f"{len(report.files)} files, {size:,} bytes: all as they were written")
        say(f"versions that can be rebuilt: {report.runs}")
        if not report.sound and report.rebuildable:
            ways = "Put damaged and missing files back from a backup."
            if report.readable:
                ways += (
                    " To make a new state of a version that can be rebuilt: tidegate recover "
                    f"{report.path} --to {report.readable[-1][1]} --into NEW"
                )
            say(ways)
    if not report.sound:
        raise typer.Exit(1)


def scrub(
    path: Path,
    every: Annotated[float, typer.Option(min=0.0, help="Seconds from the start of a pass to that of the next.")] = 3600,
    rate: Annotated[float, typer.Option(min=0.001, help="Read at most this many MB per second.")] = 20.0,
    passes: Annotated[int, typer.Option(min=0, help="Stop after this many passes; 0 runs until stopped.")] = 0,
) -> None:
    """Read a state again and again, slowly, and say what is damaged as soon as it is found.

    Runs beside a query until it is stopped (Ctrl-C). With `--passes` it ends by itself, with exit code 1 when it found
    anything.

    Examples:

    * `tidegate state scrub state/ledger --every 86400 --rate 5`

    * `tidegate state scrub state/ledger --passes 1`
    """
    from tidegate.durability.scrubbing import Scrubber

    logging.getLogger("tidegate.durability.scrubbing").addHandler(logging.NullHandler())  # it is printed here instead
    scrubber = Scrubber(open_state(path))
    wrong = 0
    try:
        while not passes or scrubber.passes < passes:
            began, number, files, size = time.monotonic(), scrubber.passes, scrubber.files, scrubber.bytes
            found = 0
            while scrubber.passes == number:
                for problem in scrubber.step(max(1, int(rate * 1e6 * _STEP_SECONDS))):
                    say_wrong(f"{datetime.now():%Y-%m-%d %H:%M:%S}  {problem}")
                    found += 1
                behind = (scrubber.bytes - size) / (rate * 1e6) - (time.monotonic() - began)
                if behind > 0 and scrubber.passes == number:
                    time.sleep(behind)
            wrong += found
            report = f"{scrubber.files - files} files, {scrubber.bytes - size:,} bytes sound; {found} damaged"
            say(f"{datetime.now():%Y-%m-%d %H:%M:%S}  pass {scrubber.passes}: {report}")
            if not passes or scrubber.passes < passes:
                time.sleep(max(0.0, every - (time.monotonic() - began)))
    except KeyboardInterrupt:
        say("stopped")
    if wrong:
        raise typer.Exit(1)
