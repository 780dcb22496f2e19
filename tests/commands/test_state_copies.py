"""`tidegate state backup`, `restore` and `tidegate recover` on real files, and on a bad day."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from tidegate.durability.versions import VersionStore
from tidegate.foundation.storage import open_storage

from ..test_cli import tidegate, told
from .stored import ACCOUNT, SEAT, changes, info, make_state


@pytest.fixture
def store(tmp_path: Path) -> VersionStore:
    return make_state(tmp_path / "state")


@pytest.fixture
def path(store: VersionStore) -> str:
    return store.storage.path


@pytest.fixture(params=["local", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "backup") if request.param == "local" else f"memory://{uuid.uuid4().hex}"


def rows(path: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = told("state", "show", path, "--table", "Account")
    return found


def test_a_backup_is_made_brought_up_to_date_and_restored(
    store: VersionStore, path: str, place: str, tmp_path: Path
) -> None:
    shown = tidegate("state", "backup", path, place).stdout
    assert "version 3 of state" in shown and "3 files" in shown and f"tidegate state restore {place} PLACE" in shown
    store.commit(info(4, ACCOUNT, SEAT), {"Account": changes(ACCOUNT, (9, 9, True))})
    assert told("state", "backup", path, place)["files"] == 1
    assert "nothing was missing" in tidegate("state", "backup", path, place).stdout
    assert tidegate("state", "verify", place, "--deep").exit_code == 0
    expected, state = rows(path), told("state", "ls", path)["state"]
    shutil.rmtree(path)
    shown = tidegate("state", "restore", place, path).stdout
    assert "4 files" in shown and "Start the query again" in shown
    assert rows(path) == expected and told("state", "ls", path)["state"] == state


def test_a_place_that_is_not_empty_is_left_alone(path: str, tmp_path: Path) -> None:
    other = make_state(tmp_path / "other").storage
    before = sorted(os.listdir(other.path))
    for command in (["state", "restore", path, other.path], ["recover", path, "--into", other.path]):
        result = tidegate(*command)
        assert result.exit_code == 1 and "required a new or an empty folder" in result.stderr
    refused = tidegate("state", "backup", path, other.path)
    assert refused.exit_code == 1 and "this is a backup of state" in refused.stderr
    assert sorted(os.listdir(other.path)) == before


def test_a_damaged_file_is_named_and_no_half_state_stays(path: str, place: str) -> None:
    file = Path(path) / "000000000002.change"
    data = bytearray(file.read_bytes())
    data[-100] ^= 1
    file.write_bytes(data)
    result = tidegate("state", "backup", path, place)
    assert result.exit_code == 1 and "000000000002.change: damaged" in result.stderr
    assert not open_storage(place).list()


def test_a_version_is_recovered_from_a_state_with_a_damaged_file(path: str, tmp_path: Path) -> None:
    state = told("state", "ls", path)["state"]
    (Path(path) / "000000000003.change").write_bytes(b"")
    new = str(tmp_path / "new")
    shown = tidegate("recover", path, "--into", new).stdout
    assert "at version 2 (Account 3, Seat 0)" in shown and f"Version 3 of {path} is not in it" in shown
    assert [row["id"] for row in rows(new)] == [1, 2, 3] and told("state", "ls", new)["state"] != state
    assert tidegate("state", "verify", new, "--deep").exit_code == 0


def test_an_earlier_version_is_recovered_as_json_tells(path: str, place: str) -> None:
    done = told("recover", path, "--to", "1", "--into", place)
    assert done["version"] == 1 and done["newest"] == 3 and done["rows"] == {"Account": 2, "Seat": 0}
    refused = tidegate("recover", path, "--to", "9", "--into", place + "-2")
    assert refused.exit_code == 1 and "there is no version 9" in refused.stderr


def test_a_backup_that_is_killed_is_no_state_and_can_be_run_again(tmp_path: Path) -> None:
    """In a process of its own, as a user starts it; the copy is large enough to be caught in the middle."""
    store = make_state(tmp_path / "state")
    filler = changes(ACCOUNT, *((number, number, True) for number in range(200_000)))
    for version in range(4, 24):
        store.commit(info(version, ACCOUNT, SEAT), {"Account": filler})
    backup = tmp_path / "backup"
    command = [sys.executable, "-m", "tidegate", "state", "backup", store.storage.path, str(backup)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline and len(list(backup.glob("0*"))) < 3:
        time.sleep(0.001)
    process.kill()
    process.wait()
    copied = len(list(backup.glob("0*")))
    assert 3 <= copied < 23, "it was not caught in the middle"
    refused = tidegate("state", "show", str(backup), "--table", "Account")
    assert refused.exit_code == 1 and "cannot be rebuilt" in refused.stderr
    assert "remove them first" in tidegate("state", "restore", store.storage.path, str(backup)).stderr
    assert told("state", "backup", store.storage.path, str(backup))["files"] == 23 - copied
    assert tidegate("state", "verify", str(backup)).exit_code == 0
