"""The table of benchmarks: help, `all`, the Makefile and the README follow from it; what is missing is named first."""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from typer.testing import CliRunner, Result

from tidegate.cli import app
from tidegate.commands import bench
from tidegate.commands.bench import BENCHMARKS, EXTRAS, Benchmark
from tidegate.commands.bench_run import BenchRun

from ..terminal import TERMINAL

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def run_bench(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", *arguments], env=TERMINAL)


def each_benchmark() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda benchmark: benchmark.name)


@each_benchmark()
def test_what_smoke_sets_are_options_of_the_command_and_smaller_than_usual(benchmark: Benchmark) -> None:
    options = inspect.signature(benchmark.as_typer_command()).parameters
    assert list(options)[-3:] == ["seed", "output", "smoke"]
    smoke = benchmark.smoke if benchmark.rounds is None else {"rounds": 1, **benchmark.smoke}
    assert smoke and all(small < options[name].default for name, small in smoke.items())


def test_smoke_gives_a_command_its_small_sizes_and_leaves_what_else_was_asked_for() -> None:
    taken: dict[str, Any] = {}

    def command(run: BenchRun, **options: int) -> None:
        taken.update(options, rounds=run.rounds, seed=run.seed, smoke=run.smoke, file=run.file)

    made = Benchmark("made-up", "nothing", command, 7, {"events": 5})
    made.run(rounds=9, seed=3, output=None, smoke=False, events=100, keys=10)
    file = Path("results/made-up.jsonl")
    assert taken == {"rounds": 9, "seed": 3, "smoke": False, "events": 100, "keys": 10, "file": file}
    made.run(rounds=9, seed=3, output=None, smoke=True, events=100, keys=10)
    assert taken == {"rounds": 1, "seed": 3, "smoke": True, "events": 5, "keys": 10, "file": None}


def test_help_says_what_each_one_measures() -> None:
    shown = run_bench("--help").stdout
    for benchmark in BENCHMARKS:
        assert re.search(rf"│ {benchmark.name} +{re.escape(benchmark.measures)}", shown), benchmark.name
    assert "│ all " in shown


@each_benchmark()
def test_a_benchmark_that_draws_needs_the_extra_that_brings_what_draws(benchmark: Benchmark) -> None:
    draws = "run.draw(" in inspect.getsource(benchmark.command)
    assert benchmark.extra == ("bench" if draws else None)


def test_extras_are_those_of_the_package_and_all_are_installed_for_development() -> None:
    declared = {name: tuple(Requirement(each).name for each in packages) for name, packages in extras().items()}
    assert {name: declared[name] for name in EXTRAS} == EXTRAS
    assert "matplotlib" not in {Requirement(each).name for each in PROJECT["dependencies"]}
    dev = next(found for found in map(Requirement, extras()["dev"]) if found.name == "tidegate")
    assert dev.extras == set(extras()) - {"dev"}, "make install installs what the commands of the README need"


def extras() -> dict[str, list[str]]:
    found: dict[str, list[str]] = PROJECT["optional-dependencies"]
    return found


@pytest.mark.parametrize("command", ["strategies", "recovery", "all"])
def test_a_missing_package_is_named_with_what_to_type_before_anything_is_measured(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("something ran")

    monkeypatch.setitem(EXTRAS, "bench", ("a_package_that_nobody_has",))
    monkeypatch.setattr(bench.subprocess, "run", nothing)
    monkeypatch.setattr(BenchRun, "measure_grid", nothing)
    monkeypatch.setattr(BenchRun, "measure", nothing)
    result = run_bench(command, "--smoke")
    assert result.exit_code == 1
    assert "error: `tidegate bench" in result.output and "pip install 'tidegate[bench]'" in result.output
    assert "needs a_package_that_nobody_has, which is not installed" in result.output


def test_a_benchmark_without_pictures_runs_where_nothing_draws(tmp_path: Path) -> None:
    """In a Python that has no matplotlib: pictures are asked for, and answered with what to type."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['matplotlib'] = None\n")
    paths = [str(tmp_path), str(ROOT / "src")]
    environment = {**os.environ, "PYTHONPATH": ":".join(paths), "COLUMNS": "200", "NO_COLOR": "1"}

    def run(name: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tidegate", "bench", name, "--smoke"]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

    drawing, plain = run("groups"), run("windows")
    assert plain.returncode == 0, plain.stderr
    assert drawing.returncode == 1 and "pip install 'tidegate[bench]'" in drawing.stderr
    assert "Traceback" not in drawing.stderr


def test_all_runs_every_one_and_ends_with_one_if_any_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    def run(command: list[str], check: bool) -> subprocess.CompletedProcess[str]:
        ran.append(command)
        return subprocess.CompletedProcess(command, 3 if "free" in command and "--smoke" not in command else 0)

    monkeypatch.setattr(bench.subprocess, "run", run)
    result = run_bench("all", "--seed", "5")
    assert (
        result.exit_code == 1 and f"1 of {len(BENCHMARKS)} failed or missed a bar: free (exit code 3)" in result.output
    )
    assert [command[3:] for command in ran] == [["bench", each.name, "--seed", "5"] for each in BENCHMARKS]
    ran.clear()
    result = run_bench("all", "--smoke")
    assert result.exit_code == 0 and f"all {len(BENCHMARKS)} benchmarks ended well" in result.output
    assert all(command[-1] == "--smoke" for command in ran) and len(ran) == len(BENCHMARKS)


def test_the_makefile_runs_all_of_them() -> None:
    text = (ROOT / "Makefile").read_text()
    assert re.search(r"^smoke: install ##.*\n\t\$\(BIN\)/tidegate bench all --smoke\n\n", text, re.MULTILINE)
    assert re.search(r"^bench: install ##.*\n\t\$\(BIN\)/tidegate bench all \$\(ARGS\)\n\n", text, re.MULTILINE)


def test_the_documentation_names_all_of_them_and_which_draw() -> None:
    text = (ROOT / "docs" / "measuring.md").read_text()
    named = re.findall(r"^tidegate bench ([\w-]+)", text, re.MULTILINE)
    assert sorted(set(named) - {"all"}) == sorted(each.name for each in BENCHMARKS)
    told = re.search(r"((?:`[\w-]+`(?:, | and )?)+) draw\s+pictures", text)
    assert told and set(re.findall(r"`([\w-]+)`", told[1])) == {each.name for each in BENCHMARKS if each.extra}


def test_pictures_of_durability_need_no_spark() -> None:
    code = "import sys; import tidegate.benchmarks.charts; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    assert importlib.util.find_spec("pyspark") is not None
