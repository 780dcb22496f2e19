"""Threads that run kernels side by side.

The calling thread only waits, so that an interrupt (Ctrl-C) reaches it while kernels run. Threads are kept
between batches.
"""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Callable


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

    def run(self, task: Callable[[int], object], stop: Callable[[], None] | None = None) -> None:
        """Call `task(0)`, `task(1)`, ... in all threads at once and wait until all of them have returned.

        Args:
            task: what each worker does.
            stop: called when a task failed: asks the others, which may wait for it, to return.
        """
        if self._pool is None:
            self._pool = concurrent.futures.ThreadPoolExecutor(self.count, "tidegate-worker")
        futures = [self._pool.submit(task, worker) for worker in range(self.count)]
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
