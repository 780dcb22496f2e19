"""Runs independent transactions on different workers, serially and in place.

Families (connected components of related transactions) are put into bundles, and an idle worker takes the next
bundle. Two strategies may share a batch: a family that is too large for one worker is left to a strategy that runs
related transactions in parallel. A worker that would have to wait there runs a bundle of the other families.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.engine.batch import Batch
from tidegate.engine.execution.serial import SerialRun
from tidegate.engine.kernels.components import (
    bundle,
    find_roots,
    forget_families,
    join_rows,
    list_events,
    mark_written,
    number_families,
)
from tidegate.engine.planning.builder import GraphBuilder
from tidegate.engine.worker_pool import WorkerPool

Array = npt.NDArray[Any]

PARALLEL_EVENTS = 1 << 15
"""In a batch with fewer events one worker searches for families alone: waking the others takes as long."""

PARTS = 4
"""A bundle is about 1/4 of a worker's share of what is left: later bundles are smaller, so all workers end together."""

BUNDLE_EVENTS = 16
"""The approximate minimum number of events in a bundle, except in the last one."""

WEIGHED, LARGE_SHARE = 4, 16
"""At most 4 families are timed one by one: the largest, each with more than 1/16 of the batch."""

WEIGHED_EVENTS, WEIGHED_CALLS = 16, 8
"""Timing a family begins with 16 events, and goes on until a call takes 8 times as long as an empty call."""

LARGE_BUNDLE = 16
"""A bundle is large if it has more than 1/16 of a worker's even share."""


@dataclass(frozen=True, slots=True)
class Families:
    """The families of a batch."""

    family: Array  # per position from `start` on: the number of its event's family, -1 if the event need not run
    weight: Array  # per family: the estimated run time; at first, the number of its transactions' operations
    transactions: int
    order: Array
    start: int

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.weight)

    @property
    def largest(self) -> float:
        """The largest family's share of the total weight."""
        return float(self.weight.max()) / float(self.weight.sum()) if self.count else 1.0

    def remaining(self) -> Array:
        """All events that still have to run, in timestamp order."""
        events: Array = self.order[self.start :][self.family >= 0]
        return events

    def largest_events(self) -> Array:
        """The events of the largest family, in timestamp order."""
        events: Array = self.order[self.start :][self.family == self.weight.argmax()]
        return events

    @property
    def second(self) -> float:
        """The second largest family's share of the total weight."""
        if self.count < 2:
            return 0.0
        return float(np.partition(self.weight, -2)[-2]) / float(self.weight.sum())


def find(builder: GraphBuilder, workers: WorkerPool, batch: Batch, order: Array, start: int) -> Families:
    """Find the families of the events from position `start` on."""
    shapes = builder.shapes(batch)
    parent, written, take = builder.latest, builder.group_of_row, builder.memory.take
    family = take("family", len(order), np.int32)
    weight = take("family weight", len(order) - start, np.int64)
    events = (order, batch.kinds, batch.status)
    whole = shapes.kind_first[len(shapes.slice_first) - 1]  # parameters of whole transactions come first
    all_written = bool(np.all(shapes.parameter_write[:whole]))

    def together(kernel: Callable[..., Any], *arguments: Any) -> None:
        """Run a kernel on all workers, each with its share of the events."""
        if len(order) - start < PARALLEL_EVENTS:
            kernel(shapes, events, start, len(order), *arguments)
            return
        edges = [start + (len(order) - start) * n // workers.count for n in range(workers.count + 1)]
        workers.run(lambda w: kernel(shapes, events, edges[w], edges[w + 1], *arguments))

    try:
        if not all_written:
            together(mark_written, written)
        together(join_rows, all_written, written, parent)
        together(find_roots, all_written, written, parent, family)
        count, transactions = number_families(shapes, events, start, parent, family, weight)
    finally:
        together(forget_families, all_written, parent, written)
    return Families(family[start:], weight[:count], transactions, order, start)


def weigh(families: Families, serial: SerialRun, batch: Batch) -> tuple[float, int]:
    """Time some events of each large family, and of the small ones together, and turn weights into nanoseconds.

    Returns the average time of a transaction, and how many events plain Python ran. Events of different families
    may run in any order, so the events that were timed count as done.
    """
    run, weight = serial.prepare(batch), families.weight
    call = min(_timed(run, families.order[:0])[0] for _ in range(2))  # the first call may load the program
    sizes = np.bincount(families.family[families.family >= 0], minlength=families.count)
    group = np.zeros(families.count + 1, np.int8)  # group 0: all small families; the last place: events of no family
    large = np.argsort(-weight)[:WEIGHED]
    large = large[weight[large] * LARGE_SHARE > weight.sum()]
    group[large], group[-1] = np.arange(1, len(large) + 1), -1
    of_event = group[families.family]
    total, interpreted = 0.0, 0
    for number in range(len(large) + 1):
        positions = np.flatnonzero(of_event == number)
        done, seconds, each = 0, 0.0, 1.0
        while done < len(positions) and seconds < WEIGHED_CALLS * call:
            part = positions[done : done + max(WEIGHED_EVENTS, 3 * done)]
            seconds, found = _timed(run, families.order[families.start + part])
            families.family[part] = -1
            done, interpreted = done + len(part), interpreted + found
            each = max((seconds - call) / len(part) * 1e9, 1.0)
        which = group[:-1] == number
        weight[which] = sizes[which] * each
        total += len(positions) * each
    return total / max(int(sizes.sum()), 1), interpreted


def _timed(run: Callable[[Array, int, int], int], events: Array) -> tuple[float, int]:
    began = time.perf_counter()
    interpreted = run(events, 0, len(events))
    return time.perf_counter() - began, interpreted


class Bundles:
    """The bundles of a batch, which workers take one by one; on request without the largest family."""

    def __init__(
        self, families: Families, serial: SerialRun, batch: Batch, workers: int, without_largest: bool = False
    ) -> None:
        weight = families.weight
        left_out = int(weight.argmax()) if without_largest and families.count else -1
        total = int(weight.sum())
        least = max(BUNDLE_EVENTS * total // max(families.transactions, 1), 1)
        bundle_of = np.empty(families.count, np.int32)
        count = bundle(weight, left_out, PARTS * workers, least, bundle_of)
        self._first, self._events = np.empty(count + 1, np.int64), np.empty(len(families.family), np.int64)
        list_events(families.order, families.start, families.family, bundle_of, self._first, self._events)
        heavy = np.zeros(count, np.int64)
        np.add.at(heavy, bundle_of[bundle_of >= 0], weight[bundle_of >= 0])
        self._largest_first = np.argsort(-heavy, kind="stable")
        self._large = int(np.count_nonzero(heavy * LARGE_BUNDLE * workers > total))
        self._next, self._begun = itertools.count(), 0
        self._prepare = functools.partial(serial.prepare, batch)
        self._runs: list[Callable[[Array, int, int], int] | None] = [None] * workers
        self._interpreted = np.zeros(workers, np.int64)

    def run_one(self, worker: int) -> bool:
        """Run the next bundle; False if none is left."""
        taken = next(self._next)
        self._begun = taken + 1
        if taken >= len(self._largest_first):
            return False
        number = self._largest_first[taken]
        begin, end = int(self._first[number]), int(self._first[number + 1])
        run = self._runs[worker]
        if run is None:  # prepared only now: tables may grow until all workers start
            run = self._runs[worker] = self._prepare()
        self._interpreted[worker] += run(self._events, begin, end)
        return True

    def run_large(self, worker: int) -> None:
        """Run large bundles first: one that ran last would leave the other workers idle."""
        while self._begun < self._large and self.run_one(worker):
            pass

    def run_all(self, worker: int) -> None:
        """Run bundles until none is left."""
        while self.run_one(worker):
            pass

    @property
    def left(self) -> bool:
        """Whether some bundle was not started."""
        return self._begun < len(self._largest_first)

    @property
    def interpreted(self) -> int:
        """How many events plain Python ran."""
        return int(self._interpreted.sum())
