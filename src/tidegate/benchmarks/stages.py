"""Stages of a dataflow graph side by side: what several workers gain where steps have to be taken in order.

A line of steps, each a transaction with a table of its own and some microseconds of work. All tuples touch few rows, in
order, so no two tuples could go through one step at the same time; but a step can take a tuple while the next one is
still busy with the tuple before it.

    one after the other    strategy "serial"
    side by side           as many workers as there are steps, or processors
    adaptive               measures both, and chooses the faster one

The rows of every run are compared with those of plain Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa

import tidegate as tg
from tidegate.benchmarks.harness import Experiment, Variant
from tidegate.operations.decision import Strategy
from tidegate.workloads.chains import load_stages, stages_events
from tidegate.workloads.cost import burn

ALONE, SIDE_BY_SIDE, ADAPTIVE = "one after the other", "side by side", "adaptive"
WARM_UP, WARM_UP_EVENTS = 4, 4_096
"""Batches, and events in each, after which the adaptive strategy has tried both ways."""


def experiment(steps: int, *, events: int, cost_us: float, pace: float, workers: int, seed: int) -> Experiment:
    """The declaration: one length of the line, three ways to go through it."""
    rounds_of_work = round(cost_us * pace)
    sizes = [min(events, WARM_UP_EVENTS)] * WARM_UP + [events]
    batches = [stages_events(size, rounds_of_work, seed + number) for number, size in enumerate(sizes)]
    wanted = plain(steps, batches)

    def engine_with(strategy: Strategy, threads: int) -> tuple[tg.Engine, Any]:
        module = load_stages(steps)
        engine = tg.Engine([module.graph], strategy=strategy, workers=threads)
        for batch in batches[:-1]:
            engine.run(batch)
        return engine, module

    def verify(prepared: tuple[tg.Engine, Any], _: Any) -> None:
        engine, module = prepared
        found = [engine.scan(table).to_pydict() for table in module.tables]
        if found != wanted:
            raise AssertionError(f"a line of {steps} steps: the rows differ from those of plain Python")

    def variant(name: str, strategy: Strategy, threads: int) -> Variant:
        prepare = partial(engine_with, strategy, threads)
        return Variant(name, prepare=prepare, run=lambda prepared: prepared[0].run(batches[-1]), verify=verify)

    return Experiment(
        name="stages",
        title=f"A line of {steps} stages of {cost_us:g} µs, {workers} workers",
        items=events,
        item="batch",
        variants=[
            variant(ALONE, "serial", 1),
            variant(SIDE_BY_SIDE, tg.Decision(), workers),
            variant(ADAPTIVE, "adaptive", workers),
        ],
        settings={"steps": steps, "events": events, "cost_us": cost_us, "workers": workers},
        seed=seed,
    )


def plain(steps: int, batches: Sequence[pa.Table]) -> list[dict[str, list[int]]]:
    """The rows that plain Python gives, step by step."""
    found = []
    for step in range(1, steps + 1):
        rows: dict[int, tuple[int, int]] = {}
        for batch in batches:
            for key, work in zip(batch["tally"].to_pylist(), batch["rounds"].to_pylist(), strict=True):
                count, seal = rows.get(key, (0, 0))
                rows[key] = (count + 1, burn(seal + step, work))
        keys = sorted(rows)
        found.append({"id": keys, "count": [rows[k][0] for k in keys], "seal": [rows[k][1] for k in keys]})
    return found
