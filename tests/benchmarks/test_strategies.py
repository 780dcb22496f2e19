from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidegate as tg
from tidegate.benchmarks import strategies
from tidegate.benchmarks.grids import Grid, GridReport, Point, PointReport, measure_grid
from tidegate.benchmarks.harness import Comparison, Experiment, Report, measure
from tidegate.benchmarks.strategies import (
    ADAPTIVE,
    DECISIONS,
    FIXED,
    SERIAL,
    Contest,
    batches_per_round,
    cells,
    chosen,
    smoke_cells,
    verify_with_plain,
)
from tidegate.workloads.streaming_ledger import MORPHSTREAM, Account, StreamingLedger
from tidegate.workloads.workload import Run

SMALL = replace(MORPHSTREAM, keys=50, batch_events=100, cost_us=0.1, abort_ratio=0.1)


class Forgetful(StreamingLedger):
    """A ledger whose scan loses a cent: what a wrong engine would look like from outside."""

    lost = False

    def scan(self, engine: tg.Engine) -> Any:
        rows = dict(super().scan(engine))
        if self.lost:
            rows[Account] = rows[Account].set_column(1, "balance", pc.subtract(rows[Account]["balance"], 1))
        return rows


def test_there_are_five_baselines_and_twelve_decisions() -> None:
    assert len(DECISIONS) == len(set(DECISIONS)) == 12 and len(FIXED) == 17
    with pytest.raises(ValueError, match="not a strategy"):
        strategies.strategy_named("bfs-operation")


def test_a_user_lists_strategies_and_serial_is_always_the_reference() -> None:
    assert chosen(None) == [SERIAL, ADAPTIVE, *FIXED[1:]]
    assert chosen("adaptive, lock") == [SERIAL, ADAPTIVE, "lock"]
    with pytest.raises(ValueError, match="'fastest' is not a strategy"):
        chosen("serial,fastest")


class TestContest:
    def test_each_round_goes_on_where_the_last_one_ended(self) -> None:
        contest = Contest(StreamingLedger(SMALL), batches_per_round=2)
        measure(Experiment("test", "", contest.events, "event", [contest.variant(SERIAL, 1)], rounds=2))
        everything = [events for number in range(3) for events in contest.batches(number)]
        assert len(everything) == 6 and contest.events == 200
        whole = StreamingLedger(SMALL).run(everything)
        assert strategies.differences(Run([], whole.rows), Run([], contest.wanted(2).rows)) == []

    def test_all_strategies_get_the_same_batches(self) -> None:
        contest = Contest(StreamingLedger(SMALL))
        one, other = (contest.variant(SERIAL, 1, name).prepare() for name in ("one", "other"))
        assert one[2] is other[2] and one[0] is not other[0]

    def test_a_run_that_differs_from_serial_has_no_number(self) -> None:
        workload = Forgetful(SMALL)
        contest = Contest(workload)
        contest.wanted(0)
        workload.lost = True
        with pytest.raises(AssertionError, match="serial differs from serial:\nrows of Account: balance differs in 50"):
            measure(Experiment("test", "", 100, "event", [contest.variant(SERIAL, 1)], rounds=1))

    def test_serial_is_compared_with_the_plain_functions_first(self) -> None:
        workload = Forgetful(SMALL)
        workload.lost = True
        with pytest.raises(AssertionError, match="serial differs from the plain functions"):
            Contest(workload).wanted(0)

    def test_what_ran_is_noted(self) -> None:
        variant = Contest(StreamingLedger(SMALL)).variant(SERIAL, 1)
        assert variant.note() == ""
        variant.run(variant.prepare())
        assert variant.note() == "serial"


def test_the_check_with_plain_python_is_cheap_and_complete() -> None:
    costly = StreamingLedger(replace(SMALL, cost_us=1e6))
    verify_with_plain(costly, events=50)
    assert strategies.cheap(costly.batch(0))["rounds"].unique().to_pylist() == [strategies.PLAIN_ROUNDS]
    assert strategies.cheap(pa.table({"rounds": [0, 1]}))["rounds"].to_pylist() == [0, 1]


class TestGrid:
    def test_it_has_more_than_sixty_different_workloads_over_all_knobs_and_applications(self) -> None:
        found = [cell.dimensions for cell in cells(1)]
        assert len(found) == len({tuple(one.items()) for one in found}) >= 60
        assert len({one["workload"] for one in found}) == 4
        for knob, values in {"theta": 5, "a": 5, "C": 5, "T": 4, "l": 5, "r": 4}.items():
            assert len({one[knob] for one in found if knob in one}) >= values, knob

    def test_a_cell_makes_the_workload_that_it_names(self) -> None:
        for cell in (*cells(3)[::9], *smoke_cells(3)):
            workload = cell.make(10.0)
            assert workload.name == cell.dimensions["workload"] and workload.settings.seed == 3
            assert workload.settings.theta == cell.dimensions["theta"]
            assert workload.rounds == round(10.0 * cell.dimensions["C"])

    def test_cheap_workloads_run_more_batches_in_a_round(self) -> None:
        counts = [batches_per_round(StreamingLedger(replace(MORPHSTREAM, cost_us=cost))) for cost in (0.0, 1.0, 100.0)]
        assert counts == sorted(counts, reverse=True) and counts[-1] == 1 < counts[0]
        assert batches_per_round(StreamingLedger(replace(MORPHSTREAM, cost_us=0.0, batch_events=1))) == 64

    def test_it_measures_and_verifies_every_cell(self) -> None:
        declared = strategies.grid(
            smoke_cells(1)[:2], [SERIAL, ADAPTIVE], pace=20.0, workers=1, batches=lambda workload: 1
        )
        report = measure_grid(declared)
        assert [found.best.variant for found in report.points] == [SERIAL, SERIAL]
        assert all(found.ratio > 0 for found in report.points)


def report_of(*ratios: float) -> GridReport:
    """A grid at whose points adaptive came to these shares of the best one's speed."""
    declared = Experiment("test", "", 1, "event", [])
    found = []
    for number, ratio in enumerate(ratios):
        taken = {SERIAL: 1.0, ADAPTIVE: 1.0 / ratio}
        report = Report(declared, tuple(Comparison(name, (each,), 1, 1, 1, None) for name, each in taken.items()))
        point = Point({"workload": "ledger", "theta": number}, lambda: declared)
        found.append(PointReport(point, report, report, ADAPTIVE))
    return GridReport(Grid("test", "", [each.point for each in found], ADAPTIVE), tuple(found))


@pytest.mark.parametrize(
    ("ratios", "passed"),
    [
        ([1.0] * 19 + [0.8], [True, True]),
        ([1.0] * 18 + [0.8] * 2, [False, True]),
        ([1.0] * 19 + [0.7], [True, False]),
        ([0.5], [False, False]),
    ],
)
def test_adaptive_must_be_close_nearly_everywhere_and_far_nowhere(ratios: list[float], passed: list[bool]) -> None:
    found = strategies.bars(report_of(*ratios))
    assert [bar.passed for bar in found] == passed
    assert f"theta={ratios.index(min(ratios))}" in found[1].what
