"""Kernels that find transactions that have nothing to do with each other.

Two transactions are related if one writes a row that the other touches, and so on through others. What is
not related needs no order: each worker runs whole families of related transactions, serially and in place,
without a graph, versions or locks.

    t1 moves A -> B     t2 moves C -> D     t3 moves B -> E         {t1, t3}  {t2}

Families are found by joining the rows that a transaction touches (disjoint sets, path halving): the marks
that `planning` keeps per row serve as the sets' parents, -1 for a row that is its own.
"""

from __future__ import annotations

from tidegate.engine.kernels.graph import rows_of
from tidegate.foundation.atomics import peek
from tidegate.foundation.jit import generated, kernel

WRITTEN = -2  # a mark of rows that some transaction of the batch may write


@generated
def _root(parent, row):  # type: ignore[no-untyped-def]
    while parent[row] >= 0:
        above = parent[row]
        if parent[above] >= 0:
            parent[row] = parent[above]
        row = above
    return row


@generated
def _row(shapes, parameter, event, element):  # type: ignore[no-untyped-def]
    """The number of a row among the rows of all tables."""
    column = shapes.parameter_row[parameter]
    offsets = shapes.row_offsets[column]
    position = event if offsets == 0 else peek(offsets, event) + element
    return shapes.row_base[shapes.parameter_table[parameter]] + peek(shapes.row_slots[column], position)


@kernel
def mark_written(shapes, events, start, written_out):  # type: ignore[no-untyped-def]
    """Mark the rows that some transaction may write: only they relate those who touch them."""
    order, kinds, status = events
    for position in range(start, order.shape[0]):
        event = order[position]
        if status[event] != 0:
            continue
        kind = kinds[event]
        for parameter in range(shapes.kind_first[kind], shapes.kind_first[kind + 1]):
            if shapes.parameter_write[parameter]:
                for element in range(rows_of(shapes, parameter, event)):
                    written_out[_row(shapes, parameter, event, element)] = WRITTEN


@kernel
def join_rows(shapes, events, start, all_written, written, parent_out):  # type: ignore[no-untyped-def]
    """Join the rows of each transaction, except rows that nobody writes."""
    order, kinds, status = events
    for position in range(start, order.shape[0]):
        event = order[position]
        if status[event] != 0:
            continue
        kind = kinds[event]
        first = -1
        for parameter in range(shapes.kind_first[kind], shapes.kind_first[kind + 1]):
            for element in range(rows_of(shapes, parameter, event)):
                row = _row(shapes, parameter, event, element)
                if not all_written and written[row] != WRITTEN:
                    continue
                root = _root(parent_out, row)
                if first < 0:
                    first = root
                elif root != first:
                    parent_out[root] = first


@kernel
def find_families(shapes, events, start, all_written, written, parent, family_out, size_out, weight_out):  # type: ignore[no-untyped-def]
    """Number the families in the order in which they appear; returns how many.

    `family_out` has -1 for an event that is refused; one that touches no written row is a family of its own.
    The parent of a root becomes -2 - the number of its family. A family weighs as much as its transactions have
    operations.
    """
    order, kinds, status = events
    families = 0
    for position in range(start, order.shape[0]):
        event = order[position]
        family_out[position] = -1
        if status[event] != 0:
            continue
        kind = kinds[event]
        root = -1
        for parameter in range(shapes.kind_first[kind], shapes.kind_first[kind + 1]):
            if root >= 0:
                break
            for element in range(rows_of(shapes, parameter, event)):
                row = _row(shapes, parameter, event, element)
                if all_written or written[row] == WRITTEN:
                    root = _root(parent, row)
                    break
        if root >= 0 and parent[root] < -1:
            family = -2 - parent[root]
        else:
            family = families
            size_out[family] = 0
            weight_out[family] = 0
            families += 1
            if root >= 0:
                parent[root] = -2 - family
        family_out[position] = family
        size_out[family] += 1
        weight_out[family] += max(1, shapes.slice_first[kind + 1] - shapes.slice_first[kind])
    return families


@kernel
def forget_families(shapes, events, start, all_written, parent_out, written_out):  # type: ignore[no-untyped-def]
    """Make the marks ready for the next use."""
    order, kinds, status = events
    for position in range(start, order.shape[0]):
        event = order[position]
        if status[event] != 0:
            continue
        kind = kinds[event]
        for parameter in range(shapes.kind_first[kind], shapes.kind_first[kind + 1]):
            for element in range(rows_of(shapes, parameter, event)):
                row = _row(shapes, parameter, event, element)
                parent_out[row] = -1
                if not all_written:
                    written_out[row] = -1


@generated
def _lightest(load):  # type: ignore[no-untyped-def]
    chosen = 0
    for worker in range(1, load.shape[0]):
        if load[worker] < load[chosen]:
            chosen = worker
    return chosen


@kernel
def share_out(weight, large, worker_out, load_out):  # type: ignore[no-untyped-def]
    """Give each family to a worker: the large ones first, then the others, always to who has least."""
    load_out[:] = 0
    for turn in range(2):
        for family in range(worker_out.shape[0]):
            if (weight[family] >= large) == (turn == 0):
                worker = _lightest(load_out)
                worker_out[family] = worker
                load_out[worker] += weight[family]


@kernel
def list_events(order, family, worker_of, start, first_out, event_out):  # type: ignore[no-untyped-def]
    """The events of each worker, in the order of time; `first_out` says where each worker's begin."""
    first_out[:] = 0
    for position in range(start, order.shape[0]):
        if family[position] >= 0:
            first_out[worker_of[family[position]] + 1] += 1
    for index in range(1, first_out.shape[0]):
        first_out[index] += first_out[index - 1]
    for position in range(start, order.shape[0]):
        if family[position] >= 0:
            worker = worker_of[family[position]]
            event_out[first_out[worker]] = order[position]
            first_out[worker] += 1
    for index in range(first_out.shape[0] - 1, 0, -1):
        first_out[index] = first_out[index - 1]
    first_out[0] = 0
