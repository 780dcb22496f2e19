"""Kernels over the events of a batch: which rows were written, and whether events are in order."""

from __future__ import annotations

import numpy as np

from tidegate.foundation.jit import kernel

BLOCK_ROWS = 1024


@kernel
def refuse_marked(events, marked, reason):  # type: ignore[no-untyped-def]
    """Give the marked events of the chosen transactions a status, unless they have one; returns how many.

    The last entry of the choice stands for unknown transactions (-1).
    """
    kinds, status, chosen = events
    count = 0
    for begin in range(0, marked.shape[0], BLOCK_ROWS):  # hits are rare: count a block without jumps first
        end = min(begin + BLOCK_ROWS, marked.shape[0])
        hits = np.int64(0)
        for row in range(begin, end):
            hits += np.int64(marked[row]) & np.int64(status[row] == 0) & np.int64(chosen[kinds[row]])
        if hits > 0:
            for row in range(begin, end):
                if marked[row] and status[row] == 0 and chosen[kinds[row]]:
                    status[row] = reason
        count += int(hits)
    return count


@kernel
def touched_rows(events, slots, marks, touched_out, count):  # type: ignore[no-untyped-def]
    """Add the slots that committed transactions may have written to `touched_out`, each once."""
    kinds, status, writes = events
    for row in range(slots.shape[0]):  # without a jump: whether a row is the first to write its slot cannot be guessed
        slot = slots[row]
        wrote = (status[row] == 0) & writes[kinds[row]]
        touched_out[count] = slot
        count += wrote & ~marks[slot]
        marks[slot] |= wrote
    return count


@kernel
def touched_list_rows(events, offsets, slots, marks, touched_out, count):  # type: ignore[no-untyped-def]
    """The same for a list column."""
    kinds, status, writes = events
    for row in range(kinds.shape[0]):
        if status[row] == 0 and writes[kinds[row]]:
            for element in range(offsets[row], offsets[row + 1]):
                slot = slots[element]
                if not marks[slot]:
                    marks[slot] = True
                    touched_out[count] = slot
                    count += 1
    return count


@kernel
def is_strictly_increasing(values):  # type: ignore[no-untyped-def]
    """0: not in order; 1: in order with equal neighbours; 2: every value above the one before."""
    strict = 2
    for row in range(1, values.shape[0]):
        if values[row] < values[row - 1]:
            return 0
        if values[row] == values[row - 1]:
            strict = 1
    return strict


@kernel
def take_marked(slots, marks):  # type: ignore[no-untyped-def]
    """Move those of the slots that have a mark to the front, each once, and take their marks; returns how many."""
    count = 0
    for place in range(len(slots)):
        slot = slots[place]
        if marks[slot]:
            marks[slot] = False
            slots[count] = slot
            count += 1
    return count
