"""What a snapshot in the background costs: its time, its memory, and how long batches take beside it.

A process of its own, one state of ledger accounts on disk, batches of events as versions. Rounds alternate between
batches with nothing beside them and batches while a compaction runs, so that both see the same machine:

    quiet   | batch | batch | batch |            | batch | batch | ...
    beside                          | batch | batch |
                                      compaction

    alone    seconds of one compaction while no batch runs, after `changed` rows were changed
    memory   the most that compaction had, in this process beyond what that had before, and in its own

On a machine that does other work at the same time the latencies are those of its scheduler and its disk. What the
batches' own thread computed (`quiet_cpu_ms`, `beside_cpu_ms`) then tells whether a compaction slows them down.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
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
from tidegate.durability.ownership import process_token
from tidegate.durability.served import stream_applicant
from tidegate.durability.version_info import Owner, VersionInfo
from tidegate.durability.versioned import VersionedEngine
from tidegate.foundation.storage import open_storage
from tidegate.workloads import ledger

BATCH_EVENTS = 10_000
OWNER = Owner("bench", "bench", process_token())
SLOWDOWN_MAX = 1.5
"""How much longer batches may take beside a compaction, at the 99th percentile."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a run saw; latencies are those of batches: median, 99th percentile and maximum."""

    rows: int
    changed: int
    alone_seconds: float
    alone_bytes: int
    beside_seconds: float
    quiet_ms: tuple[float, float, float]
    beside_ms: tuple[float, float, float]
    quiet_cpu_ms: tuple[float, float, float]
    beside_cpu_ms: tuple[float, float, float]
    slowdown_p99: float


def measure(rows: int, changed: int, batches: int, seed: int, folder: str) -> Footprint:
    """Run `batches` batches of each kind over a state of so many rows, in a fresh process."""
    command = [sys.executable, "-W", "ignore", "-m", "tidegate.benchmarks.compaction"]
    numbers = [str(number) for number in (rows, changed, batches, seed)]
    told = subprocess.run([*command, *numbers, folder], capture_output=True, text=True, check=False)
    if told.returncode != 0:
        raise RuntimeError(f"the process that measures compactions failed:\n{told.stderr}")
    return Footprint(**json.loads(told.stdout))


def _measure_here(rows: int, changed: int, batches: int, seed: int, folder: str) -> Footprint:
    # Only what is asked for here is compacted; a small state as well.
    versions.SNAPSHOT_AFTER_BYTES, housekeeping.SMALL_BYTES = 1 << 60, 0
    settings = ledger.LedgerSettings(accounts=rows, theta=0.0, seed=seed)
    events = ledger.EventGenerator(settings)
    path = tempfile.mkdtemp(dir=folder)
    _open_state(path, events)
    engine = VersionedEngine(build_program(ledger.PROGRAM), path)
    try:
        compactor = engine._housekeeping.compactor
        touched = 0
        while touched < changed:
            _run(engine, events)
            touched += sum(engine._store.info(engine.version).rows.values())
        alone_seconds, alone_bytes = _compact_alone(engine)
        quiet: list[tuple[float, float]] = []
        beside: list[tuple[float, float]] = []
        durations: list[float] = []
        while min(len(quiet), len(beside)) < batches:
            quiet += [_run(engine, events) for _ in range(50)]
            compactor.request(engine.version, 1 << 60)
            start = time.perf_counter()
            while not compactor.wait(0):
                beside.append(_run(engine, events))
            durations.append(time.perf_counter() - start)
    finally:
        engine.close()
    (quiet_ms, quiet_cpu), (beside_ms, beside_cpu) = map(_told, (quiet, beside))
    return Footprint(
        rows=rows,
        changed=touched,
        alone_seconds=alone_seconds,
        alone_bytes=alone_bytes,
        beside_seconds=float(np.mean(durations)),
        quiet_ms=quiet_ms,
        beside_ms=beside_ms,
        quiet_cpu_ms=quiet_cpu,
        beside_cpu_ms=beside_cpu,
        slowdown_p99=beside_ms[1] / quiet_ms[1],
    )


def _open_state(path: str, events: ledger.EventGenerator) -> None:
    """The accounts as version 1, written as an initial load is."""
    layout = build_program(ledger.PROGRAM).plan.tables[0]
    info = VersionInfo(1, "snapshot", "initial", 0, 0, time.time(), 0, 0, None, (layout,), {}, 0)
    opening = events.opening().cast(layout.arrow_schema)
    versions.VersionStore(open_storage(path)).snapshot(info, {layout.name: opening})


def _run(engine: VersionedEngine, events: ledger.EventGenerator) -> tuple[float, float]:
    """Milliseconds until the batch was committed, and those that its thread computed."""
    batch = events.batch(BATCH_EVENTS)
    start, computed = time.perf_counter(), time.thread_time()
    engine.process(stream_applicant("bench", max(0, engine.version - 1)), batch, order_by="ts", late="run", owner=OWNER)
    return 1e3 * (time.perf_counter() - start), 1e3 * (time.thread_time() - computed)


def _compact_alone(engine: VersionedEngine) -> tuple[float, int]:
    """Seconds, and bytes at the highest beyond those before."""
    pa.default_memory_pool().release_unused()
    before, highest = _resident(), 0
    compactor = engine._housekeeping.compactor
    start = time.perf_counter()
    compactor.request(engine.version, 1 << 60)
    while not compactor.wait(0.002):
        highest = max(highest, _resident())
    seconds = time.perf_counter() - start
    if compactor.take_finished() is None:
        raise RuntimeError("the compaction failed: see the log")
    return seconds, max(0, highest - before)


def _resident() -> int:
    """Bytes in memory, of this process and its children."""
    process, size = psutil.Process(), 0
    for each in (process, *process.children()):
        with contextlib.suppress(psutil.NoSuchProcess):
            size += each.memory_info().rss
    return size


def _told(found: list[tuple[float, float]]) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Median, 99th percentile and maximum, of the latencies and of what was computed."""
    (median, cpu_median), (p99, cpu_p99), (most, cpu_most) = np.percentile(found, [50, 99, 100], axis=0).tolist()
    return (median, p99, most), (cpu_median, cpu_p99, cpu_most)


if __name__ == "__main__":
    rows, changed, batches, seed = map(int, sys.argv[1:5])
    folder = sys.argv[5] if len(sys.argv) > 5 else str(Path.cwd())
    sys.stdout.write(json.dumps(asdict(_measure_here(rows, changed, batches, seed, folder))) + "\n")
