"""The contender is compared with the best of the others, in a final of its own, point by point."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from tidegate.benchmarks import grids, harness
from tidegate.benchmarks.grids import FINAL_ROUNDS, FINAL_ROUNDS_MIN, Grid, GridReport, Point, PointReport, measure_grid
from tidegate.benchmarks.harness import Experiment, Variant


class SettableClock:
    """A clock that moves only when a run says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def make_point(clock: SettableClock, number: int, seconds: dict[str, list[float]], rounds: int = 1) -> Point:
    """A point whose variants take the given seconds, run after run, the last one for ever."""

    def variant(name: str, taken: list[float]) -> Variant:
        left = list(taken)

        def run(prepared: object) -> None:
            clock.now += left.pop(0) if len(left) > 1 else left[0]

        return Variant(name, run=run, note=lambda: f"{name} it was")

    def experiment() -> Experiment:
        variants = [variant(name, taken) for name, taken in seconds.items()]
        return Experiment("test", "A test", 100, "event", variants, rounds=rounds, seed=5, settings={"keys": 7})

    return Point({"workload": "ledger", "theta": number}, experiment)


def measured(*points: dict[str, list[float]]) -> GridReport:
    clock = SettableClock()
    made = [make_point(clock, number, seconds) for number, seconds in enumerate(points)]
    return measure_grid(Grid("test", "A grid", made, "adaptive"), clock=clock)


def test_the_ratio_is_that_to_the_best_of_the_others() -> None:
    report = measured({"serial": [4.0], "ns": [2.0], "bfs": [3.0], "adaptive": [2.5]})
    point = report.points[0]
    assert point.best.variant == "ns" and point.ratio == pytest.approx(2.0 / 2.5)
    assert {found.variant for found in point.final.comparisons} == {"ns", "bfs", "adaptive"}
    assert point.final.experiment.title == "A test: the final"
    assert point.shares() == pytest.approx({"adaptive": 0.8, "serial": 0.5, "ns": 1.0, "bfs": 2 / 3})


def test_luck_in_the_first_part_does_not_count() -> None:
    """`ns` was lucky once; in the final it takes as long as it always does."""
    report = measured({"serial": [4.0], "ns": [3.0, 0.5, 3.0], "adaptive": [3.0]})
    assert report.points[0].best.variant == "ns" and report.points[0].ratio == pytest.approx(1.0)


def test_a_contender_that_beats_all_has_a_ratio_above_one() -> None:
    assert measured({"serial": [4.0], "adaptive": [2.0]}).points[0].ratio == pytest.approx(2.0)


def test_the_share_of_points_and_the_worst() -> None:
    report = measured(*({"serial": [taken], "adaptive": [10.0]} for taken in (10.0, 9.0, 6.0, 8.75)))
    assert report.share_reached == 0.5
    assert report.worst.point.dimensions["theta"] == 2 and report.worst.ratio == pytest.approx(0.6)


def test_time_is_shared_out_among_the_points_that_are_left() -> None:
    clock = SettableClock()
    points = [make_point(clock, number, {"serial": [1.0], "adaptive": [1.0]}, rounds=100) for number in range(4)]
    report = measure_grid(Grid("test", "A grid", points, "adaptive"), clock=clock, seconds_max=400.0)
    rounds = [len(found.report["serial"].seconds) for found in report.points]
    assert all(20 <= count <= 30 for count in rounds)
    assert clock.now == pytest.approx(400.0, rel=0.1)


def test_a_final_has_some_rounds_when_time_is_up() -> None:
    clock = SettableClock()
    points = [make_point(clock, number, {"serial": [1.0], "adaptive": [1.0]}, rounds=9) for number in range(2)]
    report = measure_grid(Grid("test", "A grid", points, "adaptive"), clock=clock, seconds_max=0.5)
    assert [len(found.report["serial"].seconds) for found in report.points] == [1, 1]
    assert [len(found.final["serial"].seconds) for found in report.points] == [FINAL_ROUNDS_MIN] * 2


def test_progress_tells_points_and_rounds() -> None:
    clock = SettableClock()
    rounds: list[tuple[str, int, int]] = []
    done: list[PointReport] = []
    point = make_point(clock, 3, {"serial": [1.0], "adaptive": [1.0]})
    grid = Grid("test", "A grid", [point], "adaptive")
    measure_grid(
        grid, clock=clock, on_round=lambda point, now, of: rounds.append((point.label, now, of)), on_point=done.append
    )
    in_final = [(now, FINAL_ROUNDS) for now in range(FINAL_ROUNDS + 1)]
    assert rounds == [("ledger theta=3", *at) for at in ((0, 1), (1, 1), *in_final)]
    assert [found.point for found in done] == [point]


@pytest.mark.parametrize("seconds", [{"serial": [1.0]}, {"adaptive": [1.0]}])
def test_a_contender_and_another_one_are_required(seconds: dict[str, list[float]]) -> None:
    with pytest.raises(ValueError, match="'adaptive' and others"):
        measured(seconds)


def test_a_grid_without_points_is_refused() -> None:
    with pytest.raises(ValueError, match="no points"):
        measured()


def test_records_hold_variants_final_and_verdict(tmp_path: Path) -> None:
    report = measured({"serial": [2.0], "adaptive": [4.0]}, {"serial": [2.0], "adaptive": [2.0]})
    file = tmp_path / "grid.jsonl"
    for found in report.points:
        harness.append(file, grids.point_records(report.grid, found))
    harness.append(file, [grids.grid_record(report)])
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["experiment"] for line in lines] == [
        *(["test"] * 2 + ["test-final"] * 2 + ["test-point"]) * 2,
        "test-grid",
    ]
    verdict = lines[4]
    assert verdict["dimensions"] == {"workload": "ledger", "theta": 0} and verdict["best"] == "serial"
    assert verdict["ratio"] == 0.5 and verdict["note"] == "adaptive it was" and verdict["seed"] == 5
    assert (lines[-1]["share_reached"], lines[-1]["worst"], lines[-1]["settings"]["points"]) == (0.5, 0.5, 2)


def test_the_table_shows_every_point_and_the_sum() -> None:
    text = io.StringIO()
    report = measured({"serial": [2.0], "adaptive": [4.0]}, {"serial": [2.0], "adaptive": [2.0]})
    Console(width=160, file=text).print(grids.render_grid(report))
    shown = (
        "ledger theta=0",
        "ledger theta=1",
        "0.50",
        "1.00",
        "adaptive it was",
        "50% of 2",
        "worst 0.50 (ledger theta=0)",
    )
    found = " ".join(text.getvalue().split())
    assert [part for part in shown if part not in found] == []
