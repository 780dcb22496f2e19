"""Finds accesses of shared memory that nothing puts in an order, whatever came of them this time.

Interleaving steps one by one shows every worker the same memory. Real processors and compilers promise that only for
what atomic operations order: a write happens before a read if a chain of releases and acquires leads from one to the
other. Each worker has a vector clock, a release leaves it at the element, an acquire takes what is there:

    worker 0    data = 1 (at 0:1)   store(flag)  ─┐
    worker 1                                      └─  load(flag): knows 0:1        reads data: ordered

Two accesses of one element race if they are in no order, one of them writes, and not both are atomic.
"""

from __future__ import annotations


class Race(AssertionError):
    """Two accesses that nothing puts in an order."""


class RaceDetector:
    """What each worker knows of the others, and who touched what."""

    def __init__(self, workers: int) -> None:
        self._clocks = [[int(one == other) for other in range(workers)] for one in range(workers)]
        self._released: dict[int, list[int]] = {}
        self._seen: dict[int, dict[tuple[int, bool, bool], tuple[int, str]]] = {}

    def access(self, worker: int, address: int, write: bool, atomic: bool, where: str) -> None:
        """Note an access, and compare it with those of others."""
        known = self._clocks[worker]
        seen = self._seen.setdefault(address, {})
        for (other, wrote, was_atomic), (time, place) in seen.items():
            if other != worker and (write or wrote) and not (atomic and was_atomic) and time > known[other]:
                kinds = [
                    ("atomic " * a) + ("write" if w else "read") for w, a in ((wrote, was_atomic), (write, atomic))
                ]
                raise Race(f"race: {kinds[0]} by worker {other} at {place}, {kinds[1]} by worker {worker} at {where}")
        seen[worker, write, atomic] = (known[worker], where)

    def acquire(self, worker: int, address: int) -> None:
        """The worker knows from now on what those knew who released the element."""
        mine = self._clocks[worker]
        for other, time in enumerate(self._released.get(address, ())):
            mine[other] = max(mine[other], time)

    def release(self, worker: int, address: int) -> None:
        """Who acquires the element knows what this worker knows; what it does from here on is later."""
        mine = self._clocks[worker]
        self._released[address] = mine.copy()
        mine[worker] += 1
