"""A race counts only runs that give what the plain functions give, and takes figures from their middle."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidegate.benchmarks.harness import Comparison, Experiment, Report, Variant, measure
from tidegate.benchmarks.ordered_race import Race, curves, figures_of, variant_name
from tidegate.workloads.parametric import Task

TABLE = pa.table({"key": [1, 2], "rounds": [3, 3], "value": [4, 5]})
RIGHT = [Task(1, 3, 4), Task(2, 3, 5)]


class Made:
    """Stands for a pipeline: gives a table, and says how long it took."""

    def __init__(self, table: pa.Table, seconds: float = 1.0, latencies: Any = (0.1,)) -> None:
        operator = SimpleNamespace(processing=0.004, cost=0.003)
        report = SimpleNamespace(seconds=seconds, latencies=np.array(latencies, np.float64), operators=(operator,))
        self.measured, self.options = SimpleNamespace(table=table, report=report), dict[str, Any]()

    def measure(self, table: pa.Table, **options: Any) -> SimpleNamespace:
        self.options = options
        return self.measured


def test_the_first_and_the_last_fifth_of_the_latencies_do_not_count() -> None:
    found = figures_of(Made(TABLE, 2.0, [100.0, 1.0, 2.0, 3.0, 100.0]), TABLE, {"workers": 2})
    assert (found.seconds, found.latency, found.processing, found.cost) == (2.0, 2.0, 0.004, 0.003)
    assert figures_of(Made(TABLE, 1.0, []), TABLE, {}).latency == 0.0


def test_ways_are_run_with_their_options_and_compared_by_the_time_that_they_tell() -> None:
    race, slow, fast = Race(TABLE, RIGHT), Made(TABLE, 2.0), Made(TABLE, 0.5, [0.3, 0.3])
    race.add("slow", slow, workers=1)
    race.add("fast", fast, workers=7, reorder="lock")
    report = measure(race.experiment("made-up", "Made up", {"cost": 3}, seed=4))
    assert slow.options == {"workers": 1} and fast.options == {"workers": 7, "reorder": "lock"}
    assert report["fast"].ratio == 4.0 and report.items_per_second("fast") == 4.0
    told = race.records(report)
    assert [line["latency_us"] for line in told] == [100_000.0, 300_000.0]
    assert told[0]["processing_us"] == 4_000.0 and told[0]["cost_us"] == 3_000.0
    assert told[0]["seed"] == 4 and told[0]["settings"]["cost"] == 3
    assert race.render(report).row_count == 2


def test_a_run_with_wrong_outputs_is_no_measurement() -> None:
    race = Race(TABLE, RIGHT)
    race.add("wrong", Made(TABLE.slice(1)))
    with pytest.raises(AssertionError, match="wrong: 2 outputs are right, found 1"):
        measure(race.experiment("made-up", "Made up", {}, seed=1))


def test_a_figure_of_a_way_is_the_median_of_its_rounds_without_the_first() -> None:
    race = Race(TABLE, RIGHT, taken={("a", "cost"): [9.0, 1.0, 2.0, 3.0], ("once", "cost"): [5.0]})
    assert race.figure("cost", "a") == 2.0 and race.figure("cost", "once") == 5.0


def test_curves_are_by_what_was_run_and_by_workers() -> None:
    names = [variant_name("a way", 1), variant_name("a way", 2), variant_name("another", 16)]
    declared = Experiment("made-up", "", 10, "record", [Variant(name, run=lambda _: None) for name in names])
    report = Report(declared, tuple(Comparison(name, (1.0,), 1, 1, 1, None) for name in names))
    assert curves(report, len) == {"a way": {1: 8, 2: 8}, "another": {16: 11}}
