from __future__ import annotations

import os
import subprocess
import sys
import time

from tidegate.foundation import leftovers, processes


def abandoned(name: str, age_seconds: float) -> bool:
    return leftovers.is_abandoned(name, lambda _: time.time() - age_seconds)


def named(pid: int, start: float, machine: str | None = None) -> str:
    """The name that another process would have given to its temporary file."""
    own = leftovers.temporary_name()
    host_and_space = "~".join(own.split("~")[1:3]) if machine is None else machine
    return f".temporary~{host_and_space}~{pid}~{start:.2f}~0123456789ab"


def test_names_are_unique_and_recognised() -> None:
    names = {leftovers.temporary_name() for _ in range(100)}
    assert len(names) == 100
    assert all(map(leftovers.is_temporary, names))
    assert not leftovers.is_temporary("000000000001.change")


def test_a_live_writers_file_is_never_abandoned_however_old() -> None:
    assert not abandoned(leftovers.temporary_name(), age_seconds=1e9)


def test_a_dead_writers_file_is_abandoned_at_once() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        start = time.time()
    assert abandoned(named(child.pid, start), age_seconds=0)


def test_a_reused_process_id_does_not_protect_a_dead_writers_file() -> None:
    start = processes.started(os.getpid())
    assert abandoned(named(os.getpid(), start - 1000), age_seconds=0)


def test_the_file_of_a_writer_that_cannot_be_asked_is_abandoned_after_a_day() -> None:
    elsewhere = named(1, 0.0, machine="another-host~4026531836")
    other_container = named(1, 0.0, machine=leftovers.temporary_name().split("~")[1] + "~1")
    for name in (elsewhere, other_container, ".temporary~nonsense"):
        assert not abandoned(name, age_seconds=23 * 3600)
        assert abandoned(name, age_seconds=25 * 3600)


def test_locks_are_recognised() -> None:
    assert leftovers.is_lock("000000000007.lock")
    assert not leftovers.is_lock("000000000007.change")
    assert not leftovers.is_lock(leftovers.temporary_name())
