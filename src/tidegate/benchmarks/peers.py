"""How many times the speed of another system: events per second beside published code for the same workloads.

The other side is data: MorphStream's released code was built and run once on the development machine, two cores of the
same kind, with these parameters, and its speeds are in `rows`. Unlike all other ratios here, this one does not compare
two sides that ran in turns: only its order of magnitude counts.

    409,600 events, 10,240 for each of two threads between punctuations, 102,400 keys, skew 0.2, no aborts

Ours is everything from an Arrow table of events to one with outcomes, on two workers with the adaptive strategy. Where
the two differ in what they call an event or an access, ours does more:

    grep and sum       theirs reads two records and writes one of them; ours reads two and writes a third
    10 µs an access    two accesses are 20 µs; ours are spent at once, on the written record
    toll processing    a position report is one transaction that writes speed and count; ours writes the visit as well,
                       which makes the count one of different vehicles

Outcomes and rows of every run are compared with a serial engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.table import Table

from tidegate.benchmarks.bars import Bar
from tidegate.benchmarks.harness import Comparison, Experiment, Report, plain_table, record
from tidegate.benchmarks.strategies import ADAPTIVE, contest_experiment
from tidegate.workloads import grep_sum, streaming_ledger, tolls
from tidegate.workloads.workload import Workload

PEER = "MorphStream's released code, measured on the development machine"
WORKERS = 2
BATCH_EVENTS = 10_240 * WORKERS
BATCHES = 409_600 // BATCH_EVENTS
KEYS = 102_400
BAR = 50.0
"""Times the other one's events per second, where functions take no time."""


@dataclass(frozen=True, slots=True)
class Row:
    """A workload, and the speed of the other system."""

    name: str
    workload: Workload
    peer_events_per_second: float
    bar: float | None = BAR


@dataclass(frozen=True, slots=True)
class Result:
    """Our speed beside it."""

    row: Row
    report: Report

    @property
    def ours(self) -> Comparison:
        """The rounds of our engine."""
        return self.report[ADAPTIVE]

    @property
    def events_per_second(self) -> float:
        """The speed of our engine."""
        return self.report.items_per_second(ADAPTIVE)

    @property
    def ratio(self) -> float:
        """Our speed divided by theirs."""
        return self.events_per_second / self.row.peer_events_per_second

    @property
    def bar(self) -> Bar | None:
        """What it must reach; None where functions are what takes the time."""
        limit = self.row.bar
        return None if limit is None else Bar(f"times the events/s of {PEER}: {self.row.name}", self.ratio, "≥", limit)


def rows(*, seed: int, pace: float, batch_events: int = BATCH_EVENTS, keys: int = KEYS) -> list[Row]:
    """The workloads, each with the speed of MorphStream's released code with two threads."""
    turned: dict[str, Any] = {"theta": 0.2, "abort_ratio": 0.0, "batch_events": batch_events, "keys": keys}
    turned |= {"cost_us": 0.0, "seed": seed}
    grep = replace(grep_sum.MORPHSTREAM, **turned)
    toll = replace(tolls.MORPHSTREAM, **turned)
    ledger = replace(streaming_ledger.MORPHSTREAM, **turned)
    costly = replace(grep, cost_us=10.0 * grep.reads)
    return [
        Row("streaming ledger", streaming_ledger.StreamingLedger(ledger, pace), 18_200.0),
        Row("grep and sum, 2 accesses", grep_sum.GrepSum(grep, pace), 41_900.0),
        Row("grep and sum, 10 µs an access", grep_sum.GrepSum(costly, pace), 22_200.0, bar=None),
        Row("toll processing", tolls.Positions(toll, pace), 17_500.0),
    ]


def experiment(row: Row, *, batches: int = BATCHES) -> Experiment:
    """The declaration of one workload: our engine alone, on a stream that goes on from round to round."""
    declared = contest_experiment("peers", row.workload, [ADAPTIVE], workers=WORKERS, batches=batches)
    return replace(declared, title=row.name)


def render(results: Sequence[Result], *, with_bars: bool) -> Table:
    """One line for each workload."""
    first = results[0].report.experiment
    table = plain_table(
        f"Events per second beside {PEER}, {WORKERS} threads each",
        ["workload", "ran"],
        ["events/s", "theirs", "ratio", "bar"],
        f"Arrow in, Arrow out; {first.items:,} events a run, median of {first.rounds} rounds, every run verified",
    )
    for found in results:
        bar = found.bar if with_bars else None
        table.add_row(
            found.row.name,
            found.ours.note,
            f"{found.events_per_second:,.0f}",
            f"{found.row.peer_events_per_second:,.0f}",
            f"{found.ratio:,.1f}",
            "" if bar is None else str(bar),
            style="" if bar is None else bar.style,
        )
    return table


def result_record(found: Result) -> dict[str, Any]:
    """One JSON-ready record of a workload."""
    experiment, bar = found.report.experiment, found.bar
    return record(
        "peers",
        seed=experiment.seed,
        settings={**experiment.settings, "items": experiment.items, "rounds": experiment.rounds},
        workload=found.row.name,
        events_per_second=round(found.events_per_second),
        seconds=[round(taken, 6) for taken in found.ours.seconds],
        peer=PEER,
        peer_events_per_second=found.row.peer_events_per_second,
        ratio=round(found.ratio, 2),
        bar=None if bar is None else bar.limit,
        passed=None if bar is None else bar.passed,
        note=found.ours.note,
    )
