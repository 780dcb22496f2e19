"""A missed bar is exit code 1 and is written down; a smoke run has neither bars nor a file.

What was measured is made up here: the commands get reports of runs that nobody made.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tidegate.benchmarks import dynamic, free, graph, plots
from tidegate.benchmarks.grids import Grid, GridReport, Point, PointReport
from tidegate.benchmarks.harness import Comparison, Experiment, Report, Variant
from tidegate.benchmarks.strategies import Cell
from tidegate.cli import app
from tidegate.commands.bench_run import BenchRun
from tidegate.workloads.streaming_ledger import MORPHSTREAM, StreamingLedger

from ..terminal import TERMINAL

Bench = Callable[..., Result]


def report_of(declared: Experiment | None = None, **seconds: float) -> Report:
    """A report in which every variant took so long."""
    made = Experiment("made-up", "Made up", 1_000, "event", [Variant(name, run=lambda _: None) for name in seconds])
    found = tuple(Comparison(name, (taken,), 1.0, 1.0, 1.0, None, "a way") for name, taken in seconds.items())
    return Report(declared or made, found)


def grid_of(*reports: Report) -> GridReport:
    """A grid in which the first round and the final of each point came to the same."""
    points = []
    for number, report in enumerate(reports):
        point = Point({"workload": "ledger", "theta": number}, lambda: reports[0].experiment)
        points.append(PointReport(point, report, report, "adaptive"))
    return GridReport(Grid("made-up", "Made up", [each.point for each in points], "adaptive"), tuple(points))


@pytest.fixture
def run_bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    """Runs a command in an empty folder; its functions never take any time."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(BenchRun, "pace", lambda run: 1.0)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["bench", *arguments], env=TERMINAL)

    return run


def bars_in(file: Path) -> list[bool]:
    """Whether each bar was reached, as the records tell."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [line["passed"] for line in lines if line["experiment"].endswith("-bar")]


def check(result: Result, passed: bool) -> None:
    assert result.exit_code == (0 if passed else 1), result.output
    assert ("a bar was missed" in result.output) is not passed


@pytest.mark.parametrize(
    ("seconds", "bars"), [((1.0, 0.9), [True, True]), ((1.0, 1.2), [False, True]), ((1.2, 1.4), [False, False])]
)
def test_strategies(
    run_bench: Bench, monkeypatch: pytest.MonkeyPatch, seconds: tuple[float, ...], bars: list[bool]
) -> None:
    found = grid_of(*(report_of(serial=1.0, adaptive=taken) for taken in seconds))
    monkeypatch.setattr(BenchRun, "measure_grid", lambda *arguments, **options: found)
    result = run_bench("strategies")
    check(result, all(bars))
    assert bars_in(Path("results/strategies.jsonl")) == bars and Path("results/strategies.png").exists()
    assert "≥ 0.95" in result.output and "≥ 0.75" in result.output


@pytest.mark.parametrize(("adaptive", "passed"), [(0.9, True), (1.0, False), (1.1, False)])
def test_dynamic(run_bench: Bench, monkeypatch: pytest.MonkeyPatch, adaptive: float, passed: bool) -> None:
    found = grid_of(report_of(serial=1.0, adaptive=adaptive))
    monkeypatch.setattr(BenchRun, "measure_grid", lambda *arguments, **options: found)
    monkeypatch.setattr(dynamic, "render_stretches", lambda stream, rounds: "stretch by stretch")
    monkeypatch.setattr(plots, "plot_dynamic", lambda *arguments: None)
    check(run_bench("dynamic", "--batches", "1"), passed)
    assert bars_in(Path("results/dynamic.jsonl")) == [passed]


@pytest.mark.parametrize(("adaptive", "passed"), [(0.9, True), (1.0, False), (1.1, False)])
def test_groups(run_bench: Bench, monkeypatch: pytest.MonkeyPatch, adaptive: float, passed: bool) -> None:
    found = grid_of(report_of(serial=1.5, lock=1.0, adaptive=adaptive))
    monkeypatch.setattr(BenchRun, "measure_grid", lambda *arguments, **options: found)
    result = run_bench("groups")
    check(result, passed)
    assert bars_in(Path("results/groups.jsonl")) == [passed] and Path("results/groups.png").exists()
    assert "adaptive (a way) beside lock" in result.output


@pytest.mark.parametrize(("adaptive", "passed"), [(1.0, True), (1.1, False)])
def test_free(run_bench: Bench, monkeypatch: pytest.MonkeyPatch, adaptive: float, passed: bool) -> None:
    def measured(cell: Cell, **options: Any) -> free.Found:
        return free.Found("a ledger", cell.make(1.0), 10, 1.0, adaptive)

    monkeypatch.setattr(free, "measure", measured)
    result = run_bench("free")
    check(result, passed)
    told = [json.loads(line) for line in Path("results/free.jsonl").read_text().splitlines()]
    assert len(told) == 12 and all(line["passed"] is passed for line in told)
    assert "≥ 0.95" in result.output


def make_up_graphs(monkeypatch: pytest.MonkeyPatch, operations: int, size: int) -> None:
    """Let one graph be built, of this many operations with this many bytes each; nothing is measured."""

    def constructions(**settings: Any) -> list[graph.Construction]:
        made = graph.Construction(StreamingLedger(MORPHSTREAM))
        made.built = [graph.Built(1e-5, operations, operations * size)]
        return [made]

    monkeypatch.setattr(graph, "constructions", constructions)
    monkeypatch.setattr(BenchRun, "measure", lambda run, declared: None)


@pytest.mark.parametrize(("operations", "size", "passed"), [(200, 100, True), (50, 100, False), (200, 300, False)])
def test_graph(run_bench: Bench, monkeypatch: pytest.MonkeyPatch, operations: int, size: int, passed: bool) -> None:
    make_up_graphs(monkeypatch, operations, size)
    result = run_bench("graph")
    check(result, passed)
    assert json.loads(Path("results/graph.jsonl").read_text())["passed"] is passed
    assert "≥ 10,000,000" in result.output and "≤ 200" in result.output


@pytest.mark.parametrize(("seconds", "passed"), [(0.01, True), (1.0, False)])
def test_peers(run_bench: Bench, monkeypatch: pytest.MonkeyPatch, seconds: float, passed: bool) -> None:
    monkeypatch.setattr(BenchRun, "measure", lambda run, declared: report_of(declared, adaptive=seconds))
    result = run_bench("peers")
    check(result, passed)
    told = [json.loads(line) for line in Path("results/peers.jsonl").read_text().splitlines()]
    assert [line["passed"] for line in told] == [passed, passed, None, passed]
    shown = " ".join(result.output.split())
    assert "MorphStream's released code, measured on the development machine" in shown


@pytest.mark.parametrize("command", ["free", "groups", "graph", "peers"])
def test_a_smoke_run_verifies_and_has_neither_bars_nor_a_file(
    run_bench: Bench, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """`make smoke` runs all of them for real; `graph` takes longest, so here its numbers are made up."""
    if command == "graph":
        make_up_graphs(monkeypatch, 50, 300)
    options = ["--strategies", "ns-operation-eager,lock"] if command == "groups" else []
    result = run_bench(command, "--smoke", *options)
    check(result, passed=True)
    assert "✓" not in result.output and "✗" not in result.output
    assert "verified" in result.output or command == "graph"
    assert not Path("results").exists()
