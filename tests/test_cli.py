"""The command line: help is quick and complete, state commands work on real files, errors are messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tidegate.cli import app
from tidegate.commands.bench import BENCHMARKS
from tidegate.durability import ownership, stored_rows
from tidegate.durability.version_info import Owner
from tidegate.durability.versions import VersionStore
from tidegate.foundation.storage import open_storage

from .commands.stored import ACCOUNT, SEAT, info, make_state
from .terminal import TERMINAL

COMMANDS = (
    "demo", "explain", "warm", "recover", "state ls", "state served", "state show", "state diff", "state verify",
    "state scrub", "state release", "state adopt", "state rollback", "state backup", "state restore",
    "state get", "state export", "state import", "state rename-table", "state rename-field", "state drop-field",
    "schedule run", "schedule explain", "schedule top", "schedule restore",
    *(f"bench {benchmark.name}" for benchmark in BENCHMARKS), "bench all",
)  # fmt: skip


def tidegate(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env=TERMINAL)


def told(*arguments: str) -> Any:
    """What a command prints as JSON."""
    result = tidegate(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def store(tmp_path: Path) -> VersionStore:
    return make_state(tmp_path / "state")


@pytest.fixture
def path(store: VersionStore) -> str:
    return store.storage.path


def test_the_version_is_printed() -> None:
    assert tidegate("--version").stdout.strip() == "tidegate 0.1.0"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_what_it_does(command: str) -> None:
    result = tidegate(*command.split(), "--help")
    assert result.exit_code == 0 and "Usage:" in result.stdout
    if command != "warm":
        assert "tidegate " in result.stdout.split("Usage:", 1)[1].split("\n", 1)[1], "an example is missing"


def test_help_imports_neither_spark_nor_numba() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from tidegate.cli import app\n"
        "for command in (['demo'], ['explain'], ['bench', 'strategies']):\n"
        "    assert CliRunner().invoke(app, [*command, '--help']).exit_code == 0\n"
        "print([name for name in ('pyspark', 'matplotlib', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("command", ["strategies", "scaling", "dynamic", "groups"])
def test_a_benchmark_names_the_strategies_there_are_when_one_is_unknown(command: str) -> None:
    assert "--strategies" in tidegate("bench", command, "--help").stdout
    result = tidegate("bench", command, "--smoke", "--strategies", "serial,fastest")
    assert result.exit_code == 2
    assert "'fastest' is not a strategy" in result.output and "ns-operation-eager" in result.output


class TestStateLs:
    def test_versions_are_listed_with_what_made_them(self, path: str) -> None:
        listed = told("state", "ls", path)
        assert [version["version"] for version in listed["versions"]] == [1, 2, 3]
        assert listed["versions"][2]["rows"] == {"Account": 1, "Seat": 1}
        assert listed["owner"] is None

    def test_the_table_names_tables_query_and_owner(self, path: str) -> None:
        shown = tidegate("state", "ls", path).stdout
        assert "Account 1" in shown and "Seat 1" in shown and "01234567" in shown and "owned by no query" in shown

    def test_the_newest_twenty_are_listed_unless_others_are_asked_for(self, tmp_path: Path) -> None:
        store = VersionStore(open_storage(str(tmp_path / "long")))
        for version in range(1, 26):
            store.commit(info(version, ACCOUNT), {})
        path = store.storage.path

        def numbers(*options: str) -> list[int]:
            lines = [line.split() for line in tidegate("state", "ls", path, *options).stdout.splitlines()]
            return [int(line[0]) for line in lines if line and line[0].isdecimal()]

        assert numbers() == list(range(6, 26)) and numbers("--all") == list(range(1, 26))
        assert numbers("--limit", "2") == [24, 25]
        assert "and 5 older; --all lists them" in tidegate("state", "ls", path).stdout
        assert "older" not in tidegate("state", "ls", path, "--all").stdout
        assert len(told("state", "ls", path)["versions"]) == 25
        limited = told("state", "ls", path, "--limit", "3")
        assert [version["version"] for version in limited["versions"]] == [23, 24, 25] and limited["older"] == 22

    @pytest.mark.parametrize(("width", "left_out"), [(200, False), (90, False), (40, True)])
    def test_lines_fit_the_terminal_and_no_cell_is_cut(self, path: str, width: int, left_out: bool) -> None:
        tidegate("state", "rename-table", path, "Account", "Konto")
        result = CliRunner().invoke(app, ["state", "ls", path], env={"COLUMNS": f"{width}", "TERM": "dumb"})
        lines = result.stdout.splitlines()
        table = lines[: next(number for number, line in enumerate(lines) if line.startswith(("state ", "no room")))]
        assert all(len(line.rstrip()) <= width for line in table[1:]) and "..." not in result.stdout
        assert ("no room for: size, strategy, kind" in result.stdout) == left_out
        assert left_out or any("whole" in line for line in table)

    def test_a_batch_without_events_has_a_number_and_an_adopted_version_has_none(self, store: VersionStore) -> None:
        path = store.storage.path
        store.commit(replace(info(4, ACCOUNT), batch=77, events=0, committed=0), {})
        assert tidegate("state", "adopt", path, "--query", "5b1f", "--batch", "9").exit_code == 0
        lines = [line.split() for line in tidegate("state", "ls", path).stdout.splitlines()]
        assert ["4", "change", "01234567", "77"] in [line[:4] for line in lines]
        assert [line[2] for line in lines if line[:2] == ["5", "change"]] != ["0"]

    def test_the_state_and_its_owner_are_named(self, store: VersionStore, path: str) -> None:
        store.commit(replace(info(4, ACCOUNT), owner=Owner("q", "ledger", "t"), epoch=6), {})
        listed = told("state", "ls", path)
        assert listed["owner"] == {"query": "q", "name": "ledger", "token": "t", "epoch": 6, "alive": False}
        assert f"state {listed['state']}" in tidegate("state", "ls", path).stdout and len(listed["state"]) == 32
        assert "owned by query q (ledger) in epoch 6; it is not running" in tidegate("state", "ls", path).stdout
        ownership.stay_alive(store.storage, "t")
        assert "in epoch 6; it is running" in tidegate("state", "ls", path).stdout
        ownership.release(store.storage, "q")
        assert told("state", "ls", path)["owner"] is None

    def test_no_state_is_a_message_and_not_a_traceback(self, tmp_path: Path) -> None:
        result = tidegate("state", "ls", str(tmp_path / "nothing"))
        assert result.exit_code == 1
        assert "there is no state here" in result.stderr and "Traceback" not in result.output


class TestStateServed:
    def test_applicants_are_listed_with_their_last_batch(self, store: VersionStore, path: str) -> None:
        store.commit(replace(info(4, ACCOUNT), query="other/1", batch=12), {})
        tidegate("state", "adopt", path, "--query", "5b1f", "--batch", "9")
        assert told("state", "served", path)["served"] == [
            {"applicant": "5b1f", "batch": 8, "version": None},
            {"applicant": "5b1f/0", "batch": 8, "version": None},
            {"applicant": "0123456789abcdef", "batch": 2, "version": 3},
            {"applicant": "other/1", "batch": 12, "version": 4},
        ]
        lines = [line.split() for line in tidegate("state", "served", path).stdout.splitlines()]
        assert ["other/1", "12", "4"] in lines and ["5b1f", "8", "adopted"] in lines

    def test_no_state_is_a_message(self, tmp_path: Path) -> None:
        result = tidegate("state", "served", str(tmp_path / "nothing"))
        assert result.exit_code == 1 and "there is no state here" in result.stderr


class TestStateShow:
    def test_the_newest_rows_are_shown(self, path: str) -> None:
        rows = told("state", "show", path, "--table", "Account")
        assert rows == [{"id": 2, "balance": 80}, {"id": 3, "balance": 5}]

    def test_an_older_version_and_one_key(self, path: str) -> None:
        rows = told("state", "show", path, "--table", "Account", "--version", "1", "--key", "1")
        assert rows == [{"id": 1, "balance": 100}]

    def test_a_limit_says_what_it_leaves_out(self, path: str) -> None:
        shown = tidegate("state", "show", path, "--table", "Account", "--limit", "1").stdout
        assert "Account: 2 rows" in shown and "and 1 more" in shown

    def test_an_unknown_table_names_those_that_there_are(self, path: str) -> None:
        result = tidegate("state", "show", path, "--table", "Saet")
        assert result.exit_code == 1 and "Account, Seat" in result.stderr


class TestStateDiff:
    def test_what_changed_between_two_versions(self, path: str) -> None:
        found = told("state", "diff", path, "1", "3", "--table", "Account")
        assert [(each["key"]["id"], each["what"]) for each in found] == [
            (1, "removed"), (2, "changed"), (3, "added"),
        ]  # fmt: skip

    def test_the_empty_state_is_version_zero(self, path: str) -> None:
        found = told("state", "diff", path, "0", "1")
        assert [each["what"] for each in found] == ["added", "added"]

    def test_the_table_shows_only_the_fields_that_differ(self, path: str) -> None:
        shown = tidegate("state", "diff", path, "1", "2").stdout
        assert "balance=50" in shown and "balance=80" in shown and "id=2" not in shown
        assert "1 added, 0 removed, 1 changed" in shown


class TestStateVerify:
    def test_sound_files_are_all_ticked(self, store: VersionStore, path: str) -> None:
        tables = {
            "Account": stored_rows.rows_at(store, ACCOUNT, 3),
            "Seat": stored_rows.rows_at(store, SEAT, 3),
        }
        store.snapshot(info(3, ACCOUNT, SEAT), tables)
        report = told("state", "verify", path)
        assert report["sound"] and len(report["files"]) == 4
        assert "versions that can be rebuilt: 1 to 3" in tidegate("state", "verify", path).stdout

    @pytest.mark.parametrize("damage", ["flip", "truncate"])
    def test_a_damaged_file_is_named(self, path: str, damage: str) -> None:
        file = Path(path) / "000000000002.change"
        data = bytearray(file.read_bytes())
        if damage == "flip":
            data[-100] ^= 1
        file.write_bytes(data if damage == "flip" else data[:-64])
        result = tidegate("state", "verify", path, "--json")
        assert result.exit_code == 1
        wrong = [each for each in json.loads(result.stdout)["files"] if each["problem"]]
        assert [each["name"] for each in wrong] == ["000000000002.change"]

    def test_a_hole_in_the_history_is_found(self, path: str) -> None:
        (Path(path) / "000000000002.change").unlink()
        result = tidegate("state", "verify", path)
        assert result.exit_code == 1 and "000000000002.change is missing" in result.stdout

    def test_a_renamed_file_is_not_believed(self, path: str) -> None:
        (Path(path) / "000000000003.change").rename(Path(path) / "000000000004.change")
        result = tidegate("state", "verify", path, "--json")
        assert result.exit_code == 1
        assert "renamed or copied" in json.loads(result.stdout)["files"][-1]["problem"]


class TestStateRelease:
    def test_an_owner_whose_processes_are_gone_is_released(self, store: VersionStore, path: str) -> None:
        store.commit(replace(info(4, ACCOUNT), owner=Owner("q", "ledger", "gone")), {})
        assert told("state", "release", path)["released"]
        assert ownership.current(store.storage) is None

    def test_a_running_owner_is_kept_unless_forced(self, store: VersionStore, path: str) -> None:
        store.commit(replace(info(4, ACCOUNT), owner=Owner("q", "ledger", "living")), {})
        ownership.stay_alive(store.storage, "living")
        refused = tidegate("state", "release", path)
        assert refused.exit_code == 1 and "still runs" in refused.stderr
        assert ownership.current(store.storage) is not None
        assert told("state", "release", path, "--force")["released"]

    def test_nothing_to_release_is_no_error(self, path: str) -> None:
        result = tidegate("state", "release", path)
        assert result.exit_code == 0 and "nothing to release" in result.stdout


def test_the_demo_runs_to_a_verdict_and_leaves_a_state_to_look_at(tmp_path: Path) -> None:
    """In a process of its own, as a user starts it: Spark, a stream of three batches, the comparison."""
    options = [
        "--events",
        "2500",
        "--batch-rows",
        "1000",
        "--accounts",
        "50",
        "--keep",
        str(tmp_path / "kept"),
    ]
    command = [sys.executable, "-m", "tidegate", "demo", *options]
    terminal = os.environ | TERMINAL
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=terminal)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("✓") == 4 and "exactly one outcome for each of 2,500 events" in done.stdout
    listed = told("state", "ls", str(tmp_path / "kept" / "state"))
    assert [version["events"] for version in listed["versions"]] == [0, 1000, 1000, 500]
    assert tidegate("state", "verify", str(tmp_path / "kept" / "state")).exit_code == 0


@pytest.mark.parametrize("keys", ["bench", "state"])
def test_a_group_without_a_command_shows_its_help(keys: str) -> None:
    assert "Usage:" in tidegate(keys).output


def test_the_demo_does_not_write_into_a_folder_with_something_in_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = tidegate("demo", "--keep", str(tmp_path))
    assert result.exit_code == 1 and "required a new or an empty folder" in result.stderr
    assert [child.name for child in tmp_path.iterdir()] == ["file"]


class TestCompletion:
    def complete(self, *words: str) -> list[str]:
        environment = {
            "COMP_WORDS": " ".join(words),
            "COMP_CWORD": f"{len(words) - 1}",
            "_TIDEGATE_COMPLETE": "complete_bash",
        }
        result = CliRunner().invoke(app, prog_name="tidegate", env=environment)
        return result.stdout.split()

    def test_commands_tables_and_versions_are_completed(self, path: str) -> None:
        assert self.complete("tidegate", "state", "rename") == ["rename-table", "rename-field"]
        assert self.complete("tidegate", "state", "get", path, "") == ["Account", "Seat"]
        assert self.complete("tidegate", "state", "drop-field", path, "S") == ["Seat"]
        assert self.complete("tidegate", "state", "show", path, "--table", "A") == ["Account"]
        assert self.complete("tidegate", "state", "show", path, "--version", "") == ["3", "2", "1"]

    def test_where_there_is_no_state_nothing_is_offered(self, tmp_path: Path) -> None:
        assert self.complete("tidegate", "state", "get", str(tmp_path / "nothing"), "") == []
        assert self.complete("tidegate", "state", "get", "nowhere://x", "") == []

    def test_a_shell_can_be_told_of_it(self) -> None:
        assert "--install-completion" in tidegate("--help").stdout
