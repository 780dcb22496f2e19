"""What more workers bring: every strategy with 1, 2, 4, ... of them, beside the most that is possible.

The workload is the streaming ledger with uniform keys and functions of about 10 µs: enough work to share, and
hardly anything to wait for. Beside the strategies run

    independent    as many threads as workers, each with an engine, tables and events of its own

They have nothing to agree on, so no strategy can be faster on this machine with these functions: what is
missing to them is what the order of transactions costs, and what is missing to them beside a straight line is the
machine's memory and Python's part of a batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace

import pyarrow as pa

import tidegate as tg
from tidegate.benchmarks.harness import Experiment, Report, Variant
from tidegate.benchmarks.strategies import SERIAL, Contest, require_same
from tidegate.workloads.streaming_ledger import MORPHSTREAM, LedgerSettings, StreamingLedger
from tidegate.workloads.workload import Run

BOUND = "independent"
SETTINGS = replace(MORPHSTREAM, theta=0.0, abort_ratio=0.0, cost_us=10.0)

Lanes = list[tuple[tg.Engine, list[pa.Table]]]


def worker_counts(workers_max: int) -> list[int]:
    """1, 2, 4, ... and the largest."""
    powers = itertools.takewhile(lambda count: count < workers_max, (2**power for power in itertools.count()))
    return [*powers, workers_max]


def variant_name(strategy: str, workers: int) -> str:
    """A strategy with its workers."""
    return f"{strategy} x{workers}"


def experiment(
    strategies: Sequence[str],
    *,
    workers_max: int,
    pace: float,
    rounds: int,
    batches: int = 2,
    settings: LedgerSettings = SETTINGS,
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
        rounds=rounds,
    )


def independent(settings: LedgerSettings, workers: int, pace: float, batches: int) -> Variant:
    """Threads that share nothing: each runs its part of the events, serially, on its part of the keys."""
    part = replace(settings, keys=max(2, settings.keys // workers), batch_events=settings.batch_events // workers)
    contests = [
        Contest(StreamingLedger(replace(part, seed=settings.seed + number), pace), batches) for number in range(workers)
    ]
    engines: list[tg.Engine] = []
    pool = ThreadPoolExecutor(workers)
    rounds = itertools.count()

    def prepare() -> tuple[int, Lanes]:
        if not engines:
            engines.extend(contest.workload.engine(SERIAL) for contest in contests)
        number = next(rounds)
        return number, [(engine, list(one.batches(number))) for engine, one in zip(engines, contests, strict=True)]

    def run(prepared: tuple[int, Lanes]) -> list[list[pa.Table]]:
        return list(pool.map(lambda lane: [lane[0].run(events) for events in lane[1]], prepared[1]))

    def verify(prepared: tuple[int, Lanes], outcomes: list[list[pa.Table]]) -> None:
        for contest, engine, found in zip(contests, engines, outcomes, strict=True):
            require_same(BOUND, contest.wanted(prepared[0]), Run(found, contest.workload.scan(engine)))

    return Variant(variant_name(BOUND, workers), prepare=prepare, run=run, verify=verify)


def curves(report: Report) -> dict[str, dict[int, float]]:
    """Events a second by strategy and workers."""
    found: dict[str, dict[int, float]] = {}
    for comparison in report.comparisons:
        strategy, workers = comparison.variant.rsplit(" x", 1)
        found.setdefault(strategy, {})[int(workers)] = report.items_per_second(comparison.variant)
    return found
