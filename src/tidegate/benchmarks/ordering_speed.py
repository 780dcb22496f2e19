"""What the ordered runtime costs and gains: overhead, speed-up, beside `concurrent.futures`, and latency.

overhead     three light operators, one worker: what a record costs in each operator, all included
speed-up     operators of 100 µs, without state and with a state for each key: one worker beside several
futures      the light pipeline beside the same one written with `concurrent.futures` (`futures_pipeline`)
latency      the light pipeline as a stream at half the rate that it can take: the 99th percentile of the time from when
             a record is handed in until it is handed out, as records in Python
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.benchmarks import futures_pipeline
from tidegate.benchmarks.bars import Bar
from tidegate.benchmarks.harness import Experiment, Report, Variant
from tidegate.benchmarks.ordered_race import Race, variant_name
from tidegate.benchmarks.ordering_buffers import computed
from tidegate.benchmarks.ordering_partitions import sealed
from tidegate.benchmarks.plain_pipeline import PlainPipeline, differs
from tidegate.ordering import pipeline
from tidegate.workloads.parametric import (
    Reading,
    Task,
    celsius,
    compute,
    is_plausible,
    readings,
    seal,
    smooth,
    tasks,
)

OPERATORS = 3
"""Of the light pipeline."""
HEAVY_US = 100
OVERHEAD_BAR_US, SPEEDUP_BAR, FUTURES_BAR, LATENCY_BAR_MS = 1.0, 1.8, 10.0, 5.0
THREADS, PROCESSES = "futures, record by record", "futures, chunks to processes"


def light(source: Any) -> Any:
    """The light pipeline behind a source of readings."""
    return source.map(celsius).filter(is_plausible).stateful(smooth, key="sensor")


def overhead(*, records: int, seed: int) -> Race:
    """The light pipeline by one worker."""
    table = readings(records, seed=seed)
    made = Race(table, light(PlainPipeline(Reading)).run(table))
    made.add(variant_name("light", 1), light(pipeline(Reading)), workers=1)
    return made


def overhead_bar(report: Report) -> Bar:
    """Microseconds for a record in each operator."""
    each = report.comparisons[0].seconds_median / report.experiment.items / OPERATORS
    return Bar("µs for a record in a light operator, one worker", 1e6 * each, "≤", OVERHEAD_BAR_US)


# --- speed-up ---------------------------------------------------------------------------------------------------------


def speedup(kind: str, *, records: int, pace: float, workers: Sequence[int], seed: int) -> Race:
    """A heavy operator, "stateless" or "keyed", with more and more workers."""
    table = tasks(records, rounds=round(HEAVY_US * pace), seed=seed)
    stateless = kind == "stateless"
    source = pipeline(Task)
    runs = source.map(compute) if stateless else source.stateful(seal, key="key")
    made = Race(table, computed(table) if stateless else sealed(table))
    for count in workers:
        made.add(variant_name(kind, count), runs, workers=count)
    return made


# --- concurrent.futures -----------------------------------------------------------------------------------------------


def futures(threads: Executor, processes: Executor, *, records: int, workers: int, seed: int) -> Experiment:
    """The light pipeline in three ways; threads that take record by record are the reference."""
    table = readings(records, seed=seed)
    given = [Reading(**row) for row in table.to_pylist()]
    wanted = light(PlainPipeline(Reading)).run(table)
    ours = light(pipeline(Reading))

    def of_pool(name: str, pool: Executor, run: Callable[[Executor, Sequence[Reading]], list[Reading]]) -> Variant:
        def verify(_: Any, found: list[Reading]) -> None:
            if found != wanted:
                raise AssertionError(f"{name}: the outputs differ from those of the plain functions")

        return Variant(name, run=lambda _: run(pool, given), verify=verify)

    def verify(_: Any, found: pa.Table) -> None:
        if problem := differs(found, wanted):
            raise AssertionError(problem)

    name = variant_name("ordered", workers)
    return Experiment(
        name="ordering-futures",
        title=f"Three light operators on {workers} workers, beside concurrent.futures",
        items=records,
        item="record",
        variants=[
            of_pool(THREADS, threads, futures_pipeline.record_by_record),
            of_pool(PROCESSES, processes, futures_pipeline.in_chunks),
            Variant(name, run=lambda _: ours.run(table, workers=workers), verify=verify),
        ],
        bars={name: FUTURES_BAR},
        settings={"workers": workers, "under_way": futures_pipeline.UNDER_WAY, "chunk": futures_pipeline.CHUNK},
        seed=seed,
    )


# --- latency ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Latency:
    """How long records were under way in a stream, in seconds, without the first and the last fifth of them."""

    rate: float
    seconds: np.ndarray[Any, np.dtype[np.float64]]

    def bar(self) -> Bar:
        """The 99th percentile, in milliseconds."""
        found = 1e3 * float(np.quantile(self.seconds, 0.99))
        return Bar(f"ms latency (p99) of a light stream at {self.rate:,.0f} records/s", found, "≤", LATENCY_BAR_MS)


def peak_rate(*, records: int, workers: int, seed: int) -> float:
    """How many records a second go through the light pipeline as a stream that has them all at once."""
    given = [Reading(**row) for row in readings(records, seed=seed).to_pylist()]
    began = time.perf_counter()
    for _ in light(pipeline(Reading)).stream(given, workers=workers):
        pass
    return records / (time.perf_counter() - began)


def latency(rate: float, *, records: int, workers: int, seed: int) -> Latency:
    """Records handed in at a rate, each with the time at which that was; verified when all are out."""
    table = readings(records, seed=seed)
    given = [Reading(**row) for row in table.to_pylist()]
    wanted = [(each.sensor, each.degrees) for each in light(PlainPipeline(Reading)).run(table)]
    found, seconds = [], []
    for out in light(pipeline(Reading)).stream(_paced(given, rate), workers=workers):
        seconds.append(1e-9 * (time.perf_counter_ns() - out.at))
        found.append((out.sensor, out.degrees))
    if found != wanted:
        raise AssertionError("the stream gives other outputs than the plain functions")
    fifth = len(seconds) // 5
    return Latency(rate, np.array(seconds[fifth : len(seconds) - fifth]))


def _paced(given: Sequence[Reading], rate: float) -> Iterator[Reading]:
    began = time.perf_counter()
    for number, reading in enumerate(given):
        while (early := began + number / rate - time.perf_counter()) > 0.0:
            time.sleep(min(early, 5e-4))
        reading.at = time.perf_counter_ns()
        yield reading
