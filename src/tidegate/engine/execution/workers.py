"""Threads that run kernels in parallel.

The calling thread only waits, so that an interrupt (Ctrl-C) reaches it while kernels run. Threads are kept
between batches, and end when their `Workers` are closed or garbage-collected. On which processors they wake up is
decided in `foundation.processors`.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable

from tidegate.foundation.errors import LimitExceeded
from tidegate.foundation.processors import Placement, usual_placement


class Workers:
    """Threads, as many for a whole batch; `placement` says on which processors they wake up, and has a default."""

    def __init__(self, count: int, placement: Placement | None = None) -> None:
        self.count = count
        self._placement = placement or usual_placement()
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None
        self._threads: list[int] = []

    def start(self) -> concurrent.futures.ThreadPoolExecutor:
        """Start all threads, unless they run already.

        Tasks wait for each other, so no task may begin before there is a thread for every task.

        Raises:
            LimitExceeded: the system refused a thread; none is left running.
        """
        if self._pool is not None:
            return self._pool
        pool = concurrent.futures.ThreadPoolExecutor(self.count, "tidegate-worker", _note_thread, (self._threads,))
        all_started, started = threading.Event(), 0
        try:
            while started < self.count:
                pool.submit(all_started.wait)  # all threads so far are blocked, so the pool starts another one
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
            stop: called when a task failed; asks the other tasks, which may wait for the failed one, to return.
        """
        pool = self.start()
        arrived = self._placement.place(self._threads, self.count)

        def begin(worker: int) -> object:
            arrived()
            return task(worker)

        futures = [pool.submit(begin, worker) for worker in range(self.count)]
        _, others = concurrent.futures.wait(futures, return_when=concurrent.futures.FIRST_EXCEPTION)
        if others:
            if stop is not None:
                stop()
            concurrent.futures.wait(others)
        for future in futures:
            future.result()

    def resize(self, count: int) -> None:
        """Have another number of threads from the next batch on."""
        if count != self.count:
            self.close()
            self.count = count

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
            self._threads.clear()


def _note_thread(threads: list[int]) -> None:
    """Run first in each thread. It must hold no reference to `Workers`: threads end when that is garbage-collected."""
    threads.append(threading.get_native_id())
