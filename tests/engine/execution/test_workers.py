"""Worker threads: all tasks start or none, errors are raised, threads are placed before they wake up, and they end."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator

import pytest

from tidegate.engine.execution.workers import Workers
from tidegate.foundation.processors import Anywhere, processors


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers(2 * processors())
    yield made
    made.close()


def test_every_task_runs_once_and_all_at_the_same_time(workers: Workers) -> None:
    together, ran = threading.Barrier(workers.count, timeout=30), []

    def task(worker: int) -> None:
        together.wait()
        ran.append(worker)

    for _ in range(3):
        ran.clear()
        workers.run(task)
        assert sorted(ran) == list(range(workers.count))


def test_an_error_asks_the_others_to_stop_and_comes_out(workers: Workers) -> None:
    stopped = threading.Event()

    def task(worker: int) -> None:
        if worker == 0:
            raise ValueError("worker 0")
        assert stopped.wait(30)

    with pytest.raises(ValueError, match="worker 0"):
        workers.run(task, stopped.set)
    workers.run(lambda worker: None)


@pytest.mark.parametrize("how", ["closed", "dropped"])
def test_threads_end_with_their_workers(how: str) -> None:
    threads: list[threading.Thread] = []
    workers = Workers(3)
    for _ in range(2):
        workers.run(lambda worker: threads.append(threading.current_thread()))
    if how == "closed":
        workers.close()
    else:
        del workers
        gc.collect()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


NO_ROOM = """
import resource, threading
import psutil
from tidegate import LimitExceeded
from tidegate.engine.execution.workers import Workers

before = threading.active_count()
workers = Workers(200)
resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + (100 << 20), resource.RLIM_INFINITY))
try:
    workers.run(lambda worker: print("task", worker))
except LimitExceeded as error:
    print(error)
print("threads left:", threading.active_count() - before)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
ran = []
workers.run(ran.append)
print("then ran:", len(ran))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems do not limit a process's addresses")
def test_a_system_without_room_for_all_threads_is_said_and_no_task_begins() -> None:
    """Tasks wait for each other: with fewer threads than tasks they would do so for ever."""
    done = subprocess.run([sys.executable, "-c", NO_ROOM], capture_output=True, text=True, timeout=120, check=True)
    refusal, left, then = done.stdout.splitlines()
    assert re.match(r"workers: required 200 threads, got \d+: the system refused the next \(.+\)", refusal)
    assert "Ask for fewer workers" in refusal
    assert (left, then) == ("threads left: 0", "then ran: 200")


def test_threads_are_placed_before_they_wake_up_and_say_that_they_have() -> None:
    class Noted:
        def __init__(self) -> None:
            self.placed: list[set[int]] = []
            self.arrived: list[int] = []

        def place(self, threads: Iterable[int], count: int) -> Callable[[], None]:
            self.placed.append(set(threads))
            return lambda: self.arrived.append(threading.get_native_id())

    noted = Noted()
    workers = Workers(3, noted)
    together = threading.Barrier(3, timeout=30)
    for _ in range(2):
        workers.run(lambda worker: together.wait())
    workers.close()
    assert noted.placed[1] == set(noted.arrived[:3]) == set(noted.arrived[3:])


def test_threads_that_nobody_places_run() -> None:
    ran: list[int] = []
    unplaced = Workers(3, Anywhere())
    unplaced.run(ran.append)
    unplaced.close()
    assert sorted(ran) == [0, 1, 2]
