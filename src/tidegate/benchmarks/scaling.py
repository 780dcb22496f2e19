"""What more workers bring: every strategy with 1, 2, 4, ... of them, beside the most that is possible.

The workload is the streaming ledger with uniform keys and functions of about 10 µs: enough work to share, and
hardly anything to wait for. Beside the strategies run

    independent    as many threads as workers, each with an engine, tables and events of its own

They have nothing to agree on, so no strategy can be faster on this machine with these functions. What strategies
lose against them is the price of the order of transactions; what they lose themselves against a straight line is due to
the machine's memory and to the part of a batch that runs in Python.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace

import tidegate as tg
from tidegate.benchmarks.harness import Experiment, Report, Variant
from tidegate.benchmarks.strategies import SERIAL, Batches, Contest
from tidegate.workloads.streaming_ledger import MORPHSTREAM, LedgerSettings, StreamingLedger

BOUND = "independent"
SETTINGS = replace(MORPHSTREAM, theta=0.0, abort_ratio=0.0, cost_us=10.0)

Lanes = list[tuple[tg.Engine, int, Batches]]
"""What each thread works on."""


def worker_counts(workers_max: int) -> list[int]:
    """1, 2, 4, ... and the largest."""
    powers = itertools.takewhile(lambda count: count < workers_max, (2**power for power in itertools.count()))
    return [*powers, workers_max]


def variant_name(strategy: str, workers: int) -> str:
    """A strategy with its workers."""
    return f"{strategy} x{workers}"


def experiment(
    strategies: Sequence[str], *, workers_max: int, pace: float, batches: int = 2, settings: LedgerSettings = SETTINGS
) -> Experiment:
    """The declaration: serial is the reference, so every ratio is a speed-up."""
    contest = Contest(StreamingLedger(settings, pace), batches)
    counts = worker_counts(workers_max)
    variants = [contest.variant(SERIAL, 1, variant_name(SERIAL, 1))]
    for workers in counts:
        variants += [
            contest.variant(strategy, workers, variant_name(strategy, workers))
            for strategy in strategies
            if strategy != SERIAL
        ]
        variants.append(independent(settings, workers, pace, batches))
    return Experiment(
        name="scaling",
        title=f"Speed with more workers: streaming ledger, uniform keys, {settings.cost_us:g} µs an operation",
        items=contest.events,
        item="event",
        variants=variants,
        settings={"workers_max": workers_max, "batches": batches, **asdict(settings)},
        seed=settings.seed,
    )


def independent(settings: LedgerSettings, workers: int, pace: float, batches: int) -> Variant:
    """Threads that share nothing: each runs its part of the events, serially, on its part of the keys."""
    part = replace(settings, keys=max(2, settings.keys // workers), batch_events=settings.batch_events // workers)
    lanes = [
        Contest(StreamingLedger(replace(part, seed=settings.seed + number), pace), batches).variant(SERIAL, 1, BOUND)
        for number in range(workers)
    ]
    pool = ThreadPoolExecutor(workers)

    def run(prepared: Lanes) -> list[Batches]:
        return list(pool.map(lambda lane, own: lane.run(own), lanes, prepared))

    def verify(prepared: Lanes, outcomes: list[Batches]) -> None:
        for lane, own, found in zip(lanes, prepared, outcomes, strict=True):
            lane.verify(own, found)

    name = variant_name(BOUND, workers)
    return Variant(name, prepare=lambda: [lane.prepare() for lane in lanes], run=run, verify=verify)


def curves(report: Report) -> dict[str, dict[int, float]]:
    """Events a second by strategy and workers."""
    found: dict[str, dict[int, float]] = {}
    for comparison in report.comparisons:
        strategy, workers = comparison.variant.rsplit(" x", 1)
        found.setdefault(strategy, {})[int(workers)] = report.items_per_second(comparison.variant)
    return found
