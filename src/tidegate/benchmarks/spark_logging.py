"""What it costs to store a batch's events instead of the rows that it changed: both values of `transact(log=...)`.

Neither is better everywhere, so three streams differ in how many rows an event changes:

    many accounts    a ledger, uniform     each event changes one or two rows that no other changes
    hot accounts     a ledger, skewed      thousands of events change the same few rows
    whole branches   one transaction       each event changes fifty rows

Each stream runs on Spark with log="changes" and with log="commands", in turn, each run on a new state, its outcomes and
rows compared with what must come out. The state of the last run of each kind is kept. Its files show how many bytes an
event takes. Then copies of it that end with different versions are opened as a new process would open them
(`VersionedEngine`), so that more or less lies behind the newest snapshot. The rows must be those in the change files,
which need no engine.

The states are as a query leaves them: where a snapshot was due, it is there, and less lies behind it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pyarrow as pa
from rich.table import Table

import tidegate as tg
from tidegate.api.table import layout_of
from tidegate.benchmarks import harness, spark_pipeline
from tidegate.benchmarks.harness import Experiment, Report, Variant
from tidegate.benchmarks.spark_pipeline import WARM_BATCHES, Source
from tidegate.compiler.program import build_program
from tidegate.durability.listing import file_name
from tidegate.durability.stored_rows import rows_at
from tidegate.durability.version_log import Log
from tidegate.durability.versioned import VersionedEngine
from tidegate.durability.versions import VersionStore
from tidegate.foundation.storage import open_storage
from tidegate.spark import transact
from tidegate.workloads import ledger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGS: tuple[Log, ...] = get_args(Log)
MANY, HOT, WIDE = "many accounts", "hot accounts", "whole branches"
HOT_ACCOUNTS = 100
ACCOUNTS = 49
"""Accounts of a branch."""

ROWS_OF_A_CREDIT = 1 + ACCOUNTS
"""Rows that an event on whole branches changes. Its batches have 2 ÷ 50 of the other streams' events."""

CREDIT_SCHEMA = "event long, ts long, branch long, amount long"


@tg.table(key="id")
class Branch:
    """A branch of a bank, and what it has paid to each of its accounts."""

    id: int
    paid: int = 0


@tg.table(key="id")
class Saving:
    """An account of a branch."""

    id: int
    balance: int = 0


@tg.transaction
def credit(branch: Branch, amount: int) -> int:
    """Pay the same amount into all accounts of a branch."""
    branch.paid += amount
    for place in range(ACCOUNTS):
        account = tg.lookup(Saving, branch.id * ACCOUNTS + place)
        account.balance += amount
    return branch.paid


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is run; `batches` are those that count."""

    batch_rows: int = 25_000
    batches: int = 4
    accounts: int = 100_000
    rounds: int = 5
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Stream:
    """Events on Spark, the transactions that they run, and the table that is compared."""

    name: str
    transactions: Sequence[Any]
    schema: str
    table: type
    source: Source
    counted: int
    """Events of the batches that count."""
    initial: pa.Table | None = None


@dataclass(slots=True)
class Kept:
    """The states that the last run of each stream left, by its name and what its versions keep."""

    folder: Path
    states: dict[tuple[str, Log], Path] = field(default_factory=dict)

    def take(self, stream: Stream, log: Log, state: Path) -> None:
        """Take over the state of a run; that of the run before goes."""
        target = self.folder / f"{stream.name} {log}"
        shutil.rmtree(target, ignore_errors=True)
        shutil.move(state, target)
        self.states[stream.name, log] = target

    def bytes_of(self, stream: Stream, log: Log) -> float:
        """Bytes of change files for each event of a stream."""
        infos = VersionStore(open_storage(str(self.states[stream.name, log]))).infos()
        batches = [info for info in infos if info.events]
        return sum(info.size for info in batches) / sum(info.events for info in batches)


def streams(folder: Path, sizes: Sizes) -> list[Stream]:
    """The three streams, written to files."""
    settings = {
        MANY: ledger.LedgerSettings(accounts=sizes.accounts, theta=0.0, seed=sizes.seed),
        HOT: ledger.LedgerSettings(accounts=min(HOT_ACCOUNTS, sizes.accounts), theta=0.99, seed=sizes.seed),
    }
    found = []
    for name, chosen in settings.items():
        source = spark_pipeline.write_source(folder / name, chosen, sizes.batch_rows, sizes.batches + WARM_BATCHES)
        opening = ledger.EventGenerator(chosen).opening()
        counted = sizes.batches * sizes.batch_rows
        found.append(Stream(name, ledger.PROGRAM, ledger.SPARK_SCHEMA, ledger.Account, source, counted, opening))
    return [*found, _branches(folder / WIDE, sizes)]


def _branches(folder: Path, sizes: Sizes) -> Stream:
    batch_rows, batches = max(1, 2 * sizes.batch_rows // ROWS_OF_A_CREDIT), sizes.batches + WARM_BATCHES
    count = batch_rows * batches
    random = np.random.default_rng([sizes.seed, 3])
    branches, amounts = random.integers(0, 10 * batch_rows, count), random.integers(1, 1_000, count)
    number = np.arange(count)
    events = pa.table({"event": number, "ts": number, "branch": branches, "amount": amounts})
    spark_pipeline.write_events(
        folder / "events", [events.slice(start, batch_rows) for start in range(0, count, batch_rows)]
    )
    paid: dict[int, int] = {}
    results = []
    for branch, amount in zip(branches.tolist(), amounts.tolist(), strict=True):
        paid[branch] = paid.get(branch, 0) + amount
        results.append(paid[branch])
    nothing, right = pa.nulls(count, pa.string()), pa.array(np.ones(count, np.bool_))
    outcomes = pa.table({"event": number, "committed": right, "reason": nothing, "result": pa.array(results)})
    ids = np.array(sorted(paid))
    saved = pa.table(
        {
            "id": (ids[:, None] * ACCOUNTS + np.arange(ACCOUNTS)).ravel(),
            "balance": np.repeat(np.array([paid[branch] for branch in ids.tolist()]), ACCOUNTS),
        }
    )
    source = Source(folder / "events", folder, batches, count, outcomes, saved)
    return Stream(WIDE, [credit], CREDIT_SCHEMA, Saving, source, sizes.batches * batch_rows)


def stream_experiment(spark: SparkSession, folder: Path, stream: Stream, kept: Kept, sizes: Sizes) -> Experiment:
    """A stream whose versions keep rows beside the same one whose versions keep events."""

    def variant(log: Log) -> Variant:
        def run(target: Path) -> float:
            outcomes = transact(
                spark_pipeline.read_source(spark, stream.source, stream.schema),
                stream.transactions,
                state=str(target / "state"),
                order_by="ts",
                initial=None if stream.initial is None else {stream.table: stream.initial},
                log=log,
            )
            return spark_pipeline.run_query(outcomes, target, "parquet")

        def verify(target: Path, seconds: float) -> None:
            spark_pipeline.require_right(spark, stream.source, target, "parquet", stream.table)
            kept.take(stream, log, target / "state")
            shutil.rmtree(target)

        return Variant(log, prepare=spark_pipeline.folders(folder), run=run, verify=verify, seconds=float)

    return Experiment(
        name="spark-logging",
        title=f"What versions keep, on Spark: {stream.name}",
        items=stream.counted,
        item="event",
        variants=[variant(log) for log in LOGS],
        settings={**asdict(sizes), "stream": stream.name},
        seed=sizes.seed,
    )


@dataclass(frozen=True, slots=True)
class Cut:
    """A state up to one of its versions, and how many events lie behind its newest snapshot."""

    log: Log
    version: int
    events: int
    folder: Path

    @property
    def name(self) -> str:
        """What the experiment calls it."""
        return f"{self.log}, version {self.version}, {self.events:,} events"


def cuts(stream: Stream, kept: Kept, place: Path, points: int = 4) -> list[Cut]:
    """Both states of a stream, cut off after some of their versions."""
    found = []
    for log in LOGS:
        source = kept.states[stream.name, log]
        store = VersionStore(open_storage(str(source)))
        versions = [info.version for info in store.infos() if info.events]
        chosen = sorted({versions[round(at)] for at in np.linspace(0, len(versions) - 1, points)})
        for version in chosen:
            start = store.snapshot_below(version)
            behind = sum(store.info(number).events for number in range(start + 1, version + 1))
            folder = Path(tempfile.mkdtemp(dir=place))
            needed = [file_name(number, "change") for number in range(start + 1, version + 1)]
            for name in [*needed, *([file_name(start, "snapshot")] if start else [])]:
                os.link(source / name, folder / name)
            found.append(Cut(log, version, behind, folder))
    return found


def opening_experiment(stream: Stream, kept: Kept, cut: Sequence[Cut], sizes: Sizes) -> Experiment:
    """How long opening a state takes, by what lies behind its snapshot."""
    program, layout = build_program(stream.transactions), layout_of(stream.table)
    assert layout is not None
    told = VersionStore(open_storage(str(kept.states[stream.name, "changes"])))

    def variant(each: Cut) -> Variant:
        def run(engine: VersionedEngine) -> VersionedEngine:
            _ = engine.core
            return engine

        def verify(engine: VersionedEngine, opened: VersionedEngine) -> None:
            if not opened.core.rows(layout.name).equals(rows_at(told, layout, each.version)):
                raise AssertionError(f"{stream.name}, {each.name}: the rows differ from those of the change files")
            engine.close()

        def prepare() -> VersionedEngine:
            return VersionedEngine(program, str(each.folder), log=each.log)

        return Variant(each.name, prepare=prepare, run=run, verify=verify)

    return Experiment(
        name="spark-logging-opening",
        title=f"Opening a state, by what lies behind its snapshot: {stream.name}",
        items=1,
        item="opening",
        variants=[variant(each) for each in cut],
        settings={**asdict(sizes), "stream": stream.name, "events": [each.events for each in cut]},
        seed=sizes.seed,
    )


def render_sizes(found: Sequence[Found]) -> Table:
    """Bytes for each event, as a table."""
    headings = [*LOGS, "commands ÷ changes"]
    table = harness.plain_table("Bytes of version files for each event", ["stream"], headings)
    for each in found:
        rows, events = (each.sizes[log] for log in LOGS)
        table.add_row(each.stream, f"{rows:,.1f}", f"{events:,.1f}", f"{events / rows:.2f}")
    return table


def size_records(found: Sequence[Found], sizes: Sizes) -> list[dict[str, Any]]:
    """Bytes for each event, as records."""
    return [
        harness.record(
            "spark-logging-bytes",
            seed=sizes.seed,
            settings={**asdict(sizes), "stream": each.stream},
            variant=log,
            bytes_per_event=round(size, 2),
        )
        for each in found
        for log, size in each.sizes.items()
    ]


@dataclass(frozen=True, slots=True)
class Found:
    """All that was measured of one stream."""

    stream: str
    running: Report
    sizes: dict[Log, float]
    cuts: Sequence[Cut]
    opening: Report


def measure(
    spark: SparkSession, folder: Path, chosen: Sequence[Stream], sizes: Sizes, take: Callable[[Experiment], Report]
) -> list[Found]:
    """Run and open streams; `take` measures an experiment and shows it."""
    kept, found = Kept(folder / "kept"), []
    kept.folder.mkdir()
    for stream in chosen:
        running = take(stream_experiment(spark, folder, stream, kept, sizes))
        cut = cuts(stream, kept, folder)
        opening = take(opening_experiment(stream, kept, cut, sizes))
        weights: dict[Log, float] = {log: kept.bytes_of(stream, log) for log in LOGS}
        found.append(Found(stream.name, running, weights, cut, opening))
    return found
