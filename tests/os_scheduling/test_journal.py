from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tidegate.foundation.errors import StateOwned, StorageFailed
from tidegate.os_scheduling import journal as module
from tidegate.os_scheduling.journal import Journal, Record, default_folder
from tidegate.os_scheduling.procfs import Thread

A = Record("nice", Thread(1, 2, 3), was=(0,))
B = Record("group", None, "/cgroup/x")
C = Record("member", Thread(1, 2, 3), "/cgroup/tasks")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "private"


def file_of(folder: Path) -> Path:
    (file,) = folder.glob("journal-*.jsonl")
    return file


def reopened(folder: Path) -> list[Record]:
    journal = Journal(folder)
    records = list(journal.records.values())
    journal._lock.release()  # as if it were killed
    return records


def test_records_outlive_their_process_until_they_are_undone(folder: Path) -> None:
    journal = Journal(folder)
    journal.add([A, B, C])
    journal.undone([B])
    journal._lock.release()
    assert reopened(folder) == [A, C]
    assert file_of(folder).stat().st_mode & 0o777 == 0o600


def test_the_first_value_of_a_thing_is_the_one_to_give_back(folder: Path) -> None:
    journal = Journal(folder)
    journal.add([A])
    journal.add([Record("nice", A.thread, was=(-20,))])
    journal._lock.release()
    assert reopened(folder) == [A]


def test_undoing_runs_backwards_and_goes_on_behind_what_fails(folder: Path) -> None:
    journal, order = Journal(folder), []

    def undo(record: Record) -> None:
        order.append(record)
        if record == B:
            raise PermissionError(1, "not permitted")

    journal.add([A, B, C])
    count, problems = journal.restore(undo)
    assert order == [C, B, A] and count == 2
    assert len(problems) == 1 and "/cgroup/x" in problems[0] and "as root" in problems[0]
    journal.close()
    assert reopened(folder) == [B], "what could not be undone is tried again"


def test_a_journal_in_which_nothing_is_left_is_removed(folder: Path) -> None:
    journal = Journal(folder)
    journal.add([A])
    journal.restore(lambda _: None)
    journal.close()
    assert not list(folder.glob("journal-*"))


def test_a_torn_line_is_skipped_and_does_not_swallow_the_next(folder: Path) -> None:
    journal = Journal(folder)
    journal.add([A])
    with file_of(folder).open("a") as file:
        file.write('\n{"kind": "nice", "thr')  # a full disk, or a kill
    journal.add([B])
    journal._lock.release()
    assert reopened(folder) == [A, B]


def test_a_journal_of_an_earlier_boot_is_dropped(folder: Path) -> None:
    journal = Journal(folder)
    journal.add([A])
    journal._lock.release()
    file = file_of(folder)
    lines = file.read_text().split("\n")
    file.write_text("\n".join([json.dumps(json.loads(lines[0]) | {"boot": "another"}), *lines[1:]]))
    assert reopened(folder) == []


def test_only_one_process_has_the_journal_and_the_other_is_told_which(folder: Path) -> None:
    journal = Journal(folder)
    with pytest.raises(StateOwned, match=f"running on this machine already as process {os.getpid()}. Stop"):
        Journal(folder)
    journal.close()
    Journal(folder).close()


def test_a_folder_that_others_can_write_is_refused(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(StorageFailed, match="0700"):
        Journal(folder)


def test_a_folder_that_cannot_be_made_is_told(folder: Path) -> None:
    folder.write_text("a file")
    with pytest.raises(StorageFailed, match="private"):
        Journal(folder)


def test_a_long_journal_is_written_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINES_MAX", 10)
    journal = Journal(folder)
    journal.add([B])
    for _ in range(50):
        journal.add([A])
        journal.undone([A])
    assert file_of(folder).read_text().count("\n") < 20
    journal._lock.release()
    assert reopened(folder) == [B]


def test_the_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "tidegate" / "schedule"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder() == tmp_path / ".local" / "state" / "tidegate" / "schedule"
