"""A priority queue of rows by time, as a binary heap in arrays.

    times    3   7   5   9   8          times[n] <= times[2n + 1] and times[2n + 2]
    slots    a   d   b   e   a          the slots of rows
    first    slot -> its lowest time in the queue, or `NEVER`, which no time is above

An entry is valid if its time is the `first` of its slot; a later entry of a slot (a at 8) is dropped when it comes out.
"""

from __future__ import annotations

from tidegate.foundation.jit import kernel


@kernel
def push_earlier(times, slots, count, first, new_times, new_slots):  # type: ignore[no-untyped-def]
    """Add those rows that have no entry that is as early; returns the number of entries. Arrays have room for all."""
    for row in range(new_slots.shape[0]):
        time, slot = new_times[row], new_slots[row]
        if not time < first[slot]:  # as early, never, or NaN
            continue
        first[slot] = time
        place = count
        count += 1
        while place > 0 and time < times[(place - 1) // 2]:
            parent = (place - 1) // 2
            times[place], slots[place] = times[parent], slots[parent]
            place = parent
        times[place], slots[place] = time, slot
    return count


@kernel
def pop_below(times, slots, count, first, never, limit, popped_out):  # type: ignore[no-untyped-def]
    """Take out the rows whose time is below a limit, as many as there is room for.

    Returns the number of entries that are left, and the number of rows that were taken out.
    """
    popped = 0
    while count > 0 and times[0] < limit and popped < popped_out.shape[0]:
        if times[0] == first[slots[0]]:
            first[slots[0]] = never
            popped_out[popped] = slots[0]
            popped += 1
        count -= 1
        time, slot = times[count], slots[count]
        place = 0
        while 2 * place + 1 < count:
            child = 2 * place + 1
            if child + 1 < count and times[child + 1] < times[child]:
                child += 1
            if not times[child] < time:
                break
            times[place], slots[place] = times[child], slots[child]
            place = child
        times[place], slots[place] = time, slot
    return count, popped
