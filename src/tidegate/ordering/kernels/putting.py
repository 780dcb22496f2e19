"""Puts rows into the rings of nodes: what a source does, and whoever moves outputs on.

Only the worker that holds the flag of the node upstream puts rows in, so a ring has one producer at a time, and takes
rows in their order. It may put a row in if there is a free place (`has_room`): TAIL - NEXT only shrinks meanwhile, for
NEXT only grows. So nobody waits for room: who finds none leaves, and whoever makes room, or looks for work, tries
again.

A keyed operator finds the state of a record here, and its bucket:

    hash     scramble(key) % PARTITIONS                   range    how many BOUNDS are not above the key

The key index is open addressing with linear probing over pairs (key, slot), and has one writer at a time like the ring.
Where it is full the producer asks for room (NEEDS_ROOM) and stops all workers; the runtime then makes it larger, while
nobody reads it. A hole has no key, and counts to the first bucket.
"""

from __future__ import annotations

import numpy as np

from tidegate.engine.kernels.index import probe_word, scramble
from tidegate.foundation.atomics import address_of, compare_exchange, copy, load, peek, store, ticks
from tidegate.foundation.jit import inline, kernel
from tidegate.foundation.memory import integers_at
from tidegate.ordering.kernels.layout import (
    BOUNDS,
    BUCKETS,
    COUNTS,
    ENDS,
    FLOAT_KEY,
    FORK_BIT,
    HOLE,
    INDEX,
    INDEX_MASK,
    KEY,
    KIND,
    LINE,
    MASK,
    NEEDS_ROOM,
    NEXT,
    ORIGIN,
    PARTITIONS,
    PUT,
    QUEUE_MASK,
    QUEUES,
    ROWS,
    SINK,
    SLOTS,
    STATES,
    STATES_MAX,
    STOP,
    STRIDE,
    TAIL,
    TAKEN,
    TARGET,
    TARGETS,
    node_at,
)

NEGATIVE_ZERO, INFINITY = -(1 << 63), 0x7FF << 52
"""The bits of two floats."""


@inline
def has_room(memory, at):  # type: ignore[no-untyped-def]
    """Whether the ring of the node whose words are at `at` has a free place."""
    return memory[at + TAIL] - load(memory, at + NEXT) <= memory[at + MASK]


@inline
def bucket_of(memory, at, key):  # type: ignore[no-untyped-def]
    """The bucket of a key."""
    bounds, count = memory[at + BOUNDS], memory[at + PARTITIONS]
    if bounds < 0:
        return np.int64(scramble(key) % np.uint64(count))
    low, high = np.int64(0), count - 1
    while low < high:
        middle = (low + high) >> 1
        if memory[bounds + middle] <= key:
            low = middle + 1
        else:
            high = middle
    return low


@inline
def key_of(memory, at, row):  # type: ignore[no-untyped-def]
    """The key of the row at an address; 0.0 and -0.0 are one, as in Python, and so are all that are not a number."""
    key = peek(row, memory[at + KEY])
    if memory[at + FLOAT_KEY]:
        if key == NEGATIVE_ZERO:
            return key * 0
        if key & INFINITY > INFINITY - 1 and key & ~NEGATIVE_ZERO != INFINITY:
            return key * 0 + INFINITY + 1
    return key


@kernel
def slot_of(memory, at, key):  # type: ignore[no-untyped-def]
    """The state slot of a key, a new one for a new key; -1 when there is no room for one."""
    entries, mask = integers_at(memory[at + INDEX]), np.uint64(memory[at + INDEX_MASK])
    slot = probe_word(entries, mask, key)
    if slot >= 0:
        return slot
    slot = memory[at + STATES]
    if slot >= memory[at + STATES_MAX]:
        return np.int64(-1)
    bucket = np.int64(scramble(key) & mask)
    while entries[2 * bucket + 1] >= 0:
        bucket = np.int64(np.uint64(bucket + 1) & mask)
    entries[2 * bucket] = key
    entries[2 * bucket + 1] = slot
    memory[at + STATES] = slot + 1
    return slot


@kernel
def takes(memory, target, row, ends):  # type: ignore[no-untyped-def]
    """Whether a node can take the row at an address now."""
    at = node_at(target)
    if not has_room(memory, at):
        return False
    if memory[at + KEY] < 0:
        return True
    bucket = np.int64(0)
    if ends & HOLE == 0:
        key = key_of(memory, at, row)
        if slot_of(memory, at, key) < 0:
            store(memory, at + NEEDS_ROOM, 1)
            compare_exchange(memory, STOP, 0, 1)  # who ends the run is not contradicted
            return False
        bucket = bucket_of(memory, at, key)
    if memory[at + QUEUES] < 0:
        return True
    counter = memory[at + COUNTS] + LINE * bucket
    return memory[counter + PUT] - load(memory, counter + TAKEN) <= memory[at + QUEUE_MASK]


@kernel
def put(memory, target, row, origin, ends):  # type: ignore[no-untyped-def]
    """Put the row at an address into a node that can take it."""
    at = node_at(target)
    tail = memory[at + TAIL]
    place = tail & memory[at + MASK]
    stride = memory[at + STRIDE]
    base = memory[at + ROWS] + place * stride
    if ends & HOLE == 0:
        copy(row + 16, address_of(memory, base + 2), 8 * (stride - 2))
    memory[base + ORIGIN] = origin
    memory[base + ENDS] = ticks() if memory[at + KIND] == SINK else ends  # the end of all forks; when it left
    if memory[at + KEY] >= 0:
        bucket = tail * 0
        if ends & HOLE == 0:
            key = key_of(memory, at, row)
            memory[memory[at + SLOTS] + place] = slot_of(memory, at, key)
            bucket = bucket_of(memory, at, key)
        store(memory, memory[at + BUCKETS] + place, bucket)  # who finds HEAD too low may still read the place
        if memory[at + QUEUES] >= 0:
            counter = memory[at + COUNTS] + LINE * bucket
            queue_mask, number = memory[at + QUEUE_MASK], memory[counter + PUT]
            memory[memory[at + QUEUES] + bucket * (queue_mask + 1) + (number & queue_mask)] = tail
            store(memory, counter + PUT, number + 1)
    store(memory, at + TAIL, tail + 1)


@kernel
def pass_on(memory, node, row, origin, ends):  # type: ignore[no-untyped-def]
    """Put a row into all nodes behind a node; False, and into none, if one of them cannot take it.

    Behind a fork each copy is the last result of its branch for this record; only that in the last branch also ends
    what the record ended before.
    """
    at = node_at(node)
    count, bit = memory[at + TARGETS], memory[at + FORK_BIT]
    for number in range(count):
        target = memory[at + TARGET + number]
        if not (ends & HOLE and memory[node_at(target) + KIND] == SINK) and not takes(memory, target, row, ends):
            return False
    for number in range(count):
        target = memory[at + TARGET + number]
        if ends & HOLE and memory[node_at(target) + KIND] == SINK:
            continue
        kept = ends if number == count - 1 else ends & HOLE
        put(memory, target, row, origin, kept | bit)
    return True
