"""`tidegate bench` for strategies: adaptive beside every fixed one, what a graph costs, and another system's code."""

from __future__ import annotations

import os
from typing import Annotated

import typer
from rich.console import Console

from tidegate.commands import bench_view as view
from tidegate.commands.bench_options import Output, Rounds, Seed, Smoke

Workers = Annotated[int | None, typer.Option(min=1, help="Threads for each engine.", show_default="all cores")]
Strategies = Annotated[str | None, typer.Option(help="Some strategies, with commas.", show_default="all of them")]
GRAPH_EVENTS_MAX = 131_072  # a larger batch has several graphs


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
        rounds=rounds,
        batches=(lambda workload: 1) if smoke else experiments.batches_per_round,
    )
    report = view.measure_grid(declared, console, file, seconds_max=seconds)
    console.print(grids.render_grid(report))
    view.append(file, [grids.grid_record(report)])
    bars, settings = experiments.bars(report), {"points": len(report.points), "grid": grid}
    passed = smoke or view.show_bars("strategies", bars, console, file, seed=seed, settings=settings)
    view.draw(console, file, "strategies", lambda picture: plots.plot_grid(report, picture))
    view.finish([passed])


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
        settings = replace(settings, batch_events=400, keys=400)
    declared = experiments.experiment(
        _chosen(strategies), workers_max=workers or _cores(), pace=_pace(console), rounds=rounds, settings=settings
    )
    report = view.measure(declared, console)
    passed = view.show(report, console, file)
    view.draw(console, file, "scaling", lambda to: plots.plot_scaling(experiments.curves(report), declared.title, to))
    view.finish([passed])


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
        base = replace(base, cost_us=0.1, batch_events=200, keys=300)
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
        cells = cells[:1]
    results = view.measure_free(cells, console, file, pace=_pace(console), workers=workers or _cores(), batches=batches)
    if smoke:
        console.print("every batch verified: outcomes and rows are those of serial")
        return
    bars = [found.bar for found in results]
    console.print(render_bars(bars))
    view.finish([bar.passed for bar in bars])


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
    measured = experiments.constructions(batch_events=batch_events, seed=seed, keys=300 if smoke else None)
    declared = experiments.experiment(measured, rounds=rounds)
    view.measure(declared, console)
    results = [each.result(rounds) for each in measured]
    console.print(experiments.render(declared.title, results, with_bars=not smoke))
    view.append(file, experiments.records(results))
    view.finish([smoke or bar.passed for found in results for bar in found.bars()])


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
        batches, batch_events, keys = 2, 200, 300
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
