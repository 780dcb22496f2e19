"""Moves the results of a node on, in the order of its input: the reorder buffer, the source and merges.

Workers finish records in any order. A record that is done has its outputs in its place of the ring, and a status. Who
moves outputs on takes the record at NEXT, puts its outputs into the nodes behind, and advances NEXT, until the next
record is not done or nobody can take its outputs.

Non-blocking: one worker at a time moves outputs, the one that holds the node's flag. Others do not wait for it.

    finish:   status[s] = outputs + 1                        move:   while record NEXT is done and can be taken:
              move()                                                     if exchange(flag, 1) == 1: return
                                                                         move all that are done
                                                                         exchange(flag, 0)

Why no record is forgotten: a worker that finds the flag taken set its status before. The holder looks at the status of
record NEXT again after it has cleared the flag. If that worker's exchange came before the clearing, its status is seen
by this second look; if it came after, it found the flag clear and moves the record itself. The clearing is an exchange,
too, because a plain store could be delayed behind the second look. A worker that finds record NEXT not done leaves its
own to whoever finishes that one; its status is set by an exchange, for the same reason. Records that are done but
cannot be taken (the ring behind is full) are moved by whoever makes room or looks for work, because `move` starts with
the same look.

Why the order holds: only the holder of the flag reads and advances NEXT, MOVED and the rings behind, and it takes
records by their number. Why a place is not used twice: its status is cleared before NEXT passes it, and a record is put
there only after that.

With a lock (the baseline) a worker that finishes a record waits until it has the lock, so while one moves, the others
stand still.

The source is a node whose records are always done. A merge takes rows from its branches in turn, from each branch up to
the row that ends the record at the fork: every branch has exactly one such row for each record, a hole if need be.
"""

from __future__ import annotations

import numpy as np

from tidegate.foundation.atomics import address_of, exchange, free, load, relax_crowded, store, ticks
from tidegate.foundation.jit import inline, kernel
from tidegate.ordering.kernels.layout import (
    BLOCKS,
    BRANCHES,
    ENDS,
    FAILED,
    FLAG,
    HOLE,
    KIND,
    LOCKED,
    MASK,
    MERGE,
    MERGE_BIT,
    MOVED,
    NEXT,
    ORIGIN,
    OUT_STRIDE,
    OUTS,
    PROCESSED,
    ROWS,
    SOURCE,
    STARTED,
    STATUS,
    STRIDE,
    TAIL,
    TARGET,
    TARGETS,
    node_at,
)
from tidegate.ordering.kernels.putting import pass_on

SOURCE_ROWS = 256
"""So many rows at most enter at a time, so that nobody waits long for who brings them in."""


@inline
def is_done(memory, at):  # type: ignore[no-untyped-def]
    """Whether the record at NEXT of an operator is done; one that failed never is."""
    place = load(memory, at + NEXT) & memory[at + MASK]
    return load(memory, memory[at + STATUS] + place) > 0


@kernel
def _move_results(memory, node):  # type: ignore[no-untyped-def]
    """Move the outputs of an operator's records on, as far as they are done and taken.

    Returns how many steps it made; -1 minus that number if it stopped because a node behind could not take a row.
    """
    at = node_at(node)
    steps, statuses = 0, memory[at + STATUS]
    while True:
        number = memory[at + NEXT]
        place = number & memory[at + MASK]
        status = load(memory, statuses + place)
        if status <= 0:
            return steps
        row = memory[at + ROWS] + place * memory[at + STRIDE]
        origin, ends = memory[row + ORIGIN], memory[row + ENDS] & ~HOLE
        count = status - 1
        if count == 0 and ends != 0 and not pass_on(memory, node, np.int64(0), origin, ends | HOLE):
            return -1 - steps
        stride = memory[at + OUT_STRIDE]
        out = address_of(memory, memory[at + OUTS] + place * stride)
        if count > 1:
            out = memory[memory[at + BLOCKS] + place]
        moved = memory[at + MOVED]
        while moved < count:
            last = ends if moved == count - 1 else 0
            if not pass_on(memory, node, out + moved * stride * 8, origin, last):
                store(memory, at + MOVED, moved)
                return -1 - steps
            moved += 1
            steps += 1
        store(memory, at + MOVED, 0)
        if count > 1:
            free(out)
        memory[at + PROCESSED] += ticks() - memory[memory[at + STARTED] + place]
        store(memory, statuses + place, 0)
        store(memory, at + NEXT, number + 1)
        steps += 1


@kernel
def _move_source(memory, node):  # type: ignore[no-untyped-def]
    """Take rows from the source."""
    at = node_at(node)
    start = memory[at + NEXT]
    stop = min(load(memory, at + TAIL), start + SOURCE_ROWS)
    number = start
    while number < stop:
        row = memory[at + ROWS] + 8 * (number & memory[at + MASK]) * memory[at + STRIDE]
        if not pass_on(memory, node, row, ticks(), np.int64(0)):
            return start - number - 1
        number += 1
        store(memory, at + NEXT, number)
    return number - start


@kernel
def _move_merged(memory, node):  # type: ignore[no-untyped-def]
    """Take rows from the branches of a merge, in turn."""
    at = node_at(node)
    bit, steps = memory[at + MERGE_BIT], 0
    while True:
        turn = memory[at + MOVED]
        branch = node_at(memory[at + TARGET + memory[at + TARGETS] + turn])
        number = memory[branch + NEXT]
        if number >= load(memory, branch + TAIL):
            return steps
        row = memory[branch + ROWS] + (number & memory[branch + MASK]) * memory[branch + STRIDE]
        ends = memory[row + ENDS]
        kept = ends & ~bit
        if kept != HOLE and not pass_on(memory, node, address_of(memory, row), memory[row + ORIGIN], kept):
            return -1 - steps
        if ends & bit:
            store(memory, at + MOVED, (turn + 1) % memory[at + BRANCHES])
        store(memory, branch + NEXT, number + 1)
        steps += 1


@inline
def _move_any(memory, node):  # type: ignore[no-untyped-def]
    kind = memory[node_at(node) + KIND]
    if kind == SOURCE:
        return _move_source(memory, node)
    if kind == MERGE:
        return _move_merged(memory, node)
    return _move_results(memory, node)


@inline
def _may_move(memory, at):  # type: ignore[no-untyped-def]
    """Whether there may be something to move: a look without the flag."""
    kind = memory[at + KIND]
    if kind == SOURCE:  # what comes behind a failed record is not wanted
        return load(memory, at + NEXT) < load(memory, at + TAIL) and load(memory, FAILED) == 0
    if kind == MERGE:
        branch = node_at(memory[at + TARGET + memory[at + TARGETS] + load(memory, at + MOVED)])
        return load(memory, branch + NEXT) < load(memory, branch + TAIL)
    return is_done(memory, at)


@kernel
def move(memory, node):  # type: ignore[no-untyped-def]
    """Move the results of a node on, unless another worker does; returns how many steps it made."""
    at = node_at(node)
    steps = 0
    while _may_move(memory, at):
        if exchange(memory, at + FLAG, 1) != 0:
            return steps
        moved = _move_any(memory, node)
        exchange(memory, at + FLAG, 0)
        if moved < 0:
            return steps - 1 - moved
        steps += moved
    return steps


@kernel
def finish(memory, node, number, count):  # type: ignore[no-untyped-def]
    """Record `number` of an operator is done, with so many outputs; move what can be moved."""
    at = node_at(node)
    status = memory[at + STATUS] + (number & memory[at + MASK])
    if memory[LOCKED] == 0:
        exchange(memory, status, count + 1)
        move(memory, node)
        return
    spins = 0
    while exchange(memory, at + FLAG, 1) != 0:
        spins = relax_crowded(spins)
    store(memory, status, count + 1)
    _move_results(memory, node)
    exchange(memory, at + FLAG, 0)
