"""`tidegate bench` for state that lasts: durable, logging, recovery and checkpoints.

All of them write to a disk. Which disk that is decides what they measure, so each takes the folder to write in.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidegate.commands.bench_run import BenchRun, temporary_folder

Folder = Annotated[
    Path | None,
    typer.Option(help="Where state is kept during the run: the disk that is measured.", show_default="a temporary one"),
]


def durable(
    run: BenchRun,
    calls: Annotated[int, typer.Option(min=16, help="Transactions in one run, each a call.")] = 2_000,
    batches: Annotated[int, typer.Option(min=1, help="Batches in one run.")] = 30,
    events: Annotated[int, typer.Option(min=1, help="Events in each batch.")] = 10_000,
    folder: Folder = None,
) -> None:
    """Transactions and batches that are on the disk when they return, beside the disk alone and beside memory.

    Also the bytes of log that a transaction takes.

    Example: `tidegate bench durable --folder /mnt/disk --calls 10000`
    """
    from tidegate.benchmarks import durable as experiments

    with temporary_folder(folder) as place:
        calling = run.show(experiments.execute_experiment(place, calls=calls, seed=run.seed))
        sizes = experiments.log_sizes(place, calls=min(calls, 500), seed=run.seed)
        batching = run.show(experiments.batch_experiment(place, batches=batches, events=events, seed=run.seed))
    bars = [experiments.execute_bar(calling), *(size.bar for size in sizes), experiments.batch_bar(batching)]
    run.require(bars, {**calling.experiment.settings, **batching.experiment.settings})


def logging(
    run: BenchRun,
    tuples: Annotated[int, typer.Option(min=1, help="Tuples that go through a chain in one run.")] = 200,
    clients: Annotated[int, typer.Option(min=1, help="Threads that feed a chain.")] = 8,
    folder: Folder = None,
) -> None:
    """Strong beside weak recovery, while it runs: chains of 1 to 10 procedures, with and without group commit.

    Example: `tidegate bench logging --clients 16`
    """
    from tidegate.benchmarks import charts
    from tidegate.benchmarks import logging_cost as experiments

    lengths, reports = (1, 2) if run.smoke else experiments.LENGTHS, {}
    with temporary_folder(folder) as place:
        for length in lengths:
            bar = experiments.BAR if length == max(lengths) else None
            declared = experiments.experiment(length, place, tuples=tuples, clients=clients, seed=run.seed, bar=bar)
            reports[length] = run.show(declared)
    run.draw(lambda picture: charts.plot_logging(reports, picture))


def recovery(
    run: BenchRun,
    tuples: Annotated[int, typer.Option(min=1, help="Rounds of each chain that are recovered.")] = 5_000,
    transactions: Annotated[int, typer.Option(min=10, help="Ledger transactions that are replayed.")] = 300_000,
    rows: Annotated[int, typer.Option(min=1, help="Rows of the checkpoint that is opened.")] = 10_000_000,
    folder: Folder = None,
) -> None:
    """How long opening takes: chains logged strong and weak, a ledger's log, a checkpoint of many rows.

    The first is by the length of the chain, the second by the bytes of log behind the checkpoint; the last is measured
    in a process of its own, with the memory that it takes.

    Example: `tidegate bench recovery --rows 1000000`
    """
    from tidegate.benchmarks import charts, reopening, replay
    from tidegate.benchmarks import recovery as experiments

    lengths, pieces, batch_events = experiments.LENGTHS, 5, 10_000
    if run.smoke:
        lengths, pieces, batch_events = (1, 2), 2, 50
    with temporary_folder(folder) as place:
        chains = run.show(experiments.experiment(place, lengths=lengths, tuples=tuples, seed=run.seed))
    with temporary_folder(folder) as place:
        template, points = replay.points(
            place, transactions=transactions, batch_events=batch_events, pieces=pieces, seed=run.seed
        )
        replayed = run.show(replay.experiment(template, points, seed=run.seed))
    with temporary_folder(folder) as place:
        opened = reopening.measure(rows, place, run.seed)
    found = replay.results(points, replayed)
    run.draw(lambda to: charts.plot_recovery(chains, lengths, to))
    run.draw(lambda to: charts.plot_replay(found, to), "recovery-interval")
    bars = [experiments.bar(chains, lengths), *replay.bars(found), *opened.bars]
    run.require(bars, {"tuples": tuples, "transactions": transactions, "rows": rows})


def checkpoints(
    run: BenchRun,
    rows: Annotated[int, typer.Option(min=4_400_000, help="Rows of the state that checkpoints are of.")] = 20_000_000,
    kept: Annotated[int, typer.Option(min=1, help="Versions that are kept, beside a hundred.")] = 10_000,
    folder: Folder = None,
) -> None:
    """What batches notice of checkpoints in the background (p99 latency), and of old versions that are kept.

    Example: `tidegate bench checkpoints --rows 5000000`
    """
    from dataclasses import replace

    from tidegate.benchmarks import checkpoints as experiments

    sizes = experiments.Sizes(rows, rounds=run.rounds, seed=run.seed)
    kept_sizes = experiments.KeptSizes(many=kept, rounds=run.rounds, seed=run.seed)
    kinds: tuple[str, ...] = experiments.KINDS
    if run.smoke:
        sizes = replace(sizes, batch_events=100, batches=5)
        kept_sizes = replace(kept_sizes, few=5, rows=100, batch_events=10, batches=2)
        kinds = (experiments.NONE, experiments.WHOLE)
    with temporary_folder(folder) as place:
        state = experiments.LargeState(sizes, place / "large")
        report = run.show(experiments.experiment(state, sizes, kinds))
        state.close()
    with temporary_folder(folder) as place:
        run.show(experiments.kept_experiment(place, kept_sizes))
    if not run.smoke:
        run.require(experiments.bars(report), report.experiment.settings)
