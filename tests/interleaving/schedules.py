"""Schedules: who takes the next step, as a seed says, or every possible way in turn.

    Seeded(4711)            one schedule among endlessly many; the same seed gives the same one
    every_schedule(2)       all schedules with at most two preemptions, for code of a few steps

Most races need few preemptions in the right places, and some need many. So a seed also draws how eager its schedule
is to switch, and whether workers take turns by chance or by rank. With ranks the highest one that can work does so,
now and then it falls to the lowest: that lets a worker stand still in one place for very long, which chance alone
hardly ever does.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol


class Schedule(Protocol):
    """Decides who takes the next step."""

    def pick(self, ready: Sequence[int], current: int) -> int:
        """One of the workers that can take a step; `current` took the last one, and may not be among them."""


class Seeded:
    """A schedule drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._switching = self._random.choice((1.0, 0.5, 0.1, 0.03))
        self._ranked = self._random.random() < 0.5
        self._ranks: dict[int, float] = {}

    def pick(self, ready: Sequence[int], current: int) -> int:
        if len(ready) == 1:
            return ready[0]
        switches = self._random.random() < self._switching
        if not self._ranked:
            return current if current in ready and not switches else self._random.choice(ready)
        for worker in ready:
            self._ranks.setdefault(worker, self._random.random())
        if switches:
            self._ranks[current] = min(self._ranks.values()) - 1.0
        return max(ready, key=self._ranks.__getitem__)


class Path:
    """A schedule whose first choices are given; after them nobody is preempted."""

    def __init__(self, given: list[int], preemptions_max: int) -> None:
        self.taken: list[tuple[int, int]] = []  # for each choice: which option, of how many
        self._given = given
        self._preemptions = preemptions_max

    def pick(self, ready: Sequence[int], current: int) -> int:
        options = sorted(ready, key=lambda worker: worker != current)  # going on comes first
        goes_on = options[0] == current
        if len(options) == 1 or (goes_on and self._preemptions == 0):
            return options[0]
        number = self._given[len(self.taken)] if len(self.taken) < len(self._given) else 0
        self.taken.append((number, len(options)))
        self._preemptions -= goes_on and number > 0
        return options[number]


def every_schedule(preemptions_max: int) -> Iterator[Path]:
    """All schedules with up to `preemptions_max` preemptions; play each to its end before taking the next."""
    given: list[int] = []
    while True:
        path = Path(given, preemptions_max)
        yield path
        taken = path.taken
        while taken and taken[-1][0] + 1 == taken[-1][1]:
            taken.pop()
        if not taken:
            return
        given = [number for number, _ in taken]
        given[-1] += 1


def check(play: Callable[[int], object], seeds: Iterable[int]) -> int:
    """Play every seed; one that fails is named in the error. Returns how many were played."""
    count = 0
    for seed in seeds:
        try:
            play(seed)
        except Exception as error:
            error.add_note(f"the schedule of seed {seed}: play({seed}) repeats it")
            raise
        count += 1
    return count


def failing_seed(play: Callable[[int], object], seeds: Iterable[int]) -> tuple[int, AssertionError]:
    """The first seed that fails, and how: for tests that break something on purpose."""
    for seed in seeds:
        try:
            play(seed)
        except AssertionError as error:
            return seed, error
    raise LookupError("no seed fails")
