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
import functools
import itertools
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

TOLD_MAX = 4
"""Threads are pinned on up to this many processors: each costs two system calls, one idle of many is a small loss."""


def processors() -> int:
    """How many processors this process may use: those of its affinity, and no more than its container's quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(count, _container_quota())


@functools.cache
def _container_quota() -> int:
    """Processors that the control groups of this process allow, rounded up; read once, because quotas rarely change."""
    return quota(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"))


def quota(mounted: Path, own: Path) -> int:
    """The smallest quota of the control groups that a file such as /proc/self/cgroup names, and of those above them.

    Version 2 says "quota period" in `cpu.max`, version 1 has a file for each. A container often sees its own group as
    the root, whatever the file says, so a path that is not there is the root.
    """
    allowed = [_UNLIMITED]
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return _UNLIMITED
    for number, controllers, group in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        if number == "0":
            roots, files = [mounted, mounted / "unified"], ["cpu.max"]
        elif "cpu" in controllers.split(","):
            roots, files = [mounted / controllers, mounted / "cpu"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        else:
            continue
        for root in roots:
            place = root / group.strip("/")
            while place != root.parent:
                allowed.append(_allowed([place / name for name in files]))
                place = place.parent
    return min(allowed)


def _allowed(files: list[Path]) -> int:
    """Processors for the quota and the period that files hold; no limit where they are missing or say so."""
    try:
        words = [word for file in files for word in file.read_text().split()]
        given, period = int(words[0]), int(words[1])
    except (OSError, ValueError, IndexError):  # "max 100000" is no limit
        return _UNLIMITED
    return max(1, -(-given // period)) if given > 0 and period > 0 else _UNLIMITED


_UNLIMITED = 1 << 16


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
