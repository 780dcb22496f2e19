"""What opening a large state takes: seconds, and memory at its peak beside the table's own.

Two fresh processes, each of which does one thing, and a third for the folder that one of them opens:

    store     loads the rows into an engine on a directory, and closes it: all of it is in a checkpoint
    hold      loads the same rows into an engine in memory, lets go of the input, and looks at itself
    open      opens the directory, and looks at itself

    memory bar = (peak of open - what it had before) ÷ (resident of hold - what it had before)

`open` then compares every row with what was stored. The peak is the kernel's own mark for this process (`VmHWM`): the
one of `getrusage` begins with what the parent process had when it started a child.
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

import psutil
import pyarrow as pa

import tidegate as tg
from tidegate.benchmarks.bars import Bar
from tidegate.benchmarks.state_folders import require_rows
from tidegate.workloads import ledger

SECONDS_BAR = 10.0
MEMORY_BAR = 1.5


@dataclass(frozen=True, slots=True)
class Seen:
    """What a fresh process saw of itself."""

    seconds: float
    before_bytes: int
    resident_bytes: int
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Reopening:
    """A table in memory, and the same one opened from its directory."""

    rows: int
    held: Seen
    opened: Seen

    @property
    def bars(self) -> list[Bar]:
        """Seconds, and the peak beside the table's own memory."""
        own = self.held.resident_bytes - self.held.before_bytes
        peak = self.opened.peak_bytes - self.opened.before_bytes
        return [
            Bar(f"seconds to open a state of {self.rows:,} rows", self.opened.seconds, "≤", SECONDS_BAR),
            Bar("peak memory of opening ÷ the table's own", peak / own, "≤", MEMORY_BAR),
        ]


def measure(rows: int, folder: Path, seed: int) -> Reopening:
    """Store `rows` accounts, and tell what opening them takes."""
    path = folder / "reopening"
    _fresh("store", rows, path, seed)
    held, opened = (_fresh(what, rows, path, seed) for what in ("hold", "open"))
    return Reopening(rows, held, opened)


def _fresh(what: str, rows: int, path: Path, seed: int) -> Seen:
    command = [sys.executable, "-W", "ignore", "-m", "tidegate.benchmarks.reopening", what, str(rows), str(path)]
    told = subprocess.run([*command, str(seed)], capture_output=True, text=True, check=False)
    if told.returncode != 0:
        raise RuntimeError(f"the process that should {what} {rows:,} rows failed:\n{told.stderr}")
    return Seen(**json.loads(told.stdout))


def _opening(rows: int, seed: int) -> pa.Table:
    return ledger.EventGenerator(ledger.LedgerSettings(accounts=rows, theta=0.0, seed=seed)).opening()


def _store(rows: int, path: str, seed: int) -> Seen:
    start = time.perf_counter()
    with tg.Engine(ledger.PROGRAM, directory=path) as engine:
        engine.load(ledger.Account, _opening(rows, seed))
    return Seen(time.perf_counter() - start, 0, 0, 0)


def _hold(rows: int, path: str, seed: int) -> Seen:
    before = _warm()
    opening = _opening(rows, seed)
    engine = tg.Engine(ledger.PROGRAM)
    start = time.perf_counter()
    engine.load(ledger.Account, opening)
    seconds = time.perf_counter() - start
    last = opening["id"][rows - 1].as_py()
    del opening
    gc.collect()
    pa.default_memory_pool().release_unused()
    resident = psutil.Process().memory_info().rss
    assert engine.read(ledger.Account, last) is not None, "the last row must be there"
    return Seen(seconds, before, resident, _peak())


def _open(rows: int, path: str, seed: int) -> Seen:
    before = _warm()
    start = time.perf_counter()
    engine = tg.Engine(ledger.PROGRAM, directory=path)
    seconds = time.perf_counter() - start
    seen = Seen(seconds, before, psutil.Process().memory_info().rss, _peak())
    require_rows(engine.scan(ledger.Account), _opening(rows, seed).sort_by("id"), "opened again")
    return seen


def _warm() -> int:
    """What the process has when its kernels are ready, in bytes."""
    engine = tg.Engine(ledger.PROGRAM)
    engine.load(ledger.Account, pa.table({"id": [1], "balance": [1]}))
    return int(psutil.Process().memory_info().rss)


def _peak() -> int:
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    _what, _rows, _path, _seed = sys.argv[1:]
    _seen = {"store": _store, "hold": _hold, "open": _open}[_what](int(_rows), _path, int(_seed))
    sys.stdout.write(json.dumps(asdict(_seen)))
