"""Threads that run tasks: all do or none, errors come out, where they may run is left as it was, and they end."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from tidegate.engine.execution import workers as module
from tidegate.engine.execution.workers import TOLD_MAX, Workers, processors

needs_affinity = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux lets threads choose")


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


@needs_affinity
class TestWhereTheyWakeUp:
    def masks(self, workers: Workers) -> list[set[int]]:
        """Where each worker may run while its task runs."""
        found: list[set[int]] = [set()] * workers.count
        together = threading.Barrier(workers.count, timeout=30)

        def task(worker: int) -> None:
            together.wait()
            found[worker] = os.sched_getaffinity(0)

        workers.run(task)
        return found

    def test_a_task_may_run_anywhere(self, workers: Workers) -> None:
        for _ in range(3):
            assert self.masks(workers) == [os.sched_getaffinity(0)] * workers.count

    @pytest.mark.parametrize("processors", [2, TOLD_MAX])
    def test_each_is_told_another_processor(self, processors: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """And, once it runs, that it may go anywhere."""
        told: list[tuple[int, set[int]]] = []
        monkeypatch.setattr(os, "sched_getaffinity", lambda thread: set(range(processors)))
        monkeypatch.setattr(os, "sched_setaffinity", lambda thread, mask: told.append((thread, mask)))
        workers = Workers(2 * processors)
        self.masks(workers)
        told.clear()
        self.masks(workers)
        workers.close()
        by_caller = dict(told[: workers.count])
        assert len(by_caller) == workers.count and 0 not in by_caller
        assert sorted(by_caller.values(), key=min) == sorted(2 * [{n} for n in range(processors)], key=min)
        assert told[workers.count :] == [(0, set(range(processors)))] * workers.count

    @pytest.mark.parametrize("count", [1, TOLD_MAX + 1])
    def test_where_there_are_more_processors_or_one_they_are_told_nothing(
        self, count: int, workers: Workers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(thread: int, mask: set[int]) -> None:
            pytest.fail("a thread was told where to run")

        monkeypatch.setattr(os, "sched_getaffinity", lambda thread: set(range(count)))
        monkeypatch.setattr(os, "sched_setaffinity", refuse)
        assert len(self.masks(workers)) == workers.count

    def test_where_that_is_not_allowed_they_run_all_the_same(
        self, workers: Workers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(thread: int, mask: set[int]) -> None:
            raise PermissionError("not here")

        monkeypatch.setattr(os, "sched_setaffinity", refuse)
        assert self.masks(workers) == [os.sched_getaffinity(0)] * workers.count

    def test_a_narrower_choice_of_processors_is_followed(self, workers: Workers) -> None:
        everywhere = os.sched_getaffinity(0)
        one = {min(everywhere)}
        self.masks(workers)
        os.sched_setaffinity(0, one)
        try:
            assert self.masks(workers) == [one] * workers.count
        finally:
            os.sched_setaffinity(0, everywhere)
        assert self.masks(workers) == [everywhere] * workers.count


def test_without_that_call_of_the_system_they_run(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(module.os, "sched_setaffinity", raising=False)
    ran = []
    workers.run(ran.append)
    assert sorted(ran) == list(range(workers.count))
