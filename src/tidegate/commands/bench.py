"""`tidegate bench`: how fast Tidegate is, each number verified and measured beside its reference.

    limit    the engine beside a hand-written program
    spark    a streaming pipeline beside one without transactions
    work     small and large tables, memory, loading

Each command prints its tables, adds JSON lines to a file under `results/`, and ends with exit code 1
when a bar was missed. `--smoke` runs the same code at a small size, without bars and without a file:
it shows that the benchmark works, not how fast anything is.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.benchmarks.harness import Experiment
    from tidegate.benchmarks.memory import Footprint

app = typer.Typer(no_args_is_help=True, help="Measure: every run verified, variants interleaved, ratios printed.")

Rounds = Annotated[int, typer.Option(min=1, help="Rounds that count; one more runs first to warm up.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same events.")]
Smoke = Annotated[bool, typer.Option("--smoke", help="Small sizes, no bars, no file: does it work at all?")]
Output = Annotated[Path | None, typer.Option(help="Where JSON lines are added.", show_default="results/…")]


@app.command("limit")
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

    if smoke:
        events, accounts, rounds = 20_000, 2_000, 1
    bar = None if smoke else experiments.BAR
    declared = experiments.experiment(events=events, accounts=accounts, seed=seed, rounds=rounds, bar=bar)
    _finish([_run(declared, _file(output, "limit", smoke))])


@app.command("spark")
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

    if smoke:
        batch_rows, batches, accounts, rounds = 2_000, 2, 500, 1
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
        _finish([_run(declared, _file(output, "spark", smoke))])


@app.command("work")
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
    from tidegate.benchmarks import memory, spark_pipeline
    from tidegate.benchmarks import work as experiments

    sizes = experiments.Sizes(rows_small, rows_large, rounds=rounds, seed=seed)
    if smoke:
        sizes = experiments.Sizes(500, 5_000, batch_events=100, batches=2, rounds=1, seed=seed)
        memory_rows = 20_000
    bar = None if smoke else experiments.BAR
    file = _file(output, "work", smoke)
    passed = [_run(experiments.engine_experiment(sizes, bar), file)]
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        passed.append(_run(experiments.versions_experiment(sizes, Path(folder), bar), file))
    passed.append(_show_memory(memory.measure(memory_rows, seed), seed, file))
    with _spark_and_folder() as (session, folder):
        passed.append(_run(spark_pipeline.work_experiment(session, folder, sizes, bar), file))
    _finish(passed)


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


def _run(declared: Experiment, file: Path | None) -> bool:
    from tidegate.benchmarks import harness

    console = Console()
    with console.status(f"{declared.name}: warming up") as status:

        def on_round(done: int, total: int) -> None:
            status.update(f"{declared.name}: {done} of {total} rounds")

        report = harness.measure(declared, on_round=on_round)
    return harness.show(report, console, file)


def _show_memory(footprint: Footprint, seed: int, file: Path | None) -> bool:
    from dataclasses import asdict

    from tidegate.benchmarks import harness, memory

    fits = footprint.resident_bytes <= memory.RESIDENT_BYTES_MAX
    quick = footprint.load_seconds <= memory.LOAD_SECONDS_MAX
    table = Table(
        title=f"{footprint.rows:,} rows of two integers, loaded in a fresh process",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for heading in ("", "measured", "bar"):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    megabytes = {
        "before loading": footprint.before_bytes,
        "resident": footprint.resident_bytes,
        "peak, input included": footprint.peak_bytes,
    }
    for name, size in megabytes.items():
        bar = f"≤ {memory.RESIDENT_BYTES_MAX / 1e6:,.0f} MB {'✓' if fits else '✗'}" if name == "resident" else ""
        table.add_row(name, f"{size / 1e6:,.0f} MB", bar)
    bar = f"≤ {memory.LOAD_SECONDS_MAX:g} s {'✓' if quick else '✗'}"
    table.add_row("load", f"{footprint.load_seconds:.2f} s", bar)
    Console().print(table)
    if file is not None:
        values = asdict(footprint)
        settings = {"rows": values.pop("rows")}
        harness.append(file, [harness.record("memory", seed=seed, settings=settings, **values, passed=fits and quick)])
    return fits and quick


def _file(output: Path | None, name: str, smoke: bool) -> Path | None:
    return None if smoke else output or Path("results") / f"{name}.jsonl"


def _finish(passed: list[bool]) -> None:
    if not all(passed):
        Console(stderr=True).print("[red]a bar was missed[/red]")
        raise typer.Exit(1)
