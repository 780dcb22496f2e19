"""`tidegate bench` for dataflow graphs: leaderboard, triggers, windows, stages, mixed programs, and single requests.

The first two compare the engine's own triggers with a client that calls one procedure after the other and waits.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tidegate.commands.bench_run import BenchRun

Workers = Annotated[int | None, typer.Option(min=1, help="Threads.", show_default="all cores")]


def leaderboard(
    run: BenchRun, votes: Annotated[int, typer.Option(min=1, help="Votes in one run, each an atomic batch.")] = 40_000
) -> None:
    """A leaderboard as one nested transaction a vote, beside a client that calls the procedures and waits.

    Twice: somebody leaves every 20,000 votes, as published, and every 1,000.

    Example: `tidegate bench leaderboard --votes 100000`
    """
    from dataclasses import replace

    from tidegate.benchmarks import charts
    from tidegate.benchmarks import leaderboard as experiments
    from tidegate.workloads.leaderboard import FAST, PAPER

    reports = [
        run.show(experiments.experiment(replace(settings, seed=run.seed), votes=votes)) for settings in (PAPER, FAST)
    ]
    speed, bar = reports[0].items_per_second(experiments.GRAPH), experiments.SPEED_BAR
    run.console.print(f"  {speed:,.0f} batches of one vote a second on one core; required: {bar:,}")
    run.draw(lambda picture: charts.plot_leaderboard(reports, picture))
    run.passed &= run.smoke or speed >= bar


def triggers(
    run: BenchRun,
    batches: Annotated[int, typer.Option(min=1, help="Tuples that go through a chain, each an atomic batch.")] = 5_000,
) -> None:
    """Chains of 1 to 10 procedures: started by commits, inside one transaction, or by a client that waits.

    Example: `tidegate bench triggers --batches 20000`
    """
    from tidegate.benchmarks import charts
    from tidegate.benchmarks import triggers as experiments

    lengths, reports = (1, 2) if run.smoke else experiments.LENGTHS, {}
    for length in lengths:
        bar = experiments.BAR if length == max(lengths) else None
        reports[length] = run.show(experiments.experiment(length, batches=batches, seed=run.seed, bar=bar))
    run.draw(lambda picture: charts.plot_triggers(reports, picture))


def windows(
    run: BenchRun,
    inserts: Annotated[int, typer.Option(min=1, help="Tuples that enter a full window in one run.")] = 200_000,
) -> None:
    """A window of 100,000 rows that slides by one, beside one of 100: what a row costs, with all aggregates.

    Example: `tidegate bench windows --inserts 1000000`
    """
    from tidegate.benchmarks import windows as experiments

    sizes = (10, 100) if run.smoke else (experiments.SMALL, experiments.LARGE)
    run.show(experiments.experiment(sizes, inserts=inserts, seed=run.seed))


def stages(
    run: BenchRun,
    steps: Annotated[int, typer.Option(min=1, help="Steps in the line, each with a table of its own.")] = 2,
    events: Annotated[int, typer.Option(min=1, help="Tuples in one run, each an atomic batch.")] = 20_000,
    cost: Annotated[float, typer.Option(min=0.0, help="Microseconds of work in each step.")] = 2.0,
    workers: Workers = None,
) -> None:
    """A line of steps that share no table: one after the other, and side by side on several workers.

    Example: `tidegate bench stages --steps 4 --workers 4`
    """
    from tidegate.benchmarks import stages as experiments
    from tidegate.foundation.processors import processors
    from tidegate.workloads.cost import calibrate

    pace, workers = calibrate(), workers or processors()
    run.show(experiments.experiment(steps, events=events, cost_us=cost, pace=pace, workers=workers, seed=run.seed))


def mixed(
    run: BenchRun,
    events: Annotated[int, typer.Option(min=1, help="Events in one run.")] = 20_000,
    cost: Annotated[float, typer.Option(min=0.0, help="Microseconds of work in each plain transaction.")] = 10.0,
    workers: Workers = None,
) -> None:
    """Plain transactions in one program with a graph and with look-ups: by one worker, and by several.

    Example: `tidegate bench mixed --cost 1`
    """
    from tidegate.benchmarks import mixed as experiments
    from tidegate.foundation.processors import processors
    from tidegate.workloads.cost import calibrate

    pace, workers = calibrate(), workers or processors()
    run.show(experiments.experiment(events=events, cost_us=cost, pace=pace, workers=workers, seed=run.seed))


def execute(
    run: BenchRun,
    requests: Annotated[int, typer.Option(min=100, help="Calls in one run.")] = 5_000,
    votes: Annotated[int, typer.Option(min=1, help="Votes in each batch between a hundred calls.")] = 500,
) -> None:
    """What one transaction takes that is asked for now, between the batches of a stream.

    Example: `tidegate bench execute --requests 20000`
    """
    from tidegate.benchmarks import execute as experiments

    report = run.show(experiments.experiment(requests=requests, votes=votes, seed=run.seed))
    run.require(experiments.bars(report), report.experiment.settings)
