"""Work that an engine does beside its calls.

    start(action)       a thread of its own: a checkpoint
    submit(action)      the one thread that does all such work, in order: the log of a batch that runs meanwhile

A simulation passes a `Background` that does the work at once: then one thread does everything, in an order that depends
only on its seed.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class Task(Protocol):
    """Work that was started."""

    def join(self) -> None:
        """Return when it has ended."""

    def is_alive(self) -> bool:
        """Whether it has not ended."""


class Background(Protocol):
    """Who does work beside the calls of an engine."""

    def start(self, action: Callable[[], None]) -> Task:
        """Start work that takes long."""

    def submit(self, action: Callable[[], T]) -> Future[T]:
        """Have work done that takes a moment, after all that was submitted before."""

    def close(self) -> None:
        """End, when what was submitted is done."""


class Threads:
    """Work in threads of this process."""

    def __init__(self) -> None:
        self._executor, self._process = _executor(), os.getpid()

    def start(self, action: Callable[[], None]) -> Task:
        """Start work in a thread that does not keep the process alive; only checkpoints take long."""
        thread = threading.Thread(target=action, name="tidegate checkpoint", daemon=True)
        thread.start()
        return thread

    def submit(self, action: Callable[[], T]) -> Future[T]:
        """Have work done by a thread that waits for it: starting one takes 0.15 ms each time."""
        if self._process != os.getpid():  # a fork has no threads but the one that forked
            self._executor, self._process = _executor(), os.getpid()
        with contextlib.suppress(RuntimeError):  # no thread is left
            return self._executor.submit(action)
        return done(action)

    def close(self) -> None:
        """End the thread."""
        if self._process == os.getpid():
            self._executor.shutdown()


def done(action: Callable[[], T]) -> Future[T]:
    """Work that is done here and now."""
    future: Future[T] = Future()
    try:
        future.set_result(action())
    except Exception as error:
        future.set_exception(error)
    return future


def _executor() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="tidegate log")
