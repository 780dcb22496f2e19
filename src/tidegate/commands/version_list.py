"""The table of `tidegate state ls`: as many columns as there is room for, the most telling ones first.

110 columns  version  kind    query     batch  made at   events  aborted  strategy  rows       size
80 columns   version  kind    query     batch  made at   events  aborted  rows
40 columns   version  batch  made at  events  aborted
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from rich import filesize
from rich.cells import cell_len
from rich.text import Text

from tidegate.commands.literal import visible
from tidegate.commands.state_printing import empty_table

if TYPE_CHECKING:
    from rich.console import Console

    from tidegate.durability.versions import VersionInfo

_BETWEEN = 2  # blanks between two columns, and half of them at either edge

_FIRST_TO_GO = ("size", "strategy", "kind", "query", "rows", "batch", "aborted", "made at")


@dataclass(frozen=True, slots=True)
class _Column:
    heading: str
    cells: list[str]
    justify: str = "right"

    @property
    def width(self) -> int:
        lines = (line for cell in [self.heading, *self.cells] for line in cell.split("\n"))
        return max(cell_len(line) for line in lines)


def show(console: Console, title: str, infos: Sequence[VersionInfo]) -> list[str]:
    """Print versions, one in a row; returns the headings of the columns that there was no room for."""
    columns = _columns(infos, short=console.width < 80)
    left_out = []
    for heading in _FIRST_TO_GO:
        if sum(column.width + _BETWEEN for column in columns) <= console.width:
            break
        columns = [column for column in columns if column.heading != heading]
        left_out.append(heading)
    table = empty_table(title)
    for column in columns:
        table.add_column(column.heading, no_wrap=True, justify="left" if column.justify == "left" else "right")
    for row in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*map(Text, row))
    console.print(table)
    return left_out


def _columns(infos: Sequence[VersionInfo], short: bool) -> list[_Column]:
    return [
        _Column("version", [f"{info.version}" for info in infos]),
        _Column("kind", [_kind(info) for info in infos], "left"),
        _Column("query", [visible(info.query[:8]) for info in infos], "left"),
        _Column("batch", [f"{info.batch}" if info.query else "" for info in infos]),
        _Column("made at", _moments(infos, short), "left"),
        _Column("events", [f"{info.events:,}" for info in infos]),
        _Column("aborted", [f"{info.events - info.committed:,}" for info in infos]),
        _Column("strategy", [_strategy(info) for info in infos], "left"),
        _Column("rows", [_rows(info) for info in infos]),
        _Column("size", [filesize.decimal(info.size, precision=0) for info in infos]),
    ]


def _kind(info: VersionInfo) -> str:
    if info.program:
        return "events"
    return "whole" if info.kind == "change" and info.whole == info.version else info.kind


def _strategy(info: VersionInfo) -> str:
    """How the version's batch ran, and on how many workers; versions that no batch made say nothing."""
    strategy, workers = visible(info.report.get("strategy", "")), info.report.get("workers", 1)
    return f"{strategy}, {workers} workers" if workers > 1 else strategy


def _moments(infos: Sequence[VersionInfo], short: bool) -> list[str]:
    moments = [datetime.fromtimestamp(info.created_at) for info in infos]
    if len({moment.date() for moment in moments}) == 1:
        return [f"{moment:%H:%M:%S}" for moment in moments]
    return [f"{moment:%m-%d %H:%M}" if short else f"{moment:%Y-%m-%d %H:%M:%S}" for moment in moments]


def _rows(info: VersionInfo) -> str:
    if len(info.rows) == 1:
        return f"{next(iter(info.rows.values())):,}"
    return "\n".join(f"{visible(name)} {count:,}" for name, count in info.rows.items())
