"""Windows in one array of words: tuples enter, the window slides, and every change can be undone.

All windows of an engine live in `heap`, int64 words. A window begins at its `base`; everything inside it is found
relative to that, so it can be moved as it is:

    base + 0  MODE       ROWS_MODE or TIME_MODE
         + 1  SIZE       rows that are visible at most, or the length in units of time
         + 2  SLIDE      rows, or units of time
         + 3  COLUMNS    words of a tuple
         + 4  WIDTH      words of a row: those, and its effective time in TIME_MODE
         + 5  CAPACITY   rows that the ring holds, a power of two
         + 6  RING       where the ring begins, relative to base
         + 7  SLOTS      how many aggregates are kept
         + 8  FIRST      number of the oldest row; rows are numbered from 0 as they come
         + 9  STAGED     number of the first row that is staged
         +10  NEXT       number of the next row
         +11  BOUNDARY   TIME_MODE: boundary // SLIDE, which always fits in a word
         +12  LATEST     TIME_MODE: latest time seen
         +16  slot 0, slot 1, ...      8 words each
              ring                     row n at (n % CAPACITY) * WIDTH
              data of the slots

         FIRST          STAGED         NEXT
           |   visible    |   staged    |          in rows: slides when SLIDE rows are staged

A slot keeps one aggregate of one column over the visible rows:

         + 0  FUNCTION   SUM           MIN, MAX            COUNTS, RANKING
         + 1  COLUMN     of which column
         + 2  OWNER      the slot that keeps it: itself, unless several slots ask the same
         + 3  DATA       where its data begins, relative to base
         + 4  SPACE      -             numbers in a ring   buckets in a table, a power of two
         + 5             LOW           FRONT               USED: different values
         + 6             HIGH          BACK                ENTRY: words of a bucket
         + 7  FLOATS     whether the column holds floats, by their bits

    SUM        of ints: high * 2**32 + low, each the sum of one half of the values: exact, without a carry
    MIN, MAX   a ring of row numbers: those rows that no later row beats; the answer is the oldest of them
    COUNTS     open addressing, value and count; a count of 0 is an empty bucket, half of the buckets stay empty
    RANKING    the same with a PLACE in each bucket, and behind the table a binary heap of its buckets, the
               most frequent value on top (of equally frequent ones the smaller): place n is above 2n+1 and 2n+2;
               here a row costs a logarithm, elsewhere it costs the same in a window of any size

Floats are compared and counted by rank (`kernels.ranks`). Python's min and max give NaN if it is the first row's, and
pass over any other, so rings of row numbers leave NaN out; of equal values they keep the older, which may be -0.0.
Rankings leave NaN out, too. A sum of floats has no slot: bodies add up the visible rows, as no other sum is the same.

Every change goes through a journal (`kernels.window_journal`). Nothing here allocates: when the journal or a window is
full, nothing is written any more, and who called undoes the changes and makes room.
"""

from __future__ import annotations

import numpy as np

from tidegate.engine.kernels.index import scramble
from tidegate.engine.kernels.ranks import is_nan, rank_of
from tidegate.engine.kernels.window_journal import LENGTH, NEEDS, NOTHING, ask_room, put
from tidegate.foundation.arithmetic import multiply, subtract
from tidegate.foundation.jit import inline, kernel, kernel_or_plain

MODE, SIZE, SLIDE, COLUMNS, WIDTH, CAPACITY, RING, SLOTS = 0, 1, 2, 3, 4, 5, 6, 7
FIRST, STAGED, NEXT, BOUNDARY, LATEST = 8, 9, 10, 11, 12
HEADER_WORDS = 16
ROWS_MODE, TIME_MODE = 0, 1

FUNCTION, COLUMN, OWNER, DATA, SPACE = 0, 1, 2, 3, 4
LOW, HIGH = FRONT, BACK = USED, ENTRY = 5, 6
FLOATS = 7
SLOT_WORDS = 8
SUM, MIN, MAX, COUNTS, RANKING = 0, 1, 2, 3, 4
VALUE, COUNT, PLACE = 0, 1, 2
COUNTS_ENTRY, RANKING_ENTRY = 2, 3

_HALF_BITS = 32
_HALF_MASK = (1 << 32) - 1
_HIGH_LIMIT = 1 << 31


# --- a tuple enters ----------------------------------------------------------------------------------------------


@kernel
def window_insert(heap, journal, state, base, words, time):  # type: ignore[no-untyped-def]
    """Take a tuple in, and say whether the window slid; `time` counts in TIME_MODE only.

    `words` is an array, or a tuple of at least one. If `state[NEEDS]` is set afterwards, the tuple is in part
    inside: undo, make room, try again.
    """
    if state[NEEDS] != NOTHING:
        return False
    if heap[base + MODE] == TIME_MODE:
        return _insert_by_time(heap, journal, state, base, words, time)
    _stage(heap, journal, state, base, words, 0)
    following = heap[base + NEXT]
    if state[NEEDS] != NOTHING or following - heap[base + STAGED] < heap[base + SLIDE]:
        return False
    _slide(heap, journal, state, base, max(heap[base + FIRST], following - heap[base + SIZE]))
    return state[NEEDS] == NOTHING


@inline
def _insert_by_time(heap, journal, state, base, words, time):  # type: ignore[no-untyped-def]
    is_first = heap[base + NEXT] == 0
    now = time if is_first else max(time, heap[base + LATEST])
    boundary = now // heap[base + SLIDE]
    slides = not is_first and boundary > heap[base + BOUNDARY]
    if slides:
        _slide(heap, journal, state, base, _first_not_before(heap, base, boundary))
    if slides or is_first:
        put(heap, journal, state, base + BOUNDARY, boundary)
    if is_first or now != heap[base + LATEST]:
        put(heap, journal, state, base + LATEST, now)
    _stage(heap, journal, state, base, words, now)
    return slides and state[NEEDS] == NOTHING


@inline
def _first_not_before(heap, base, boundary):  # type: ignore[no-untyped-def]
    """The first visible row whose time is within a window that ends at `boundary` slides."""
    first = heap[base + FIRST]
    end, is_below_all = multiply(boundary, heap[base + SLIDE])
    begin, is_far_below_all = subtract(end, heap[base + SIZE])
    if is_below_all or is_far_below_all:  # it begins before any time that a word can hold
        return first
    while first < heap[base + STAGED] and heap[_row_at(heap, base, first) + heap[base + COLUMNS]] < begin:
        first += 1
    return first


@inline
def _row_at(heap, base, number):  # type: ignore[no-untyped-def]
    return base + heap[base + RING] + (number & (heap[base + CAPACITY] - 1)) * heap[base + WIDTH]


@inline
def _stage(heap, journal, state, base, words, now):  # type: ignore[no-untyped-def]
    number = heap[base + NEXT]
    if number - heap[base + FIRST] >= heap[base + CAPACITY]:
        ask_room(state, base, 0)
        return
    row = _row_at(heap, base, number)
    columns = heap[base + COLUMNS]
    for column in range(columns):
        if state[NEEDS] != NOTHING:
            return
        put(heap, journal, state, row + column, words[column])
    if heap[base + MODE] == TIME_MODE:
        put(heap, journal, state, row + columns, now)
    put(heap, journal, state, base + NEXT, number + 1)


@inline
def _slide(heap, journal, state, base, first):  # type: ignore[no-untyped-def]
    """The visible rows before `first` leave, all staged ones become visible."""
    span = (heap[base + FIRST], first, heap[base + STAGED], heap[base + NEXT])
    for slot in range(heap[base + SLOTS]):
        if state[NEEDS] != NOTHING:
            return
        _renew(heap, journal, state, base, slot, span)
    put(heap, journal, state, base + FIRST, first)
    put(heap, journal, state, base + STAGED, span[3])


@kernel_or_plain  # on its own: a program with a window takes 3 s to compile instead of 6, and runs no slower
def _renew(heap, journal, state, base, slot, span):  # type: ignore[no-untyped-def]
    """Bring one slot up to date. Of `span` = (a, b, c, d) rows a to b leave and rows c to d enter."""
    at = base + HEADER_WORDS + slot * SLOT_WORDS
    if heap[at + OWNER] != slot:
        return
    function = heap[at + FUNCTION]
    if function == SUM:
        _renew_sum(heap, journal, state, base, at, span)
    elif function in (MIN, MAX):
        _renew_extreme(heap, journal, state, base, at, span)
    else:
        _renew_counts(heap, journal, state, base, at, span)


@kernel_or_plain
def fill(heap, journal, state, base):  # type: ignore[no-untyped-def]
    """Enter all visible rows into slots that are empty; a word that changes here cannot be taken back."""
    first = heap[base + FIRST]
    for number in range(first, heap[base + STAGED]):
        for slot in range(heap[base + SLOTS]):
            _renew(heap, journal, state, base, slot, (first, first, number, number + 1))
            if state[NEEDS] != NOTHING:
                return
            state[LENGTH] = 0


# --- the aggregates ----------------------------------------------------------------------------------------------


@inline
def _renew_sum(heap, journal, state, base, at, span):  # type: ignore[no-untyped-def]
    leaving, leaving_stop, entering, entering_stop = span
    ring, width, last = base + heap[base + RING] + heap[at + COLUMN], heap[base + WIDTH], heap[base + CAPACITY] - 1
    low, high = heap[at + LOW], heap[at + HIGH]
    for number in range(leaving, leaving_stop):
        value = heap[ring + (number & last) * width]
        low -= value & _HALF_MASK
        high -= value >> _HALF_BITS
    for number in range(entering, entering_stop):
        value = heap[ring + (number & last) * width]
        low += value & _HALF_MASK
        high += value >> _HALF_BITS
    put(heap, journal, state, at + LOW, low)
    put(heap, journal, state, at + HIGH, high)


@inline
def _renew_extreme(heap, journal, state, base, at, span):  # type: ignore[no-untyped-def]
    _leaving, leaving_stop, entering, entering_stop = span
    ring, width, last = base + heap[base + RING] + heap[at + COLUMN], heap[base + WIDTH], heap[base + CAPACITY] - 1
    numbers, numbers_last = base + heap[at + DATA], heap[at + SPACE] - 1
    front, back = heap[at + FRONT], heap[at + BACK]
    largest, floats = heap[at + FUNCTION] == MAX, heap[at + FLOATS] != 0
    while front < back and heap[numbers + (front & numbers_last)] < leaving_stop:
        front += 1
    for number in range(entering, entering_stop):
        value = heap[ring + (number & last) * width]
        if floats:
            if is_nan(value):
                continue
            value = rank_of(value)
        while front < back:
            other = heap[ring + (heap[numbers + ((back - 1) & numbers_last)] & last) * width]
            if floats:
                other = rank_of(other)
                if value == other:
                    break
            if (value < other) if largest else (value > other):
                break
            back -= 1
        put(heap, journal, state, numbers + (back & numbers_last), number)
        if state[NEEDS] != NOTHING:
            return
        back += 1
    put(heap, journal, state, at + FRONT, front)
    put(heap, journal, state, at + BACK, back)


@inline
def _renew_counts(heap, journal, state, base, at, span):  # type: ignore[no-untyped-def]
    leaving, leaving_stop, entering, entering_stop = span
    column = heap[at + COLUMN]
    for number in range(leaving, leaving_stop):
        if state[NEEDS] != NOTHING:
            return
        value = heap[_row_at(heap, base, number) + column]
        if heap[at + FLOATS] == 0:
            _count_down(heap, journal, state, base, at, value)
        elif not is_nan(value):
            _count_down(heap, journal, state, base, at, rank_of(value))
    for number in range(entering, entering_stop):
        if state[NEEDS] != NOTHING:
            return
        value = heap[_row_at(heap, base, number) + column]
        if heap[at + FLOATS] == 0:
            _count_up(heap, journal, state, base, at, value)
        elif not is_nan(value):
            _count_up(heap, journal, state, base, at, rank_of(value))


@inline
def _bucket_of(value, last):  # type: ignore[no-untyped-def]
    return np.int64(np.uint64(scramble(value)) & np.uint64(last))


@inline
def _entry_of(heap, base, at, value):  # type: ignore[no-untyped-def]
    """Where a value's bucket lies in `heap`, or the empty one that it would take."""
    table, width, last = base + heap[at + DATA], heap[at + ENTRY], heap[at + SPACE] - 1
    bucket = _bucket_of(value, last)
    entry = table + bucket * width
    while heap[entry + COUNT] != 0 and heap[entry + VALUE] != value:
        bucket = (bucket + 1) & last
        entry = table + bucket * width
    return entry


@inline
def _count_up(heap, journal, state, base, at, value):  # type: ignore[no-untyped-def]
    """Count a value once more; a new one takes a bucket."""
    entry = _entry_of(heap, base, at, value)
    count = heap[entry + COUNT]
    is_ranked = heap[at + FUNCTION] == RANKING
    if count == 0:
        used = heap[at + USED]
        if 2 * (used + 1) > heap[at + SPACE]:
            ask_room(state, base, 1 + (at - base - HEADER_WORDS) // SLOT_WORDS)
            return
        put(heap, journal, state, at + USED, used + 1)
        put(heap, journal, state, entry + VALUE, value)
        if is_ranked:
            _settle(heap, journal, state, base, at, entry, used)
    put(heap, journal, state, entry + COUNT, count + 1)
    if is_ranked:
        _rise(heap, journal, state, base, at, entry)


@inline
def _count_down(heap, journal, state, base, at, value):  # type: ignore[no-untyped-def]
    """Count a value once less; one that is gone leaves its bucket, and the last of the ranking takes its place."""
    entry = _entry_of(heap, base, at, value)
    count = heap[entry + COUNT] - 1
    is_ranked = heap[at + FUNCTION] == RANKING
    put(heap, journal, state, entry + COUNT, count)
    if count > 0:
        if is_ranked:
            _sink(heap, journal, state, base, at, entry)
        return
    put(heap, journal, state, at + USED, heap[at + USED] - 1)
    if state[NEEDS] != NOTHING:
        return
    if is_ranked:
        last = base + heap[at + DATA] + heap[_order_of(heap, base, at) + heap[at + USED]]
        if last != entry:
            _settle(heap, journal, state, base, at, last, heap[entry + PLACE])
            _rise(heap, journal, state, base, at, last)
            _sink(heap, journal, state, base, at, last)
    _close_gap(heap, journal, state, base, at, entry)


@inline
def _close_gap(heap, journal, state, base, at, entry):  # type: ignore[no-untyped-def]
    """Move later buckets of a run back over an emptied one, so that no search stops short of them."""
    table, width, last = base + heap[at + DATA], heap[at + ENTRY], heap[at + SPACE] - 1
    gap = (entry - table) // width
    bucket = (gap + 1) & last
    source = table + bucket * width
    while heap[source + COUNT] != 0 and state[NEEDS] == NOTHING:
        home = _bucket_of(heap[source + VALUE], last)
        if ((bucket - home) & last) >= ((bucket - gap) & last):
            target = table + gap * width
            put(heap, journal, state, target + VALUE, heap[source + VALUE])
            put(heap, journal, state, target + COUNT, heap[source + COUNT])
            if heap[at + FUNCTION] == RANKING:
                _settle(heap, journal, state, base, at, target, heap[source + PLACE])
            put(heap, journal, state, source + COUNT, 0)
            gap = bucket
        bucket = (bucket + 1) & last
        source = table + bucket * width


@inline
def _order_of(heap, base, at):  # type: ignore[no-untyped-def]
    """Where the binary heap begins: per place an entry, relative to the table."""
    return base + heap[at + DATA] + heap[at + SPACE] * heap[at + ENTRY]


@inline
def _precedes(heap, one, other):  # type: ignore[no-untyped-def]
    """Whether an entry's value ranks above another's."""
    more = heap[one + COUNT] - heap[other + COUNT]
    return more > 0 or (more == 0 and heap[one + VALUE] < heap[other + VALUE])


@inline
def _settle(heap, journal, state, base, at, entry, place):  # type: ignore[no-untyped-def]
    put(heap, journal, state, entry + PLACE, place)
    put(heap, journal, state, _order_of(heap, base, at) + place, entry - base - heap[at + DATA])


@inline
def _rise(heap, journal, state, base, at, entry):  # type: ignore[no-untyped-def]
    """Move an entry up to where nothing above ranks below it."""
    table, order = base + heap[at + DATA], _order_of(heap, base, at)
    place = start = heap[entry + PLACE]
    while place > 0 and state[NEEDS] == NOTHING:
        above = table + heap[order + ((place - 1) >> 1)]
        if not _precedes(heap, entry, above):
            break
        _settle(heap, journal, state, base, at, above, place)
        place = (place - 1) >> 1
    if place != start:
        _settle(heap, journal, state, base, at, entry, place)


@inline
def _sink(heap, journal, state, base, at, entry):  # type: ignore[no-untyped-def]
    """Move an entry down to where nothing below ranks above it."""
    table, order, used = base + heap[at + DATA], _order_of(heap, base, at), heap[at + USED]
    place = start = heap[entry + PLACE]
    while 2 * place + 1 < used and state[NEEDS] == NOTHING:
        child = 2 * place + 1
        below = table + heap[order + child]
        if child + 1 < used and _precedes(heap, table + heap[order + child + 1], below):
            child += 1
            below = table + heap[order + child]
        if not _precedes(heap, below, entry):
            break
        _settle(heap, journal, state, base, at, below, place)
        place = child
    if place != start:
        _settle(heap, journal, state, base, at, entry, place)


# --- what a body asks --------------------------------------------------------------------------------------------


@inline
def window_count(heap, base):  # type: ignore[no-untyped-def]
    """How many rows are visible."""
    return heap[base + STAGED] - heap[base + FIRST]


@inline
def window_word(heap, base, column, position):  # type: ignore[no-untyped-def]
    """One word of a visible row; position 0 is the oldest, and must be below the count."""
    return heap[_row_at(heap, base, heap[base + FIRST] + position) + column]


@inline
def _kept_at(heap, base, slot):  # type: ignore[no-untyped-def]
    """Where the slot lies that keeps what `slot` asks."""
    return base + HEADER_WORDS + heap[base + HEADER_WORDS + slot * SLOT_WORDS + OWNER] * SLOT_WORDS


@inline
def window_sum_fits(heap, base, slot):  # type: ignore[no-untyped-def]
    """Whether the sum is a 64-bit integer."""
    at = _kept_at(heap, base, slot)
    high = heap[at + HIGH] + (heap[at + LOW] >> _HALF_BITS)
    return high >= -_HIGH_LIMIT and high < _HIGH_LIMIT


@inline
def window_sum(heap, base, slot):  # type: ignore[no-untyped-def]
    """The sum of a column, where it fits."""
    at = _kept_at(heap, base, slot)
    low = heap[at + LOW]
    return ((heap[at + HIGH] + (low >> _HALF_BITS)) << _HALF_BITS) | (low & _HALF_MASK)


@inline
def window_min(heap, base, slot):  # type: ignore[no-untyped-def]
    """The smallest value of a column, a float by its bits; 0 when no row is visible."""
    at = _kept_at(heap, base, slot)
    if heap[at + FLOATS] != 0 and heap[base + STAGED] > heap[base + FIRST]:
        oldest = heap[_row_at(heap, base, heap[base + FIRST]) + heap[at + COLUMN]]
        if is_nan(oldest):
            return oldest
    if heap[at + FRONT] == heap[at + BACK]:
        return 0
    number = heap[base + heap[at + DATA] + (heap[at + FRONT] & (heap[at + SPACE] - 1))]
    return heap[_row_at(heap, base, number) + heap[at + COLUMN]]


window_max = window_min  # the largest: the slot knows which of both it keeps


@inline
def window_distinct(heap, base, slot):  # type: ignore[no-untyped-def]
    """How many different values a column has."""
    return heap[_kept_at(heap, base, slot) + USED]


@kernel
def window_frequency(heap, base, slot, value):  # type: ignore[no-untyped-def]
    """How many visible rows have a value."""
    return heap[_entry_of(heap, base, _kept_at(heap, base, slot), value) + COUNT]


@kernel
def window_top(heap, base, slot, k, values_out):  # type: ignore[no-untyped-def]
    """The k most frequent values, fewer where there are not so many or no room for them; returns how many.

    What was found fills `values_out` from the left, floats by their bits. Right of it, in order, stand the places that
    may come next, the children of what was found, but no more of them than are still wanted. So it costs k * k at most.
    """
    at = _kept_at(heap, base, slot)
    table, order, used = base + heap[at + DATA], _order_of(heap, base, at), heap[at + USED]
    wanted = min(min(k, used), values_out.shape[0])
    if wanted <= 0:
        return 0
    values_out[0], stop = 0, 1
    for rank in range(wanted):
        place = values_out[rank]
        values_out[rank] = heap[table + heap[order + place] + VALUE]
        for child in range(2 * place + 1, min(2 * place + 3, used)):
            entry = table + heap[order + child]
            position = stop
            while position > rank + 1 and _precedes(heap, entry, table + heap[order + values_out[position - 1]]):
                if position < wanted:
                    values_out[position] = values_out[position - 1]
                position -= 1
            if position < wanted:
                values_out[position] = child
            stop = min(stop + 1, wanted)
    if heap[at + FLOATS] != 0:
        for rank in range(wanted):
            values_out[rank] = rank_of(values_out[rank])
    return wanted
