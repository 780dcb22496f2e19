"""What a large table costs: seconds to load and bytes resident, measured in a process of its own.

The memory of a process depends on everything that it did before. So `measure` starts a fresh one,
which makes the rows, loads them, releases the input and measures its own memory:

    before     resident memory with Tidegate imported and its kernels ready
    resident   after loading, the input released: what the table makes the process
    peak       the highest it ever was, the input included

On Linux the peak is the kernel's own mark for this process (`VmHWM`): that of `getrusage` begins with what the parent
process had when it started its child.
"""

from __future__ import annotations

import gc
import json
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from rich.table import Table

import tidegate as tg
from tidegate.benchmarks.bars import Bar
from tidegate.benchmarks.harness import plain_table, record
from tidegate.workloads import ledger

RESIDENT_BYTES_MAX = 1_000_000_000
LOAD_SECONDS_MAX = 20.0


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a fresh process saw of itself."""

    rows: int
    load_seconds: float
    before_bytes: int
    resident_bytes: int
    peak_bytes: int

    @property
    def passed(self) -> bool:
        """Whether the table is small enough, and was loaded fast enough."""
        return self.resident_bytes <= RESIDENT_BYTES_MAX and self.load_seconds <= LOAD_SECONDS_MAX

    def as_record(self, seed: int) -> dict[str, Any]:
        """JSON-ready, with all that is needed to measure it again."""
        values = asdict(self)
        return record("memory", seed=seed, settings={"rows": values.pop("rows")}, **values, passed=self.passed)

    def render(self) -> Table:
        """The numbers as a table for a terminal."""
        table = plain_table(f"{self.rows:,} rows of two integers, loaded in a fresh process", [""], ["measured", "bar"])
        fits = Bar("", self.resident_bytes / 1e6, "≤", RESIDENT_BYTES_MAX / 1e6)
        quick = Bar("", self.load_seconds, "≤", LOAD_SECONDS_MAX)
        table.add_row("before loading", f"{self.before_bytes / 1e6:,.0f} MB", "")
        table.add_row("resident", f"{self.resident_bytes / 1e6:,.0f} MB", fits.shown(" MB"))
        table.add_row("peak, input included", f"{self.peak_bytes / 1e6:,.0f} MB", "")
        table.add_row("load", f"{self.load_seconds:.2f} s", quick.shown(" s"))
        return table


def measure(rows: int, seed: int) -> Footprint:
    """Load `rows` accounts in a fresh process and report what it cost."""
    return in_fresh_process(__name__, f"load {rows:,} rows", rows, seed)


def in_fresh_process(module: str, job: str, *arguments: object) -> Footprint:
    """What a module prints that is run in a process of its own; `job` says in an error what it should have done."""
    command = [sys.executable, "-W", "ignore", "-m", module, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the process that should {job} failed:\n{done.stderr}")
    return Footprint(**json.loads(done.stdout))


def print_footprint(found: Footprint) -> None:
    """Print what `in_fresh_process` reads."""
    sys.stdout.write(json.dumps(asdict(found)))


def opening_rows(rows: int, seed: int) -> pa.Table:
    """The accounts that are loaded."""
    return ledger.EventGenerator(ledger.LedgerSettings(accounts=rows, theta=0.0, seed=seed)).opening()


def resident_when_warm() -> int:
    """The bytes that this process has when its kernels are ready."""
    ledger.engine(pa.table({"id": [1], "balance": [1]}))
    return int(psutil.Process().memory_info().rss)


def peak() -> int:
    """The most bytes that this process ever had."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _measure_here(rows: int, seed: int) -> Footprint:
    before = resident_when_warm()
    opening = opening_rows(rows, seed)
    engine = tg.Engine(ledger.PROGRAM)
    start = time.perf_counter()
    engine.load(ledger.Account, opening)
    seconds = time.perf_counter() - start
    last = opening.slice(rows - 1).to_pylist()[0]
    del opening
    gc.collect()
    pa.default_memory_pool().release_unused()
    resident = psutil.Process().memory_info().rss
    assert engine.read(ledger.Account, last["id"]) == last, "the last row must be there"
    return Footprint(rows, seconds, before, resident, peak())


if __name__ == "__main__":
    print_footprint(_measure_here(*map(int, sys.argv[1:])))
