"""Whether cost follows the work and not the size of the state.

The same thousand transactions run on a small and on a large table, warm, and must take at most
twice as long on the large one; memory caches are the only thing that may differ:

    engine      `engine.run` alone
    versions    the engine over state on disk: each batch writes its synced change file
    spark       a streaming query, one micro-batch for each thousand (`spark_pipeline`)

The outcomes of every batch are compared with the plain functions, which keep their own accounts from
round to round. A table is loaded before the first round; loading is not part of the work.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import tidegate as tg
from tidegate.benchmarks.harness import Experiment, Variant
from tidegate.compiler.program import build_program
from tidegate.durability.ownership import process_token
from tidegate.durability.served import stream_applicant
from tidegate.durability.version_info import Owner
from tidegate.durability.versioned import VersionedEngine
from tidegate.workloads import ledger

BAR = 0.5
"""At most twice the time: at least half the speed."""

Run = Callable[[pa.Table], pa.Table]
Load = Callable[[pa.Table], Run]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of what: the two tables, and the batches that run on them in each round."""

    rows_small: int = 20_000
    rows_large: int = 4_000_000
    batch_events: int = 1_000
    batches: int = 20
    rounds: int = 7
    seed: int = 1


@dataclass(frozen=True, slots=True)
class _Table:
    """A loaded table: how to run a batch on it, the batches of each round, the truth beside it."""

    run: Run
    rounds: Iterator[list[pa.Table]]
    truth: ledger.Truth


def engine_experiment(sizes: Sizes, bar: float | None = BAR) -> Experiment:
    """A thousand transactions at a time in the engine alone."""

    def load(opening: pa.Table) -> Run:
        engine = tg.Engine(ledger.PROGRAM)
        engine.load(ledger.Account, opening)
        return lambda events: engine.run(events, order_by="ts")

    return _experiment("work-engine", "in the engine", load, sizes, bar)


def versions_experiment(sizes: Sizes, folder: Path, bar: float | None = BAR) -> Experiment:
    """A thousand transactions at a time over versioned state, its change files written and synced."""
    owner = Owner("benchmark", "benchmark", process_token())

    def load(opening: pa.Table) -> Run:
        engine = VersionedEngine(build_program(ledger.PROGRAM), tempfile.mkdtemp(dir=folder))
        engine.initialise({"Account": opening})
        numbers = itertools.count()
        return lambda events: engine.process(
            stream_applicant("benchmark", next(numbers)), events, order_by="ts", late="run", owner=owner
        )

    return _experiment("work-versions", "with a change file for each batch", load, sizes, bar)


def _experiment(name: str, what: str, load: Load, sizes: Sizes, bar: float | None) -> Experiment:
    return Experiment(
        name=name,
        title=f"Cost follows the work, {what}: {sizes.batch_events:,} transactions a batch",
        items=sizes.batches,
        item="batch",
        variants=[_variant(rows, load, sizes) for rows in (sizes.rows_small, sizes.rows_large)],
        bars={} if bar is None else {_name(sizes.rows_large): bar},
        settings=asdict(sizes),
        seed=sizes.seed,
        rounds=sizes.rounds,
    )


def _name(rows: int) -> str:
    return f"{rows:,} rows"


def _variant(rows: int, load: Load, sizes: Sizes) -> Variant:
    """The work on one table, which goes on from round to round."""
    loaded: list[_Table] = []

    def prepare() -> tuple[_Table, list[pa.Table]]:
        if not loaded:
            loaded.append(_load(rows, load, sizes))
        return loaded[0], next(loaded[0].rounds)

    def run(prepared: tuple[_Table, list[pa.Table]]) -> list[pa.Table]:
        table, batches = prepared
        return [table.run(events) for events in batches]

    def verify(prepared: tuple[_Table, list[pa.Table]], outcomes: list[pa.Table]) -> None:
        table, batches = prepared
        for events, outcome in zip(batches, outcomes, strict=True):
            wanted = table.truth.run(events)
            found = outcome.select(wanted.column_names).cast(wanted.schema)
            if not found.combine_chunks().equals(wanted.combine_chunks()):
                raise AssertionError(f"{_name(rows)}: outcomes differ from the plain functions")

    return Variant(_name(rows), prepare=prepare, run=run, verify=verify)


def _load(rows: int, load: Load, sizes: Sizes) -> _Table:
    generator = ledger.EventGenerator(ledger.LedgerSettings(accounts=rows, theta=0.0, seed=sizes.seed))
    opening = generator.opening()
    rounds = [[generator.batch(sizes.batch_events) for _ in range(sizes.batches)] for _ in range(sizes.rounds + 1)]
    events = pa.concat_tables(itertools.chain.from_iterable(rounds))
    return _Table(load(opening), iter(rounds), ledger.Truth(touched(opening, events)))


def touched(opening: pa.Table, events: pa.Table) -> pa.Table:
    """The accounts that some event names: plain objects for all four million would not fit."""
    keys = pa.chunked_array([*events["src"].chunks, *events["dst"].chunks]).unique()
    return opening.filter(pc.is_in(opening["id"], value_set=keys))
