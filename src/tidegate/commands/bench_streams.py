"""`tidegate bench` for dataflow graphs: leaderboard, triggers, windows, stages, mixed programs, and single requests.

The first two compare the engine's own triggers with a client that calls one procedure after the other and waits.
"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from tidegate.commands import bench_view as view
from tidegate.commands.bench_options import Output, Rounds, Seed, Smoke


def leaderboard(
    votes: Annotated[int, typer.Option(min=1, help="Votes in one run, each an atomic batch.")] = 40_000,
    rounds: Rounds = 5,
    seed: Seed = 1,
    output: Output = None,
    smoke: Smoke = False,
) -> None:
    """A leaderboard as one nested transaction a vote, beside a client that calls the procedures and waits.

    Twice: somebody leaves every 20,000 votes, as published, and every 1,000.

    Example: `tidegate bench leaderboard --votes 100000`
    """
    from dataclasses import replace

    from tidegate.benchmarks import leaderboard as experiments
    from tidegate.benchmarks import stream_plots
    from tidegate.workloads.leaderboard import FAST, PAPER

    console, file = Console(), view.file_for(output, "leaderboard", smoke)
    bar = None if smoke else experiments.BAR
    passed, reports = [], []
    for settings in (PAPER, FAST):
        declared = experiments.experiment(replace(settings, seed=seed), votes=votes, rounds=rounds, bar=bar)
        reports.append(view.measure(declared, console))
        passed.append(view.show(reports[-1], console, file))
    speed = votes / reports[0][experiments.GRAPH].seconds_median
    console.print(f"  {speed:,.0f} batches of one vote a second on one core; required: {experiments.SPEED_BAR:,}")
    view.draw(console, file, "leaderboard", lambda picture: stream_plots.plot_leaderboard(reports, picture))
    view.finish([*passed, smoke or speed >= experiments.SPEED_BAR])


def triggers(
    batches: Annotated[int, typer.Option(min=1, help="Tuples that go through a chain, each an atomic batch.")] = 5_000,
    rounds: Rounds = 3,
    seed: Seed = 1,
    output: Output = None,
    smoke: Smoke = False,
) -> None:
    """Chains of 1 to 10 procedures: started by commits, inside one transaction, or by a client that waits.

    Example: `tidegate bench triggers --batches 20000`
    """
    from tidegate.benchmarks import stream_plots
    from tidegate.benchmarks import triggers as experiments

    console, file = Console(), view.file_for(output, "triggers", smoke)
    lengths = (1, 2) if smoke else experiments.LENGTHS
    passed, reports = [], {}
    for length in lengths:
        bar = experiments.BAR if length == max(lengths) and not smoke else None
        declared = experiments.experiment(length, batches=batches, seed=seed, rounds=rounds, bar=bar)
        reports[length] = view.measure(declared, console)
        passed.append(view.show(reports[length], console, file))
    view.draw(console, file, "triggers", lambda picture: stream_plots.plot_triggers(reports, picture))
    view.finish(passed)


def windows(
    inserts: Annotated[int, typer.Option(min=1, help="Tuples that enter a full window in one run.")] = 200_000,
    rounds: Rounds = 7,
    seed: Seed = 1,
    output: Output = None,
    smoke: Smoke = False,
) -> None:
    """A window of 100,000 rows that slides by one, beside one of 100: what a row costs, with all aggregates.

    Example: `tidegate bench windows --inserts 1000000`
    """
    from tidegate.benchmarks import windows as experiments

    bar = None if smoke else experiments.BAR
    sizes = (10, 100) if smoke else (experiments.SMALL, experiments.LARGE)
    declared = experiments.experiment(sizes, inserts=inserts, seed=seed, rounds=rounds, bar=bar)
    view.finish([view.run(declared, view.file_for(output, "windows", smoke))])


def stages(
    steps: Annotated[int, typer.Option(min=1, help="Steps in the line, each with a table of its own.")] = 2,
    events: Annotated[int, typer.Option(min=1, help="Tuples in one run, each an atomic batch.")] = 20_000,
    cost: Annotated[float, typer.Option(min=0.0, help="Microseconds of work in each step.")] = 2.0,
    workers: Annotated[int | None, typer.Option(min=1, help="Threads.", show_default="all cores")] = None,
    rounds: Rounds = 7,
    seed: Seed = 1,
    output: Output = None,
    smoke: Smoke = False,
) -> None:
    """A line of steps that share no table: one after the other, and side by side on several workers.

    Example: `tidegate bench stages --steps 4 --workers 4`
    """
    from tidegate.benchmarks import stages as experiments
    from tidegate.foundation.processors import processors
    from tidegate.workloads.cost import calibrate

    declared = experiments.experiment(
        steps,
        events=events,
        cost_us=cost,
        pace=calibrate(),
        workers=workers or processors(),
        seed=seed,
        rounds=rounds,
    )
    view.finish([view.run(declared, view.file_for(output, "stages", smoke))])


def mixed(
    events: Annotated[int, typer.Option(min=1, help="Events in one run.")] = 20_000,
    cost: Annotated[float, typer.Option(min=0.0, help="Microseconds of work in each plain transaction.")] = 10.0,
    workers: Annotated[int | None, typer.Option(min=1, help="Threads.", show_default="all cores")] = None,
    rounds: Rounds = 7,
    seed: Seed = 1,
    output: Output = None,
    smoke: Smoke = False,
) -> None:
    """Plain transactions in one program with a graph and with look-ups: by one worker, and by several.

    Example: `tidegate bench mixed --cost 1`
    """
    from tidegate.benchmarks import mixed as experiments
    from tidegate.foundation.processors import processors
    from tidegate.workloads.cost import calibrate

    declared = experiments.experiment(
        events=events,
        cost_us=cost,
        pace=calibrate(),
        workers=workers or processors(),
        seed=seed,
        rounds=rounds,
        bar=None if smoke else experiments.BAR,
    )
    view.finish([view.run(declared, view.file_for(output, "mixed", smoke))])


def execute(
    requests: Annotated[int, typer.Option(min=100, help="Calls in one run.")] = 5_000,
    votes: Annotated[int, typer.Option(min=1, help="Votes in each batch between a hundred calls.")] = 500,
    rounds: Rounds = 7,
    seed: Seed = 1,
    output: Output = None,
    smoke: Smoke = False,
) -> None:
    """What one transaction takes that is asked for now, between the batches of a stream.

    Example: `tidegate bench execute --requests 20000`
    """
    from tidegate.benchmarks import execute as experiments

    console, file = Console(), view.file_for(output, "execute", smoke)
    declared = experiments.experiment(requests=requests, votes=votes, seed=seed, rounds=rounds)
    report = view.measure(declared, console)
    view.show(report, console, file)
    bars, settings = experiments.bars(report), declared.settings
    view.finish([smoke or view.show_bars("execute", bars, console, file, seed=seed, settings=settings)])
