"""What the demo shows: a live table while it runs, a verdict when it is done.

`DemoProgress` is plain data, filled from what Spark reports for each batch and from what the sink
received; `live_table` and `verdict_panel` turn data into something to print and do nothing else.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tidegate.commands.literal import literal

if TYPE_CHECKING:
    from tidegate.workloads.ledger import Verdict


@dataclass(slots=True)
class DemoProgress:
    """How far the stream is; a batch is known by its number, so that nothing counts twice."""

    events_total: int
    rows: dict[int, int] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    committed: int = 0
    aborted: Counter[str] = field(default_factory=Counter)
    first_batch_after: float | None = None

    def add_batch(self, batch: int, rows: int, seconds: float) -> None:
        """Note a finished batch; a batch that is reported again changes nothing."""
        self.rows[batch] = rows
        self.seconds[batch] = seconds

    @property
    def events(self) -> int:
        """Events in all finished batches."""
        return sum(self.rows.values())

    @property
    def rate(self) -> float:
        """Events per second over all finished batches."""
        total = sum(self.seconds.values())
        return self.events / total if total else 0.0

    @property
    def rate_last(self) -> float:
        """Events per second of the last batch."""
        if not self.rows:
            return 0.0
        last = max(self.rows)
        return self.rows[last] / self.seconds[last] if self.seconds[last] else 0.0

    def latency(self, share: float) -> float:
        """The seconds that this share of the batches stayed within (nearest rank)."""
        ordered = sorted(self.seconds.values())
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def live_table(progress: DemoProgress, status: str) -> RenderableType:
    """The table that is redrawn while the stream runs."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(justify="right", no_wrap=True, min_width=11)
    table.add_column(no_wrap=True)
    bar = ProgressBar(total=max(progress.events_total, 1), completed=progress.events, width=32)
    table.add_row("events", f"{progress.events:,}", bar)
    table.add_row("events/s", f"{progress.rate:,.0f}", Text(f"last batch {progress.rate_last:,.0f}", style="dim"))
    last = progress.seconds[max(progress.seconds)] if progress.seconds else 0.0
    spread = f"p99 {_milliseconds(progress.latency(0.99))}   last {_milliseconds(last)}"
    middle = statistics.median(progress.seconds.values()) if progress.seconds else 0.0
    table.add_row("batch latency", f"p50 {_milliseconds(middle)}", Text(spread, style="dim"))
    table.add_row("batches", f"{len(progress.rows):,}", Text(status, style="dim"))
    table.add_row("committed", Text(f"{progress.committed:,}", style="green"), "")
    for reason, count in progress.aborted.most_common(5):
        table.add_row("aborted", Text(f"{count:,}", style="yellow"), literal(reason))
    return Panel(table, title="a streaming ledger on Spark", title_align="left", expand=False, padding=(0, 1))


def verdict_panel(verdict: Verdict, progress: DemoProgress) -> RenderableType:
    """What the comparison with the plain functions found."""
    checks = [
        (f"exactly one outcome for each of {verdict.events:,} events", not verdict.counting_problems),
        (
            "every outcome equals the plain Python functions, run one by one",
            not verdict.counting_problems and not verdict.outcome_problems,
        ),
        (f"state equals the serial truth: {verdict.accounts:,} accounts", not verdict.state_problems),
        (f"money conserved: {_money(verdict.money)}", verdict.money_conserved),
    ]
    lines: list[RenderableType] = [
        Text.assemble(("✓ ", "green bold") if holds else ("✗ ", "red bold"), what) for what, holds in checks
    ]
    lines += [literal(f"  {problem}", "red") for problem in verdict.problems]
    if progress.first_batch_after is not None:
        first = f"first batch {progress.first_batch_after:.1f} s after the start"
        lines.append(Text(f"  {first}, {progress.rate:,.0f} events/s over {len(progress.rows)} batches", "dim"))
    style = "green" if verdict.holds else "red"
    title = "verified" if verdict.holds else "NOT what the plain functions give"
    return Panel(Group(*lines), title=title, title_align="left", border_style=style, expand=False, padding=(0, 1))


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms"


def _money(cents: int) -> str:
    return f"{cents // 100:,}.{cents % 100:02d}"
