"""How often the adaptive strategy examines a batch before it chooses: recent findings are reused.

Examining a batch ("a look") costs time: a probe, a search for families, a sample. Four rules skip what is unlikely to
change the choice:

    SerialSpell     serial won, and functions take no longer than they did: exponential back-off, no look at all
    Habit           a strategy won twice, and looking is slow compared to running: no look for a few batches
    KnownCost       functions are so slow that several workers would win even at a quarter of the cost: no probe
    Unrelated       families did not help, and the hottest row is as hot as it was: no search for families

Each rule expires by itself, so a change that it hides is noticed a few batches later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tidegate.engine.adaptation.model import ALONE, FAMILIES, SERIAL, Choice

DOUBT = 1.25
"""A measured cost may be wrong by this factor. Functions count as slower than before only if they exceed it, and as
cheap only if they would still be cheap at this multiple of their cost."""

SPELL_BATCHES, SPELL_BATCHES_MAX = 8, 64
"""Exponential back-off: after a batch that ran serially, the next 8 run serially without a look; each repetition
doubles this number, up to 64."""

HABIT_BATCHES, LOOK_SHARE = 3, 0.02
"""How many batches repeat the last strategy without a look, if looking takes more than this share of the run time."""

MUCH_CHEAPER, UNPROBED_BATCHES = 4.0, 8
"""A cost is reused for 8 batches if several workers would win even if the functions were 4 times cheaper."""

UNRELATED_BATCHES, UNRELATED_BATCHES_MAX = 8, 32
"""Exponential back-off: after a search for families that found nothing useful, the next 8 batches are not searched;
each further failure doubles this number, up to 32."""

NEARLY = 1.2
"""A search was useful if families were predicted to take at most this multiple of the chosen time: predictions err."""

COOLER = 2.0
"""Families are searched for at once if the hottest row has cooled by this factor: hot rows hold large ones together."""

IsCheap = Callable[[float], bool]
"""Whether functions that take this many nanoseconds certainly run fastest on one worker."""


@dataclass(slots=True)
class SerialSpell:
    """Exponential back-off over consecutive batches that ran serially."""

    cost_ns: float = 0.0
    """Nanoseconds per function in the last batch; 0 if it did not run serially."""
    _left: int = 0
    _length: int = SPELL_BATCHES // 2

    def goes_on(self, is_cheap: IsCheap) -> bool:
        """Whether the next batch, too, runs serially without a look."""
        if self._left == 0 and self.cost_ns > 0.0 and is_cheap(self.cost_ns * DOUBT):
            self._left = self._length
        return self._left > 0

    def ran(self, cost_ns: float) -> None:
        """A batch ran serially without a look."""
        self._left = self._left - 1 if cost_ns < self.cost_ns * DOUBT else 0
        self.cost_ns = cost_ns

    def begin(self, cost_ns: float) -> None:
        """A batch ran serially after a look."""
        self.cost_ns = cost_ns
        self._left = self._length = min(2 * self._length, SPELL_BATCHES_MAX)

    def end(self) -> None:
        """Several workers ran a batch."""
        self.cost_ns, self._left, self._length = 0.0, 0, SPELL_BATCHES // 2


@dataclass(slots=True)
class Habit:
    """A strategy for several workers that was chosen twice in a row."""

    _choice: Choice | None = None
    _left: int = 0

    def take(self, transactions: int) -> Choice | None:
        """The choice for the next batch, if it needs no look."""
        if self._choice is None or self._left == 0:
            return None
        self._left -= 1
        return replace(self._choice, workload=replace(self._choice.workload, transactions=transactions))

    def ran(self, cost_ns: float) -> None:
        """A batch ran by habit; the habit ends if the functions' cost differs from the one it was based on."""
        known_ns = self._choice.workload.cost_ns if self._choice is not None else 0.0
        if not known_ns / DOUBT < cost_ns < known_ns * DOUBT:
            self._left = 0

    def judge(self, choice: Choice, look_seconds: float, run_seconds: float) -> None:
        """A batch ran after a look."""
        again = self._choice is not None and choice.candidate is self._choice.candidate
        lasts = again and choice.candidate in ALONE and look_seconds > LOOK_SHARE * run_seconds
        self._choice, self._left = choice, HABIT_BATCHES if lasts else 0

    def end(self) -> None:
        """The next batch needs a look."""
        self._choice, self._left = None, 0


@dataclass(slots=True)
class KnownCost:
    """The cost of functions in the last batch that several workers ran."""

    _cost_ns: float = 0.0
    _left: int = 0

    def take(self, is_cheap: IsCheap) -> float | None:
        """The cost, if it may be reused for the next batch; None if that batch needs a probe."""
        if self._left > 0 and self._cost_ns > 0.0 and not is_cheap(self._cost_ns / MUCH_CHEAPER):
            self._left -= 1
            return self._cost_ns
        self._left = UNPROBED_BATCHES
        return None

    def learn(self, cost_ns: float) -> None:
        """Note the cost in the last batch; 0 if it is unknown."""
        self._cost_ns = cost_ns


@dataclass(slots=True)
class Unrelated:
    """Exponential back-off for the search for families."""

    _left: int = 0
    _length: int = UNRELATED_BATCHES // 2
    _hot: float = 0.0

    def worth_a_search(self, hottest: Callable[[], float]) -> bool:
        """Whether to search in the next batch; `hottest` computes its hottest row's share if that is needed."""
        if self._left > 0 and hottest() >= self._hot / COOLER:
            self._left -= 1
            return False
        return True

    def judge(self, choice: Choice) -> None:
        """Learn from a search: it failed if serial won, or if families were predicted much slower than the choice."""
        best = choice.predicted[str(choice.candidate)]
        by_families = (seconds for name, seconds in choice.predicted.items() if name.startswith(str(FAMILIES)))
        near = choice.predicted[str(FAMILIES)] <= best * NEARLY or min(by_families) <= best
        promised = choice.candidate is not SERIAL and near
        self._length = UNRELATED_BATCHES // 2 if promised else min(2 * self._length, UNRELATED_BATCHES_MAX)
        self._left = 0 if promised else self._length
        self._hot = choice.workload.hot
