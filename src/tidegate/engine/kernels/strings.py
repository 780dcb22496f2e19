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
_FIRST_BYTES = np.array([(1 << (8 * size)) - 1 for size in range(9)], np.uint64)


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
def find_texts(pool, offsets, data, numbers_out):  # type: ignore[no-untyped-def]
    """The numbers of strings, -1 for those that the pool does not hold; adds none."""
    buckets, starts, hashes, held, _counters = pool
    mask = np.uint64(buckets.shape[0] - 1)
    for row in range(numbers_out.shape[0]):
        first, size = offsets[row], offsets[row + 1] - offsets[row]
        value = hash_bytes(data, first, first + size)
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
        numbers_out[row] = number


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
def first_word(data, words, start, size):  # type: ignore[no-untyped-def]
    """The first eight bytes from `start` on as one number, zeros behind `size`.

    `words` are the same bytes, eight at a time: two loads and two shifts instead of eight loads.
    """
    place = start >> 3
    if place + 1 < words.shape[0]:
        shift = np.uint64((start & 7) << 3)
        word = (words[place] >> shift) | ((words[place + 1] << (np.uint64(63) - shift)) << np.uint64(1))
        return word & _FIRST_BYTES[min(size, 8)]
    word = np.uint64(0)
    for byte in range(min(size, 8)):
        word |= np.uint64(data[start + byte]) << np.uint64(8 * byte)
    return word


@kernel
def match_names(offsets, data, words, names, kinds_out):  # type: ignore[no-untyped-def]
    """The number of each string among a few names, -1 where it is none of them.

    Names differ in their sizes and first eight bytes, as a rule: one comparison without a jump for each.
    """
    name_offsets, name_data, name_words = names
    for row in range(kinds_out.shape[0]):
        first, size = offsets[row], offsets[row + 1] - offsets[row]
        word = first_word(data, words, first, size)
        kind = -1
        for name in range(name_words.shape[0]):
            begin = name_offsets[name]
            same = (name_offsets[name + 1] - begin == size) & (name_words[name] == word)
            if size > 8 and same:
                position = 8
                while position < size and name_data[begin + position] == data[first + position]:
                    position += 1
                same = position == size
            kind = name if same else kind
        kinds_out[row] = kind


@kernel
def place_texts(numbers, starts, offsets_out):  # type: ignore[no-untyped-def]
    """Where each row's text begins when row n has text number `numbers[n] - 1`, or none for 0."""
    end = 0
    offsets_out[0] = 0
    for row in range(numbers.shape[0]):
        number = numbers[row]
        if number > 0:
            end += starts[number] - starts[number - 1]
        offsets_out[row + 1] = end
    return end


@kernel
def copy_texts(numbers, starts, texts, offsets, data_out):  # type: ignore[no-untyped-def]
    """Write each row's text to its place."""
    for row in range(numbers.shape[0]):
        number = numbers[row]
        if number > 0:
            begin, place = starts[number - 1], offsets[row]
            for position in range(starts[number] - begin):
                data_out[place + position] = texts[begin + position]


@kernel
def hash_rows(offsets, data, hashes_out):  # type: ignore[no-untyped-def]
    """A hash of each string."""
    for row in range(hashes_out.shape[0]):
        hashes_out[row] = hash_bytes(data, offsets[row], offsets[row + 1])
