"""Kernels of dataflow graphs: rows by keys known only now, which rows a group wrote, what is forgotten, traces."""

from __future__ import annotations

import numpy as np

from tidegate.engine.kernels.index import add, find
from tidegate.foundation.atomics import ticks
from tidegate.foundation.jit import kernel

LARGEST = (1 << 63) - 1


@kernel
def slot_of(index, wanted):  # type: ignore[no-untyped-def]
    """The slot of the first key of `wanted`, made if it is new; -1 when the table must grow first."""
    entries = index[0]
    mask = np.uint64((entries.shape[0] >> 1) - 1)
    slot = find(entries, mask, index[1], wanted, 0)
    if slot < 0:
        slot = add(index, wanted, 0)
    return slot


@kernel
def touch(slots, count, marks, touched, touched_count):  # type: ignore[no-untyped-def]
    """Note the rows that were written, each once."""
    for position in range(count[0]):
        slot = slots[position]
        if not marks[slot]:
            marks[slot] = True
            touched[touched_count[0]] = slot
            touched_count[0] += 1


@kernel
def is_forgotten(time, latest, keep):  # type: ignore[no-untyped-def]
    """Whether a state is too old to be asked for: its time is not above the latest one minus what is kept."""
    return time <= LARGEST - keep and time + keep <= latest


@kernel
def step_places(trace, words, places_out):  # type: ignore[no-untyped-def]
    """Where each step of a trace begins, as its length leads to the next; returns how many there are."""
    place, count = 0, 0
    while place < trace.shape[0]:
        places_out[count] = place
        count += 1
        place += trace[place + words]
    return count


@kernel
def tick():  # type: ignore[no-untyped-def]
    """When something happened: what is later, on whatever worker, has a larger number."""
    return ticks()
