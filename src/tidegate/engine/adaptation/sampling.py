"""Estimates from a sample of a batch: how often neighbouring transactions conflict, and how hot the hottest row is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.engine.batch import Batch
from tidegate.engine.kernels.neighbours import count_neighbours
from tidegate.operations.plan import ProgramPlan

Array = npt.NDArray[Any]
SAMPLE_EVENTS = 512
"""About how many events are sampled: sampling must stay cheap compared to running a small batch."""


def sample_neighbours(shapes: Any, batch: Batch, order: Array, start: int, workers: int) -> float:
    """The probability that a transaction has to wait for one that another worker runs at the same time."""
    step = _step(len(order) - start)
    while math.gcd(step, 6) > 1:  # events often come in pairs or threes
        step += 1
    events = (order, batch.kinds, batch.status)
    return float(count_neighbours(shapes, events, start, step, workers - 1, True))


def sample_hottest(plan: ProgramPlan, batch: Batch, order: Array, start: int) -> float:
    """The share of transactions that write the hottest row."""
    events = order[start :: _step(len(order) - start)]
    events = events[batch.status[events] == 0]
    if len(events) < 2:
        return 1.0
    hot = 0.0
    numbers = {layout.name: number for number, layout in enumerate(plan.tables)}
    touched: dict[int, list[Array]] = {}
    for position, binding in enumerate(plan.rows):
        if not binding.writers:
            continue
        users = events[np.isin(batch.kinds[events], binding.writers)]
        offsets, slots = batch.rows[position].offsets, batch.slots[position]
        if offsets is None:
            found = slots[users]
        else:
            lengths = offsets[users + 1] - offsets[users]
            ends = np.cumsum(lengths)
            found = slots[np.repeat(offsets[users + 1] - ends, lengths) + np.arange(int(lengths.sum()))]
        touched.setdefault(numbers[binding.parameter.table.name], []).append(found)  # type: ignore[union-attr]
    for parts in touched.values():
        rows, counts = np.unique(np.concatenate(parts), return_counts=True)
        if len(rows):  # minus one: a row seen once in the sample says nothing
            hot = max(hot, float(counts.max() - 1) / len(events))
    return min(hot, 1.0)


def _step(count: int) -> int:
    """The distance between two sampled events."""
    return max(1, count // SAMPLE_EVENTS)
