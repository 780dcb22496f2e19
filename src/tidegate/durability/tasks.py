"""Work that an engine does beside its calls, such as writing a checkpoint or the log.

    in_a_thread(write)      write runs in a thread of its own; the task that is returned can be waited for

Who starts a task is given the starter, and so a simulation can give one that runs the work at once: then one thread
does everything, in an order that depends on nothing but its seed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol


class Task(Protocol):
    """Work that was started."""

    def join(self) -> None:
        """Return when it has ended."""

    def is_alive(self) -> bool:
        """Whether it has not ended."""


Start = Callable[[Callable[[], None]], Task]


def in_a_thread(action: Callable[[], None]) -> Task:
    """Start work in a thread that does not keep the process alive."""
    thread = threading.Thread(target=action, name="tidegate background", daemon=True)
    thread.start()
    return thread
