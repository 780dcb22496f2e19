"""What an executor's idle cores bring to an ordered pipeline as a stage of a Spark plan.

One task, as a plan has behind a `coalesce(1)` or for one large file. Its records pass a stateless operator and one with
a state for each key, which share the cost of a record:

    workers=1       the stage with one thread: what a single-threaded `mapInArrow` with the compiled functions takes
    all cores       the same, with the executor's idle cores
    plain Python    a `mapInArrow` that calls the plain functions; on a part of the records, and multiplied

The output of every run is compared with what the functions give, computed without spending the cost again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.benchmarks.harness import Experiment, Variant
from tidegate.ordering import pipeline
from tidegate.spark import ordered
from tidegate.workloads.parametric import Seal, Task, burned, compute, seal, tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ONE, ALL, PLAIN = "workers=1", "all cores", "plain Python"
BAR = 1.5
"""On two cores."""
PLAIN_PART = 40
"""Plain Python runs one record in so many, because it takes about a millisecond for what should cost 50 µs."""


def experiment(
    spark: SparkSession, folder: Path, *, records: int, cost_us: float, pace: float, seed: int
) -> Experiment:
    """The declaration: the same records through one task, three ways."""
    given = tasks(records, rounds=round(cost_us / 2 * pace), seed=seed)
    wanted = _expected(given)
    part = max(1, records // PLAIN_PART)
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(given, folder / "all.parquet")
    pq.write_table(given.slice(0, part), folder / "part.parquet")
    heavy = pipeline(Task).map(compute).stateful(seal, key="key")

    def stage(workers: int | None) -> pa.Table:
        return ordered(spark.read.parquet(str(folder / "all.parquet")).coalesce(1), heavy, workers=workers).toArrow()

    def plain() -> tuple[pa.Table, float]:
        rows = spark.read.parquet(str(folder / "part.parquet")).coalesce(1)
        began = time.perf_counter()
        found = rows.mapInArrow(_run_plainly, rows.schema).toArrow()
        return found, (time.perf_counter() - began) * records / part

    def verify(found: pa.Table) -> None:
        if found["value"].to_pylist() != wanted[: found.num_rows] or found.num_rows not in (part, records):
            raise AssertionError("the output is not that of the plain functions, one record after the other")

    def variant(name: str, workers: int | None) -> Variant:
        return Variant(name, lambda _: stage(workers), verify=lambda _, found: verify(found))

    return Experiment(
        name="spark-ordered",
        title=f"An ordered pipeline in one task on Spark, {cost_us:g} µs for each record",
        items=records,
        item="record",
        variants=[
            variant(ONE, 1),
            variant(ALL, None),
            Variant(PLAIN, lambda _: plain(), verify=lambda _, found: verify(found[0]), seconds=lambda found: found[1]),
        ],
        bars={ALL: BAR},
        settings={"records": records, "cost_us": cost_us, "pace": pace, "plain_records": part},
        seed=seed,
    )


def _run_plainly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    states: dict[int, Seal] = {}
    for batch in batches:
        made: list[dict[str, Any]] = []
        for row in batch.to_pylist():
            task = compute(Task(**row))
            made.append(asdict(seal(states.setdefault(task.key, Seal()), task)))
        yield pa.RecordBatch.from_pylist(made, batch.schema)


def _expected(given: pa.Table) -> list[int]:
    """The values that come out, without the time that they cost."""
    states: dict[int, int] = {}
    found = []
    for row in given.to_pylist():
        value = burned(row["value"], row["rounds"])
        states[row["key"]] = burned(states.get(row["key"], 0) + value, row["rounds"])
        found.append(states[row["key"]])
    return found
