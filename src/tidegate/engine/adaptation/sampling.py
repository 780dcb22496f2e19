"""What a batch looks like, from a sample of it: how often transactions meet, and the hottest row."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.engine.batch import Batch
from tidegate.operations.plan import ProgramPlan

Array = npt.NDArray[Any]
SAMPLE_EVENTS = 1024


def sample_conflicts(plan: ProgramPlan, batch: Batch, order: Array, start: int) -> tuple[float, float]:
    """How likely two transactions write the same row, and the share of transactions that write the hottest one."""
    step = max(1, (len(order) - start) // SAMPLE_EVENTS)
    events = order[start::step][:SAMPLE_EVENTS]
    events = events[batch.status[events] == 0]
    if len(events) < 2:
        return 1.0, 1.0
    conflict, hot = 0.0, 0.0
    numbers = {layout.name: number for number, layout in enumerate(plan.tables)}
    touched: dict[int, list[Array]] = {}
    for position, binding in enumerate(plan.rows):
        users = events[np.isin(batch.kinds[events], binding.writers or binding.users)]
        offsets, slots = batch.rows[position].offsets, batch.slots[position]
        if offsets is None:
            found = slots[users]
        else:
            found = np.concatenate([slots[offsets[event] : offsets[event + 1]] for event in users] or [slots[:0]])
        if binding.writers:
            touched.setdefault(numbers[binding.parameter.table.name], []).append(found)  # type: ignore[union-attr]
    for parts in touched.values():
        rows, counts = np.unique(np.concatenate(parts), return_counts=True)
        if len(rows):
            pairs = float(np.sum(counts * (counts - 1))) / (len(events) * (len(events) - 1))
            conflict += pairs
            # A row seen once says nothing; one seen often is as hot as it was seen.
            hot = max(hot, float(counts.max() - 1) / len(events))
    return min(conflict, 1.0), min(hot, 1.0)
