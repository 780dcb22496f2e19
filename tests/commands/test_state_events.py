"""The state commands on a state of which some versions keep events: files are checked and copied, rows are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..test_cli import tidegate, told
from .stored import make_state_with_events


@pytest.fixture
def path(tmp_path: Path) -> str:
    return make_state_with_events(tmp_path / "state").storage.path


def test_versions_are_listed_with_what_they_keep(path: str) -> None:
    shown = tidegate("state", "ls", path)
    assert shown.exit_code == 0 and " change " in shown.stdout and " events " in shown.stdout
    assert [bool(version["program"]) for version in told("state", "ls", path)["versions"]] == [False, True]
    assert len(told("state", "served", path)["served"]) == 2


def test_rows_are_shown_where_they_are_kept(path: str) -> None:
    assert told("state", "show", path, "--version", "1") == [{"id": 1, "balance": 5}]


@pytest.mark.parametrize("command", ["show {}", "diff {} 1 2", "diff {} 0", "recover"])
def test_rows_that_take_a_program_are_refused_with_the_ways_out(path: str, command: str, tmp_path: Path) -> None:
    words = ["recover", path, "--into", str(tmp_path / "new")]
    if command != "recover":
        words = ["state", *command.format(path).split()]
    result = tidegate(*words)
    assert result.exit_code == 1
    told_error = " ".join(result.stderr.split())
    assert "version 2 holds the events of a batch" in told_error and "read without it: 1." in told_error
    assert f"tidegate state rollback {path} --to 1" in told_error


def test_files_are_verified_and_scrubbed(path: str) -> None:
    for arguments in (("verify", path), ("verify", path, "--deep"), ("scrub", path, "--passes", "1")):
        assert tidegate("state", *arguments).exit_code == 0
    assert "version 2: events in place of rows" in "".join(told("state", "verify", path, "--deep")["remarks"])


def test_a_backup_is_made_restored_and_the_same(path: str, tmp_path: Path) -> None:
    backup, copy = str(tmp_path / "backup"), str(tmp_path / "copy")
    assert tidegate("state", "backup", path, backup).exit_code == 0
    assert tidegate("state", "restore", backup, copy).exit_code == 0
    assert told("state", "ls", copy)["versions"] == told("state", "ls", path)["versions"]


def test_rolling_back_says_how_many_rows_there_are(path: str) -> None:
    result = tidegate("state", "rollback", path, "--to", "1")
    assert result.exit_code == 0 and "version 3 has the rows of version 1: 1 rows in all (Account 1)" in result.stdout
    assert told("state", "show", path) == [{"id": 1, "balance": 5}]
