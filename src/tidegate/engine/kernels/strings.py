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
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_ONE, _THREE, _SEVEN = np.uint64(1), np.uint64(3), np.uint64(7)  # numbers of one type: mixed ones become floats
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
    place = np.uint64(start) >> _THREE
    if place + _ONE < np.uint64(words.shape[0]):
        shift = (np.uint64(start) & _SEVEN) << _THREE
        word = (words[place] >> shift) | ((words[place + _ONE] << (np.uint64(63) - shift)) << _ONE)
        return word & _FIRST_BYTES[np.uint64(min(size, 8))]
    word = np.uint64(0)
    for byte in range(min(size, 8)):
        word |= np.uint64(data[start + byte]) << np.uint64(8 * byte)
    return word


@kernel
def name_place(word, size, mask):  # type: ignore[no-untyped-def]
    """Where a name belongs in the table of names, by its first eight bytes and its size."""
    return (((word ^ np.uint64(size)) * _SPREAD) >> np.uint64(32)) & mask


@kernel
def place_names(names):  # type: ignore[no-untyped-def]
    """Enter all names, which differ, into their empty table."""
    name_offsets, _name_data, name_words, places = names
    mask = np.uint64(places.shape[0] - 1)
    for name in range(name_words.shape[0]):
        place = name_place(name_words[name], name_offsets[name + 1] - name_offsets[name], mask)
        while places[place] >= 0:
            place = (place + _ONE) & mask
        places[place] = name


@kernel
def is_name(name, names, data, first, size, word):  # type: ignore[no-untyped-def]
    """Whether `size` bytes from `first` on, of which `word` are the first eight, are a name."""
    name_offsets, name_data, name_words, _places = names
    begin = name_offsets[name]
    if name_words[name] != word or name_offsets[name + 1] - begin != size:
        return False
    for position in range(8, size):  # noqa: SIM110 (a generator would not be compiled)
        if name_data[begin + position] != data[first + position]:
            return False
    return True


@kernel
def match_names(offsets, data, words, names, kinds_out):  # type: ignore[no-untyped-def]
    """The number of each string among the names, -1 where it is none of them; returns how many are none.

    `names` are their offsets, bytes and first words, and a hash table of their numbers, -1 where it is empty.
    """
    places, others = names[3], 0
    mask = np.uint64(places.shape[0] - 1)
    for row in range(np.uint64(0), np.uint64(kinds_out.shape[0])):
        first = np.int64(offsets[row])
        size = np.int64(offsets[row + _ONE]) - first
        word = first_word(data, words, first, size)
        place = name_place(word, size, mask)
        name = places[place]
        while name >= 0 and not is_name(np.uint64(name), names, data, first, size, word):
            place = (place + _ONE) & mask
            name = places[place]
        kinds_out[row] = name
        others += name < 0
    return others


@kernel
def place_reasons(status, sizes, committed_out, offsets_out):  # type: ignore[no-untyped-def]
    """Which events committed, as bits, and where each one's reason begins, whose size its status tells; the end of all.

    A committed event has status 0, and a reason of size 0.
    """
    end, bits = 0, np.uint64(0)
    offsets_out[0] = 0
    for row in range(np.uint64(0), np.uint64(status.shape[0])):
        number = status[row]
        end += sizes[np.uint64(number)]
        offsets_out[row + _ONE] = end
        bits |= np.uint64(number == 0) << (row & _SEVEN)
        if row & _SEVEN == _SEVEN:
            committed_out[row >> _THREE] = bits
            bits = np.uint64(0)
    if status.shape[0] & 7:
        committed_out[status.shape[0] >> 3] = bits
    return end


@kernel
def copy_reasons(status, committed, starts, texts, offsets, data_out):  # type: ignore[no-untyped-def]
    """Write the reason of each event that did not commit to its place."""
    for byte in range(committed.shape[0]):
        if committed[byte] == 255:  # eight that did
            continue
        for row in range(8 * byte, min(8 * byte + 8, status.shape[0])):
            number = status[row]
            if number > 0:
                begin, place = starts[number - 1], offsets[row]
                for position in range(starts[number] - begin):
                    data_out[place + position] = texts[begin + position]


@kernel
def hash_rows(offsets, data, hashes_out):  # type: ignore[no-untyped-def]
    """A hash of each string."""
    for row in range(hashes_out.shape[0]):
        hashes_out[row] = hash_bytes(data, offsets[row], offsets[row + 1])
