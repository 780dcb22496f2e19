"""`tidegate state verify` and `scrub` on real files: the truth, as text, as JSON and as an exit code."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.durability import stored_rows
from tidegate.durability.versions import VersionStore

from ..test_cli import tidegate
from .stored import ACCOUNT, SEAT, info, make_state


@pytest.fixture
def path(tmp_path: Path) -> str:
    return make_state(tmp_path / "state").storage.path


def damage(path: str, version: int) -> None:
    file = Path(path) / f"{version:012d}.change"
    data = bytearray(file.read_bytes())
    data[-100] ^= 1
    file.write_bytes(data)


class TestVerify:
    def test_what_can_be_rebuilt_around_damage_is_told_with_the_way_out(self, path: str) -> None:
        damage(path, 2)
        result = tidegate("state", "verify", path)
        assert result.exit_code == 1
        assert "versions 2 to 3 cannot be rebuilt: 000000000002.change is damaged" in result.stdout
        assert "versions that can be rebuilt: 1" in result.stdout
        assert f"tidegate recover {path} --to 1 --into NEW" in result.stdout

    def test_json_says_all_of_it(self, path: str) -> None:
        damage(path, 3)
        result = tidegate("state", "verify", path, "--json", "--deep")
        report = json.loads(result.stdout)
        assert result.exit_code == 1 and not report["sound"]
        assert report["rebuildable"] == [[1, 2]] and report["newest"] == 3 and report["state"]
        assert [file["name"] for file in report["files"] if file["problem"]] == ["000000000003.change"]
        assert report["problems"] and report["remarks"] == []

    def test_notes_are_no_errors(self, path: str) -> None:
        (Path(path) / "head").unlink()
        result = tidegate("state", "verify", path)
        assert result.exit_code == 0 and "note: the head is not there" in result.stdout

    def test_a_snapshot_is_rebuilt_when_asked_to(self, tmp_path: Path) -> None:
        store = make_state(tmp_path / "state")
        wrong = {
            "Account": stored_rows.rows_at(store, ACCOUNT, 2),
            "Seat": stored_rows.rows_at(store, SEAT, 3),
        }
        store.snapshot(info(3, ACCOUNT, SEAT), wrong)
        assert tidegate("state", "verify", store.storage.path).exit_code == 0
        result = tidegate("state", "verify", store.storage.path, "--deep")
        assert result.exit_code == 1 and "they differ in 1 of Account" in result.stdout

    def test_no_state_is_not_sound(self, tmp_path: Path) -> None:
        result = tidegate("state", "verify", str(tmp_path / "nothing"))
        assert result.exit_code == 1 and "there is no state here" in result.stdout


class TestScrub:
    def test_a_pass_over_a_sound_state(self, path: str) -> None:
        result = tidegate("state", "scrub", path, "--passes", "2", "--every", "0")
        assert result.exit_code == 0
        assert "pass 1: 3 files" in result.stdout and "pass 2: 3 files" in result.stdout
        assert "0 damaged" in result.stdout

    def test_damage_is_printed_and_ends_with_one(self, path: str) -> None:
        damage(path, 2)
        result = tidegate("state", "scrub", path, "--passes", "1")
        assert result.exit_code == 1
        assert "000000000002.change: damaged" in result.stdout and "2 files" in result.stdout

    def test_the_rate_is_kept(self, path: str) -> None:
        import time

        size = sum(file.stat().st_size for file in Path(path).glob("0*"))
        began = time.monotonic()
        assert tidegate("state", "scrub", path, "--passes", "1", "--rate", str(size / 1e6 / 0.6)).exit_code == 0
        assert time.monotonic() - began > 0.3

    def test_it_runs_until_it_is_stopped(self, path: str) -> None:
        command = [sys.executable, "-u", "-m", "tidegate", "state", "scrub", path, "--every", "0.05"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=30)[0]
        assert "pass 3" in lines[2] and rest.rstrip().endswith("stopped") and process.returncode == 0


def test_the_state_is_only_read(tmp_path: Path) -> None:
    store: VersionStore = make_state(tmp_path / "state")
    folder = tmp_path / "state"
    before = {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}
    for command in (["verify", "--deep"], ["scrub", "--passes", "1"], ["served"], ["ls"]):
        assert tidegate("state", command[0], store.storage.path, *command[1:]).exit_code == 0
    assert {file.name: file.stat().st_mtime_ns for file in folder.iterdir()} == before
