"""`tidegate bench`: how fast Tidegate is, each number verified and measured beside its reference.

    limit         the engine beside a hand-written program
    spark         a streaming pipeline beside one without transactions
    work          small and large tables, memory, loading
    strategies    adaptive beside every fixed strategy, over a grid of workloads
    scaling       every strategy with more and more workers
    dynamic       a stream whose character changes

Each command prints its tables, adds JSON lines to a file under `results/`, and ends with exit code 1
when a bar was missed; the last three draw a picture, too. `--smoke` runs the same code at a small size,
without bars and without a file: it shows that the benchmark works, not how fast anything is.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.benchmarks.grids import Point, PointReport
    from tidegate.benchmarks.harness import Experiment, Report
    from tidegate.benchmarks.memory import Footprint

app = typer.Typer(no_args_is_help=True, help="Measure: every run verified, variants interleaved, ratios printed.")

Rounds = Annotated[int, typer.Option(min=1, help="Rounds that count; one more runs first to warm up.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same events.")]
Smoke = Annotated[bool, typer.Option("--smoke", help="Small sizes, no bars, no file: does it work at all?")]
Workers = Annotated[int | None, typer.Option(min=1, help="Threads for each engine.", show_default="all cores")]
Strategies = Annotated[str | None, typer.Option(help="Some strategies, with commas.", show_default="all of them")]
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


@app.command("strategies")
def strategies(
    grid: Annotated[str, typer.Option(help="full, or quick for a quarter of its points.")] = "full",
    seconds: Annotated[float, typer.Option(min=1.0, help="Time to spend; each point has one round at least.")] = 3600.0,
    workers: Workers = None,
    strategies: Strategies = None,
    rounds: Rounds = 7,
    seed: Seed = 1,
    output: Output = None,
    smoke: Smoke = False,
) -> None:
    """Adaptive beside every fixed strategy: how close does it come to the best, workload by workload?

    Example: `tidegate bench strategies --grid quick --strategies serial,chains,ns-operation-eager,adaptive`
    """
    from tidegate.benchmarks import grids, harness, plots
    from tidegate.benchmarks import strategies as experiments

    console, file = Console(), _file(output, "strategies", smoke)
    cells = experiments.smoke_cells(seed) if smoke else experiments.cells(seed)
    declared = experiments.grid(
        cells[:: {"full": 1, "quick": 4}[_one_of("grid", grid, ("full", "quick"))]],
        _chosen(strategies),
        pace=_pace(console),
        workers=workers or _cores(),
        rounds=1 if smoke else rounds,
        batches=(lambda workload: 1) if smoke else experiments.batches_per_round,
    )

    def write(found: PointReport) -> None:
        if file is not None:
            harness.append(file, grids.point_records(declared, found))

    with _progress(console) as progress:
        task = progress.add_task("", total=len(declared.points))

        def on_round(point: Point, done: int, total: int) -> None:
            progress.update(task, description=f"{point.label}: round {done} of {total}")

        def on_point(found: PointReport) -> None:
            write(found)
            progress.advance(task)

        report = grids.measure_grid(declared, on_round=on_round, on_point=on_point, seconds_max=seconds)
    console.print(grids.render_grid(report))
    if file is not None:
        harness.append(file, [grids.grid_record(report)])
    _draw(console, file, "strategies", lambda picture: plots.plot_grid(report, picture))


@app.command("scaling")
def scaling(
    workers: Workers = None,
    strategies: Strategies = None,
    cost: Annotated[float, typer.Option(min=0.0, help="Microseconds that an operation computes.")] = 10.0,
    rounds: Rounds = 5,
    seed: Seed = 1,
    output: Output = None,
    smoke: Smoke = False,
) -> None:
    """Every strategy with 1, 2, 4, ... workers, beside threads that share nothing.

    Example: `tidegate bench scaling --workers 8 --strategies adaptive,ns-operation-eager`
    """
    from dataclasses import replace

    from tidegate.benchmarks import plots
    from tidegate.benchmarks import scaling as experiments

    console, file = Console(), _file(output, "scaling", smoke)
    settings = replace(experiments.SETTINGS, cost_us=cost, seed=seed)
    if smoke:
        settings, rounds = replace(settings, cost_us=0.1, batch_events=400, keys=400), 1
    declared = experiments.experiment(
        _chosen(strategies), workers_max=workers or _cores(), pace=_pace(console), rounds=rounds, settings=settings
    )
    report = _measure(declared, console)
    passed = _show(report, console, file)
    _draw(console, file, "scaling", lambda to: plots.plot_scaling(experiments.curves(report), declared.title, to))
    _finish([passed])


@app.command("dynamic")
def dynamic(
    workers: Workers = None,
    strategies: Strategies = None,
    batches: Annotated[int, typer.Option(min=1, help="Batches in each phase.")] = 3,
    rounds: Rounds = 3,
    seed: Seed = 1,
    output: Output = None,
    smoke: Smoke = False,
) -> None:
    """The dynamic ledger in thirteen phases, and tolls in two groups: adaptive beside every fixed strategy.

    Example: `tidegate bench dynamic --batches 5`
    """
    from dataclasses import replace

    from tidegate.benchmarks import dynamic as experiments
    from tidegate.benchmarks import plots
    from tidegate.workloads.streaming_ledger import MORPHSTREAM

    console, file = Console(), _file(output, "dynamic", smoke)
    pace, base, toll_events = _pace(console), replace(MORPHSTREAM, seed=seed), 20_480
    if smoke:
        base, toll_events = replace(base, cost_us=0.1, batch_events=200, keys=300), 400
        batches, rounds = 1, 1
    names = _chosen(strategies)
    streams = {
        "dynamic ledger": experiments.ledger_stream(base=base, pace=pace, batches=batches),
        "two-group tolls": experiments.tolls_stream(
            batch_events=toll_events, cost_us=base.cost_us, seed=seed, pace=pace, batches=batches
        ),
    }
    slowdowns = {}
    for title, stream in streams.items():
        declared = experiments.experiment(
            title.replace(" ", "-"), title.capitalize(), stream, names, workers=workers or _cores(), rounds=rounds
        )
        report = _measure(declared, console)
        _show(report, console, file)
        slowdowns[title] = experiments.adaptive_beside_fixed(report)
    ledger = streams["dynamic ledger"]
    console.print(experiments.render_stretches(ledger, rounds))
    _draw(console, file, "dynamic", lambda picture: plots.plot_dynamic(ledger, rounds, slowdowns, picture))


def _cores() -> int:
    return os.cpu_count() or 1


def _one_of(option: str, given: str, allowed: tuple[str, ...]) -> str:
    if given not in allowed:
        raise typer.BadParameter(f"--{option}: got {given!r}, required one of {', '.join(allowed)}")
    return given


def _chosen(names: str | None) -> list[str]:
    from tidegate.benchmarks import strategies as experiments

    try:
        listed = experiments.chosen(names)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return listed if experiments.ADAPTIVE in listed else [*listed, experiments.ADAPTIVE]


def _pace(console: Console) -> float:
    from tidegate.workloads.cost import calibrate

    pace = calibrate()
    console.print(f"{pace:.0f} rounds of the cost loop are a microsecond here", style="dim", highlight=False)
    return pace


def _draw(console: Console, file: Path | None, name: str, draw: Callable[[Path], None]) -> None:
    """The picture beside the records; without records it is drawn, and thrown away."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        picture = Path(folder) / "picture.png" if file is None else file.with_name(f"{name}.png")
        draw(picture)
    if file is not None:
        console.print(f"picture: {picture}", style="dim", highlight=False)


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
    console = Console()
    return _show(_measure(declared, console), console, file)


def _measure(declared: Experiment, console: Console) -> Report:
    from tidegate.benchmarks import harness

    with _progress(console) as progress:
        task = progress.add_task(f"{declared.name}: warming up", total=declared.rounds)

        def on_round(done: int, total: int) -> None:
            progress.update(task, description=f"{declared.name}: rounds", completed=done)

        return harness.measure(declared, on_round=on_round)


def _show(report: Report, console: Console, file: Path | None) -> bool:
    from tidegate.benchmarks import harness

    return harness.show(report, console, file)


def _progress(console: Console) -> Progress:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console, transient=True)


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
