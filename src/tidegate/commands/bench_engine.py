"""`tidegate bench` for one program: beside a hand-written one, on Spark, and on tables of any size."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from tidegate.commands.bench_run import BenchRun, temporary_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def limit(
    run: BenchRun,
    events: Annotated[int, typer.Option(min=1, help="Ledger events in one run.")] = 1_000_000,
    accounts: Annotated[int, typer.Option(min=1, help="Accounts, under arbitrary 64-bit numbers.")] = 100_000,
) -> None:
    """The engine, Arrow to Arrow, beside a program written by hand in Numba for the same job.

    Example: `tidegate bench limit --rounds 15`
    """
    from tidegate.benchmarks import limit as experiments

    run.show(experiments.experiment(events=events, accounts=accounts, seed=run.seed))


def spark(
    run: BenchRun,
    batch_rows: Annotated[int, typer.Option(min=1, help="Rows in each micro-batch.")] = 200_000,
    batches: Annotated[int, typer.Option(min=1, help="Micro-batches that count in one run.")] = 8,
    accounts: Annotated[int, typer.Option(min=1, help="Accounts that the events share.")] = 100_000,
    sink: Annotated[str, typer.Option(help="parquet, or noop to leave writing out.")] = "parquet",
) -> None:
    """A streaming pipeline with `transact` beside the same one with an identity `mapInArrow`.

    Example: `tidegate bench spark --sink noop`
    """
    from tidegate.benchmarks import spark_pipeline
    from tidegate.workloads.ledger import LedgerSettings

    settings = LedgerSettings(accounts=accounts, seed=run.seed)
    with _spark_and_folder() as (session, folder):
        run.show(spark_pipeline.pipeline_experiment(session, folder, settings, batch_rows, batches, sink))


def spark_workers(
    run: BenchRun,
    batch_rows: Annotated[int, typer.Option(min=1, help="Events in each micro-batch with costly functions.")] = 50_000,
    batches: Annotated[int, typer.Option(min=1, help="Micro-batches that count in one run.")] = 6,
    cost: Annotated[float, typer.Option(min=0.0, help="Microseconds for each written row, where it costs.")] = 10.0,
) -> None:
    """A streaming query with all cores of its executor beside the same query with one worker.

    With functions that take time, and with functions that take none (four times as many events). What Spark does for a
    micro-batch, however few events it has, is 0.3 to 0.4 s here, and no worker shares it: small batches show that.

    Example: `tidegate bench spark-workers --batches 10`
    """
    from tidegate.benchmarks import spark_workers as experiments

    pace = run.pace()
    with _spark_and_folder() as (session, folder):
        for cost_us, rows in ((cost, batch_rows), (0.0, 4 * batch_rows)):
            run.show(
                experiments.experiment(
                    session, folder, cost_us=cost_us, pace=pace, batch_rows=rows, batches=batches, seed=run.seed
                )
            )


def spark_ordered(
    run: BenchRun,
    records: Annotated[int, typer.Option(min=1, help="Records in one run.")] = 40_000,
    cost: Annotated[float, typer.Option(min=0.0, help="Microseconds for each record.")] = 50.0,
) -> None:
    """An ordered pipeline in one task, with the idle cores of its executor beside one thread and plain Python.

    Example: `tidegate bench spark-ordered --cost 100`
    """
    from tidegate.benchmarks import spark_ordered as experiments

    pace = run.pace()
    with _spark_and_folder() as (session, folder):
        run.show(experiments.experiment(session, folder, records=records, cost_us=cost, pace=pace, seed=run.seed))


def spark_logging(
    run: BenchRun,
    batch_rows: Annotated[int, typer.Option(min=1, help="Events in each micro-batch of a ledger.")] = 25_000,
    batches: Annotated[int, typer.Option(min=1, help="Micro-batches that count in one run.")] = 4,
    accounts: Annotated[int, typer.Option(min=1, help="Accounts of the ledger with many.")] = 100_000,
) -> None:
    """Versions that keep the rows which a batch changed beside versions that keep its events.

    Speed on Spark, bytes for each event, and the time to open the state: for events that change rows of their own, for
    events that share few rows, and for events that change fifty rows each.

    Example: `tidegate bench spark-logging --batches 8`
    """
    from tidegate.benchmarks import spark_logging as experiments
    from tidegate.benchmarks import spark_plots

    sizes = experiments.Sizes(batch_rows, batches, accounts, run.rounds, run.seed)
    with _spark_and_folder() as (session, folder):
        found = experiments.measure(session, folder, experiments.streams(folder, sizes), sizes, run.show)
    run.console.print(experiments.render_sizes(found))
    run.append(experiments.size_records(found, sizes))
    run.draw(lambda picture: spark_plots.plot_spark_logging(found, picture))


def work(
    run: BenchRun,
    rows_small: Annotated[int, typer.Option(min=1, help="Rows of the small table.")] = 20_000,
    rows_large: Annotated[int, typer.Option(min=1, help="Rows of the large table.")] = 4_000_000,
    memory_rows: Annotated[int, typer.Option(min=1, help="Rows whose memory is measured.")] = 10_000_000,
) -> None:
    """Whether cost follows the work: a thousand transactions on a small and on a large table.

    In the engine, with change files, and on Spark; then memory and loading of a very large table.

    Example: `tidegate bench work --rows-large 1000000`
    """
    from dataclasses import replace

    from tidegate.benchmarks import memory, spark_pipeline
    from tidegate.benchmarks import work as experiments

    sizes = experiments.Sizes(rows_small, rows_large, rounds=run.rounds, seed=run.seed)
    if run.smoke:
        sizes = replace(sizes, batch_events=100, batches=2)
    run.show(experiments.engine_experiment(sizes))
    with temporary_folder() as folder:
        run.show(experiments.versions_experiment(sizes, folder))
    footprint = memory.measure(memory_rows, run.seed)
    run.console.print(footprint.render())
    run.append([footprint.as_record(run.seed)])
    run.note([footprint.passed])
    with _spark_and_folder() as (session, folder):
        run.show(spark_pipeline.work_experiment(session, folder, sizes))


@contextmanager
def _spark_and_folder() -> Iterator[tuple[SparkSession, Path]]:
    from tidegate.benchmarks.spark_pipeline import SESSION_CONFIG
    from tidegate.spark import session

    Console().print("starting Spark", style="dim")  # no spinner: the JVM may print, too
    started = session("tidegate bench", config=SESSION_CONFIG)
    try:
        with temporary_folder() as folder:
            yield started, folder
    finally:
        started.stop()
