from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.benchmarks import groups
from tidegate.benchmarks.grids import PointReport, measure_grid
from tidegate.benchmarks.harness import Comparison, Experiment, Report
from tidegate.benchmarks.strategies import ADAPTIVE, SERIAL
from tidegate.workloads.tolls import CALM_GROUP, HOT_GROUP

HOT = replace(HOT_GROUP, batch_events=80, vehicles=30, seed=3)
CALM = replace(CALM_GROUP, batch_events=40, vehicles=30, keys=50, cost_us=0.1, seed=3)


def small_grid(*strategies: str, workers: int = 1) -> groups.Grid:
    return groups.grid(strategies, hot=HOT, calm=CALM, pace=10.0, workers=workers, batches=2)


def test_it_is_one_point_with_both_groups_in_its_batches_and_in_its_settings() -> None:
    (point,) = small_grid(SERIAL, ADAPTIVE).points
    declared = point.experiment()
    assert declared.items == 2 * (80 + 40) and declared.seed == 3
    assert declared.settings["hot"]["theta"] == 1.0 and declared.settings["calm"]["travel_ratio"] == 0.8
    assert [variant.name for variant in declared.variants] == [SERIAL, ADAPTIVE]


def test_every_batch_is_verified_and_the_final_decides() -> None:
    (found,) = measure_grid(small_grid(SERIAL, "ns-operation-eager", "lock", ADAPTIVE, workers=2)).points
    assert len(found.report.comparisons) == 4 and len(found.final.comparisons) == 3
    bar = groups.bar(found)
    assert bar.found == found.ratio and found.best.variant in bar.what


@pytest.mark.parametrize(("best", "passed"), [(0.9, False), (1.0, False), (1.1, True)])
def test_adaptive_must_be_faster_than_the_best_single_strategy(best: float, passed: bool) -> None:
    (point,) = small_grid(SERIAL, ADAPTIVE).points
    taken = {SERIAL: 3.0, "lock": best, ADAPTIVE: 1.0}
    report = Report(
        Experiment("test", "", 1, "event", []),
        tuple(Comparison(name, (each,), 1, 1, 1, None, f"{name} it was") for name, each in taken.items()),
    )
    bar = groups.bar(PointReport(point, report, report, ADAPTIVE))
    assert bar.passed is passed
    assert bar.what == "adaptive (adaptive it was) beside lock, the best single strategy"
