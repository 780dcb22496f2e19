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
from tidegate.benchmarks.work import Sizes, touched
from tidegate.spark import read_state, transact
from tidegate.workloads import ledger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

IDENTITY = "identity mapInArrow"
TRANSACT = "transact"
BAR = 0.85
WORK_BAR = 0.5
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


@dataclass(frozen=True, slots=True)
class Run:
    """One finished query: the seconds of the batches that count, and where its results are."""

    seconds: float
    folder: Path


def pipeline_experiment(
    spark: SparkSession,
    folder: Path,
    *,
    batch_rows: int,
    batches: int,
    accounts: int,
    seed: int,
    rounds: int,
    sink: str = "parquet",
    bar: float | None = BAR,
) -> Experiment:
    """The declaration: the same stream with and without transactions."""
    settings = ledger.LedgerSettings(accounts=accounts, seed=seed)
    source = write_source(folder / "source", settings, batch_rows, batches + WARM_BATCHES)

    def run_identity(target: Path) -> Run:
        events = read_source(spark, source)
        passed = events.repartition(1).mapInArrow(_pass_through, events.schema)
        return run_query(passed, target, sink)

    def run_transact(target: Path) -> Run:
        initial: dict[type, DataFrame] = {ledger.Account: spark.read.parquet(str(source.opening))}
        outcomes = transact(
            read_source(spark, source),
            ledger.PROGRAM,
            state=str(target / "state"),
            order_by="ts",
            initial=initial,
        )
        return run_query(outcomes, target, sink)

    def verify_identity(target: Path, run: Run) -> None:
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
            Variant(IDENTITY, prepare=folders(folder), run=run_identity, verify=verify_identity, seconds=seconds_of),
            Variant(
                TRANSACT,
                prepare=folders(folder),
                run=run_transact,
                verify=lambda target, run: _verify(spark, source, target, sink),
                seconds=seconds_of,
            ),
        ],
        bars={} if bar is None else {TRANSACT: bar},
        settings={**asdict(settings), "batch_rows": batch_rows, "batches": batches, "sink": sink},
        seed=seed,
        rounds=rounds,
    )


def work_experiment(spark: SparkSession, folder: Path, sizes: Sizes, bar: float | None = WORK_BAR) -> Experiment:
    """The same small batches on a small and on a large table, each batch with its change file."""

    def variant(rows: int) -> Variant:
        settings = ledger.LedgerSettings(accounts=rows, theta=0.0, seed=sizes.seed)
        batches = sizes.batches + WARM_BATCHES
        source = write_source(folder / f"source-{rows}", settings, sizes.batch_events, batches)

        def run(target: Path) -> Run:
            initial: dict[type, DataFrame] = {ledger.Account: spark.read.parquet(str(source.opening))}
            state = str(target / "state")
            events = read_source(spark, source)
            outcomes = transact(events, ledger.PROGRAM, state=state, order_by="ts", initial=initial)
            return run_query(outcomes, target, "parquet")

        return Variant(
            f"{rows:,} rows",
            prepare=folders(folder),
            run=run,
            verify=lambda target, run: _verify(spark, source, target, "parquet"),
            seconds=seconds_of,
        )

    return Experiment(
        name="work-spark",
        title=f"Cost follows the work, on Spark: {sizes.batch_events:,} transactions a batch",
        items=sizes.batches,
        item="batch",
        variants=[variant(rows) for rows in (sizes.rows_small, sizes.rows_large)],
        bars={} if bar is None else {f"{sizes.rows_large:,} rows": bar},
        settings=asdict(sizes),
        seed=sizes.seed,
        rounds=sizes.rounds,
    )


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


def run_query(rows: DataFrame, target: Path, sink: str) -> Run:
    """Run a stream to its end and add up the time of its batches, the first ones left out."""
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
    return Run(sum(taken[WARM_BATCHES:]), target)


def seconds_of(run: Run) -> float:
    """The time of the batches that count."""
    return run.seconds


def folders(folder: Path) -> Callable[[], Path]:
    """A new folder whenever it is asked for."""
    return lambda: Path(tempfile.mkdtemp(dir=folder))


def _pass_through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _verify(spark: SparkSession, source: Source, target: Path, sink: str) -> None:
    """Compare a run's outcomes and state with the plain functions, then remove its files."""
    require_right(spark, source, target, sink)
    shutil.rmtree(target)


def require_right(spark: SparkSession, source: Source, target: Path, sink: str, table: type = ledger.Account) -> None:
    """That a run's outcomes and the rows of a table are those that must come out."""
    state: Any = read_state(spark, str(target / "state"), table).toArrow()
    known = pc.is_in(state["id"], value_set=source.state["id"].combine_chunks())
    wrong = _difference(source.state, state.filter(known))
    if wrong:
        raise AssertionError(f"{TRANSACT}: the state differs from the plain functions")
    if sink == "parquet":
        columns = source.outcomes.column_names
        outcomes: Any = spark.read.parquet(str(target / "out")).select(*columns).toArrow()
        if _difference(source.outcomes.sort_by("event"), outcomes.sort_by("event")):
            raise AssertionError(f"{TRANSACT}: outcomes differ from the plain functions")


def _difference(wanted: pa.Table, found: pa.Table) -> bool:
    found = found.select(wanted.column_names).cast(wanted.schema)
    key = wanted.column_names[0]
    return not found.sort_by(key).combine_chunks().equals(wanted.sort_by(key).combine_chunks())
