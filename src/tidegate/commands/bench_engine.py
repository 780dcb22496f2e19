"""`tidegate bench` for one program: beside a hand-written one, on Spark, and on tables of any size."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from tidegate.commands import bench_view as view
from tidegate.commands.bench_options import Output, Rounds, Seed, Smoke

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def limit(
    events: Annotated[int, typer.Option(min=1, help="Ledger events in one run.")] = 1_000_000,
    accounts: Annotated[int, typer.Option(min=1, help="Accounts, under arbitrary 64-bit numbers.")] = 100_000,
    rounds: Rounds = 9,
    seed: Seed = 1,
    output: Output = None,
    smoke: Smoke = False,
) -> None:
    """The engine, Arrow to Arrow, beside a program written by hand in Numba for the same job.

    Example: `tidegate bench limit --rounds 15`
    """
    from tidegate.benchmarks import limit as experiments

    bar = None if smoke else experiments.BAR
    declared = experiments.experiment(events=events, accounts=accounts, seed=seed, rounds=rounds, bar=bar)
    view.finish([view.run(declared, view.file_for(output, "limit", smoke))])


def spark(
    batch_rows: Annotated[int, typer.Option(min=1, help="Rows in each micro-batch.")] = 200_000,
    batches: Annotated[int, typer.Option(min=1, help="Micro-batches that count in one run.")] = 8,
    accounts: Annotated[int, typer.Option(min=1, help="Accounts that the events share.")] = 100_000,
    sink: Annotated[str, typer.Option(help="parquet, or noop to leave writing out.")] = "parquet",
    rounds: Rounds = 5,
    seed: Seed = 1,
    output: Output = None,
    smoke: Smoke = False,
) -> None:
    """A streaming pipeline with `transact` beside the same one with an identity `mapInArrow`.

    Example: `tidegate bench spark --sink noop`
    """
    from tidegate.benchmarks import spark_pipeline

    with _spark_and_folder() as (session, folder):
        declared = spark_pipeline.pipeline_experiment(
            session,
            folder,
            batch_rows=batch_rows,
            batches=batches,
            accounts=accounts,
            seed=seed,
            rounds=rounds,
            sink=sink,
            bar=None if smoke else spark_pipeline.BAR,
        )
        view.finish([view.run(declared, view.file_for(output, "spark", smoke))])


def spark_logging(
    batch_rows: Annotated[int, typer.Option(min=1, help="Events in each micro-batch of a ledger.")] = 25_000,
    batches: Annotated[int, typer.Option(min=1, help="Micro-batches that count in one run.")] = 4,
    accounts: Annotated[int, typer.Option(min=1, help="Accounts of the ledger with many.")] = 100_000,
    rounds: Rounds = 5,
    seed: Seed = 1,
    output: Output = None,
    smoke: Smoke = False,
) -> None:
    """Versions that keep the rows which a batch changed beside versions that keep its events.

    Speed on Spark, bytes for each event, and the time to open the state: for events that change rows of their own, for
    events that share few rows, and for events that change fifty rows each.

    Example: `tidegate bench spark-logging --batches 8`
    """
    from tidegate.benchmarks import spark_logging as experiments
    from tidegate.benchmarks import spark_plots
    from tidegate.benchmarks.harness import Experiment, Report

    console, file = Console(), view.file_for(output, "spark-logging", smoke)
    sizes = experiments.Sizes(batch_rows, batches, accounts, rounds, seed)

    def take(declared: Experiment) -> Report:
        report = view.measure(declared, console)
        view.show(report, console, file)
        return report

    with _spark_and_folder() as (session, folder):
        found = experiments.measure(session, folder, experiments.streams(folder, sizes), sizes, take)
    weights = {(each.stream, log): size for each in found for log, size in each.sizes.items()}
    console.print(experiments.render_sizes(weights))
    view.append(file, experiments.size_records(weights, sizes))
    view.draw(console, file, "spark-logging", lambda picture: spark_plots.plot_spark_logging(found, picture))


def work(
    rows_small: Annotated[int, typer.Option(min=1, help="Rows of the small table.")] = 20_000,
    rows_large: Annotated[int, typer.Option(min=1, help="Rows of the large table.")] = 4_000_000,
    memory_rows: Annotated[int, typer.Option(min=1, help="Rows whose memory is measured.")] = 10_000_000,
    rounds: Rounds = 5,
    seed: Seed = 1,
    output: Output = None,
    smoke: Smoke = False,
) -> None:
    """Whether cost follows the work: a thousand transactions on a small and on a large table.

    In the engine, with change files, and on Spark; then memory and loading of a very large table.

    Example: `tidegate bench work --rows-large 1000000`
    """
    from dataclasses import replace

    from tidegate.benchmarks import memory, spark_pipeline
    from tidegate.benchmarks import work as experiments

    sizes = experiments.Sizes(rows_small, rows_large, rounds=rounds, seed=seed)
    if smoke:
        sizes = replace(sizes, batch_events=100, batches=2)
    bar = None if smoke else experiments.BAR
    file = view.file_for(output, "work", smoke)
    passed = [view.run(experiments.engine_experiment(sizes, bar), file)]
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        passed.append(view.run(experiments.versions_experiment(sizes, Path(folder), bar), file))
    passed.append(view.show_memory(memory.measure(memory_rows, seed), seed, file))
    with _spark_and_folder() as (session, folder):
        passed.append(view.run(spark_pipeline.work_experiment(session, folder, sizes, bar), file))
    view.finish(passed)


@contextmanager
def _spark_and_folder() -> Iterator[tuple[SparkSession, Path]]:
    from tidegate.benchmarks.spark_pipeline import SESSION_CONFIG
    from tidegate.spark import session

    Console().print("starting Spark", style="dim")  # no spinner: the JVM may print, too
    started = session("tidegate bench", config=SESSION_CONFIG)
    try:
        with tempfile.TemporaryDirectory(prefix="tidegate-bench-", ignore_cleanup_errors=True) as folder:
            yield started, Path(folder)
    finally:
        started.stop()
