"""What compiled bodies ask of strings: how long one is, which of two comes first, whether one is in another.

A body knows a string by its number, and `texts`, an array of two words, says where the pool keeps them all:

    texts[STARTS]    the address of `starts`: string n begins at starts[n] and ends at starts[n + 1]
    texts[HELD]      the address of the bytes, in UTF-8

A pool that grows moves its arrays and changes these words; what stays in the arrays that it leaves is still right, and
they live until nobody can read them (`state.strings`). So a string that a body knows can be read at any time, also
while another worker's plain Python adds one.

In UTF-8, strings in the order of their bytes are in the order of their code points, as Python compares them.
"""

from __future__ import annotations

from tidegate.foundation.jit import inline, kernel
from tidegate.foundation.memory import bytes_at, integers_at

STARTS, HELD = 0, 1
_CONTINUES_MASK, _CONTINUES = 0xC0, 0x80  # the bytes of a code point behind its first one


@kernel
def text_length(texts, number):  # type: ignore[no-untyped-def]
    """len(s): code points."""
    starts, held = integers_at(texts[STARTS]), bytes_at(texts[HELD])
    count = 0
    for position in range(starts[number], starts[number + 1]):
        if held[position] & _CONTINUES_MASK != _CONTINUES:
            count += 1
    return count


@kernel
def compare_texts(texts, one, other):  # type: ignore[no-untyped-def]
    """-1 if one < other, 0 if they are equal, 1 if one > other."""
    if one == other:
        return 0
    starts, held = integers_at(texts[STARTS]), bytes_at(texts[HELD])
    first, second = starts[one], starts[other]
    size, other_size = starts[one + 1] - first, starts[other + 1] - second
    for position in range(min(size, other_size)):
        a, b = held[first + position], held[second + position]
        if a != b:
            return -1 if a < b else 1
    return -1 if size < other_size else 1  # different strings of the same bytes do not exist


@inline
def _same(held, one, other, size):  # type: ignore[no-untyped-def]
    position = 0
    while position < size and held[one + position] == held[other + position]:
        position += 1
    return position == size


@kernel
def text_in(texts, part, whole):  # type: ignore[no-untyped-def]
    """part in whole."""
    starts, held = integers_at(texts[STARTS]), bytes_at(texts[HELD])
    first, size = starts[part], starts[part + 1] - starts[part]
    begin, last = starts[whole], starts[whole + 1] - size
    while begin <= last and not _same(held, begin, first, size):
        begin += 1
    return begin <= last


@kernel
def text_starts(texts, whole, part):  # type: ignore[no-untyped-def]
    """whole.startswith(part)."""
    starts, held = integers_at(texts[STARTS]), bytes_at(texts[HELD])
    first, begin, size = starts[part], starts[whole], starts[part + 1] - starts[part]
    return size <= starts[whole + 1] - begin and _same(held, begin, first, size)


@kernel
def text_ends(texts, whole, part):  # type: ignore[no-untyped-def]
    """whole.endswith(part)."""
    starts, held = integers_at(texts[STARTS]), bytes_at(texts[HELD])
    first, size = starts[part], starts[part + 1] - starts[part]
    begin = starts[whole + 1] - size
    return begin >= starts[whole] and _same(held, begin, first, size)
