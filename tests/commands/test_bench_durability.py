"""The commands that measure durability: a missed bar is exit code 1 and is written down; a smoke run has none.

What was measured is made up here, but for the smoke runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tidegate.benchmarks import checkpoints, durable, recovery, reopening, replay
from tidegate.benchmarks.harness import Comparison, Experiment, Report
from tidegate.benchmarks.memory import Footprint
from tidegate.benchmarks.reopening import Reopening
from tidegate.cli import app
from tidegate.commands.bench import BENCHMARKS
from tidegate.commands.bench_run import BenchRun
from tidegate.durability import logged

from ..terminal import TERMINAL

Bench = Callable[..., Result]


@pytest.fixture
def run_bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["bench", *arguments], env=TERMINAL)

    return run


def made_up(monkeypatch: pytest.MonkeyPatch, seconds: Callable[[str], float]) -> None:
    """Let every experiment come out with these seconds, by variant; nothing runs."""

    def measured(run: BenchRun, declared: Experiment) -> Report:
        first = seconds(declared.variants[0].name)
        found = []
        for variant in declared.variants:
            taken = seconds(variant.name)
            bar = declared.bars.get(variant.name)
            found.append(Comparison(variant.name, (taken,), first / taken, first / taken, first / taken, bar))
        return Report(declared, tuple(found))

    monkeypatch.setattr(BenchRun, "measure", measured)


def check(result: Result, passed: bool) -> None:
    assert result.exit_code == (0 if passed else 1), result.output
    assert ("a bar was missed" in result.output) is not passed


def bars_in(file: Path) -> list[bool]:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [line["passed"] for line in lines if line["experiment"].endswith("-bar")]


@pytest.mark.parametrize(
    ("slower", "passed"),
    [({}, True), ({durable.ONE: 2.0}, False), ({durable.MANY: 0.25}, False), ({"durable": 1.5}, False)],
)
def test_durable(run_bench: Bench, monkeypatch: pytest.MonkeyPatch, slower: dict[str, float], passed: bool) -> None:
    made_up(monkeypatch, lambda name: slower.get(name, 0.19 if name == durable.MANY else 1.0))
    check(run_bench("durable", "--calls", "20", "--events", "100"), passed)
    assert len(bars_in(Path("results/durable.jsonl"))) == 8


@pytest.mark.parametrize(("weak", "passed"), [(0.5, True), (0.6, False)])
def test_logging(run_bench: Bench, monkeypatch: pytest.MonkeyPatch, weak: float, passed: bool) -> None:
    made_up(monkeypatch, lambda name: weak if name == "weak, always" else 1.0)
    check(run_bench("logging", "--tuples", "3"), passed)
    assert Path("results/logging.png").exists()


@pytest.mark.parametrize(
    ("long", "rate", "opened", "passed"),
    [(1.5, 3e6, 9.0, True), (1.6, 3e6, 9.0, False), (1.5, 1e6, 9.0, False), (1.5, 3e6, 11.0, False)],
)
def test_recovery(
    run_bench: Bench, monkeypatch: pytest.MonkeyPatch, long: float, rate: float, opened: float, passed: bool
) -> None:
    seconds = {"weak, 10 procedures": long, replay.NOTHING: 0.5}
    made_up(monkeypatch, lambda name: 0.5 + 50 / rate if " in " in name else seconds.get(name, 1.0))
    memory = Reopening(Footprint(10, 1.0, 0, 100, 100), Footprint(10, opened, 0, 100, 150))
    monkeypatch.setattr(reopening, "measure", lambda *arguments: memory)
    monkeypatch.setattr(recovery, "_variant", lambda kind, length, *rest: made_variant(kind, length))
    result = run_bench("recovery", "--transactions", "50", "--tuples", "2")
    check(result, passed)
    assert sum(bars_in(Path("results/recovery.jsonl"))) == 5 - (not passed) - (rate < 2e6)
    assert Path("results/recovery.png").exists() and Path("results/recovery-interval.png").exists()


def made_variant(kind: Any, length: int) -> Any:
    from tidegate.benchmarks.harness import Variant

    return Variant(recovery.variant_name(kind, length), run=lambda _: None)


@pytest.mark.parametrize(("whole", "many", "passed"), [(1.4, 1.1, True), (1.6, 1.1, False), (1.4, 1.2, False)])
def test_checkpoints(
    run_bench: Bench, monkeypatch: pytest.MonkeyPatch, whole: float, many: float, passed: bool
) -> None:
    class NoState:
        def __init__(self, *arguments: Any) -> None:
            pass

        def close(self) -> None:
            pass

    monkeypatch.setattr(checkpoints, "LargeState", NoState)
    taken = {checkpoints.WHOLE: whole, "10,000 versions": many}
    made_up(monkeypatch, lambda name: taken.get(name, 1.0))
    check(run_bench("checkpoints"), passed)
    assert bars_in(Path("results/checkpoints.jsonl")) == [True, whole <= 1.5]


@pytest.mark.parametrize("command", ["durable", "logging", "recovery", "checkpoints"])
def test_a_smoke_run_verifies_and_has_neither_bars_nor_a_file(
    run_bench: Bench, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if command == "checkpoints":  # a thousandth of the rows, and of the log after which a checkpoint is due
        (benchmark,) = [each for each in BENCHMARKS if each.name == command]
        monkeypatch.setitem(benchmark.smoke, "rows", benchmark.smoke["rows"] // 1000)
        monkeypatch.setattr(logged, "CHECKPOINT_AFTER_BYTES", logged.CHECKPOINT_AFTER_BYTES // 1000)
    place = tmp_path / "disk"
    place.mkdir()
    result = run_bench(command, "--smoke", "--folder", str(place))
    check(result, passed=True)
    assert "verified" in result.output and "✓" not in result.output and "✗" not in result.output
    assert not Path("results").exists() and not list(place.iterdir())
