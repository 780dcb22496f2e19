"""The parts of `tidegate bench ordering`: their bars, records and pictures. What was measured is made up here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from tidegate.benchmarks import ordering_speed
from tidegate.benchmarks.harness import Comparison, Experiment, Report
from tidegate.benchmarks.ordered_race import Race
from tidegate.cli import app
from tidegate.commands.bench_run import BenchRun

from ..terminal import TERMINAL

pytestmark = pytest.mark.filterwarnings("ignore:operator 'count_views' runs as plain Python")


@pytest.fixture
def run_bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    """Runs a part in an empty folder, on pipelines that take no time."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(BenchRun, "pace", lambda run: 0.01)
    monkeypatch.setattr(Race, "figure", lambda race, figure, name: 15e-6)

    def run(part: str, *arguments: str) -> Result:
        sizes = ["--records", "100", "--work", "0.0001"]
        return CliRunner().invoke(app, ["bench", "ordering", "--part", part, *sizes, *arguments], env=TERMINAL)

    return run


def make_up(monkeypatch: pytest.MonkeyPatch, seconds: Callable[[str], float]) -> None:
    """Let every variant have taken so long."""

    def measure(run: BenchRun, declared: Experiment) -> Report:
        taken = {variant.name: seconds(variant.name) for variant in declared.variants}
        first = next(iter(taken.values()))
        found = [Comparison(name, (each,), first / each, 1, 1, declared.bars.get(name)) for name, each in taken.items()]
        return Report(declared, tuple(found))

    monkeypatch.setattr(BenchRun, "measure", measure)


def lines_of(experiment: str) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in Path("results/ordering.jsonl").read_text().splitlines()]
    return [line for line in lines if line["experiment"] == experiment]


@pytest.mark.parametrize(
    ("light", "two", "futures", "milliseconds", "reached"),
    [
        (2e-4, 0.5, 1.0, 1.0, [True] * 4),
        (4e-4, 0.6, 1.0, 6.0, [False] * 4),
        (2e-4, 0.5, 0.01, 1.0, [True] * 4),
    ],
)
def test_speed_has_four_bars_and_one_beside_futures(
    run_bench: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
    light: float,
    two: float,
    futures: float,
    milliseconds: float,
    reached: list[bool],
) -> None:
    taken = {"light x1": light, "ordered x2": 0.05, "stateless x2": two, "keyed x2": two}
    make_up(monkeypatch, lambda name: futures if name.startswith("futures") else taken.get(name, 1.0))
    monkeypatch.setattr(ordering_speed, "peak_rate", lambda **options: 5_000.0)
    found = ordering_speed.Latency(2_500.0, np.full(10, milliseconds / 1e3))
    monkeypatch.setattr(ordering_speed, "latency", lambda rate, **options: found)
    result = run_bench("speed", "--workers", "2")
    assert [line["passed"] for line in lines_of("ordering-bar")] == reached
    assert result.exit_code == (0 if all(reached) and futures == 1.0 else 1), result.output
    assert Path("results/ordering-speed.png").exists()


@pytest.mark.parametrize(("workers", "bars"), [(2, [True] * 4), (16, [True] * 5)])
def test_processing_has_a_bar_for_each_cost_and_skew_one_where_there_are_many_cores(
    run_bench: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, workers: int, bars: list[bool]
) -> None:
    make_up(monkeypatch, {"hybrid": 1.0, "shared": 1.5, "partitioned": 3.0}.__getitem__)
    result = run_bench("partitions", "--workers", str(workers))
    assert result.exit_code == 0, result.output
    assert [line["passed"] for line in lines_of("ordering-bar")] == bars
    assert len(lines_of("ordering-skew")) == 15 and len(lines_of("ordering-cost")) == 12
    assert Path("results/ordering-partitions.png").exists()


def test_reordering_must_be_as_fast_without_a_lock_and_faster_where_there_are_many_cores(
    run_bench: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_up(monkeypatch, lambda name: 1.0 if name == "non-blocking x8" else 1.2)
    result = run_bench("buffers", "--workers", "16")
    found = {line["what"]: line["passed"] for line in lines_of("ordering-bar")}
    assert len(found) == 10 and [what for what, passed in found.items() if not passed] == [
        f"non-blocking beside lock: stateless, 10 µs, x{workers}" for workers in (8, 16)
    ]
    assert result.exit_code == 1 and Path("results/ordering-buffers.png").exists()


def test_heuristics_are_compared_on_all_five_queries(
    run_bench: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_up(monkeypatch, lambda name: 1.0)
    result = run_bench("heuristics", "--workers", "2")
    assert result.exit_code == 0, result.output
    lines = lines_of("ordering-heuristics")
    assert {line["settings"]["query"] for line in lines} == {"Q1", "Q2", "Q3", "Q4", "Q15"}  # type: ignore[index]
    assert len(lines) == 5 * 4 * 2 and all(line["latency_us"] == 15.0 for line in lines)
    assert Path("results/ordering-heuristics.png").exists()


def test_a_part_that_is_not_there_is_refused(run_bench: Callable[..., Result]) -> None:
    result = run_bench("everything")
    assert result.exit_code == 2 and "required one of all, heuristics, partitions, buffers, speed" in result.output
