"""Up to twelve different items in four integers: a basket that records and states with plain fields can hold.

An item has 20 bits, a word three of them:

    place    0  1  2    3  4  5    6  7  8    9 10 11
    word         a          b          c          d

A list would be shorter to write; but a state whose fields are plain numbers is compiled, and a list is not. A pair of
items is one integer, too, the smaller item first, so that it can be a key.
"""

from __future__ import annotations

from dataclasses import dataclass

ITEM_BITS = 20
ITEMS_MAX = (1 << ITEM_BITS) - 1
"""Items are numbered from 1 up to this one."""
PLACES = 12
_PLACES_OF_WORD = 3


@dataclass
class Pair:
    """Two items that were in one basket at this time, as one number."""

    time: int
    pair: int


def holds(a: int, b: int, c: int, d: int, count: int, item: int) -> bool:
    """Whether an item is in the first `count` places."""
    return any(item_at(a, b, c, d, place) == item for place in range(count))


def item_at(a: int, b: int, c: int, d: int, place: int) -> int:
    """The item in a place."""
    word = a
    if place >= 9:
        word = d
    elif place >= 6:
        word = c
    elif place >= 3:
        word = b
    return word >> ITEM_BITS * (place % _PLACES_OF_WORD) & ITEMS_MAX


def word_with(word: int, first: int, item: int, place: int) -> int:
    """The word whose first place is `first`, with the item if it belongs there."""
    if first <= place < first + _PLACES_OF_WORD:
        return word | item << ITEM_BITS * (place - first)
    return word


def pair_of(one: int, other: int) -> int:
    """Two items as one number."""
    return min(one, other) << ITEM_BITS | max(one, other)


def smaller_of(pair: int) -> int:
    """The smaller item of a pair."""
    return pair >> ITEM_BITS


def larger_of(pair: int) -> int:
    """The larger item of a pair."""
    return pair & ITEMS_MAX
