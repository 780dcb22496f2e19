from __future__ import annotations

import io
import itertools
from dataclasses import replace

import pyarrow as pa
import pytest
from rich.console import Console

from tidegate.benchmarks import dynamic
from tidegate.benchmarks.grids import Point, PointReport
from tidegate.benchmarks.harness import Comparison, Experiment, Report, Variant, measure
from tidegate.benchmarks.strategies import ADAPTIVE, SERIAL
from tidegate.workloads.streaming_ledger import MORPHSTREAM

SMALL = replace(MORPHSTREAM, keys=60, batch_events=40, cost_us=0.1)


def small_stream() -> dynamic.Stream:
    return dynamic.ledger_stream(base=SMALL, pace=10.0, batches=2)


def test_the_stream_is_thirteen_stretches_of_other_events() -> None:
    stream = small_stream()
    assert len(stream.stretches) == 13 and stream.events == 13 * 2 * 40
    batches = [batch for stretch in stream.stretches for batch in stretch.batches]
    assert not any(one.equals(other) for one, other in itertools.pairwise(batches))


def test_a_run_is_timed_stretch_by_stretch_and_the_whole_is_their_sum() -> None:
    stream = small_stream()
    ticks = iter(range(10_000))
    variant = stream.variant(SERIAL, 1, clock=lambda: float(next(ticks)))
    report = measure(Experiment("test", "", stream.events, "event", [variant], rounds=2))
    assert report[SERIAL].seconds == (13.0, 13.0)
    assert stream.medians(rounds=2) == {SERIAL: [1.0] * 13}
    assert len(stream.taken[SERIAL]) == 3


def test_each_run_begins_with_the_opening_rows_and_ends_with_the_same() -> None:
    stream = small_stream()
    variant = stream.variant(SERIAL, 1)
    for _ in range(2):
        engine = variant.prepare()
        variant.verify(engine, variant.run(engine))


def test_a_run_that_differs_is_refused_and_not_counted() -> None:
    stream = small_stream()
    variant = stream.variant(SERIAL, 1)
    engine = variant.prepare()
    outcomes, seconds = variant.run(engine)
    wrong = outcomes[3].set_column(outcomes[3].column_names.index("result"), "result", pa.array([0] * 40, pa.int64()))
    with pytest.raises(AssertionError, match="outcomes of batch 3: result differs"):
        variant.verify(engine, ([*outcomes[:3], wrong, *outcomes[4:]], seconds))
    assert stream.taken == {}


def report_of(**seconds: float) -> Report:
    declared = Experiment("test", "A stream", 1, "event", [Variant(name, run=lambda _: None) for name in seconds])
    return Report(declared, tuple(Comparison(name, (taken,), 1, 1, 1, None) for name, taken in seconds.items()))


def test_adaptive_is_compared_with_every_fixed_strategy_over_the_whole_stream() -> None:
    assert dynamic.adaptive_beside_fixed(report_of(serial=4.0, lock=1.0, adaptive=2.0)) == {SERIAL: 2.0, "lock": 0.5}


@pytest.mark.parametrize(("lock", "passed"), [(1.0, False), (2.0, False), (2.1, True)])
def test_adaptive_must_be_faster_than_the_best_fixed_strategy(lock: float, passed: bool) -> None:
    report = report_of(serial=4.0, lock=lock, adaptive=2.0)
    bar = dynamic.bar(PointReport(Point({}, lambda: report.experiment), report, report, ADAPTIVE))
    assert bar.passed is passed and bar.found == lock / 2.0
    assert "A stream" in bar.what and "beside lock" in bar.what


def test_the_table_names_the_best_fixed_strategy_of_each_stretch() -> None:
    stream = small_stream()
    stream.taken = {SERIAL: [[1.0, 4.0] + [1.0] * 11], "lock": [[2.0] * 13], ADAPTIVE: [[2.0, 2.0] + [1.0] * 11]}
    text = io.StringIO()
    Console(width=120, file=text).print(dynamic.render_stretches(stream, rounds=1))
    lines = [line.split() for line in text.getvalue().splitlines() if line.strip()]
    assert [SERIAL in line[:3] and "0.50" in line for line in lines if line[:2] == ["deposits", "only"]] == [True]
    assert ["lock" in line and "1.00" in line for line in lines if line[:2] == ["skew", "0.25"]] == [True]
