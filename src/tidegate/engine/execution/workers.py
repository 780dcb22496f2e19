"""Threads that run kernels side by side.

The calling thread only waits, so that an interrupt (Ctrl-C) reaches it while kernels run. Threads are kept
between batches, and end when their `Workers` are closed or dropped.

A thread that wakes up does so where it slept or where its caller runs, and the caller's processor is busy until
the caller waits. So two workers may begin on one processor, while another idles until the system balances its
load, milliseconds later: longer than many a batch takes.

    caller    wakes both, waits ...........        processor 1
    worker 0  running                              processor 0
    worker 1  ready, but must wait for worker 0    processor 0

Where there are few processors and as many workers, each is therefore told where to wake up. It may go anywhere
from then on.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import os
import threading
from collections.abc import Callable

from tidegate.foundation.errors import LimitExceeded

TOLD_MAX = 4
"""Each that is told takes two calls of the system, and one processor of many that idles is a small loss."""


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Workers:
    """A fixed number of threads."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None
        self._threads: list[int] = []
        self._told = False

    def start(self) -> concurrent.futures.ThreadPoolExecutor:
        """Start all threads, unless they run already.

        Tasks wait for each other, so none may begin before it is sure that there is a thread for each.

        Raises:
            LimitExceeded: the system refused one of them; none is left running.
        """
        if self._pool is not None:
            return self._pool
        pool = concurrent.futures.ThreadPoolExecutor(self.count, "tidegate-worker", _note_thread, (self._threads,))
        all_started, started = threading.Event(), 0
        try:
            while started < self.count:
                pool.submit(all_started.wait)  # none that was started is free to do it: one more is
                started += 1
            self._pool = pool
        except (RuntimeError, MemoryError) as refusal:
            raise LimitExceeded(
                f"workers: required {self.count} threads, got {started}: the system refused the next ({refusal})."
                " Ask for fewer workers, or raise its limit: see `ulimit -u`, or pids.max in a container"
            ) from refusal
        finally:
            all_started.set()
            if self._pool is None:
                pool.shutdown(cancel_futures=True)
                self._threads.clear()
        return pool

    def run(self, task: Callable[[int], object], stop: Callable[[], None] | None = None) -> None:
        """Call `task(0)`, `task(1)`, ... in all threads at once and wait until all of them have returned.

        Args:
            task: what each worker does.
            stop: called when a task failed: asks the others, which may wait for it, to return.
        """
        pool = self.start()
        begin = self._spread()
        futures = [pool.submit(begin, task, worker) for worker in range(self.count)]
        _, others = concurrent.futures.wait(futures, return_when=concurrent.futures.FIRST_EXCEPTION)
        if others:
            if stop is not None:
                stop()
            concurrent.futures.wait(others)
        for future in futures:
            future.result()

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
            self._threads.clear()

    def _spread(self) -> Callable[[Callable[[int], object], int], object]:
        """Tell each thread on which processor to wake up; what is returned calls a task and ends that."""
        everywhere = os.sched_getaffinity(0) if hasattr(os, "sched_setaffinity") else set()
        few = 1 < len(everywhere) <= min(self.count, TOLD_MAX)
        if few or self._told:
            for thread, processor in zip(self._threads, itertools.cycle(everywhere), strict=False):
                _restrict(thread, {processor} if few else everywhere)
        self._told = few

        def begin(task: Callable[[int], object], worker: int) -> object:
            _restrict(0, everywhere)
            return task(worker)

        return begin if few else lambda task, worker: task(worker)


def _note_thread(threads: list[int]) -> None:
    """What a thread does first. It must not know the `Workers`: threads end when nobody knows these any more."""
    threads.append(threading.get_native_id())


def _restrict(thread: int, allowed: set[int]) -> None:
    with contextlib.suppress(OSError):  # not permitted here, or the thread is gone: the system decides
        os.sched_setaffinity(thread, allowed)
