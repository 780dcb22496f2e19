"""Processes of a group count each other while they work."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidegate.foundation.attendance import present

WORKS = """
import sys
from pathlib import Path
from tidegate.foundation.attendance import present
with present(Path(sys.argv[1]), sys.argv[2]) as count:
    print(count, flush=True)
    sys.stdin.readline()
"""


@contextmanager
def another(folder: Path, group: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A process that works until this block is left; with the count that it saw."""
    child = subprocess.Popen(
        [sys.executable, "-c", WORKS, str(folder), group], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None and child.stdout is not None
    try:
        yield int(child.stdout.readline()), child
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


def test_a_process_alone_counts_one(tmp_path: Path) -> None:
    with present(tmp_path / "tasks", "7") as count:
        assert count == 1


def test_those_at_work_are_counted(tmp_path: Path) -> None:
    folder = tmp_path / "tasks"
    with another(folder, "7") as (first, _), another(folder, "7") as (second, _), another(folder, "8") as (other, _):
        assert (first, second, other) == (1, 2, 1)
        with present(folder, "7") as count:
            assert count == 3
    with present(folder, "7") as count:
        assert count == 1


def test_one_that_was_killed_is_not_counted_and_its_file_goes(tmp_path: Path) -> None:
    folder = tmp_path / "tasks"
    with another(folder, "7") as (_, child):
        child.kill()
        child.wait()
        with present(folder, "7") as count:
            assert count == 1
    assert [file.name for file in folder.iterdir() if file.name.endswith(f"-{child.pid}")] == []


def test_a_folder_that_others_can_write_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "tasks"
    folder.mkdir()
    folder.chmod(0o777)
    with present(folder, "7") as count:
        assert count == 1
    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_made_counts_nobody(tmp_path: Path) -> None:
    (tmp_path / "tasks").write_text("a file")
    with present(tmp_path / "tasks", "7") as count:
        assert count == 1
