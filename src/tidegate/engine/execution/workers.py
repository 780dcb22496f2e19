"""Threads that run kernels side by side.

The calling thread only waits, so that an interrupt (Ctrl-C) reaches it: it then asks the kernels to
stop, waits until they did, and raises. Threads are kept between batches.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable


class Workers:
    """A fixed number of threads."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None

    def run(self, task: Callable[[int], object], stop: Callable[[], None] | None = None) -> None:
        """Call `task(0)`, `task(1)`, ... in all threads at once and wait for them.

        Args:
            task: what each worker does; it must not wait for the GIL's holder.
            stop: called when the wait is interrupted: asks the tasks to end soon.
        """
        if self._pool is None:
            self._pool = concurrent.futures.ThreadPoolExecutor(self.count, "tidegate-worker")
        futures = [self._pool.submit(task, worker) for worker in range(self.count)]
        try:
            concurrent.futures.wait(futures)
        except BaseException:
            if stop is not None:
                stop()
            concurrent.futures.wait(futures)
            raise
        for future in futures:
            future.result()

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
