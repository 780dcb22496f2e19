"""Runs transactions that have nothing to do with each other on different workers, serially and in place.

Several strategies may share a batch: a family that is too large for one worker (it would keep the others
waiting) is left over, for a strategy that can run related transactions side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.engine.batch import Batch
from tidegate.engine.execution.serial import SerialRun
from tidegate.engine.execution.workers import Workers
from tidegate.engine.kernels.components import (
    find_families,
    forget_families,
    join_rows,
    list_events,
    mark_written,
    share_out,
)
from tidegate.engine.planning.builder import GraphBuilder

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Families:
    """The families of a batch, shared out among the workers."""

    count: int
    largest: int  # how many transactions the largest family has
    transactions: int
    load: Array  # per worker: how many operations it would run
    first: Array  # per worker: where its events begin
    events: Array
    leftover: Array  # positions of the largest family's events, if it was left over

    @property
    def imbalance(self) -> float:
        """The share of all that the busiest worker has."""
        total = float(self.load.sum())
        return float(self.load.max()) / total if total else 1.0


def find(
    builder: GraphBuilder, batch: Batch, order: Array, start: int, workers: int, leave_largest: bool = False
) -> Families:
    """The families of the events from position `start` on."""
    shapes = builder.shapes(batch)
    parent, written, take = builder.latest, builder.group_of_row, builder.memory.take
    family = take("family", len(order), np.int32)
    size = take("family size", len(order) - start, np.int32)
    weight = take("family weight", len(order) - start, np.int32)
    events = (order, batch.kinds, batch.status)
    whole = shapes.kind_first[len(shapes.slice_first) - 1]  # parameters of whole transactions come first
    all_written = bool(np.all(shapes.parameter_write[:whole]))
    try:
        if not all_written:
            mark_written(shapes, events, start, written)
        join_rows(shapes, events, start, all_written, written, parent)
        count = find_families(shapes, events, start, all_written, written, parent, family, size, weight)
    finally:
        forget_families(shapes, events, start, all_written, parent, written)
    size, weight = size[:count], weight[:count]
    transactions = int(size.sum())
    largest = int(size.max()) if count else 0
    leftover = np.empty(0, np.int64)
    if leave_largest and count:
        chosen = int(weight.argmax())
        leftover = np.flatnonzero(family[start:] == chosen) + start
        family[leftover] = -1
        weight[chosen] = 0
    worker_of, load = take("family worker", count, np.int32), np.zeros(workers, np.int64)
    share_out(weight, max(int(weight.sum()) // (8 * workers), 2), worker_of, load)
    first, listed = np.empty(workers + 1, np.int64), take("family events", len(order) - start, np.int64)
    list_events(order, family, worker_of, start, first, listed)
    return Families(count, largest, transactions, load, first, listed, leftover)


def run(families: Families, workers: Workers, serial: SerialRun, batch: Batch) -> int:
    """Run every worker's families; returns how many events plain Python ran."""
    interpreted = np.zeros(workers.count, np.int64)

    def task(worker: int) -> None:
        begin, end = int(families.first[worker]), int(families.first[worker + 1])
        if begin < end:
            interpreted[worker] = serial.run(batch, families.events, begin, end)

    workers.run(task)
    return int(interpreted.sum())
