"""`tidegate bench` for strategies: adaptive beside every fixed one, what a graph costs, and another system's code."""

from __future__ import annotations

from typing import Annotated

import typer

from tidegate.commands.bench_run import BenchRun
from tidegate.foundation.processors import processors

Workers = Annotated[int | None, typer.Option(min=1, help="Threads for each engine.", show_default="all cores")]
Strategies = Annotated[str | None, typer.Option(help="Some strategies, with commas.", show_default="all of them")]
GRAPH_EVENTS_MAX = 131_072  # a larger batch has several graphs


def strategies(
    run: BenchRun,
    grid: Annotated[str, typer.Option(help="full, or quick for a quarter of its points.")] = "full",
    seconds: Annotated[float, typer.Option(min=1.0, help="Time to spend; each point has one round at least.")] = 3600.0,
    workers: Workers = None,
    strategies: Strategies = None,
) -> None:
    """Adaptive beside every fixed strategy: how close does it come to the best, workload by workload?

    Example: `tidegate bench strategies --grid quick --strategies serial,chains,ns-operation-eager,adaptive`
    """
    from tidegate.benchmarks import grids, plots
    from tidegate.benchmarks import strategies as experiments

    steps = {"full": 1, "quick": 4}
    if grid not in steps:
        raise typer.BadParameter(f"--grid: got {grid!r}, required one of {', '.join(steps)}")
    cells = experiments.smoke_cells(run.seed) if run.smoke else experiments.cells(run.seed)
    declared = experiments.grid(
        cells[:: steps[grid]],
        _chosen(strategies),
        pace=run.pace(),
        workers=workers or processors(),
        batches=(lambda workload: 1) if run.smoke else experiments.batches_per_round,
    )
    report = run.measure_grid(declared, seconds_max=seconds)
    run.console.print(grids.render_grid(report))
    run.append([grids.grid_record(report)])
    run.require(experiments.bars(report), {"points": len(report.points), "grid": grid})
    run.draw(lambda picture: plots.plot_grid(report, picture))


def scaling(
    run: BenchRun,
    workers: Workers = None,
    strategies: Strategies = None,
    cost: Annotated[float, typer.Option(min=0.0, help="Microseconds that an operation computes.")] = 10.0,
) -> None:
    """Every strategy with 1, 2, 4, ... workers, beside threads that share nothing.

    Example: `tidegate bench scaling --workers 8 --strategies adaptive,ns-operation-eager`
    """
    from dataclasses import replace

    from tidegate.benchmarks import plots
    from tidegate.benchmarks import scaling as experiments

    settings = replace(experiments.SETTINGS, cost_us=cost, seed=run.seed)
    if run.smoke:
        settings = replace(settings, batch_events=400, keys=400)
    chosen, most = _chosen(strategies), workers or processors()
    report = run.show(experiments.experiment(chosen, workers_max=most, pace=run.pace(), settings=settings))
    run.draw(lambda to: plots.plot_scaling(experiments.curves(report), report.experiment.title, to))


def dynamic(
    run: BenchRun,
    workers: Workers = None,
    strategies: Strategies = None,
    batches: Annotated[int, typer.Option(min=1, help="Batches in each phase.")] = 3,
) -> None:
    """The dynamic ledger in thirteen phases: adaptive beside every fixed strategy.

    Example: `tidegate bench dynamic --batches 5`
    """
    from dataclasses import replace

    from tidegate.benchmarks import dynamic as experiments
    from tidegate.benchmarks import harness, plots
    from tidegate.workloads.streaming_ledger import MORPHSTREAM

    pace, base = run.pace(), replace(MORPHSTREAM, seed=run.seed)
    if run.smoke:
        base = replace(base, cost_us=0.1, batch_events=200, keys=300)
    stream = experiments.ledger_stream(base=base, pace=pace, batches=batches)
    declared = experiments.grid(stream, _chosen(strategies), workers=workers or processors())
    (found,) = run.measure_grid(declared).points
    run.console.print(harness.render(found.report), harness.render(found.final))
    run.console.print(experiments.render_stretches(stream, run.rounds))
    run.require([experiments.bar(found)], found.report.experiment.settings)
    beside = {"dynamic ledger": experiments.adaptive_beside_fixed(found.report)}
    run.draw(lambda picture: plots.plot_dynamic(stream, run.rounds, beside, picture))


def free(
    run: BenchRun,
    batches: Annotated[int, typer.Option(min=1, help="Batches of each workload.")] = 600,
    workers: Workers = None,
) -> None:
    """Adaptive beside serial where functions take no time: what looking costs where there is nothing to gain.

    Example: `tidegate bench free --batches 2000`
    """
    from tidegate.benchmarks import free as experiments
    from tidegate.benchmarks import strategies
    from tidegate.benchmarks.bars import render_bars
    from tidegate.benchmarks.grids import label_of

    cells = experiments.free_cells(strategies.cells(run.seed))
    cells = cells[:1] if run.smoke else cells
    pace, bars = run.pace(), []
    with run.progress("", len(cells) * (experiments.WARM_BATCHES + batches)) as update:
        for cell in cells:
            update(description=label_of(cell.dimensions))
            found = experiments.measure(
                cell, pace=pace, workers=workers or processors(), batches=batches, on_batch=lambda: update(advance=1)
            )
            run.append([found.as_record()])
            bars.append(found.bar)
    shown = "every batch verified: outcomes and rows are those of serial" if run.smoke else render_bars(bars)
    run.console.print(shown)
    run.note(bar.passed for bar in bars)


def groups(run: BenchRun, workers: Workers = None, strategies: Strategies = None) -> None:
    """Tolls in two groups that share no row: several strategies at once beside every single one.

    Example: `tidegate bench groups --rounds 15`
    """
    from dataclasses import replace

    from tidegate.benchmarks import groups as experiments
    from tidegate.benchmarks import harness, plots
    from tidegate.workloads.tolls import CALM_GROUP, HOT_GROUP

    hot, calm = replace(HOT_GROUP, seed=run.seed), replace(CALM_GROUP, seed=run.seed)
    if run.smoke:
        hot, calm = replace(hot, batch_events=400), replace(calm, batch_events=100, cost_us=0.1)
    chosen, threads = _chosen(strategies), workers or processors()
    declared = experiments.grid(chosen, hot=hot, calm=calm, pace=run.pace(), workers=threads)
    (found,) = run.measure_grid(declared).points
    run.console.print(harness.render(found.report), harness.render(found.final))
    run.require([experiments.bar(found)], found.report.experiment.settings)
    run.draw(lambda picture: plots.plot_groups(found, picture))


def graph(
    run: BenchRun,
    batch_events: Annotated[int, typer.Option(min=1, max=GRAPH_EVENTS_MAX, help="Events in a graph.")] = 10_240,
) -> None:
    """What building the graph of a batch costs on one core: operations per second, and bytes for each.

    Example: `tidegate bench graph --batch-events 40960`
    """
    from tidegate.benchmarks import graph as experiments

    measured = experiments.constructions(batch_events=batch_events, seed=run.seed, keys=300 if run.smoke else None)
    declared = experiments.experiment(measured)
    run.measure(declared)
    for each in measured:
        each.leave_out_warm_up(run.rounds)
    run.console.print(experiments.render(declared.title, measured, with_bars=not run.smoke))
    run.append(experiments.records(measured))
    run.note(bar.passed for found in measured for bar in found.bars())


def peers(run: BenchRun) -> None:
    """Events per second, Arrow to Arrow, beside what MorphStream's released code came to on two cores.

    Example: `tidegate bench peers --rounds 9`
    """
    from tidegate.benchmarks import peers as experiments

    batches, batch_events, keys = experiments.BATCHES, experiments.BATCH_EVENTS, experiments.KEYS
    if run.smoke:
        batches, batch_events, keys = 2, 200, 300
    results = []
    for row in experiments.rows(seed=run.seed, pace=run.pace(), batch_events=batch_events, keys=keys):
        declared = experiments.experiment(row, batches=batches)
        results.append(experiments.Result(row, run.measure(declared)))
        run.append([experiments.result_record(results[-1])])
    run.console.print(experiments.render(results, with_bars=not run.smoke))
    run.note(found.bar.passed for found in results if found.bar is not None)


def _chosen(names: str | None) -> list[str]:
    from tidegate.benchmarks import strategies as experiments

    try:
        listed = experiments.chosen(names)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return listed if experiments.ADAPTIVE in listed else [*listed, experiments.ADAPTIVE]
