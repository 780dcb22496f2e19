"""How fast a log is replayed, and how long recovery takes by how much log there is behind the newest checkpoint.

    checkpoint ── log ──────── log ──────── log ──────── log            an engine that ran transactions of a ledger
             recovered?   recovered?   recovered?   recovered?          a copy of its folder at each of these moments

The transactions were logged in one of two ways: in batches (`run`), and by single calls (`execute`), each of which is a
write of its own. All copies are opened in turn, and one with an empty log, whose time is subtracted: the rest is
replaying, and gives the rate. The picture helps to choose a checkpoint interval: recovery after a crash replays at most
the log between two checkpoints.

Every engine that was opened must hold the rows of the plain functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

import tidegate as tg
from tidegate.benchmarks.bars import Bar
from tidegate.benchmarks.harness import Experiment, Report
from tidegate.benchmarks.state_folders import Template, left_behind, log_frames, make_template
from tidegate.durability.logged import CHECKPOINT_AFTER_BYTES
from tidegate.workloads import ledger

NOTHING, BATCHES, CALLS = "nothing to replay", "batches", "single calls"
BAR = 2_000_000.0
"""Transactions replayed in a second."""

LOG_SIZE_MAX = CHECKPOINT_AFTER_BYTES * 9 // 10
"""More log than this does not gather: a checkpoint begins."""


@dataclass(frozen=True, slots=True)
class Point:
    """A folder that a kill left behind: its log, and the rows that must come back from it."""

    style: str
    path: Path
    transactions: int
    log_size: int
    rows: pa.Table

    @property
    def name(self) -> str:
        """What the point is called in tables."""
        return f"{self.transactions:,} in {self.style}" if self.transactions else NOTHING


@dataclass(frozen=True, slots=True)
class Recovered:
    """How long a point took, and how fast its transactions were replayed."""

    point: Point
    seconds: float
    rate: float


def points(
    folder: Path, *, transactions: int, batch_events: int, pieces: int, seed: int
) -> tuple[Template, list[Point]]:
    """What is to be recovered: both styles, after each of `pieces` equal parts of the transactions; nothing first."""
    generator = ledger.EventGenerator(ledger.LedgerSettings(overdraw_ratio=0.0, opening_balance=10**9, seed=seed))
    opening, events = generator.opening(), generator.batch(transactions)
    template = make_template(ledger.PROGRAM, {ledger.Account: opening}, folder)
    found = [Point("", left_behind(template.path), 0, 0, ledger.Truth(opening).state())]
    for style, feed in ((BATCHES, _feeder_of_batches(batch_events)), (CALLS, _call_each)):
        found += _log(template, style, feed, opening, events, pieces)
    return template, found


def experiment(template: Template, found: Sequence[Point], *, seed: int) -> Experiment:
    """The declaration: every point opened in turn."""
    return Experiment(
        name="replay",
        title="Recovery by the log behind the checkpoint",
        items=1,
        item="opening",
        variants=[
            template.reopened(point.name, partial(left_behind, point.path), {ledger.Account: point.rows})
            for point in found
        ],
        settings={"points": [[point.name, point.transactions, point.log_size] for point in found]},
        seed=seed,
    )


def results(found: Sequence[Point], report: Report) -> list[Recovered]:
    """The time and the rate of each point; opening with an empty log does not count in the rates."""
    opened = report[NOTHING].seconds_median
    recovered = []
    for point in found:
        seconds = report[point.name].seconds_median
        recovered.append(Recovered(point, seconds, point.transactions / max(seconds - opened, 1e-9)))
    return recovered


def bars(recovered: Sequence[Recovered]) -> list[Bar]:
    """The rate of each style, at its longest log."""
    longest = {each.point.style: each for each in recovered if each.point.transactions}
    return [
        Bar(f"transactions replayed per second, logged by {style}", each.rate, "≥", BAR)
        for style, each in longest.items()
    ]


_Feed = Callable[[tg.Engine, pa.Table], None]


def _feeder_of_batches(size: int) -> _Feed:
    def feed(engine: tg.Engine, events: pa.Table) -> None:
        for start in range(0, events.num_rows, size):
            engine.run(events.slice(start, size), order_by="ts")

    return feed


def _call_each(engine: tg.Engine, events: pa.Table) -> None:
    for event in events.select(["transaction", "src", "dst", "amount"]).to_pylist():
        if event["transaction"] == "transfer":
            engine.execute(ledger.transfer, src=event["src"], dst=event["dst"], amount=event["amount"])
        else:
            engine.execute(ledger.deposit, dst=event["dst"], amount=event["amount"])


def _log(
    template: Template, style: str, feed: _Feed, opening: pa.Table, events: pa.Table, pieces: int
) -> Iterator[Point]:
    """Run the events in equal pieces, and keep what a kill would leave after each."""
    truth, path, done = ledger.Truth(opening), template.copy(), 0
    with template.open(path, sync="never") as engine:
        for piece in range(1, pieces + 1):
            upto = events.num_rows * piece // pieces
            part, done = events.slice(done, upto - done), upto
            feed(engine, part)
            truth.run(part)
            killed = left_behind(path)
            size = sum(log_frames(killed))
            if size > LOG_SIZE_MAX:
                raise AssertionError(
                    f"{style}: {upto:,} transactions take {size:,} bytes: a checkpoint would cut them off"
                )
            yield Point(style, killed, upto, size, truth.state())
