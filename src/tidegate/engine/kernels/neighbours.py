"""A kernel that estimates how often consecutive transactions touch the same rows.

Related events often follow each other in a stream: a vehicle is seen, counted, billed. Even where rows are drawn from
millions of keys, a worker that takes the next event must then wait for the previous one.
"""

from __future__ import annotations

from tidegate.engine.kernels.components import row_number
from tidegate.engine.kernels.graph import rows_of
from tidegate.foundation.jit import inline, kernel

ELEMENTS = 8  # elements of a list that are looked at


@inline
def _meets(shapes, kinds, event, other, reads_wait):  # type: ignore[no-untyped-def]
    """Whether an event has to wait for another, earlier one."""
    for mine in range(shapes.kind_first[kinds[event]], shapes.kind_first[kinds[event] + 1]):
        for theirs in range(shapes.kind_first[kinds[other]], shapes.kind_first[kinds[other] + 1]):
            waits = shapes.parameter_write[theirs] or (reads_wait and shapes.parameter_write[mine])
            if not waits or shapes.parameter_table[mine] != shapes.parameter_table[theirs]:
                continue
            for one in range(min(rows_of(shapes, mine, event), ELEMENTS)):
                for two in range(min(rows_of(shapes, theirs, other), ELEMENTS)):
                    if row_number(shapes, mine, event, one) == row_number(shapes, theirs, other, two):
                        return True
    return False


@kernel
def count_neighbours(shapes, events, start, step, distance, reads_wait):  # type: ignore[no-untyped-def]
    """The share of events that have to wait for one of the `distance` events before; every `step`th is looked at."""
    order, kinds, status = events
    looked, waiting = 0, 0
    for position in range(start + distance, order.shape[0], step):
        event = order[position]
        if status[event] != 0:
            continue
        looked += 1
        for back in range(1, distance + 1):
            other = order[position - back]
            if status[other] == 0 and _meets(shapes, kinds, event, other, reads_wait):
                waiting += 1
                break
    return waiting / max(looked, 1)
