"""Picks the fastest of several ways to run a batch, by how long each took before.

Every way is tried twice, because the first time also loads code. After that the fastest is used. Now and then the way
with the oldest measurement is tried again, because workloads change.
"""

from __future__ import annotations

from collections.abc import Sequence

AGAIN = 32
"""Batches between two trials of slower ways: if one takes twice as long, trying it costs 3 %."""

LEARNING = 0.5
"""The weight of the newest batch: two more batches outweigh one that was disturbed."""


class Fastest:
    """Nanoseconds per event of each way, as far as they are known."""

    def __init__(self) -> None:
        self._ns: dict[str, float] = {}
        self._tried: dict[str, int] = {}
        self._learned = 0
        self._last: dict[str, int] = {}
        self._since = 0

    def choose(self, ways: Sequence[str]) -> str:
        """Choose one of `ways` for the next batch."""
        least = min(ways, key=lambda way: self._tried.get(way, 0))
        if self._tried.get(least, 0) < 2:
            return least
        best = min(ways, key=lambda way: self._ns[way])
        self._since += 1
        if self._since < AGAIN:
            return best
        self._since = 0
        return min(ways, key=lambda way: (way == best, self._last[way]))

    def learn(self, way: str, events: int, seconds: float) -> None:
        """Note how long a batch took."""
        ns = seconds / max(events, 1) * 1e9
        tried = self._tried[way] = self._tried.get(way, 0) + 1
        before = self._ns[way] if tried > 2 else ns
        self._ns[way] = before + LEARNING * (ns - before)
        self._learned += 1
        self._last[way] = self._learned

    @property
    def why(self) -> str:
        """The numbers behind a choice."""
        return ", ".join(f"{ns:.0f} ns an event {way}" for way, ns in self._ns.items())
