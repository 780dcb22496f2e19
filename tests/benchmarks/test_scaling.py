from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.benchmarks import scaling
from tidegate.benchmarks.harness import Experiment, measure
from tidegate.benchmarks.scaling import BOUND, SETTINGS, worker_counts
from tidegate.benchmarks.strategies import SERIAL

SMALL = replace(SETTINGS, keys=60, batch_events=90, cost_us=0.1)


@pytest.mark.parametrize(("most", "counts"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])])
def test_workers_double_up_to_the_largest(most: int, counts: list[int]) -> None:
    assert worker_counts(most) == counts


def test_keys_are_uniform_and_functions_take_ten_microseconds() -> None:
    assert (SETTINGS.theta, SETTINGS.cost_us, SETTINGS.abort_ratio) == (0.0, 10.0, 0.0)


def test_independent_threads_do_the_same_number_of_events_on_tables_of_their_own() -> None:
    variant = scaling.independent(SMALL, workers=3, pace=10.0, batches=2)
    prepared = variant.prepare()
    outcomes = variant.run(prepared)
    variant.verify(prepared, outcomes)
    assert sum(table.num_rows for lane in outcomes for table in lane) == 2 * 90
    assert len({engine for engine, *_ in prepared}) == 3
    assert not outcomes[0][0].equals(outcomes[1][0])


def test_independent_threads_are_verified_too() -> None:
    variant = scaling.independent(SMALL, workers=2, pace=10.0, batches=1)
    prepared = variant.prepare()
    outcomes = variant.run(prepared)
    with pytest.raises(AssertionError, match="independent differs from serial"):
        variant.verify(prepared, outcomes[::-1])


def test_curves_are_events_a_second_by_strategy_and_workers() -> None:
    declared = scaling.experiment([SERIAL], workers_max=2, pace=10.0, batches=1, settings=SMALL)
    assert isinstance(declared, Experiment)
    assert [variant.name for variant in declared.variants] == ["serial x1", f"{BOUND} x1", f"{BOUND} x2"]
    report = measure(declared)
    curves = scaling.curves(report)
    assert curves.keys() == {SERIAL, BOUND} and curves[BOUND].keys() == {1, 2}
    assert curves[SERIAL][1] == pytest.approx(90 / report["serial x1"].seconds_median)
