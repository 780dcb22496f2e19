"""A program of plain transactions, a graph and look-ups (`workloads.mixed`): by one worker, and by several.

    serial      one worker takes all events in their order
    adaptive    the strategies run the plain transactions on all workers, and one worker the rest

Every run is compared with plain Python.
"""

from __future__ import annotations

from typing import Any

import tidegate as tg
from tidegate.benchmarks.harness import Experiment, Variant
from tidegate.operations.decision import Strategy
from tidegate.workloads import mixed

SERIAL, ADAPTIVE = "serial", "adaptive"
BAR = 1.2
"""How many times as fast adaptive must be as serial with functions of 10 us or more; two workers were seen to reach
1.7, and sixteen 5.9. Cheaper ones leave nothing to gain for as few events."""

WARM_UP = 6
"""Batches after which the adaptive strategy knows the program."""


def experiment(*, events: int, cost_us: float, pace: float, workers: int, seed: int) -> Experiment:
    """The declaration: two ways to run the same batches."""
    work, accounts = round(cost_us * pace), 20_000
    sizes = [max(events // 8, 1)] * WARM_UP + [events]
    batches = [
        mixed.mixed_events(size, accounts=accounts, rounds=work, seed=seed + number)
        for number, size in enumerate(sizes)
    ]
    truth = mixed.Truth()
    for batch in batches:
        truth.run(batch)
    wanted = truth.rows()

    def prepare(strategy: Strategy, threads: int) -> tg.Engine:
        engine = tg.Engine(mixed.PROGRAM, strategy=strategy, workers=threads)
        for batch in batches[:-1]:
            engine.run(batch)
        return engine

    def verify(engine: tg.Engine, _: Any) -> None:
        found = [[tuple(row.values()) for row in engine.scan(table).to_pylist()] for table in mixed.TABLES]
        if found != wanted:
            raise AssertionError("the mixed program: the rows differ from those of plain Python")

    def variant(strategy: Strategy, threads: int) -> Variant:
        return Variant(
            str(strategy),
            prepare=lambda: prepare(strategy, threads),
            run=lambda engine: engine.run(batches[-1]),
            verify=verify,
        )

    return Experiment(
        name="mixed",
        title=f"Plain transactions of {cost_us:g} µs beside a graph and look-ups, {workers} workers",
        items=events,
        item="event",
        variants=[variant(SERIAL, 1), variant(ADAPTIVE, workers)],
        bars={} if cost_us < 10 else {ADAPTIVE: BAR},
        settings={"events": events, "cost_us": cost_us, "workers": workers},
        seed=seed,
    )
