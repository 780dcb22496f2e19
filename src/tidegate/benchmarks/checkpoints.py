"""How much checkpoints slow batches down, and old versions that are kept.

**Checkpoints in the background.** A large ledger in one engine; batches run in stretches, and between two stretches
everything in the background has ended:

    none              no checkpoint                                          the log is short
    what changed      the log has become long enough for a checkpoint: the rows that changed since the last are written
    the whole state   every row was loaded again, outside the clock: all of them are written while the batches run

What counts is the latency that 99 of 100 batches stay below (p99), as the producer of the stream sees it. A stretch
in which another number of checkpoints was written raises.

**Versions that are kept.** Batches of a query, as a Spark task runs them, in a state that keeps a hundred versions and
in one that keeps ten thousand, and has them: the time of a batch must not depend on how much history lies beside it.

Outcomes are compared with the plain functions, which keep their own accounts. At the end the state is closed and opened
again, and must hold what they hold.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.benchmarks.bars import Bar
from tidegate.benchmarks.harness import Experiment, Report, Variant
from tidegate.benchmarks.state_folders import require_rows, wait_for_background
from tidegate.benchmarks.work import Ongoing, as_query, ongoing_variant, touched
from tidegate.compiler.program import build_program
from tidegate.durability.logged import LoggedEngine
from tidegate.durability.versioned import VersionedEngine
from tidegate.foundation.disk import OsDisk
from tidegate.foundation.storage import LocalStorage, open_storage
from tidegate.workloads import ledger

NONE, CHANGED, WHOLE = "none", "what changed", "the whole state"
KINDS = (NONE, CHANGED, WHOLE)
LATENCY_BAR = 1.5
"""How many times as high the p99 latency of batches may be while checkpoints are written."""

KEPT_BAR = 0.9
"""The speed of batches with many kept versions beside that with few."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of what. Two stretches fill a log that is due for a checkpoint; one does not, loading all rows does."""

    rows: int = 20_000_000
    batch_events: int = 1_000
    batches: int = 800
    rounds: int = 3
    seed: int = 1


class LargeState:
    """A large ledger on a directory, and the truth beside it."""

    def __init__(self, sizes: Sizes, path: Path) -> None:
        self._path = path
        generator = ledger.EventGenerator(ledger.LedgerSettings(accounts=sizes.rows, theta=0.0, seed=sizes.seed))
        stretches = 4 * (sizes.rounds + 1)  # one for each variant in each round, and one to fill a log
        fed = [[generator.batch(sizes.batch_events) for _ in range(sizes.batches)] for _ in range(stretches)]
        self._opening = generator.opening()
        self._touched = touched(self._opening, pa.concat_tables(itertools.chain.from_iterable(fed)))
        self._fed = iter(fed)
        self._engine = LoggedEngine(build_program(ledger.PROGRAM), str(path))
        self.load()

    def load(self) -> None:
        """Write every row again, so that the next checkpoint holds all of them."""
        self._engine.load(ledger.Account.__name__, self._opening)
        self._truth = ledger.Truth(self._touched)

    def checkpoint(self) -> None:
        """Have everything on the disk, and nothing in the background."""
        self._engine.checkpoint()
        wait_for_background()

    def stretch(self) -> list[pa.Table]:
        """The next batches."""
        return next(self._fed)

    def run(self, batches: list[pa.Table]) -> tuple[list[float], list[pa.Table]]:
        """Run batches: how long each took, and their outcomes."""
        taken, outcomes = [], []
        for events in batches:
            start = time.perf_counter()
            outcomes.append(self._engine.run(events, "ts"))
            taken.append(time.perf_counter() - start)
        return taken, outcomes

    def verify(self, batches: list[pa.Table], outcomes: list[pa.Table], what: str) -> None:
        """Compare outcomes with those of the plain functions, which run the same batches."""
        for events, found in zip(batches, outcomes, strict=True):
            require_rows(found, self._truth.run(events), what)

    def versions(self) -> int:
        """The number of the newest checkpoint."""
        names = open_storage(str(self._path)).list()
        return max(int(name.split(".")[0]) for name in names if name.endswith((".change", ".snapshot")))

    def close(self) -> None:
        """Close the state, open it again and compare the rows that batches have touched."""
        self._engine.close()
        wanted = self._truth.state()
        engine = LoggedEngine(build_program(ledger.PROGRAM), str(self._path))
        found = engine.read(lambda core: core.rows(ledger.Account.__name__))
        engine.close()
        require_rows(found.filter(pc.is_in(found["id"], value_set=wanted["id"].combine_chunks())), wanted, "at the end")
        shutil.rmtree(self._path)


def experiment(state: LargeState, sizes: Sizes, kinds: Sequence[str] = KINDS) -> Experiment:
    """The declaration: stretches of batches beside no checkpoint, a small one, and one of all rows."""
    return Experiment(
        name="checkpoints",
        title=f"p99 of batches of {sizes.batch_events:,} events, {sizes.rows:,} rows, by what is written meanwhile",
        items=sizes.batches,
        item="batch",
        variants=[_variant(name, state) for name in kinds],
        settings=asdict(sizes),
        seed=sizes.seed,
    )


def bars(report: Report) -> list[Bar]:
    """The latency beside each kind of checkpoint, beside that without any."""
    alone = report[NONE].seconds_median
    return [
        Bar(f"p99 of batches ÷ none: {name}", report[name].seconds_median / alone, "≤", LATENCY_BAR)
        for name in (CHANGED, WHOLE)
    ]


def _variant(name: str, state: LargeState) -> Variant:
    worst: list[float] = []

    def prepare() -> tuple[list[pa.Table], int]:
        state.checkpoint()
        if name == WHOLE:
            state.load()
        if name == CHANGED:
            filling = state.stretch()
            state.verify(filling, state.run(filling)[1], f"{name}, before")
        return state.stretch(), state.versions()

    def run(prepared: tuple[list[pa.Table], int]) -> tuple[list[float], list[pa.Table]]:
        return state.run(prepared[0])

    def verify(prepared: tuple[list[pa.Table], int], found: tuple[list[float], list[pa.Table]]) -> None:
        batches, newest = prepared
        wait_for_background()
        state.verify(batches, found[1], name)
        written = state.versions() - newest
        if written != (name != NONE):
            raise AssertionError(f"{name}: {written} checkpoints were written beside the batches; take other sizes")
        worst.append(max(found[0]))

    def as_if_all(found: tuple[list[float], list[pa.Table]]) -> float:
        return float(np.percentile(found[0], 99)) * len(found[0])  # a run's time, if every batch took the p99

    return Variant(
        name, prepare=prepare, run=run, verify=verify, seconds=as_if_all, note=lambda: f"worst {max(worst):.4f} s"
    )


# --- versions that are kept -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeptSizes:
    """How many versions are kept, and the batches that are timed beside them."""

    few: int = 100
    many: int = 10_000
    rows: int = 20_000
    batch_events: int = 1_000
    batches: int = 50
    rounds: int = 5
    seed: int = 1


class _Unsynced(OsDisk):
    """A disk that syncs nothing: ten thousand versions are there sooner."""

    def sync(self, descriptor: int) -> None:
        """Nothing."""

    def sync_folder(self, path: str) -> None:
        """Nothing."""


def kept_experiment(folder: Path, sizes: KeptSizes) -> Experiment:
    """The declaration: the same batches with few and with many versions in the directory."""
    return Experiment(
        name="checkpoints-kept",
        title=f"Batches of {sizes.batch_events:,} events, by the versions that are kept",
        items=sizes.batches,
        item="batch",
        variants=[_kept_variant(kept, folder / f"kept-{kept}", sizes) for kept in (sizes.few, sizes.many)],
        bars={kept_name(sizes.many): KEPT_BAR},
        settings=asdict(sizes),
        seed=sizes.seed,
    )


def kept_name(kept: int) -> str:
    """What a number of versions is called."""
    return f"{kept:,} versions"


def _kept_variant(kept: int, path: Path, sizes: KeptSizes) -> Variant:
    def check() -> None:
        there = sum(name.endswith(".change") for name in open_storage(str(path)).list())
        if there < kept:
            raise AssertionError(f"{kept_name(kept)} should be kept, and {there} are there")

    return ongoing_variant(kept_name(kept), lambda: _with_history(kept, path, sizes), check)


def _with_history(kept: int, path: Path, sizes: KeptSizes) -> Ongoing:
    """A query on a state whose versions hold one event each: as many as the most that are kept."""
    generator = ledger.EventGenerator(ledger.LedgerSettings(accounts=sizes.rows, theta=0.0, seed=sizes.seed))
    opening, truth = generator.opening(), ledger.Truth(generator.opening())
    program = build_program(ledger.PROGRAM)
    filling = VersionedEngine(program, LocalStorage(str(path), _Unsynced()), keep_versions=kept)
    filling.initialise({ledger.Account.__name__: opening})
    fill, versions = as_query(filling), max(sizes.few, sizes.many)
    for _ in range(versions):
        events = generator.batch(1)
        fill(events)
        truth.run(events)
    engine = VersionedEngine(program, str(path), keep_versions=kept)
    rounds = ([generator.batch(sizes.batch_events) for _ in range(sizes.batches)] for _ in range(sizes.rounds + 1))
    return Ongoing(as_query(engine, versions), rounds, truth)
