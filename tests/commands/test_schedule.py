"""`tidegate schedule` on an engine in a process of its own: set, explained, killed and restored."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tidegate.cli import app
from tidegate.os_scheduling import cgroups

from ..os_scheduling.engines import HIERARCHY, Engine, engine, needs_groups, needs_nice
from ..terminal import TERMINAL

GROUP = f"test-{os.getpid()}"


@pytest.fixture
def running() -> Iterator[Engine]:
    with engine() as running:
        yield running


@pytest.fixture(autouse=True)
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def schedule(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["schedule", *map(str, arguments)], env=TERMINAL)


def config(folder: Path, url: str, *rules: str) -> Path:
    file = folder / "schedule.yaml"
    rows = "\n".join(f"  - {rule}" for rule in rules or ["{policy: queue-size, period: 0.05}"])
    file.write_text(f"drivers:\n  roads: {{type: endpoint, url: '{url}'}}\nrules:\n{rows}\n")
    return file


@contextmanager
def scheduler(file: Path) -> Iterator[subprocess.Popen[str]]:
    """`tidegate schedule run` as a process; it has begun when the block does.

    Signals mean what they usually mean: tests may run under nohup or in the background, where some are ignored.
    """
    usual = "import runpy, signal; [signal.signal(each, signal.SIG_DFL) for each in (signal.SIGHUP, signal.SIGTERM)]; "
    usual += (
        "signal.signal(signal.SIGINT, signal.default_int_handler); runpy.run_module('tidegate', run_name='__main__')"
    )
    command = [sys.executable, "-c", usual, "schedule", "run", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith("scheduling roads"):
                    break
            else:
                pytest.fail("it ended before it began")
            yield process
        finally:
            process.kill()


def wait_for_nice(running: Engine, wanted: list[int]) -> None:
    """Until the threads have these values; the test's own time limit is the limit."""
    while nice(running) != wanted:
        select.select([], [], [], 0.01)


def nice(running: Engine) -> list[int]:
    return [os.getpriority(os.PRIO_PROCESS, tid) for tid in running.threads]


def group_of(running: Engine, index: int) -> Path:
    assert HIERARCHY is not None
    return HIERARCHY.group_of(running.process.pid, running.threads[index])


@needs_nice
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_what_run_sets_is_as_it_was_when_it_is_stopped(running: Engine, tmp_path: Path, number: int) -> None:
    os.setpriority(os.PRIO_PROCESS, running.threads[0], 2)
    with scheduler(config(tmp_path, running.url)) as process:
        wait_for_nice(running, [19, -20])
        process.send_signal(number)
        assert process.wait() == 0
    assert nice(running) == [2, 0]
    assert "nothing was left to undo" in schedule("restore").stdout


@needs_nice
@needs_groups
def test_restore_undoes_what_a_killed_run_left(running: Engine, tmp_path: Path) -> None:
    home = group_of(running, 1)
    rules = (
        "{policy: queue-size, period: 0.05}",
        f"{{policy: constant, priorities: {{'*': 1}}, mechanism: shares, group: {{{GROUP}: ['*']}}}}",
    )
    with scheduler(config(tmp_path, running.url, *rules)) as process:
        while group_of(running, 0) == home or group_of(running, 1) == home:
            select.select([], [], [], 0.01)
        wait_for_nice(running, [19, -20])
        busy = schedule("restore")
        assert busy.exit_code == 1 and f"already as process {process.pid}" in " ".join(busy.output.split())
        process.kill()
        process.wait()
    folder = home / cgroups.folder_name(GROUP)
    assert nice(running) == [19, -20] and group_of(running, 0) == folder, "a killed process undoes nothing"
    restored = schedule("restore")
    assert restored.exit_code == 0 and "everything is as it was" in restored.stdout
    assert nice(running) == [0, 0] and group_of(running, 0) == home and not folder.exists()
    assert "nothing was left to undo" in schedule("restore").stdout


@needs_nice
def test_the_next_run_undoes_what_a_killed_one_left_before_it_begins(running: Engine, tmp_path: Path) -> None:
    file = config(tmp_path, running.url)
    with scheduler(file) as process:
        wait_for_nice(running, [19, -20])
        process.kill()
        process.wait()
    with scheduler(
        config(tmp_path, running.url, "{policy: queue-size, operators: [roads/parse], range: [3, 4]}")
    ) as process:
        wait_for_nice(running, [3, 0])
        process.terminate()
        assert process.wait() == 0
    assert nice(running) == [0, 0]


@needs_nice
def test_an_engine_that_dies_does_not_stop_the_scheduler(running: Engine, tmp_path: Path) -> None:
    with scheduler(config(tmp_path, running.url)) as process:
        wait_for_nice(running, [19, -20])
        running.process.kill()
        running.process.wait()
        assert process.stdout is not None
        assert "roads: cannot be seen" in process.stdout.readline()
        process.terminate()
        assert process.wait() == 0


def test_explain_shows_what_would_be_set_and_sets_nothing(running: Engine, tmp_path: Path) -> None:
    rules = (
        "{policy: queue-size, range: [0, 10]}",
        f"{{policy: constant, priorities: {{'*': 1}}, mechanism: shares, group: {{{GROUP}: ['*']}}}}",
    )
    file = config(tmp_path, running.url, *rules)
    result = schedule("explain", file)
    assert result.exit_code == 0 and "roads/toll" in result.stdout and "90" in result.stdout
    told = json.loads(schedule("explain", file, "--json").stdout)
    parse, toll = told["operators"]
    assert (parse["operator"], parse["queue"], toll["priority"]) == ("roads/parse", 0, 1)
    assert nice(running) == [0, 0] and not (tmp_path / "state").exists()


def test_top_shows_the_operators(running: Engine, tmp_path: Path) -> None:
    result = schedule("top", config(tmp_path, running.url), "--rounds", "2", "--period", "0.1")
    assert result.exit_code == 0 and "roads/parse" in result.stdout and "cpu" in result.stdout


def test_a_dead_engine_is_told_by_explain_and_top(tmp_path: Path) -> None:
    file = config(tmp_path, "http://127.0.0.1:9/")
    for arguments in (["explain", file], ["top", file, "--rounds", "1"]):
        result = schedule(*arguments)
        assert result.exit_code == 0 and "cannot be seen" in result.stdout


@pytest.mark.parametrize("command", ["run", "explain", "top"])
def test_a_wrong_configuration_is_a_message(tmp_path: Path, command: str) -> None:
    result = schedule(command, config(tmp_path, "http://127.0.0.1:9/", "{policy: fastest}"))
    assert result.exit_code == 1 and "rules[0].policy: required one of" in " ".join(result.output.split())
