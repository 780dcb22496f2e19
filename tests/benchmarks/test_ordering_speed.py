"""Overhead, speed-up, futures and latency: each run is compared with the plain functions before it counts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from tidegate.benchmarks import ordering_speed as speed
from tidegate.benchmarks.harness import Comparison, Report, measure


def test_overhead_is_told_for_a_record_in_one_operator() -> None:
    made = speed.overhead(records=1_000, seed=1)
    report = measure(made.experiment("made-up", "", {}, seed=1))
    found = Report(report.experiment, (Comparison("light x1", (0.006,), 1, 1, 1, None),))
    bar = speed.overhead_bar(found)
    assert bar.found == pytest.approx(2.0) and not bar.passed


@pytest.mark.parametrize("kind", ["stateless", "keyed"])
def test_heavy_operators_run_with_each_number_of_workers(kind: str) -> None:
    made = speed.speedup(kind, records=50, pace=0.1, workers=[1, 2], seed=1)
    report = measure(made.experiment("made-up", "", {}, seed=1))
    assert [found.variant for found in report.comparisons] == [f"{kind} x1", f"{kind} x2"]


def test_futures_are_verified_too() -> None:
    with ThreadPoolExecutor(2) as pool:
        declared = speed.futures(pool, pool, records=500, workers=2, seed=1)
        assert declared.bars == {"ordered x2": 10.0}
        assert [found.variant for found in measure(declared).comparisons][2] == "ordered x2"
        wrong = replace(declared.variants[0], run=lambda _: [])
        with pytest.raises(AssertionError, match="record by record: the outputs differ"):
            measure(replace(declared, variants=[wrong]))


def test_latency_is_that_of_every_record_in_the_middle_of_a_paced_stream() -> None:
    found = speed.latency(20_000.0, records=400, workers=2, seed=1)
    assert 200 < len(found.seconds) <= 240 and (found.seconds > 0).all()
    assert speed.peak_rate(records=400, workers=2, seed=1) > 0
    bar = speed.Latency(100.0, np.array([0.001] * 99 + [0.5])).bar()
    assert "100 records/s" in bar.what and bar.limit == 5.0
