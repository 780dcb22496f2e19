"""What a snapshot in the background costs: its time, its memory, and how long batches take beside it.

One process, one state of ledger accounts on disk, batches of events as versions. Rounds alternate between batches with
nothing beside them and batches while a compaction runs, so that both see the same machine:

    quiet   | batch | batch | batch |            | batch | batch | ...
    beside                          | batch | batch |
                                      compaction

    alone    seconds of one compaction while no batch runs, after `changed` rows were changed
    memory   the most that compaction had beyond what the process had before it
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa

from tidegate.compiler.program import build_program
from tidegate.durability import housekeeping, versions
from tidegate.durability.version_info import VersionInfo
from tidegate.durability.versioned import VersionedEngine
from tidegate.foundation.storage import open_storage
from tidegate.workloads import ledger

BATCH_EVENTS = 10_000
SLOWDOWN_MAX = 1.5
"""How much longer batches may take beside a compaction, at the 99th percentile."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a run saw; latencies are those of batches, in milliseconds."""

    rows: int
    changed: int
    alone_seconds: float
    alone_bytes: int
    beside_seconds: float
    quiet_ms: tuple[float, float, float]
    beside_ms: tuple[float, float, float]
    slowdown_p99: float


def measure(rows: int, changed: int, batches: int, seed: int, folder: str) -> Footprint:
    """Run `batches` batches of each kind over a state of so many rows; latencies are median, p99 and maximum."""
    # Only what is asked for here is compacted; a small state as well.
    versions.SNAPSHOT_AFTER_BYTES, housekeeping.SMALL_BYTES = 1 << 60, 0
    settings = ledger.LedgerSettings(accounts=rows, theta=0.0, seed=seed)
    events = ledger.EventGenerator(settings)
    path = tempfile.mkdtemp(dir=folder)
    _open_state(path, events)
    engine = VersionedEngine.open_embedded(build_program(ledger.PROGRAM), path)
    try:
        compactor = engine._housekeeping.compactor
        touched = 0
        while touched < changed:
            _run(engine, events)
            touched += sum(engine._store.info(engine.version).rows.values())
        alone_seconds, alone_bytes = _compact_alone(engine)
        quiet: list[float] = []
        beside: list[float] = []
        durations: list[float] = []
        while min(len(quiet), len(beside)) < batches:
            quiet += [_run(engine, events) for _ in range(50)]
            compactor.request(engine.version)
            start = time.perf_counter()
            while not compactor.wait(0):
                beside.append(_run(engine, events))
            durations.append(time.perf_counter() - start)
    finally:
        engine.close()
    slowdown = float(np.percentile(beside, 99) / np.percentile(quiet, 99))
    return Footprint(
        rows, touched, alone_seconds, alone_bytes, float(np.mean(durations)), _told(quiet), _told(beside), slowdown
    )


def _open_state(path: str, events: ledger.EventGenerator) -> None:
    """The accounts as version 1, written as an initial load is."""
    layout = build_program(ledger.PROGRAM).plan.tables[0]
    info = VersionInfo(1, "snapshot", "initial", 0, 0, time.time(), 0, 0, None, (layout,), {}, 0)
    opening = events.opening().cast(layout.arrow_schema)
    versions.VersionStore(open_storage(path)).snapshot(info, {layout.name: opening})


def _run(engine: VersionedEngine, events: ledger.EventGenerator) -> float:
    batch = events.batch(BATCH_EVENTS)
    start = time.perf_counter()
    engine.run(batch, "ts")
    return 1e3 * (time.perf_counter() - start)


def _compact_alone(engine: VersionedEngine) -> tuple[float, int]:
    """Seconds, and bytes at the highest beyond those before."""
    pa.default_memory_pool().release_unused()
    process, before, highest = psutil.Process(), psutil.Process().memory_info().rss, 0
    compactor = engine._housekeeping.compactor
    start = time.perf_counter()
    compactor.request(engine.version)
    while not compactor.wait(0.002):
        highest = max(highest, process.memory_info().rss)
    seconds = time.perf_counter() - start
    if compactor.take_finished() is None:
        raise RuntimeError("the compaction failed: see the log")
    return seconds, max(0, highest - before)


def _told(latencies: list[float]) -> tuple[float, float, float]:
    median, p99, most = np.percentile(latencies, [50, 99, 100])
    return float(median), float(p99), float(most)


if __name__ == "__main__":
    rows, changed, batches, seed = map(int, sys.argv[1:5])
    folder = sys.argv[5] if len(sys.argv) > 5 else str(Path.cwd())
    sys.stdout.write(json.dumps(asdict(measure(rows, changed, batches, seed, folder))) + "\n")
