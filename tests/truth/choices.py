"""A source of random choices that can be replayed and made smaller.

Everything random in a generated program comes from one stream of small integers: `below(n)` draws
one. A seed gives the stream; the stream that was drawn gives the same program again. To make a
failing program smaller, the stream is made smaller and the generator runs again:

    drawn     3 0 7 1 1 4 0 2      fails
    try       3 0 _ _ 1 4 0 2      fails: keep      (cut a piece out)
    try       3 0 1 0 0 2          passes: put back (lower a number)

Generators therefore put the simplest alternative first: a stream that has run out answers 0.
Hypothesis works the same way, but draws about fifty times slower than a program needs here.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


class Choices:
    """Draws choices from a seed, or replays a recorded stream."""

    def __init__(self, seed: int | None = None, replay: Sequence[int] | None = None) -> None:
        self.drawn: list[int] = []
        self._random = random.Random(seed)
        self._replay = replay

    def below(self, count: int) -> int:
        """An integer from 0 to count - 1; 0 is the simplest."""
        if self._replay is None:
            value = int(self._random.random() * count)
        else:
            position = len(self.drawn)
            value = min(self._replay[position], count - 1) if position < len(self._replay) else 0
        self.drawn.append(value)
        return value

    def between(self, low: int, high: int) -> int:
        return low + self.below(high - low + 1)

    def chance(self, percent: int) -> bool:
        """True in `percent` of all cases; False is simpler."""
        return self.below(100) >= 100 - percent

    def pick(self, items: Sequence[Item]) -> Item:
        return items[self.below(len(items))]

    def weighted(self, options: Sequence[tuple[int, Item]]) -> Item:
        """One of the options by weight; the first is the simplest."""
        drawn = self.below(sum(weight for weight, _ in options))
        for weight, item in options:
            if drawn < weight:
                return item
            drawn -= weight
        raise AssertionError("weights are positive")


def shrink(drawn: Sequence[int], fails: Callable[[Sequence[int]], bool], seconds: float) -> list[int]:
    """A shorter, smaller stream for which `fails` still holds, found within about `seconds`."""
    best, deadline = list(drawn), time.monotonic() + seconds
    size = max(1, len(best) // 2)
    while size >= 1:
        position, progress = 0, False
        while position < len(best) and time.monotonic() < deadline:
            candidate = best[:position] + best[position + size :]
            if fails(candidate):
                best, progress = candidate, True
            else:
                position += size
        if not progress:
            size //= 2
        if time.monotonic() >= deadline:
            return best
    for position in range(len(best)):
        for smaller in (0, best[position] // 2, best[position] - 1):
            candidate = [*best[:position], smaller, *best[position + 1 :]]
            if 0 <= smaller < best[position] and time.monotonic() < deadline and fails(candidate):
                best = candidate
                break
    return best
