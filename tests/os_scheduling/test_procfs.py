from __future__ import annotations

import os
import sys
from dataclasses import replace

from tidegate.os_scheduling import procfs

from .engines import engine, idle


def test_a_thread_is_known_by_its_start_and_not_by_its_id_alone() -> None:
    with idle(1) as threads:
        thread = threads[0]
        assert procfs.is_alive(thread)
        assert not procfs.is_alive(replace(thread, started=thread.started - 1)), "an earlier thread with this id"


def test_a_thread_that_ended_is_gone() -> None:
    with idle(1) as threads:
        thread = threads[0]
        threads.end(0)
        assert procfs.find_thread(thread.pid, thread.tid) is None and not procfs.is_alive(thread)
        assert procfs.cpu_seconds(thread) == 0.0


def test_a_thread_of_another_process_is_not_taken_for_one_of_this() -> None:
    with engine() as other:
        assert procfs.find_thread(other.process.pid, other.threads[0]) is not None
        assert procfs.find_thread(os.getpid(), other.threads[0]) is None


def test_processor_time_is_read_of_the_thread_whose_name_has_brackets() -> None:
    code = "import threading; open('/proc/thread-self/comm', 'w').write(') R 1 (')\nsum(range(30_000_000))\ninput()"
    import subprocess

    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        found = None
        while found is None or procfs.cpu_seconds(found) == 0:
            found = procfs.find_thread(process.pid, process.pid)
        process.kill()
    assert procfs.find_thread(process.pid, process.pid) is None


def test_pressure_is_a_percentage_or_unknown() -> None:
    pressure = procfs.cpu_pressure()
    assert pressure is None or 0 <= pressure <= 100


def test_automatic_groups_are_those_of_processes_that_exist() -> None:
    assert set(procfs.autogroups({os.getpid(), 2**22 + 1})) <= {os.getpid()}
