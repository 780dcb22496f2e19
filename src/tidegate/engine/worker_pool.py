"""What planning and execution ask of workers: how many there are, and that they do something together.

It may be implemented by threads (`execution.workers`), or by tasks whose steps a test interleaves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class WorkerPool(Protocol):
    """A fixed number of workers."""

    @property
    def count(self) -> int:
        """How many there are."""

    def run(self, task: Callable[[int], object], stop: Callable[[], None] | None = None) -> None:
        """Call `task(0)`, `task(1)`, ... at once and wait until all of them have returned.

        Args:
            task: what each worker does.
            stop: called when a task failed: asks the others, which may wait for it, to return.
        """
