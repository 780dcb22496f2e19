"""One stream whose character changes: the adaptive strategy beside each fixed one.

    dynamic ledger     thirteen phases on the same tables (`workloads.dynamic`); what counts is the whole
                       stream, and each phase is reported, too
    two-group tolls    two regions that share no row, in the same batches: what is right for one is wrong
                       for the other

Each run is a fresh engine that goes through all phases. Its outcomes and its rows at the end are compared, bit for
bit, with a serial run, and that one with the plain functions. Over a whole stream the adaptive strategy must be faster
than every fixed one: none of them is right all the time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
from rich.table import Table

import tidegate as tg
from tidegate.benchmarks.bars import Bar
from tidegate.benchmarks.harness import Experiment, Report, Variant, plain_table
from tidegate.benchmarks.strategies import ADAPTIVE, SERIAL, require_same, strategy_named, verify_with_plain, what_ran
from tidegate.workloads import dynamic
from tidegate.workloads.streaming_ledger import MORPHSTREAM, LedgerSettings, StreamingLedger
from tidegate.workloads.tolls import CALM_GROUP, HOT_GROUP, TwoGroups
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
        """What every run must come to."""
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


def tolls_stream(*, batch_events: int, cost_us: float, seed: int, pace: float, batches: int = 5) -> Stream:
    """Two groups of segments in the same batches."""
    half: dict[str, Any] = {"batch_events": batch_events // 2, "cost_us": cost_us, "seed": seed}
    workload = TwoGroups(replace(HOT_GROUP, **half), replace(CALM_GROUP, **half), pace)
    return Stream(workload, [Stretch("two groups", list(workload.batches(batches)))], checked=[workload])


def experiment(
    name: str, title: str, stream: Stream, strategies: Sequence[str], *, workers: int, rounds: int
) -> Experiment:
    """The declaration: serial is the reference, so every ratio is a speed-up over the whole stream."""
    settings: Mapping[str, Any] = asdict(stream.workload.settings)
    return Experiment(
        name=name,
        title=title,
        items=stream.events,
        item="event",
        variants=[stream.variant(strategy, workers) for strategy in strategies],
        settings={**settings, "workers": workers, "stretches": [stretch.name for stretch in stream.stretches]},
        seed=stream.workload.settings.seed,
        rounds=rounds,
    )


def adaptive_beside_fixed(report: Report) -> dict[str, float]:
    """For each fixed strategy, how many times as fast the adaptive one went through the whole stream."""
    adaptive = report[ADAPTIVE].seconds_median
    return {found.variant: found.seconds_median / adaptive for found in report.comparisons if found.variant != ADAPTIVE}


def bar(report: Report) -> Bar:
    """Over the whole stream adaptive is faster than the best fixed strategy."""
    beside = adaptive_beside_fixed(report)
    best = min(beside, key=lambda strategy: beside[strategy])
    return Bar(f"{report.experiment.title}: {ADAPTIVE} beside {best}, the best fixed strategy", beside[best], ">", BAR)


def render_stretches(stream: Stream, rounds: int) -> Table:
    """Stretch by stretch: the best fixed strategy, the adaptive one, and how they compare."""
    medians = stream.medians(rounds)
    table = plain_table("Stretch by stretch")
    table.add_column("stretch", no_wrap=True)
    table.add_column("best fixed", no_wrap=True)
    for heading in ("events/s, best", ADAPTIVE, SERIAL, "ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    fixed = [strategy for strategy in medians if strategy != ADAPTIVE]
    for number, stretch in enumerate(stream.stretches):
        events = sum(batch.num_rows for batch in stretch.batches)
        best = min(fixed, key=lambda strategy: medians[strategy][number])
        taken = [medians[strategy][number] for strategy in (best, ADAPTIVE, SERIAL)]
        table.add_row(
            stretch.name, best, *(f"{events / seconds:,.0f}" for seconds in taken), f"{taken[0] / taken[1]:.2f}"
        )
    return table
