"""The key index: open addressing over 64-bit words, linear probing, removal without tombstones.

A key is one or more 64-bit words (an int, the number of a string, the bits of a float, a bool). The
index maps a key to the slot in which its row is stored:

    entries   tag slot | tag slot | - -1 | ...       one cache line holds four of them
    keys      slot -> words of its key

The tag of a one-word key is the key itself, so a look-up touches one cache line; that of a longer
key is a hash, and a match is checked against `keys`. A slot of -1 marks an empty entry. Removal
shifts later entries of the same run back, so probing never slows down with age.

`counters` holds [rows in the index, first slot never used, free slots, fresh slots]. `fresh` lists
the slots that were made since the list was last emptied: a key that is only read gets a slot for the
time of its batch. Kernels never allocate: they stop, and return where, when an array is full.
"""

from __future__ import annotations

import numpy as np

from tidegate.foundation.jit import kernel

COUNT, NEXT, FREE, FRESH = 0, 1, 2, 3
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_SHIFT, _ONE = np.uint64(32), np.uint64(1)
_STEPS = 3


@kernel
def scramble(word):  # type: ignore[no-untyped-def]
    """A 64-bit mix of a word: every input bit reaches the upper half."""
    mixed = np.uint64(word)
    mixed ^= mixed >> _SHIFT
    mixed *= _GOLDEN
    mixed ^= mixed >> _SHIFT
    return mixed


@kernel
def tag_of(keys, row):  # type: ignore[no-untyped-def]
    """The tag of a key: itself when it is one word, else a hash of its words."""
    if keys.shape[1] == 1:
        return keys[row, 0]
    tag = np.uint64(keys.shape[1])
    for word in range(keys.shape[1]):
        tag = scramble(tag ^ np.uint64(keys[row, word])) + tag * _GOLDEN
    return np.int64(tag)


@kernel
def probe_word(entries, mask, tag):  # type: ignore[no-untyped-def]
    """The slot of a one-word key, or -1."""
    bucket = np.int64(scramble(tag) & mask)
    slot = entries[2 * bucket + 1]
    while slot >= 0 and entries[2 * bucket] != tag:
        bucket = np.int64(np.uint64(bucket + 1) & mask)
        slot = entries[2 * bucket + 1]
    return slot


@kernel
def probe_words(entries, mask, keys, wanted, row):  # type: ignore[no-untyped-def]
    """The slot of a key of several words, or -1."""
    tag = tag_of(wanted, row)
    bucket = np.int64(scramble(tag) & mask)
    while True:
        slot = entries[2 * bucket + 1]
        if slot < 0:
            return slot
        if entries[2 * bucket] == tag:
            word = 0
            while word < wanted.shape[1] and keys[slot, word] == wanted[row, word]:
                word += 1
            if word == wanted.shape[1]:
                return slot
        bucket = np.int64(np.uint64(bucket + 1) & mask)


@kernel
def find(entries, mask, keys, wanted, row):  # type: ignore[no-untyped-def]
    """The slot of key number `row` of `wanted`, or -1.

    Kept apart from `add`, which is rare and large: inlined together, a look-up took 50 ns instead of 10.
    """
    if wanted.shape[1] == 1:
        return probe_word(entries, mask, wanted[row, 0])
    return probe_words(entries, mask, keys, wanted, row)


@kernel
def add(index, wanted, row):  # type: ignore[no-untyped-def]
    """The slot made for a key that is not there; -1 when an array must grow first."""
    entries, keys, counters, free, fresh = index
    mask = np.uint64((entries.shape[0] >> 1) - 1)
    full = 4 * (counters[COUNT] + 1) > 3 * (entries.shape[0] >> 1) or counters[FRESH] >= fresh.shape[0]
    if full or (counters[FREE] == 0 and counters[NEXT] >= keys.shape[0]):
        return np.int64(-1)
    if counters[FREE] > 0:
        counters[FREE] -= 1
        slot = free[counters[FREE]]
    else:
        slot = counters[NEXT]
        counters[NEXT] += 1
    tag = tag_of(wanted, row)
    bucket = np.int64(scramble(tag) & mask)
    while entries[2 * bucket + 1] >= 0:
        bucket = np.int64(np.uint64(bucket + 1) & mask)
    for word in range(wanted.shape[1]):
        keys[slot, word] = wanted[row, word]
    entries[2 * bucket] = tag
    entries[2 * bucket + 1] = slot
    counters[COUNT] += 1
    fresh[counters[FRESH]] = slot
    counters[FRESH] += 1
    return slot


@kernel
def resolve_all(index, wanted, start, slots_out):  # type: ignore[no-untyped-def]
    """The slots of all keys from `start` on; returns where it stopped because an array is full."""
    entries, keys = index[0], index[1]
    mask = np.uint64((entries.shape[0] >> 1) - 1)
    for row in range(start, wanted.shape[0]):
        slot = find(entries, mask, keys, wanted, row)
        if slot < 0:
            slot = add(index, wanted, row)
            if slot < 0:
                return row
        slots_out[row] = slot
    return wanted.shape[0]


@kernel
def resolve_events(index, wanted, start, events, chosen_rows, slots_out):  # type: ignore[no-untyped-def]
    """The slots of the keys of those events whose transaction needs this column.

    `chosen_rows` is room for a block of row numbers.
    """
    kinds, status, needed = events
    entries, keys = index[0], index[1]
    mask = np.uint64((entries.shape[0] >> 1) - 1)
    if wanted.shape[1] > 1:
        for row in range(start, wanted.shape[0]):
            if status[row] == 0 and needed[kinds[row]]:
                slot = probe_words(entries, mask, keys, wanted, row)
                if slot < 0:
                    slot = add(index, wanted, row)
                    if slot < 0:
                        return row
                slots_out[row] = slot
        return wanted.shape[0]
    # In blocks, and without a jump where a read of the table is awaited, so that these reads overlap: first the rows
    # that need a look-up, then what stands where each key belongs, and one and two entries further; then what is left.
    # 8 ns a key of 100,000; 15 where only the rows are found first, 35 one by one. Half of the gain is that places are
    # unsigned: Numba tests each signed one for being negative.
    for begin in range(start, wanted.shape[0], chosen_rows.shape[0]):
        end = np.uint64(min(begin + chosen_rows.shape[0], wanted.shape[0]))
        count = np.uint64(0)
        for row in range(np.uint64(begin), end):
            chosen_rows[count] = row
            count += np.uint64((status[row] == 0) & needed[kinds[row]])
        for step in range(_STEPS):
            left = np.uint64(0)
            for position in range(np.uint64(0), count):
                event = np.uint64(chosen_rows[position])
                tag = wanted[event, 0]
                place = ((scramble(tag) + np.uint64(step)) & mask) << _ONE
                slot = entries[place | _ONE]
                slots_out[event] = slot
                chosen_rows[left] = event
                left += np.uint64((slot < 0) | (entries[place] != tag))
            count = left
        for position in range(np.uint64(0), count):
            row = chosen_rows[position]
            slot = probe_word(entries, mask, wanted[row, 0])
            if slot < 0:
                slot = add(index, wanted, row)
                if slot < 0:
                    return row
            slots_out[row] = slot
    return wanted.shape[0]


@kernel
def resolve_lists(index, wanted, start, events, offsets, slots_out):  # type: ignore[no-untyped-def]
    """The same for a list column: `start` counts events, `wanted` holds all elements."""
    kinds, status, needed = events
    entries, keys = index[0], index[1]
    mask = np.uint64((entries.shape[0] >> 1) - 1)
    for row in range(start, kinds.shape[0]):
        if status[row] == 0 and needed[kinds[row]]:
            for element in range(offsets[row], offsets[row + 1]):
                slot = find(entries, mask, keys, wanted, element)
                if slot < 0:
                    slot = add(index, wanted, element)
                    if slot < 0:
                        return row
                slots_out[element] = slot
    return kinds.shape[0]


@kernel
def find_all(index, wanted, slots_out):  # type: ignore[no-untyped-def]
    """The slots of all keys, -1 where there is none."""
    entries, keys = index[0], index[1]
    mask = np.uint64((entries.shape[0] >> 1) - 1)
    for row in range(wanted.shape[0]):
        slots_out[row] = find(entries, mask, keys, wanted, row)


@kernel
def rebuild(index):  # type: ignore[no-untyped-def]
    """Fill an empty, larger `entries` from the slots that `fresh` lists (used while growing)."""
    entries, keys, counters, _free, slots = index
    mask = (entries.shape[0] >> 1) - 1
    for position in range(counters[COUNT]):
        slot = slots[position]
        tag = tag_of(keys, slot)
        bucket = np.int64(scramble(tag) & np.uint64(mask))
        while entries[2 * bucket + 1] >= 0:
            bucket = (bucket + 1) & mask
        entries[2 * bucket] = tag
        entries[2 * bucket + 1] = slot


@kernel
def remove_absent(index, exists, slots):  # type: ignore[no-untyped-def]
    """Take the slots whose row does not exist out of the index and free them."""
    entries, keys, counters, free, _fresh = index
    mask = (entries.shape[0] >> 1) - 1
    for position in range(slots.shape[0]):
        slot = slots[position]
        if exists[slot]:
            continue
        bucket = np.int64(scramble(tag_of(keys, slot)) & np.uint64(mask))
        while entries[2 * bucket + 1] != slot:
            if entries[2 * bucket + 1] < 0:
                break
            bucket = (bucket + 1) & mask
        if entries[2 * bucket + 1] != slot:
            continue  # freed already: listed twice
        hole, following = bucket, (bucket + 1) & mask
        while entries[2 * following + 1] >= 0:
            home = np.int64(scramble(entries[2 * following]) & np.uint64(mask))
            if ((following - home) & mask) >= ((following - hole) & mask):
                entries[2 * hole] = entries[2 * following]
                entries[2 * hole + 1] = entries[2 * following + 1]
                hole = following
            following = (following + 1) & mask
        entries[2 * hole + 1] = -1
        counters[COUNT] -= 1
        free[counters[FREE]] = slot
        counters[FREE] += 1


@kernel
def list_slots(entries, slots_out):  # type: ignore[no-untyped-def]
    """All slots in the index, in no particular order; returns how many."""
    count = 0
    for bucket in range(entries.shape[0] >> 1):
        if entries[2 * bucket + 1] >= 0:
            slots_out[count] = entries[2 * bucket + 1]
            count += 1
    return count
