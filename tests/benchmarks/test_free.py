"""The sums of batches that ran in turns: the warm-up does not count, and a difference is an error, not a number."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.benchmarks import free, strategies
from tidegate.benchmarks.strategies import Cell, cells, smoke_cells


def small() -> Cell:
    cell = smoke_cells(seed=3)[0]
    return Cell({**cell.dimensions, "C": 0.0}, cell.make)


def test_the_workloads_are_all_of_the_grid_whose_functions_are_free() -> None:
    found = free.free_cells(cells(seed=1))
    assert {cell.dimensions["workload"] for cell in found} == {cell.dimensions["workload"] for cell in cells(seed=1)}
    assert all(cell.make(1.0).settings.cost_us == 0.0 for cell in found)


def test_batches_after_the_warm_up_are_counted_for_both() -> None:
    ticks = itertools.count()  # each look at the clock is a second later
    seen = []
    found = free.measure(
        small(), pace=1.0, workers=2, batches=5, clock=lambda: float(next(ticks)), on_batch=lambda: seen.append(1)
    )
    assert found.serial_seconds == found.adaptive_seconds == 5.0
    assert found.share == 1.0 and found.bar.passed and "streaming ledger" in found.bar.what
    assert len(seen) == free.WARM_BATCHES + 5
    told = found.as_record()
    assert told["passed"] and told["bar"] == free.BAR and told["seed"] == 3 and told["settings"]["batches"] == 5


@pytest.mark.parametrize(("adaptive", "passed"), [(1.0, True), (1.05, True), (1.06, False)])
def test_adaptive_must_be_nearly_as_fast(adaptive: float, passed: bool) -> None:
    found = free.Found("a ledger", small().make(1.0), 10, 1.0, adaptive)
    assert found.bar.passed is passed


@pytest.mark.parametrize("what", ["outcomes", "rows"])
def test_a_difference_is_an_error(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free, "verify_with_plain", lambda workload: None)
    run, scan, turns = tg.Engine.run, strategies.Workload.scan, itertools.count()
    if what == "outcomes":

        def wrong_run(engine: tg.Engine, events: pa.Table) -> pa.Table:
            found = run(engine, events)
            if next(turns):
                return found
            column = found.column_names.index("committed")
            return found.set_column(column, "committed", pa.array([False] * found.num_rows))

        monkeypatch.setattr(tg.Engine, "run", wrong_run)
    else:

        def wrong_scan(workload: strategies.Workload, engine: tg.Engine) -> dict[type, pa.Table]:
            found = scan(workload, engine)
            return {table: rows.slice(next(turns)) for table, rows in found.items()}

        monkeypatch.setattr(strategies.Workload, "scan", wrong_scan)
    with pytest.raises(AssertionError, match="adaptive differs from serial"):
        free.measure(small(), pace=1.0, workers=2, batches=1)
