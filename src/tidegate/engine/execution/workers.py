"""Threads that run kernels side by side.

The calling thread only waits, so that an interrupt (Ctrl-C) reaches it while kernels run. Threads are kept
between batches.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable


class Workers:
    """A fixed number of threads."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None

    def run(self, task: Callable[[int], object]) -> None:
        """Call `task(0)`, `task(1)`, ... in all threads at once and wait until all of them have returned."""
        if self._pool is None:
            self._pool = concurrent.futures.ThreadPoolExecutor(self.count, "tidegate-worker")
        futures = [self._pool.submit(task, worker) for worker in range(self.count)]
        concurrent.futures.wait(futures)
        for future in futures:
            future.result()

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
