"""Whether cost follows the work and not the size of the state.

The same thousand transactions run on a small and on a large table, warm, and must take at most
twice as long on the large one, where fewer rows are in the processor's caches:

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

from tidegate.benchmarks.harness import Experiment, Variant
from tidegate.benchmarks.state_folders import require_rows
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
class Ongoing:
    """A loaded table: how to run a batch on it, the batches of each round, and the truth beside it."""

    run: Run
    rounds: Iterator[list[pa.Table]]
    truth: ledger.Truth


def engine_experiment(sizes: Sizes) -> Experiment:
    """A thousand transactions at a time in the engine alone."""

    def load(opening: pa.Table) -> Run:
        engine = ledger.engine(opening)
        return lambda events: engine.run(events, order_by="ts")

    return _on_both_tables("work-engine", ", in the engine", load, sizes)


def versions_experiment(sizes: Sizes, folder: Path) -> Experiment:
    """A thousand transactions at a time over versioned state, its change files written and synced."""

    def load(opening: pa.Table) -> Run:
        engine = VersionedEngine(build_program(ledger.PROGRAM), tempfile.mkdtemp(dir=folder))
        engine.initialise({"Account": opening})
        return as_query(engine)

    return _on_both_tables("work-versions", ", with a change file for each batch", load, sizes)


def _on_both_tables(name: str, where: str, load: Load, sizes: Sizes) -> Experiment:
    def variant(rows: int) -> Variant:
        return ongoing_variant(variant_name(rows), lambda: _start(rows, load, sizes))

    return small_and_large(name, where, variant, sizes)


def as_query(engine: VersionedEngine, first_batch: int = 0) -> Run:
    """Runs batches as a streaming query does."""
    owner, numbers = Owner("benchmark", "benchmark", process_token()), itertools.count(first_batch)
    return lambda events: engine.process(
        stream_applicant("benchmark", next(numbers)), events, order_by="ts", late="run", owner=owner
    )


def small_and_large(name: str, where: str, variant: Callable[[int], Variant], sizes: Sizes) -> Experiment:
    """The declaration: the same batches on a small and on a large table."""
    return Experiment(
        name=name,
        title=f"Cost follows the work{where}: {sizes.batch_events:,} transactions a batch",
        items=sizes.batches,
        item="batch",
        variants=[variant(rows) for rows in (sizes.rows_small, sizes.rows_large)],
        bars={variant_name(sizes.rows_large): BAR},
        settings=asdict(sizes),
        seed=sizes.seed,
    )


def variant_name(rows: int) -> str:
    """What the work on a table is called."""
    return f"{rows:,} rows"


def ongoing_variant(name: str, start: Callable[[], Ongoing], check: Callable[[], None] = lambda: None) -> Variant:
    """Work that starts before the first round and goes on from round to round; `check` runs after each."""
    started: list[Ongoing] = []

    def prepare() -> list[pa.Table]:
        if not started:
            started.append(start())
        return next(started[0].rounds)

    def run(batches: list[pa.Table]) -> list[pa.Table]:
        return [started[0].run(events) for events in batches]

    def verify(batches: list[pa.Table], outcomes: list[pa.Table]) -> None:
        for events, found in zip(batches, outcomes, strict=True):
            require_rows(found, started[0].truth.run(events), name)
        check()

    return Variant(name, prepare=prepare, run=run, verify=verify)


def _start(rows: int, load: Load, sizes: Sizes) -> Ongoing:
    generator = ledger.EventGenerator(ledger.LedgerSettings(accounts=rows, theta=0.0, seed=sizes.seed))
    opening = generator.opening()
    rounds = [[generator.batch(sizes.batch_events) for _ in range(sizes.batches)] for _ in range(sizes.rounds + 1)]
    events = pa.concat_tables(itertools.chain.from_iterable(rounds))
    return Ongoing(load(opening), iter(rounds), ledger.Truth(touched(opening, events)))


def touched(opening: pa.Table, events: pa.Table) -> pa.Table:
    """The accounts that some event names: plain objects for all four million would not fit."""
    keys = pa.chunked_array([*events["src"].chunks, *events["dst"].chunks]).unique()
    return opening.filter(pc.is_in(opening["id"], value_set=keys))
