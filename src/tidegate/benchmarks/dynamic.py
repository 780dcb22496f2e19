"""One stream whose character changes: the adaptive strategy beside each fixed one.

The dynamic ledger has thirteen phases on the same tables (`workloads.dynamic`). What counts is the whole stream; each
phase is reported, too. Each run is a fresh engine that goes through all phases. Its outcomes and its rows at the end
are compared, bit for bit, with a serial run, and that one with the plain functions. Over the whole stream the adaptive
strategy must be faster than every fixed one: none of them is right all the time.

All strategies run first. Then the best ones and the adaptive one run again, and that decides (`grids`).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa
from rich.table import Table

import tidegate as tg
from tidegate.benchmarks.bars import Bar
from tidegate.benchmarks.grids import Grid, Point, PointReport
from tidegate.benchmarks.harness import Experiment, Report, Variant, plain_table
from tidegate.benchmarks.strategies import ADAPTIVE, SERIAL, require_same, strategy_named, verify_with_plain, what_ran
from tidegate.workloads import dynamic
from tidegate.workloads.streaming_ledger import MORPHSTREAM, LedgerSettings, StreamingLedger
from tidegate.workloads.workload import Run, Workload

BAR = 1.0
"""Faster than the best fixed strategy, by whatever there is."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A named part of a stream and its batches."""

    name: str
    batches: Sequence[pa.Table]


class Stream:
    """A workload whose batches come in stretches, and what each strategy took for each of them."""

    def __init__(self, workload: Workload, stretches: Sequence[Stretch], checked: Sequence[Workload]) -> None:
        """`checked` are the workloads whose plain functions are compared with the serial engine."""
        self.workload = workload
        self.stretches = stretches
        self.taken: dict[str, list[list[float]]] = {}
        """For each strategy, run by run, the seconds of each stretch."""
        self._checked = checked
        self._wanted: Run | None = None

    @property
    def events(self) -> int:
        """Events of the whole stream."""
        return sum(batch.num_rows for stretch in self.stretches for batch in stretch.batches)

    def wanted(self) -> Run:
        """The right result of every run."""
        if self._wanted is None:
            for workload in self._checked:
                verify_with_plain(workload)
            self._wanted = self.workload.run([batch for stretch in self.stretches for batch in stretch.batches])
        return self._wanted

    def variant(self, strategy: str, workers: int, clock: Callable[[], float] = time.perf_counter) -> Variant:
        """A strategy over the whole stream."""
        last: list[tg.Engine] = []

        def prepare() -> tg.Engine:
            last[:] = [self.workload.engine(strategy_named(strategy), workers)]
            return last[0]

        def run(engine: tg.Engine) -> tuple[list[pa.Table], list[float]]:
            outcomes, seconds = [], []
            for stretch in self.stretches:
                start = clock()
                outcomes += [engine.run(events) for events in stretch.batches]
                seconds.append(clock() - start)
            return outcomes, seconds

        def verify(engine: tg.Engine, result: tuple[list[pa.Table], list[float]]) -> None:
            require_same(strategy, self.wanted(), Run(result[0], self.workload.scan(engine)))
            self.taken.setdefault(strategy, []).append(result[1])

        return Variant(
            strategy, prepare=prepare, run=run, verify=verify,
            seconds=lambda result: sum(result[1]), note=lambda: what_ran(last),
        )  # fmt: skip

    def medians(self, rounds: int) -> dict[str, list[float]]:
        """For each strategy the median seconds of each stretch, over the last `rounds` runs."""
        return {
            strategy: [statistics.median(column) for column in zip(*runs[-rounds:], strict=True)]
            for strategy, runs in self.taken.items()
        }


def ledger_stream(*, base: LedgerSettings = MORPHSTREAM, pace: float, batches: int = 3) -> Stream:
    """The thirteen phases of the dynamic ledger, `batches` batches each."""
    phases = dynamic.phases(base)
    ledgers = [StreamingLedger(phase.settings, pace) for phase in phases]
    stretches = [
        Stretch(phase.name, list(ledger.batches(batches, start=number * batches)))
        for number, (phase, ledger) in enumerate(zip(phases, ledgers, strict=True))
    ]
    return Stream(ledgers[0], stretches, checked=[ledgers[0], ledgers[-1]])


def adaptive_beside_fixed(report: Report) -> dict[str, float]:
    """For each fixed strategy, how many times as fast the adaptive one went through the whole stream."""
    adaptive = report[ADAPTIVE].seconds_median
    return {found.variant: found.seconds_median / adaptive for found in report.comparisons if found.variant != ADAPTIVE}


def grid(stream: Stream, strategies: Sequence[str], *, workers: int) -> Grid:
    """The declaration: a grid of one point, for its final; serial is the reference, so a ratio is a speed-up."""

    def make() -> Experiment:
        settings = stream.workload.settings
        return Experiment(
            name="dynamic",
            title="Dynamic ledger",
            items=stream.events,
            item="event",
            variants=[stream.variant(strategy, workers) for strategy in strategies],
            settings={**asdict(settings), "workers": workers, "stretches": [each.name for each in stream.stretches]},
            seed=settings.seed,
        )

    return Grid(
        name="dynamic",
        title="Adaptive beside each fixed strategy",
        points=[Point({"workload": stream.workload.name}, make)],
        contender=ADAPTIVE,
        bar=BAR,
        finalists=3,
    )


def bar(found: PointReport) -> Bar:
    """Over the whole stream adaptive is faster than the best fixed strategy, in the final."""
    what = f"{found.contender} beside {found.best.variant}, the best fixed strategy"
    return Bar(f"{found.report.experiment.title}: {what}", found.ratio, ">", BAR)


def render_stretches(stream: Stream, rounds: int) -> Table:
    """Stretch by stretch: the best fixed strategy, the adaptive one, and how they compare."""
    medians = stream.medians(rounds)
    headings = ["events/s, best", ADAPTIVE, SERIAL, "ratio"]
    table = plain_table("Stretch by stretch", ["stretch", "best fixed"], headings)
    fixed = [strategy for strategy in medians if strategy != ADAPTIVE]
    for number, stretch in enumerate(stream.stretches):
        events = sum(batch.num_rows for batch in stretch.batches)
        best = min(fixed, key=lambda strategy: medians[strategy][number])
        taken = [medians[strategy][number] for strategy in (best, ADAPTIVE, SERIAL)]
        table.add_row(
            stretch.name, best, *(f"{events / seconds:,.0f}" for seconds in taken), f"{taken[0] / taken[1]:.2f}"
        )
    return table
