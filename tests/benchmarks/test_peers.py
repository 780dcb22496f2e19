from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from tidegate.benchmarks import peers
from tidegate.benchmarks.harness import Comparison, Report, measure
from tidegate.benchmarks.peers import BAR, Result, Row
from tidegate.benchmarks.strategies import ADAPTIVE


def small_rows() -> list[Row]:
    return peers.rows(seed=2, pace=0.1, batch_events=80, keys=40)


def result_of(row: Row, seconds: float) -> Result:
    """A run of 2 batches that took so long."""
    declared = peers.experiment(row, batches=2)
    return Result(row, Report(declared, (Comparison(ADAPTIVE, (seconds,), 1, 1, 1, None, "serial"),)))


def test_parameters_are_those_of_the_published_runs() -> None:
    assert peers.BATCHES * peers.BATCH_EVENTS == 409_600 and peers.BATCH_EVENTS == 20_480
    rows = peers.rows(seed=1, pace=10.0)
    for row in rows:
        found = row.workload.settings
        assert (found.theta, found.abort_ratio, found.keys) == (0.2, 0.0, 102_400)
        assert found.batch_events == 20_480
    assert [row.peer_events_per_second for row in rows] == [18_200, 41_900, 22_200, 17_500]
    assert [row.bar for row in rows] == [BAR, BAR, None, BAR]
    assert [row.workload.settings.cost_us for row in rows] == [0.0, 0.0, 20.0, 0.0]


def test_a_position_report_is_one_transaction() -> None:
    toll = small_rows()[-1]
    assert [transaction.__name__ for transaction in toll.workload.program] == ["report_position"]
    assert toll.workload.batch(0).num_rows == 80
    assert result_of(toll, seconds=1.0).events_per_second == 2 * 80


def test_every_workload_is_measured_and_verified() -> None:
    for row in small_rows():
        found = Result(row, measure(peers.experiment(row, batches=2)))
        assert found.ratio == pytest.approx(found.events_per_second / row.peer_events_per_second)
        assert found.ours.note  # which strategy it was


@pytest.mark.parametrize(("times", "passed"), [(49.0, False), (51.0, True)])
def test_the_bar_is_so_many_times_the_other_speed(times: float, passed: bool) -> None:
    ledger = replace(small_rows()[0], peer_events_per_second=160 / times)
    bar = result_of(ledger, seconds=1.0).bar
    assert bar is not None and bar.passed is passed and bar.found == pytest.approx(times)
    assert "MorphStream's released code, measured on the development machine" in bar.what


def test_functions_that_take_their_time_have_no_bar() -> None:
    assert result_of(small_rows()[2], seconds=1e9).bar is None


def test_the_table_has_bars_unless_it_is_a_smoke_run() -> None:
    results = [result_of(row, seconds=1e-6) for row in small_rows()]
    for with_bars, ticks in ((True, 3), (False, 0)):
        text = io.StringIO()
        Console(width=160, file=text).print(peers.render(results, with_bars=with_bars))
        shown = " ".join(text.getvalue().split())
        assert shown.count("≥ 50 ✓") == ticks and "41,900" in shown and "10 µs an access" in shown
        assert "MorphStream's released code, measured on the development machine" in shown


def test_a_record_names_the_other_side() -> None:
    found = json.loads(json.dumps(peers.result_record(result_of(small_rows()[0], seconds=2.0))))
    assert found["peer"] == "MorphStream's released code, measured on the development machine"
    assert (found["events_per_second"], found["peer_events_per_second"], found["seconds"]) == (80, 18_200, [2.0])
    assert found["bar"] == 50.0 and found["passed"] is False and found["seed"] == 2 and found["note"] == "serial"
    costly = peers.result_record(result_of(small_rows()[2], seconds=2.0))
    assert costly["bar"] is None and costly["passed"] is None
