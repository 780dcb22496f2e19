"""Real nice values, real-time priorities and groups of real threads, set and given back."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.os_scheduling import cgroups, mechanisms, procfs
from tidegate.os_scheduling.journal import Journal, Record
from tidegate.os_scheduling.mechanisms import Mechanisms, undo
from tidegate.os_scheduling.procfs import Thread
from tidegate.os_scheduling.translators import Setting, Settings

from .engines import HIERARCHY, Threads, idle, needs_groups, needs_nice

GROUP = f"test-{os.getpid()}"
RR = os.SCHED_RR | os.SCHED_RESET_ON_FORK


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path / "private")
    yield journal
    journal.restore(undo)
    journal.close()


@pytest.fixture
def threads() -> Iterator[Threads]:
    with idle(2) as threads:
        yield threads


def wanting(*settings: Setting) -> Settings:
    return {setting.key: setting for setting in settings}


def group_of(thread: Thread) -> Path:
    assert HIERARCHY is not None
    return HIERARCHY.group_of(thread.pid, thread.tid)


@needs_nice
def test_nice_values_are_set_changed_and_given_back(journal: Journal, threads: Threads) -> None:
    os.setpriority(os.PRIO_PROCESS, threads[1].tid, 3)
    made = Mechanisms(journal)
    assert made.apply(wanting(Setting("nice", threads[0], -20), Setting("nice", threads[1], 19))) == []
    assert threads.nice() == [-20, 19]
    assert made.apply(wanting(Setting("nice", threads[1], 5))) == [], "the first one is not wanted any more"
    assert threads.nice() == [0, 5]
    assert list(journal.records) == [("nice", threads[1])]
    assert made.close() == []
    assert threads.nice() == [0, 3] and not journal.records


@needs_nice
def test_realtime_priorities_are_set_and_given_back(journal: Journal, threads: Threads) -> None:
    made = Mechanisms(journal)
    assert made.apply(wanting(Setting("realtime", threads[0], 7))) == []
    assert os.sched_getscheduler(threads[0].tid) == RR
    assert os.sched_getparam(threads[0].tid).sched_priority == 7
    assert made.close() == []
    assert os.sched_getscheduler(threads[0].tid) == os.SCHED_OTHER


@needs_groups
def test_groups_and_nice_values_combine_and_are_given_back(journal: Journal, threads: Threads) -> None:
    home, made = group_of(threads[0]), Mechanisms(journal)
    folder = home / cgroups.folder_name(GROUP)
    members = [Setting("member", threads[index], GROUP) for index in (0, 1)]
    wanted = wanting(
        *members, Setting("shares", GROUP, 4096), Setting("quota", GROUP, 0.5), Setting("nice", threads[0], 4)
    )
    assert made.apply(wanted) == []
    assert [group_of(threads[0]), group_of(threads[1])] == [folder, folder]
    assert (folder / "cpu.shares").read_text().strip() == "4096"
    assert (folder / "cpu.cfs_quota_us").read_text().strip() == "50000"
    assert made.apply(wanted | wanting(Setting("shares", GROUP, 64))) == []
    assert (folder / "cpu.shares").read_text().strip() == "64"
    assert made.close() == []
    assert group_of(threads[0]) == home and not folder.exists() and threads.nice()[0] == 0


@needs_groups
def test_a_thread_moves_between_groups_and_empty_groups_are_removed(journal: Journal, threads: Threads) -> None:
    home, made = group_of(threads[0]), Mechanisms(journal)
    first, second = (home / cgroups.folder_name(GROUP + suffix) for suffix in "ab")
    made.apply(wanting(Setting("member", threads[0], GROUP + "a"), Setting("shares", GROUP + "a", 100)))
    made.apply(wanting(Setting("member", threads[0], GROUP + "b"), Setting("shares", GROUP + "b", 100)))
    assert group_of(threads[0]) == second and not first.exists()
    made.apply({})
    assert group_of(threads[0]) == home and not second.exists() and not journal.records


@needs_groups
def test_groups_that_are_refused_are_told_and_not_tried_again(journal: Journal, threads: Threads) -> None:
    made = Mechanisms(journal)
    wanted = wanting(Setting("member", threads[0], GROUP), Setting("shares", GROUP, -5))
    (note,) = made.apply(wanted)
    assert note.startswith(f"member of thread {threads[0].tid} was refused: ")
    assert {"shares", "quota"} <= made.abilities.lacking.keys() and "nice" not in made.abilities.lacking
    assert made.apply(wanted) == [], "told once"
    assert made.close() == [] and not (group_of(threads[0]) / cgroups.folder_name(GROUP)).exists()


@needs_nice
def test_a_thread_that_ended_is_forgotten(journal: Journal, threads: Threads) -> None:
    made, gone = Mechanisms(journal), threads[0]
    made.apply(wanting(Setting("nice", gone, 5)))
    threads.end(0)
    assert made.apply(wanting(Setting("nice", gone, 6))) == [] and not journal.records
    assert made.close() == []


@needs_nice
def test_a_thread_that_has_the_id_of_another_one_is_left_alone(journal: Journal, threads: Threads) -> None:
    earlier = replace(threads[0], started=threads[0].started - 1)
    assert Mechanisms(journal).apply(wanting(Setting("nice", earlier, 5))) == []
    undo(Record("nice", earlier, was=(7,)))
    undo(Record("realtime", earlier, was=(RR, 1)))
    assert threads.nice() == [0, 0] and os.sched_getscheduler(threads[0].tid) == os.SCHED_OTHER


def test_what_the_system_refuses_for_one_thread_does_not_stop_the_others(
    journal: Journal, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_nice, refused = [], threads[0].tid

    def setpriority(which: int, tid: int, value: int) -> None:
        if tid == refused:
            raise PermissionError(1, "Operation not permitted")
        set_nice.append(tid)

    monkeypatch.setattr(os, "setpriority", setpriority)
    monkeypatch.setattr(procfs, "nice_floor", lambda *_: -20)
    made = Mechanisms(journal)
    notes = made.apply(wanting(*(Setting("nice", threads[index], 5) for index in (0, 1))))
    assert notes == [f"nice of thread {refused} was refused: Operation not permitted"]
    assert set_nice == [threads[1].tid]


def test_a_value_that_could_not_be_given_back_is_not_changed(
    journal: Journal, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(procfs, "may_set_any_nice", lambda: False)
    monkeypatch.setattr(procfs, "nice_floor", lambda *_: 20)
    assert "could not be lowered again" in mechanisms.abilities().lacking["nice"]
    (note,) = Mechanisms(journal).apply(wanting(Setting("nice", threads[0], 5)))
    assert "could not be given back without CAP_SYS_NICE" in note and "ulimit -e 20" in note
    assert threads.nice() == [0, 0]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
def test_a_user_without_rights_learns_which_mechanisms_are_missing() -> None:
    code = (
        "import os; from tidegate.os_scheduling.mechanisms import abilities; os.setgid(65534); os.setuid(65534)\n"
        "print(sorted(abilities().lacking))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "'nice'" in done.stdout and "'realtime'" in done.stdout and "'shares'" in done.stdout
