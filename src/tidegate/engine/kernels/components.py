"""Kernels that find transactions that have nothing to do with each other.

Two transactions are related if one writes a row that the other touches, and so on through others. What is
not related needs no order: each worker runs whole families of related transactions, serially and in place,
without a graph, versions or locks.

    t1 moves A -> B     t2 moves C -> D     t3 moves B -> E         {t1, t3}  {t2}

Families are found by joining the rows that a transaction touches (disjoint sets, path halving), by all workers
at once: the marks that `planning` keeps per row serve as the sets' parents, -1 for a row that is its own. The
parent of a row is always one with a smaller number, so no circle can come about, and a link is made by an atomic
exchange, or tried again from the new root. Several workers may touch a row at once, so every mark that they share
is read and written by atomic operations; on common processors that takes no longer than a plain one.
"""

from __future__ import annotations

import numpy as np

from tidegate.engine.kernels.graph import rows_of
from tidegate.foundation.atomics import compare_exchange, load, peek, store
from tidegate.foundation.jit import inline, kernel

ALONE = -2  # instead of a root: the event is a family of its own
WRITTEN = -2  # a mark of rows that some transaction of the batch may write


@inline
def _root(parent, row):  # type: ignore[no-untyped-def]
    above = load(parent, row)
    while above >= 0:
        higher = load(parent, above)
        if higher >= 0:
            store(parent, row, higher)  # still an ancestor, even if sets are joined meanwhile
        row, above = above, higher
    return row


@inline
def _join(parent, one, other):  # type: ignore[no-untyped-def]
    """Make two rows members of one set; returns a row of it near the root."""
    while True:
        one, other = _root(parent, one), _root(parent, other)
        if one == other:
            return one
        if one > other:
            one, other = other, one
        if compare_exchange(parent, other, -1, one):
            return one


@inline
def row_number(shapes, parameter, event, element):  # type: ignore[no-untyped-def]
    """The number of a row among the rows of all tables."""
    column = shapes.parameter_row[parameter]
    offsets = shapes.row_offsets[column]
    position = event if offsets == 0 else peek(offsets, event) + element
    return shapes.row_base[shapes.parameter_table[parameter]] + peek(shapes.row_slots[column], position)


@kernel
def mark_written(shapes, events, begin, end, written_out):  # type: ignore[no-untyped-def]
    """Mark the rows that some transaction may write: only they relate those who touch them."""
    order, kinds, status = events
    for position in range(begin, end):
        event = order[position]
        if status[event] != 0:
            continue
        kind = kinds[event]
        for parameter in range(shapes.kind_first[kind], shapes.kind_first[kind + 1]):
            if shapes.parameter_write[parameter]:
                for element in range(rows_of(shapes, parameter, event)):
                    store(written_out, row_number(shapes, parameter, event, element), WRITTEN)


@kernel
def join_rows(shapes, events, begin, end, all_written, written, parent_out):  # type: ignore[no-untyped-def]
    """Join the rows of each transaction (union-find), except rows that no transaction writes."""
    order, kinds, status = events
    for position in range(begin, end):
        event = order[position]
        if status[event] != 0:
            continue
        kind = kinds[event]
        first = -1
        for parameter in range(shapes.kind_first[kind], shapes.kind_first[kind + 1]):
            for element in range(rows_of(shapes, parameter, event)):
                row = row_number(shapes, parameter, event, element)
                if all_written or written[row] == WRITTEN:
                    first = row if first < 0 else _join(parent_out, first, row)


@kernel
def find_roots(shapes, events, begin, end, all_written, written, parent, root_out):  # type: ignore[no-untyped-def]
    """The root of each event's rows: -1 for an event that is refused, `ALONE` if it touches no written row."""
    order, kinds, status = events
    for position in range(begin, end):
        event = order[position]
        root_out[position] = -1
        if status[event] != 0:
            continue
        kind = kinds[event]
        root_out[position] = ALONE
        for parameter in range(shapes.kind_first[kind], shapes.kind_first[kind + 1]):
            if root_out[position] >= 0:
                break
            for element in range(rows_of(shapes, parameter, event)):
                row = row_number(shapes, parameter, event, element)
                if all_written or written[row] == WRITTEN:
                    root_out[position] = _root(parent, row)
                    break


@kernel
def number_families(shapes, events, start, parent, family_out, weight_out):  # type: ignore[no-untyped-def]
    """Turn roots into numbers of families, in the order in which these appear.

    The parent of a root becomes -2 - the number of its family. A family weighs as much as its transactions have
    operations. Returns how many families and transactions there are.
    """
    order, kinds, _ = events
    families, transactions = 0, 0
    for position in range(start, order.shape[0]):
        root = family_out[position]
        if root == -1:
            continue
        if root >= 0 and parent[root] < -1:
            family = -2 - parent[root]
        else:
            family = families
            weight_out[family] = 0
            families += 1
            if root >= 0:
                parent[root] = -2 - family
        family_out[position] = family
        transactions += 1
        kind = kinds[order[position]]
        weight_out[family] += max(1, shapes.slice_first[kind + 1] - shapes.slice_first[kind])
    return families, transactions


@kernel
def forget_families(shapes, events, begin, end, all_written, parent_out, written_out):  # type: ignore[no-untyped-def]
    """Make the marks ready for the next use."""
    order, kinds, status = events
    for position in range(begin, end):
        event = order[position]
        if status[event] != 0:
            continue
        kind = kinds[event]
        for parameter in range(shapes.kind_first[kind], shapes.kind_first[kind + 1]):
            for element in range(rows_of(shapes, parameter, event)):
                row = row_number(shapes, parameter, event, element)
                store(parent_out, row, -1)
                if not all_written:
                    store(written_out, row, -1)


@kernel
def bundle(weight, left_out, parts, least, bundle_out):  # type: ignore[no-untyped-def]
    """Put small families together; returns how many bundles there are.

    A bundle weighs about 1/`parts` of what is not in a bundle yet, but at least `least`: bundles become smaller
    towards the end, where a large one would leave other workers idle. A family that weighs as much is its own bundle;
    the one that is `left_out` gets -1.
    """
    remaining = np.int64(0)
    for family in range(weight.shape[0]):
        if family != left_out:
            remaining += weight[family]
    bundles, filled, limit = 0, np.int64(0), np.int64(0)
    open_bundle = -1
    for family in range(weight.shape[0]):
        if family == left_out:
            bundle_out[family] = -1
            continue
        if weight[family] >= max(remaining // parts, least):
            bundle_out[family] = bundles
            bundles += 1
        else:
            if filled >= limit:
                limit = max(remaining // parts, least)
                open_bundle = bundles
                bundles += 1
                filled = np.int64(0)
            bundle_out[family] = open_bundle
            filled += weight[family]
        remaining -= weight[family]
    return bundles


@kernel
def list_events(order, start, family, bundle_of, first_out, event_out):  # type: ignore[no-untyped-def]
    """The events of each bundle, in timestamp order; `first_out` says where each bundle's begin."""
    first_out[:] = 0
    for index in range(family.shape[0]):
        if family[index] >= 0 and bundle_of[family[index]] >= 0:
            first_out[bundle_of[family[index]] + 1] += 1
    for index in range(1, first_out.shape[0]):
        first_out[index] += first_out[index - 1]
    for index in range(family.shape[0]):
        if family[index] >= 0 and bundle_of[family[index]] >= 0:
            found = bundle_of[family[index]]
            event_out[first_out[found]] = order[start + index]
            first_out[found] += 1
    for index in range(first_out.shape[0] - 1, 0, -1):
        first_out[index] = first_out[index - 1]
    first_out[0] = 0
