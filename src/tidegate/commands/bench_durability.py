"""`tidegate bench` for state that lasts: durable, logging, recovery and checkpoints.

All of them write to a disk. Where it is decides what they measure, so each takes the folder to write in.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tidegate.commands import bench_view as view
from tidegate.commands.bench_options import Output, Rounds, Seed, Smoke

Folder = Annotated[
    Path | None,
    typer.Option(help="Where state is kept meanwhile: the disk that is measured.", show_default="a temporary one"),
]


def durable(
    calls: Annotated[int, typer.Option(min=16, help="Transactions in one run, each a call.")] = 2_000,
    batches: Annotated[int, typer.Option(min=1, help="Batches in one run.")] = 30,
    events: Annotated[int, typer.Option(min=1, help="Events in each batch.")] = 10_000,
    folder: Folder = None,
    rounds: Rounds = 7,
    seed: Seed = 1,
    output: Output = None,
    smoke: Smoke = False,
) -> None:
    """Transactions and batches that are on the disk when they return, beside the disk alone and beside memory.

    Also the bytes of log that a transaction takes.

    Example: `tidegate bench durable --folder /mnt/disk --calls 10000`
    """
    from tidegate.benchmarks import durable as experiments

    console, file = Console(), view.file_for(output, "durable", smoke)
    bar = None if smoke else experiments.ONE_BAR
    with _folder(folder) as place:
        declared = experiments.execute_experiment(place, calls=calls, seed=seed, rounds=rounds, bar=bar)
        calling = view.measure(declared, console)
        passed = [view.show(calling, console, file)]
        sizes = experiments.log_sizes(place, calls=min(calls, 500), seed=seed)
        declared = experiments.batch_experiment(place, batches=batches, events=events, seed=seed, rounds=rounds)
        batching = view.measure(declared, console)
        view.show(batching, console, file)
    bars = [experiments.execute_bar(calling), *(size.bar for size in sizes), experiments.batch_bar(batching)]
    settings = {**calling.experiment.settings, **declared.settings}
    passed.append(smoke or view.show_bars("durable", bars, console, file, seed=seed, settings=settings))
    view.finish(passed)


def logging(
    tuples: Annotated[int, typer.Option(min=1, help="Tuples that go through a chain in one run.")] = 200,
    clients: Annotated[int, typer.Option(min=1, help="Threads that feed a chain.")] = 8,
    folder: Folder = None,
    rounds: Rounds = 3,
    seed: Seed = 1,
    output: Output = None,
    smoke: Smoke = False,
) -> None:
    """Strong beside weak recovery, while it runs: chains of 1 to 10 procedures, with and without group commit.

    Example: `tidegate bench logging --clients 16`
    """
    from tidegate.benchmarks import durability_plots
    from tidegate.benchmarks import logging_cost as experiments

    console, file = Console(), view.file_for(output, "logging", smoke)
    lengths = (1, 2) if smoke else experiments.LENGTHS
    passed, reports = [], {}
    with _folder(folder) as place:
        for length in lengths:
            bar = experiments.BAR if length == max(lengths) and not smoke else None
            declared = experiments.experiment(
                length, place, tuples=tuples, clients=clients, seed=seed, rounds=rounds, bar=bar
            )
            reports[length] = view.measure(declared, console)
            passed.append(view.show(reports[length], console, file))
    view.draw(console, file, "logging", lambda picture: durability_plots.plot_logging(reports, picture))
    view.finish(passed)


def recovery(
    tuples: Annotated[int, typer.Option(min=1, help="Rounds of each chain that are recovered.")] = 5_000,
    transactions: Annotated[int, typer.Option(min=10, help="Ledger transactions that are replayed.")] = 300_000,
    rows: Annotated[int, typer.Option(min=1, help="Rows of the checkpoint that is opened.")] = 10_000_000,
    folder: Folder = None,
    rounds: Rounds = 3,
    seed: Seed = 1,
    output: Output = None,
    smoke: Smoke = False,
) -> None:
    """How long opening takes: chains logged strong and weak, a ledger's log, a checkpoint of many rows.

    The first is by the length of the chain, the second by the bytes of log behind the checkpoint; the last is measured
    in a process of its own, with the memory that it takes.

    Example: `tidegate bench recovery --rows 1000000`
    """
    from tidegate.benchmarks import durability_plots, reopening, replay
    from tidegate.benchmarks import recovery as experiments

    console, file = Console(), view.file_for(output, "recovery", smoke)
    lengths, pieces, batch_events = experiments.LENGTHS, 5, 10_000
    if smoke:
        lengths, pieces, batch_events = (1, 2), 2, 50
    with _folder(folder) as place:
        declared = experiments.experiment(place, lengths=lengths, tuples=tuples, seed=seed, rounds=rounds)
        chains = view.measure(declared, console)
        view.show(chains, console, file)
    with _folder(folder) as place:
        template, points = replay.points(
            place, transactions=transactions, batch_events=batch_events, pieces=pieces, seed=seed
        )
        replayed = view.measure(replay.experiment(template, points, seed=seed, rounds=rounds), console)
        view.show(replayed, console, file)
    with _folder(folder) as place:
        opened = reopening.measure(rows, place, seed)
    found = replay.results(points, replayed)
    bars = [experiments.bar(chains, lengths), *replay.bars(found), *opened.bars]
    settings = {"tuples": tuples, "transactions": transactions, "rows": rows}
    view.draw(console, file, "recovery", lambda to: durability_plots.plot_recovery(chains, lengths, to))
    view.draw(console, file, "recovery-interval", lambda to: durability_plots.plot_replay(found, to))
    view.finish([smoke or view.show_bars("recovery", bars, console, file, seed=seed, settings=settings)])


def checkpoints(
    rows: Annotated[int, typer.Option(min=4_400_000, help="Rows of the state that checkpoints are of.")] = 20_000_000,
    kept: Annotated[int, typer.Option(min=1, help="Versions that are kept, beside a hundred.")] = 10_000,
    folder: Folder = None,
    rounds: Rounds = 3,
    seed: Seed = 1,
    output: Output = None,
    smoke: Smoke = False,
) -> None:
    """What batches notice of checkpoints in the background (p99 latency), and of old versions that are kept.

    Example: `tidegate bench checkpoints --rows 5000000`
    """
    from tidegate.benchmarks import checkpoints as experiments

    console, file = Console(), view.file_for(output, "checkpoints", smoke)
    sizes = experiments.Sizes(rows, rounds=rounds, seed=seed)
    kept_sizes = experiments.KeptSizes(many=kept, rounds=rounds, seed=seed)
    kinds: tuple[str, ...] = experiments.KINDS
    if smoke:
        sizes = experiments.Sizes(rows, batch_events=100, batches=5, rounds=rounds, seed=seed)
        kept_sizes = experiments.KeptSizes(5, kept, rows=100, batch_events=10, batches=2, rounds=rounds, seed=seed)
        kinds = (experiments.NONE, experiments.WHOLE)
    with _folder(folder) as place:
        state = experiments.LargeState(sizes, place / "large")
        report = view.measure(experiments.experiment(state, sizes, kinds), console)
        state.close()
        view.show(report, console, file)
    with _folder(folder) as place:
        declared = experiments.kept_experiment(place, kept_sizes, None if smoke else experiments.KEPT_BAR)
        passed = [view.run(declared, file)]
    if not smoke:
        settings = report.experiment.settings
        passed.append(
            view.show_bars("checkpoints", experiments.bars(report), console, file, seed=seed, settings=settings)
        )
    view.finish(passed)


@contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    """A folder for one experiment, in the one that was given; nothing of it stays."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-", dir=given) as folder:
        yield Path(folder)
