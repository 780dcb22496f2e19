"""The string pool's kernels: every distinct string gets a number, by hashing its bytes.

    buckets   number | -1 | number ...       open addressing, linear probing
    starts    number -> first byte in `data`; the next entry is its end
    hashes    number -> hash of its bytes, so that growing never reads the bytes again

`counters` holds [strings, bytes used]. Like the key index, these kernels stop when an array is full.
"""

from __future__ import annotations

import numpy as np

from tidegate.foundation.jit import kernel

STRINGS, BYTES = 0, 1
_PRIME = np.uint64(0x100000001B3)
_SEED = np.uint64(0xCBF29CE484222325)
_FOLD = np.uint64(29)


@kernel
def hash_bytes(data, start, stop):  # type: ignore[no-untyped-def]
    """A 64-bit hash of some bytes."""
    value = _SEED
    for position in range(start, stop):
        value = (value ^ np.uint64(data[position])) * _PRIME
    value ^= value >> _FOLD
    value *= np.uint64(0xBF58476D1CE4E5B9)
    value ^= value >> np.uint64(32)
    return value


@kernel
def intern(pool, offsets, data, start, numbers_out):  # type: ignore[no-untyped-def]
    """The numbers of strings from `start` on; returns where it stopped because an array is full."""
    buckets, starts, hashes, held, counters = pool
    mask = np.uint64(buckets.shape[0] - 1)
    for row in range(start, numbers_out.shape[0]):
        first, last = offsets[row], offsets[row + 1]
        size = last - first
        value = hash_bytes(data, first, last)
        bucket = np.int64(value & mask)
        number = buckets[bucket]
        while number >= 0:
            if hashes[number] == value and starts[number + 1] - starts[number] == size:
                position, begin = 0, starts[number]
                while position < size and held[begin + position] == data[first + position]:
                    position += 1
                if position == size:
                    break
            bucket = np.int64(np.uint64(bucket + 1) & mask)
            number = buckets[bucket]
        if number < 0:
            number = counters[STRINGS]
            used = counters[BYTES]
            full = number + 1 >= hashes.shape[0] or 4 * (number + 1) > 3 * buckets.shape[0]
            if full or used + size > held.shape[0]:
                return row
            for position in range(size):
                held[used + position] = data[first + position]
            starts[number + 1] = used + size
            hashes[number] = value
            buckets[bucket] = number
            counters[STRINGS] += 1
            counters[BYTES] += size
        numbers_out[row] = number
    return numbers_out.shape[0]


@kernel
def fill_buckets(buckets, hashes, count):  # type: ignore[no-untyped-def]
    """Enter the first `count` strings into empty buckets."""
    mask = np.uint64(buckets.shape[0] - 1)
    for number in range(count):
        bucket = np.int64(hashes[number] & mask)
        while buckets[bucket] >= 0:
            bucket = np.int64(np.uint64(bucket + 1) & mask)
        buckets[bucket] = number


@kernel
def match_names(offsets, data, name_offsets, name_data, kinds_out):  # type: ignore[no-untyped-def]
    """The number of each string among a few names, -1 where it is none of them."""
    names = name_offsets.shape[0] - 1
    for row in range(kinds_out.shape[0]):
        first, size = offsets[row], offsets[row + 1] - offsets[row]
        kinds_out[row] = -1
        for name in range(names):
            begin = name_offsets[name]
            if name_offsets[name + 1] - begin == size:
                position = 0
                while position < size and name_data[begin + position] == data[first + position]:
                    position += 1
                if position == size:
                    kinds_out[row] = name
                    break


@kernel
def hash_rows(offsets, data, hashes_out):  # type: ignore[no-untyped-def]
    """A hash of each string."""
    for row in range(hashes_out.shape[0]):
        hashes_out[row] = hash_bytes(data, offsets[row], offsets[row + 1])
