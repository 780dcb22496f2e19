"""The processors that this process may use, and where its threads wake up.

A thread wakes up where it slept or where its caller runs, and the caller's processor is busy until the caller waits. So
two workers may begin on one processor while another stays idle until the system balances its load. That takes
milliseconds, which is longer than many batches take.

    caller    wakes both, waits ...........        processor 1
    worker 0  running                              processor 0
    worker 1  ready, but must wait for worker 0    processor 0

So if there are few processors and at least as many workers, each worker is pinned to a processor before it wakes up.
Once it runs, it may move.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable
from typing import Protocol

TOLD_MAX = 4
"""Threads are pinned on up to this many processors: each costs two system calls, one idle of many is a small loss."""


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Placement(Protocol):
    """Decides where threads wake up; one object for each set of threads."""

    def place(self, threads: Iterable[int], count: int) -> Callable[[], None]:
        """Set where sleeping threads, given by native ids, wake up; `count` is how many will.

        Each of them calls the returned function as soon as it runs.
        """


class Anywhere:
    """Leaves the placement to the system."""

    def place(self, threads: Iterable[int], count: int) -> Callable[[], None]:
        """Do nothing."""
        return _nothing


class OwnProcessors:
    """Gives each thread a processor to wake up on, if processors are few and all are needed."""

    def __init__(self) -> None:
        self._told = False

    def place(self, threads: Iterable[int], count: int) -> Callable[[], None]:
        """Pin the threads; the returned function lets a running thread move anywhere."""
        everywhere = os.sched_getaffinity(0)
        few = 1 < len(everywhere) <= min(count, TOLD_MAX)
        if few or self._told:
            for thread, processor in zip(threads, itertools.cycle(everywhere), strict=False):
                _restrict(thread, {processor} if few else everywhere)
        self._told = few
        return (lambda: _restrict(0, everywhere)) if few else _nothing


def usual_placement() -> Placement:
    """The placement for this system: not every system can pin threads."""
    return OwnProcessors() if hasattr(os, "sched_setaffinity") else Anywhere()


def _nothing() -> None:
    pass


def _restrict(thread: int, allowed: set[int]) -> None:
    with contextlib.suppress(OSError):  # not permitted here, or the thread is gone: the system decides
        os.sched_setaffinity(thread, allowed)
