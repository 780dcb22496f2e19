"""What an executor's cores bring to a streaming query: `transact` with all of them beside `transact` with one.

Two streams of the streaming ledger through Spark, one file for each micro-batch:

    10 µs    each written row costs ten microseconds to compute: workers share that
    free     functions take no time: all cores must not make it slower than one

A query reports how long each batch took; the first ones start the worker and load the state, and are left out. Outcomes
and rows of every run are compared with a serial engine, whose first events were compared with the plain functions.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidegate.benchmarks.harness import Experiment, Variant
from tidegate.benchmarks.spark_pipeline import WARM_BATCHES, folders, run_query, write_events
from tidegate.spark import read_state, transact
from tidegate.workloads.streaming_ledger import LedgerSettings, StreamingLedger
from tidegate.workloads.workload import Run, differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ONE, ALL = "workers=1", "all cores"
BAR, FREE_BAR = 1.6, 0.98
"""For functions of ten microseconds on two cores, and for free ones."""

CHECKED = 50
"""Events of the first batch that are compared with the plain functions, which take milliseconds for such a row."""


def experiment(
    spark: SparkSession, folder: Path, *, cost_us: float, pace: float, batch_rows: int, batches: int, seed: int
) -> Experiment:
    """The declaration: the same stream with one worker, and with as many as the executor has cores."""
    settings = LedgerSettings(cost_us=cost_us, batch_events=batch_rows, theta=0.2, seed=seed)
    workload = StreamingLedger(settings, pace)
    tables = [
        table.append_column("event", pa.array(range(number * batch_rows, (number + 1) * batch_rows), pa.int64()))
        for number, table in enumerate(workload.batches(batches + WARM_BATCHES))
    ]
    source = folder / f"source-{cost_us:g}"
    write_events(source, tables)
    first = [tables[0].slice(0, CHECKED)]
    _require_same(workload.verify(first, workload.run(first)), "the serial engine")
    wanted = workload.run(tables)
    schema = spark.read.parquet(str(source)).schema

    def run(target: Path, workers: int | None) -> float:
        events = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source))
        outcomes = transact(
            events,
            workload.program,
            state=str(target / "state"),
            order_by="event",
            initial=workload.opening(),
            workers=workers,
        )
        return run_query(outcomes, target, "parquet")

    def verify(target: Path, _: float) -> None:
        found: Any = spark.read.parquet(str(target / "out")).toArrow().sort_by("event")
        outcomes = [found.slice(start, batch_rows) for start in range(0, found.num_rows, batch_rows)]
        rows = {
            table: read_state(spark, str(target / "state"), table).toArrow().sort_by("id") for table in workload.tables
        }
        _require_same(differences(wanted, Run(outcomes, rows)), "transact")
        shutil.rmtree(target)

    def variant(name: str, workers: int | None) -> Variant:
        return Variant(name, lambda target: run(target, workers), folders(folder), verify, seconds=float)

    return Experiment(
        name="spark-workers",
        title=f"A streaming query on Spark with the cores of its executor, {cost_us:g} µs for each written row",
        items=batches * batch_rows,
        item="event",
        variants=[variant(ONE, 1), variant(ALL, None)],
        bars={ALL: BAR if cost_us >= 10 else FREE_BAR},
        settings={**asdict(settings), "batches": batches},
        seed=seed,
    )


def _require_same(problems: list[str], what: str) -> None:
    if problems:
        raise AssertionError(f"{what}: {'; '.join(problems)}")
