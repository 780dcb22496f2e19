"""The benchmark of opening a large state: what fresh processes tell, and what is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.benchmarks import reopening
from tidegate.benchmarks.memory import Footprint
from tidegate.benchmarks.reopening import Reopening


def test_a_state_is_stored_held_and_opened_in_processes_of_their_own(tmp_path: Path) -> None:
    found = reopening.measure(3_000, tmp_path, seed=1)
    assert 0 < found.opened.load_seconds < 60
    for seen in (found.held, found.opened):
        assert seen.before_bytes <= seen.peak_bytes and seen.resident_bytes <= seen.peak_bytes


def test_the_peak_counts_beside_the_tables_own_memory() -> None:
    held, opened = Footprint(10, 1.0, 100, 300, 900), Footprint(10, 2.0, 110, 350, 430)
    seconds, memory = Reopening(held, opened).bars
    assert seconds.found == 2.0 and seconds.passed
    assert memory.found == 320 / 200 and not memory.passed


def test_a_state_that_holds_other_rows_is_refused(tmp_path: Path) -> None:
    reopening._store(50, str(tmp_path / "state"), seed=2)
    with pytest.raises(AssertionError, match="the rows differ"):
        reopening._open(50, str(tmp_path / "state"), seed=1)


def test_a_process_that_fails_is_told() -> None:
    with pytest.raises(RuntimeError, match="should open 5 rows failed"):
        reopening._fresh("open", 5, Path("/proc/no such folder"), 1)
