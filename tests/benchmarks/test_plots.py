from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.benchmarks import dynamic, plots
from tidegate.benchmarks.grids import Grid, GridReport, Point, PointReport
from tidegate.benchmarks.harness import Comparison, Experiment, Report, Variant
from tidegate.benchmarks.scaling import BOUND
from tidegate.benchmarks.strategies import ADAPTIVE, FIXED, SERIAL
from tidegate.workloads.streaming_ledger import MORPHSTREAM

NAMES = (ADAPTIVE, *FIXED)


def is_picture(file: Path) -> bool:
    return file.read_bytes().startswith(b"\x89PNG") and file.stat().st_size > 10_000


def test_every_strategy_has_a_colour_and_adaptive_one_of_its_own() -> None:
    colours = {name: plots.colour(name) for name in NAMES}
    assert [name for name, shade in colours.items() if shade == plots.ADAPTIVE_COLOUR] == [ADAPTIVE]
    assert len({plots.colour(name) for name in NAMES}) == 9
    with pytest.raises(KeyError):
        plots.colour("unheard of")


def test_a_grid_of_one_point_or_many_is_drawn(tmp_path: Path) -> None:
    declared = Experiment("test", "", 100, "event", [Variant(name, run=lambda _: None) for name in NAMES])
    found = []
    for number in range(5):
        taken = {name: 1.0 + (place * number) % 7 for place, name in enumerate(NAMES)}
        report = Report(declared, tuple(Comparison(name, (each,), 1, 1, 1, None) for name, each in taken.items()))
        point = Point({"workload": f"workload {number % 2}", "theta": number}, lambda: declared)
        found.append(PointReport(point, report, report, ADAPTIVE))
    for count in (1, 5):
        grid = Grid("test", "A grid", [each.point for each in found[:count]], ADAPTIVE)
        file = tmp_path / "new" / f"{count}.png"
        plots.plot_grid(GridReport(grid, tuple(found[:count])), file)
        assert is_picture(file)


def test_scaling_is_drawn(tmp_path: Path) -> None:
    curves = {name: {1: 10.0, 2: 18.0, 4: 30.0} for name in (*NAMES, BOUND)} | {SERIAL: {1: 10.0}}
    plots.plot_scaling(curves, "Scaling", tmp_path / "scaling.png")
    assert is_picture(tmp_path / "scaling.png")


def test_the_dynamic_stream_is_drawn(tmp_path: Path) -> None:
    base = replace(MORPHSTREAM, keys=10, batch_events=2, cost_us=0.0)
    stream = dynamic.ledger_stream(base=base, pace=1.0, batches=1)
    stream.taken = {name: [[1.0 + place] * 13] for place, name in enumerate(NAMES)}
    slowdowns = {which: dict.fromkeys(FIXED, 1.5) for which in ("ledger", "tolls")}
    plots.plot_dynamic(stream, 1, slowdowns, tmp_path / "dynamic.png")
    assert is_picture(tmp_path / "dynamic.png")


def test_groups_are_drawn_as_bars(tmp_path: Path) -> None:
    declared = Experiment("test", "Two groups", 1_000, "event", [Variant(name, run=lambda _: None) for name in NAMES])
    report = Report(
        declared,
        tuple(Comparison(name, (1.0 + place,), 1, 1, 1, None, "families + ns") for place, name in enumerate(NAMES)),
    )
    found = PointReport(Point({"workload": "tolls"}, lambda: declared), report, report, ADAPTIVE)
    plots.plot_groups(found, tmp_path / "groups.png")
    assert is_picture(tmp_path / "groups.png")
