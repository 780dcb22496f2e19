"""`tidegate bench`: how fast Tidegate is, each number verified and measured beside its reference.

    limit         the engine beside a hand-written program
    spark         a streaming pipeline beside one without transactions
    work          small and large tables, memory, loading
    strategies    adaptive beside every fixed strategy, over a grid of workloads
    scaling       every strategy with more and more workers
    dynamic       a stream whose character changes
    free          adaptive beside serial where there is nothing to gain
    groups        two groups in the same batches: several strategies at once
    graph         what building the graph of a batch costs
    peers         events per second beside another system's released code
    leaderboard   a dataflow graph beside a client that calls its procedures one by one
    triggers      chains of procedures: started inside the engine, or from outside
    windows       large windows beside small ones: what a row costs
    stages        steps of a graph that share no table, side by side
    execute       one transaction now, between batches
    durable       calls and batches that are on the disk when they return, beside the disk and beside memory
    logging       strong beside weak recovery while it runs, with and without group commit
    recovery      how long opening takes: graphs, a ledger's log, a checkpoint of many rows
    checkpoints   what batches notice of checkpoints, and of old versions

Each command prints its tables, adds JSON lines to a file under `results/`, and ends with exit code 1
when a bar was missed; strategies, scaling, dynamic, groups, leaderboard, triggers, logging and recovery
draw pictures, too. `--smoke` runs the same code at a small size,
without bars and without a file: it shows that the benchmark works, not how fast anything is.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from tidegate.commands import bench_durability as durability
from tidegate.commands import bench_streams as streams
from tidegate.commands import bench_view as view

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = typer.Typer(no_args_is_help=True, help="Measure: every run verified, variants interleaved, ratios printed.")

Rounds = Annotated[int, typer.Option(min=1, help="Rounds that count; one more runs first to warm up.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same events.")]
Smoke = Annotated[bool, typer.Option("--smoke", help="Small sizes, no bars, no file: does it work at all?")]
Workers = Annotated[int | None, typer.Option(min=1, help="Threads for each engine.", show_default="all cores")]
Strategies = Annotated[str | None, typer.Option(help="Some strategies, with commas.", show_default="all of them")]
GRAPH_EVENTS_MAX = 131_072  # a larger batch has several graphs
Output = Annotated[Path | None, typer.Option(help="Where JSON lines are added.", show_default="results/…")]


for _name, _command in (
    ("leaderboard", streams.leaderboard),
    ("triggers", streams.triggers),
    ("windows", streams.windows),
    ("stages", streams.stages),
    ("execute", streams.execute),
    ("durable", durability.durable),
    ("logging", durability.logging),
    ("recovery", durability.recovery),
    ("checkpoints", durability.checkpoints),
):
    app.command(_name)(_command)


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
    view.finish([view.run(declared, view.file_for(output, "limit", smoke))])


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
        view.finish([view.run(declared, view.file_for(output, "spark", smoke))])


@app.command("spark-logging")
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
    from tidegate.benchmarks import durability_plots
    from tidegate.benchmarks import spark_logging as experiments
    from tidegate.benchmarks.harness import Experiment, Report

    console, file = Console(), view.file_for(output, "spark-logging", smoke)
    sizes = experiments.Sizes(batch_rows, batches, accounts, rounds, seed)
    if smoke:
        sizes = experiments.Sizes(500, 1, 200, 1, seed)

    def take(declared: Experiment) -> Report:
        report = view.measure(declared, console)
        view.show(report, console, file)
        return report

    with _spark_and_folder() as (session, folder):
        found = experiments.measure(session, folder, experiments.streams(folder, sizes), sizes, take)
    weights = {(each.stream, log): size for each in found for log, size in each.sizes.items()}
    console.print(experiments.render_sizes(weights))
    view.append(file, experiments.size_records(weights, sizes))
    view.draw(console, file, "spark-logging", lambda picture: durability_plots.plot_spark_logging(found, picture))


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
    file = view.file_for(output, "work", smoke)
    passed = [view.run(experiments.engine_experiment(sizes, bar), file)]
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        passed.append(view.run(experiments.versions_experiment(sizes, Path(folder), bar), file))
    passed.append(view.show_memory(memory.measure(memory_rows, seed), seed, file))
    with _spark_and_folder() as (session, folder):
        passed.append(view.run(spark_pipeline.work_experiment(session, folder, sizes, bar), file))
    view.finish(passed)


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
    from tidegate.benchmarks import grids, plots
    from tidegate.benchmarks import strategies as experiments

    console, file = Console(), view.file_for(output, "strategies", smoke)
    cells = experiments.smoke_cells(seed) if smoke else experiments.cells(seed)
    declared = experiments.grid(
        cells[:: {"full": 1, "quick": 4}[_one_of("grid", grid, ("full", "quick"))]],
        _chosen(strategies),
        pace=_pace(console),
        workers=workers or _cores(),
        rounds=1 if smoke else rounds,
        batches=(lambda workload: 1) if smoke else experiments.batches_per_round,
    )
    report = view.measure_grid(declared, console, file, seconds_max=seconds)
    console.print(grids.render_grid(report))
    view.append(file, [grids.grid_record(report)])
    bars, settings = experiments.bars(report), {"points": len(report.points), "grid": grid}
    passed = smoke or view.show_bars("strategies", bars, console, file, seed=seed, settings=settings)
    view.draw(console, file, "strategies", lambda picture: plots.plot_grid(report, picture))
    view.finish([passed])


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

    console, file = Console(), view.file_for(output, "scaling", smoke)
    settings = replace(experiments.SETTINGS, cost_us=cost, seed=seed)
    if smoke:
        settings, rounds = replace(settings, cost_us=0.1, batch_events=400, keys=400), 1
    declared = experiments.experiment(
        _chosen(strategies), workers_max=workers or _cores(), pace=_pace(console), rounds=rounds, settings=settings
    )
    report = view.measure(declared, console)
    passed = view.show(report, console, file)
    view.draw(console, file, "scaling", lambda to: plots.plot_scaling(experiments.curves(report), declared.title, to))
    view.finish([passed])


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
    """The dynamic ledger in thirteen phases: adaptive beside every fixed strategy.

    Example: `tidegate bench dynamic --batches 5`
    """
    from dataclasses import replace

    from tidegate.benchmarks import dynamic as experiments
    from tidegate.benchmarks import harness, plots
    from tidegate.workloads.streaming_ledger import MORPHSTREAM

    console, file = Console(), view.file_for(output, "dynamic", smoke)
    pace, base = _pace(console), replace(MORPHSTREAM, seed=seed)
    if smoke:
        base, batches, rounds = replace(base, cost_us=0.1, batch_events=200, keys=300), 1, 1
    stream = experiments.ledger_stream(base=base, pace=pace, batches=batches)
    declared = experiments.grid(stream, _chosen(strategies), workers=workers or _cores(), rounds=rounds)
    (found,) = view.measure_grid(declared, console, file).points
    console.print(harness.render(found.report))
    console.print(harness.render(found.final))
    console.print(experiments.render_stretches(stream, rounds))
    bars, settings = [experiments.bar(found)], found.report.experiment.settings
    passed = smoke or view.show_bars("dynamic", bars, console, file, seed=seed, settings=settings)
    beside = {"dynamic ledger": experiments.adaptive_beside_fixed(found.report)}
    view.draw(console, file, "dynamic", lambda picture: plots.plot_dynamic(stream, rounds, beside, picture))
    view.finish([passed])


@app.command("free")
def free(
    batches: Annotated[int, typer.Option(min=1, help="Batches of each workload.")] = 600,
    workers: Workers = None,
    seed: Seed = 1,
    output: Output = None,
    smoke: Smoke = False,
) -> None:
    """Adaptive beside serial where functions take no time: what looking costs where there is nothing to gain.

    Example: `tidegate bench free --batches 2000`
    """
    from tidegate.benchmarks import free as experiments
    from tidegate.benchmarks import strategies
    from tidegate.benchmarks.bars import render_bars

    console, file = Console(), view.file_for(output, "free", smoke)
    cells = experiments.free_cells(strategies.cells(seed))
    if smoke:
        cells, batches = cells[:1], 2
    results = view.measure_free(cells, console, file, pace=_pace(console), workers=workers or _cores(), batches=batches)
    if smoke:
        console.print("every batch verified: outcomes and rows are those of serial")
        return
    bars = [found.bar for found in results]
    console.print(render_bars(bars))
    view.finish([bar.passed for bar in bars])


@app.command("groups")
def groups(
    workers: Workers = None,
    strategies: Strategies = None,
    rounds: Rounds = 9,
    seed: Seed = 1,
    output: Output = None,
    smoke: Smoke = False,
) -> None:
    """Tolls in two groups that share no row: several strategies at once beside every single one.

    Example: `tidegate bench groups --rounds 15`
    """
    from dataclasses import replace

    from tidegate.benchmarks import groups as experiments
    from tidegate.benchmarks import harness, plots
    from tidegate.workloads.tolls import CALM_GROUP, HOT_GROUP

    console, file = Console(), view.file_for(output, "groups", smoke)
    hot, calm = replace(HOT_GROUP, seed=seed), replace(CALM_GROUP, seed=seed)
    if smoke:
        hot, calm = replace(hot, batch_events=400), replace(calm, batch_events=100, cost_us=0.1)
        rounds = 1
    declared = experiments.grid(
        _chosen(strategies), hot=hot, calm=calm, pace=_pace(console), workers=workers or _cores(), rounds=rounds
    )
    (found,) = view.measure_grid(declared, console, file).points
    console.print(harness.render(found.report))
    console.print(harness.render(found.final))
    bars, settings = [experiments.bar(found)], found.report.experiment.settings
    passed = smoke or view.show_bars("groups", bars, console, file, seed=seed, settings=settings)
    view.draw(console, file, "groups", lambda picture: plots.plot_groups(found, picture))
    view.finish([passed])


@app.command("graph")
def graph(
    batch_events: Annotated[int, typer.Option(min=1, max=GRAPH_EVENTS_MAX, help="Events in a graph.")] = 10_240,
    rounds: Rounds = 15,
    seed: Seed = 1,
    output: Output = None,
    smoke: Smoke = False,
) -> None:
    """What building the graph of a batch costs on one core: operations per second, and bytes for each.

    Example: `tidegate bench graph --batch-events 40960`
    """
    from tidegate.benchmarks import graph as experiments

    console, file = Console(), view.file_for(output, "graph", smoke)
    keys = None
    if smoke:
        batch_events, rounds, keys = 200, 1, 300
    measured = experiments.constructions(batch_events=batch_events, seed=seed, keys=keys)
    declared = experiments.experiment(measured, rounds=rounds)
    view.measure(declared, console)
    results = [each.result(rounds) for each in measured]
    console.print(experiments.render(declared.title, results, with_bars=not smoke))
    view.append(file, experiments.records(results))
    view.finish([smoke or bar.passed for found in results for bar in found.bars()])


@app.command("peers")
def peers(
    rounds: Rounds = 5,
    seed: Seed = 1,
    output: Output = None,
    smoke: Smoke = False,
) -> None:
    """Events per second, Arrow to Arrow, beside what MorphStream's released code came to on two cores.

    Example: `tidegate bench peers --rounds 9`
    """
    from tidegate.benchmarks import peers as experiments

    console, file = Console(), view.file_for(output, "peers", smoke)
    batches, batch_events, keys = experiments.BATCHES, experiments.BATCH_EVENTS, experiments.KEYS
    if smoke:
        batches, batch_events, keys, rounds = 2, 200, 300, 1
    results = []
    for row in experiments.rows(seed=seed, pace=_pace(console), batch_events=batch_events, keys=keys):
        declared = experiments.experiment(row, rounds=rounds, batches=batches)
        results.append(experiments.Result(row, view.measure(declared, console)))
        view.append(file, [experiments.result_record(results[-1])])
    console.print(experiments.render(results, with_bars=not smoke))
    bars = [] if smoke else [found.bar for found in results if found.bar is not None]
    view.finish([bar.passed for bar in bars])


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
