"""What `transact` costs a streaming pipeline on Spark, beside one that only passes rows through.

Both pipelines read the same files, one file for each micro-batch, and write to the same kind of sink;
they differ in the middle, where rows have been brought together in one task:

    identity    readStream -> repartition(1) -> mapInArrow(rows as they come) -> sink
    transact    readStream -> transact(ledger) -> sink

A query reports how long each of its batches took. The first batches of a run start the worker and load
the state; they are left out, and the rest is added up. Every run is a new query with a new checkpoint
and new state, in a session that lives as long as the experiment. Outcomes and state of each run are
compared with the plain functions, which ran once before the first round.

`work_experiment` runs small batches on a small and on a large table: cost must follow the work.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.benchmarks.harness import Experiment, Variant
from tidegate.benchmarks.state_folders import require_rows
from tidegate.benchmarks.work import Sizes, small_and_large, touched, variant_name
from tidegate.spark import read_state, transact
from tidegate.workloads import ledger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

IDENTITY = "identity mapInArrow"
TRANSACT = "transact"
BAR = 0.85
WARM_BATCHES = 2
"""Batches at the start of a run that are not counted: they start the worker and load the state."""

SESSION_CONFIG = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}


@dataclass(frozen=True, slots=True)
class Source:
    """Files of events, one for each batch, the accounts they start from, and what must come out."""

    folder: Path
    opening: Path
    batches: int
    events: int
    outcomes: pa.Table
    state: pa.Table


def pipeline_experiment(
    spark: SparkSession, folder: Path, settings: ledger.LedgerSettings, batch_rows: int, batches: int, sink: str
) -> Experiment:
    """The declaration: the same stream with and without transactions."""
    source = write_source(folder / "source", settings, batch_rows, batches + WARM_BATCHES)

    def run_identity(target: Path) -> float:
        events = read_source(spark, source)
        passed = events.repartition(1).mapInArrow(_pass_through, events.schema)
        return run_query(passed, target, sink)

    def verify_identity(target: Path, seconds: float) -> None:
        if sink == "parquet":
            found = spark.read.parquet(str(target / "out")).count()
            if found != source.events:
                raise AssertionError(f"{IDENTITY}: {found:,} rows arrived of {source.events:,}")
        shutil.rmtree(target)

    return Experiment(
        name="spark",
        title=f"A streaming pipeline on Spark: {batch_rows:,} rows a batch, {sink} sink",
        items=batches * batch_rows,
        item="event",
        variants=[
            Variant(IDENTITY, prepare=folders(folder), run=run_identity, verify=verify_identity, seconds=float),
            _transact_variant(TRANSACT, spark, folder, source, sink),
        ],
        bars={TRANSACT: BAR},
        settings={**asdict(settings), "batch_rows": batch_rows, "batches": batches, "sink": sink},
        seed=settings.seed,
    )


def work_experiment(spark: SparkSession, folder: Path, sizes: Sizes) -> Experiment:
    """The same small batches on a small and on a large table, each batch with its change file."""

    def variant(rows: int) -> Variant:
        settings = ledger.LedgerSettings(accounts=rows, theta=0.0, seed=sizes.seed)
        batches = sizes.batches + WARM_BATCHES
        source = write_source(folder / f"source-{rows}", settings, sizes.batch_events, batches)
        return _transact_variant(variant_name(rows), spark, folder, source, "parquet")

    return small_and_large("work-spark", ", on Spark", variant, sizes)


def _transact_variant(name: str, spark: SparkSession, folder: Path, source: Source, sink: str) -> Variant:
    """A stream through the ledger's transactions, compared with the plain functions."""

    def run(target: Path) -> float:
        initial: dict[type, DataFrame] = {ledger.Account: spark.read.parquet(str(source.opening))}
        state, events = str(target / "state"), read_source(spark, source)
        return run_query(transact(events, ledger.PROGRAM, state=state, order_by="ts", initial=initial), target, sink)

    def verify(target: Path, seconds: float) -> None:
        require_right(spark, source, target, sink)
        shutil.rmtree(target)

    return Variant(name, prepare=folders(folder), run=run, verify=verify, seconds=float)


def write_source(folder: Path, settings: ledger.LedgerSettings, batch_rows: int, batches: int) -> Source:
    """Write the events' files and the opening accounts, and run the plain functions over them."""
    generator = ledger.EventGenerator(settings)
    opening = generator.opening()
    events_folder = folder / "events"
    tables = list(generator.batches(batches * batch_rows, batch_rows))
    write_events(events_folder, tables)
    pq.write_table(opening, folder / "opening.parquet")
    truth = ledger.Truth(touched(opening, pa.concat_tables(tables)))
    outcomes = pa.concat_tables(truth.run(table) for table in tables)
    return Source(
        events_folder,
        folder / "opening.parquet",
        batches,
        batches * batch_rows,
        outcomes.combine_chunks(),
        truth.state(),
    )


def write_events(folder: Path, tables: Sequence[pa.Table]) -> None:
    """One file for each batch, in the order in which Spark is to take them."""
    folder.mkdir(parents=True)
    for index, table in enumerate(tables):
        file = folder / f"{index:06d}.parquet"
        pq.write_table(table, file)
        # Spark takes the oldest file first, by its time stamp in seconds.
        os.utime(file, (1_700_000_000 + index, 1_700_000_000 + index))


def read_source(spark: SparkSession, source: Source, schema: str = ledger.SPARK_SCHEMA) -> DataFrame:
    """The stream of events, one file in each micro-batch."""
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(source.folder))


def run_query(rows: DataFrame, target: Path, sink: str) -> float:
    """Run a stream to its end; returns the seconds of its batches, the first ones left out."""
    writer = rows.writeStream.format(sink).option("checkpointLocation", str(target / "checkpoint"))
    if sink == "parquet":
        writer = writer.option("path", str(target / "out"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    taken = [
        progress["durationMs"]["triggerExecution"] / 1000
        for progress in query.recentProgress
        if progress["numInputRows"] > 0
    ]
    return float(sum(taken[WARM_BATCHES:]))


def folders(folder: Path) -> Callable[[], Path]:
    """A new folder whenever it is asked for."""
    return lambda: Path(tempfile.mkdtemp(dir=folder))


def _pass_through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def require_right(spark: SparkSession, source: Source, target: Path, sink: str, table: type = ledger.Account) -> None:
    """That a run's outcomes and the rows of a table are those that must come out."""
    state: Any = read_state(spark, str(target / "state"), table).toArrow()
    known = pc.is_in(state["id"], value_set=source.state["id"].combine_chunks())
    require_rows(state.filter(known).sort_by("id"), source.state.sort_by("id"), f"{TRANSACT}, state")
    if sink == "parquet":
        columns = source.outcomes.column_names
        outcomes: Any = spark.read.parquet(str(target / "out")).select(*columns).toArrow()
        require_rows(outcomes.sort_by("event"), source.outcomes.sort_by("event"), f"{TRANSACT}, outcomes")
