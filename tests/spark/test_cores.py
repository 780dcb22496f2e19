"""How many workers a task has: what its executor has, shared with others, and never more than there is."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.foundation.processors import processors
from tidegate.spark import cores
from tidegate.spark.cores import WHOLE_MACHINE, cores_of, task_workers


@pytest.mark.parametrize(
    ("master", "executor", "expected"),
    [
        ("local", "", 1),
        ("local[1]", "", 1),
        ("local[4]", "", 4),
        ("local[4]", "2", 4),  # a local application has no executors that the setting could be about
        ("local[4,3]", "", 4),
        ("local[*]", "", WHOLE_MACHINE),
        ("local[*, 4]", "", WHOLE_MACHINE),
        ("local-cluster[2,3,1024]", "", 3),
        ("spark://host:7077", "", WHOLE_MACHINE),
        ("spark://host:7077", "8", 8),
        ("yarn", "", 1),
        ("yarn", "5", 5),
        ("k8s://https://host", "4", 4),
        ("", "", 1),
        ("something else", "many", 1),
    ],
)
def test_the_cores_of_an_executor(master: str, executor: str, expected: int) -> None:
    assert cores_of(master, executor) == expected


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other test processes are children of the same process, and may run tasks of their own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def count_workers(asked: int | None, executor: int) -> int:
    with task_workers(asked, executor) as found:
        return found


def test_a_task_takes_no_more_than_the_machine_has() -> None:
    assert count_workers(None, WHOLE_MACHINE) == processors()


def test_what_was_asked_for_is_what_it_has() -> None:
    assert count_workers(3, 1) == 3


def test_tasks_on_one_executor_share(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def crowd(folder: Path, group: str) -> Iterator[int]:
        yield 3

    monkeypatch.setattr(cores, "processors", lambda: 16)
    monkeypatch.setattr(cores, "present", crowd)
    assert count_workers(None, 12) == 4
    assert count_workers(None, 2) == 1
    assert count_workers(5, 12) == 5
