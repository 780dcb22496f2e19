"""What opening a large state takes: seconds, and memory at its peak beside the table's own.

Two fresh processes, each of which does one thing, and a third for the folder that one of them opens:

    store     loads the rows into an engine on a directory, and closes it: all of it is in a checkpoint
    hold      loads the same rows into an engine in memory (`memory`)
    open      opens the directory, and measures its own memory

    memory bar = (peak of open - what it had before) ÷ (resident of hold - what it had before)

`open` then compares every row with what was stored.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

import tidegate as tg
from tidegate.benchmarks import memory
from tidegate.benchmarks.bars import Bar
from tidegate.benchmarks.memory import Footprint
from tidegate.benchmarks.state_folders import require_rows
from tidegate.workloads import ledger

SECONDS_BAR = 10.0
MEMORY_BAR = 1.5


@dataclass(frozen=True, slots=True)
class Reopening:
    """A table in memory, and the same one opened from its directory."""

    held: Footprint
    opened: Footprint

    @property
    def bars(self) -> list[Bar]:
        """Seconds, and the peak beside the table's own memory."""
        own = self.held.resident_bytes - self.held.before_bytes
        peak = self.opened.peak_bytes - self.opened.before_bytes
        return [
            Bar(f"seconds to open a state of {self.opened.rows:,} rows", self.opened.load_seconds, "≤", SECONDS_BAR),
            Bar("peak memory of opening ÷ the table's own", peak / own, "≤", MEMORY_BAR),
        ]


def measure(rows: int, folder: Path, seed: int) -> Reopening:
    """Store `rows` accounts, and report what opening them takes."""
    path = folder / "reopening"
    _fresh("store", rows, path, seed)
    return Reopening(memory.measure(rows, seed), _fresh("open", rows, path, seed))


def _fresh(what: str, rows: int, path: Path, seed: int) -> Footprint:
    return memory.in_fresh_process(__name__, f"{what} {rows:,} rows", what, rows, path, seed)


def _store(rows: int, path: str, seed: int) -> Footprint:
    start = time.perf_counter()
    ledger.engine(memory.opening_rows(rows, seed), directory=path).close()
    return Footprint(rows, time.perf_counter() - start, 0, 0, 0)


def _open(rows: int, path: str, seed: int) -> Footprint:
    before = memory.resident_when_warm()
    start = time.perf_counter()
    engine = tg.Engine(ledger.PROGRAM, directory=path)
    seconds = time.perf_counter() - start
    found = Footprint(rows, seconds, before, psutil.Process().memory_info().rss, memory.peak())
    require_rows(engine.scan(ledger.Account), memory.opening_rows(rows, seed).sort_by("id"), "opened again")
    return found


if __name__ == "__main__":
    _what, _rows, _path, _seed = sys.argv[1:]
    memory.print_footprint({"store": _store, "open": _open}[_what](int(_rows), _path, int(_seed)))
