"""What a large table costs: seconds to load and bytes resident, measured in a process of its own.

A process that did anything else before would tell its own history. So `measure` starts a fresh one,
which makes the rows, loads them, lets go of the input and looks at itself:

    before     resident memory with Tidegate imported and its kernels ready
    resident   after loading, the input released: what the table makes the process
    peak       the highest it ever was, the input included
"""

from __future__ import annotations

import gc
import json
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass

import psutil
import pyarrow as pa

import tidegate as tg
from tidegate.workloads import ledger

RESIDENT_BYTES_MAX = 1_000_000_000
LOAD_SECONDS_MAX = 20.0


@dataclass(frozen=True, slots=True)
class Footprint:
    """What the fresh process saw."""

    rows: int
    load_seconds: float
    before_bytes: int
    resident_bytes: int
    peak_bytes: int


def measure(rows: int, seed: int) -> Footprint:
    """Load `rows` accounts in a fresh process and tell what it cost."""
    command = [sys.executable, "-W", "ignore", "-m", "tidegate.benchmarks.memory", str(rows), str(seed)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    if told.returncode != 0:
        raise RuntimeError(f"the process that measures memory failed:\n{told.stderr}")
    return Footprint(**json.loads(told.stdout))


def _measure_here(rows: int, seed: int) -> Footprint:
    warm = tg.Engine(ledger.PROGRAM)
    warm.load(ledger.Account, pa.table({"id": [1], "balance": [1]}))
    process = psutil.Process()
    before = process.memory_info().rss
    settings = ledger.LedgerSettings(accounts=rows, theta=0.0, seed=seed)
    opening = ledger.EventGenerator(settings).opening()
    engine = tg.Engine(ledger.PROGRAM)
    start = time.perf_counter()
    engine.load(ledger.Account, opening)
    seconds = time.perf_counter() - start
    last = opening["id"][rows - 1].as_py()
    del opening
    gc.collect()
    pa.default_memory_pool().release_unused()
    found = engine.read(ledger.Account, last)
    assert found == {"id": last, "balance": settings.opening_balance}, "the last row must be there"
    resident = process.memory_info().rss
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak *= 1 if sys.platform == "darwin" else 1024
    return Footprint(rows, seconds, before, resident, peak)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(_measure_here(int(sys.argv[1]), int(sys.argv[2])))))
