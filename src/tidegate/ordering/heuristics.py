"""Which operator a free worker works for next: small functions of what is observed of each operator.

    queue-size             the first operator whose output queue is below its share of the whole (6.1)
    last-in-pipeline       the last operator that has anything to do (6.2)
    estimated-time         the one that would take longest to finish what is waiting, with one worker more (6.3)
    current-throughput     the one that has done least of late, in records of the source (6.4, the default)

The numbers are sections of "Ordered Stream Processing". Only operators that can use another worker are considered:
something waits for them, and fewer work for them than can. A user's own function gets the same observations:

    def busiest(operators):                              # a list of Observed, in the order of the flow
        return max(operators, key=lambda each: each.waiting).number      # or None: rest for a moment

The built-in ones are in `kernels.choosing`, so that workers can ask them in machine code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, get_args

from tidegate.foundation.arguments import one_of
from tidegate.ordering.kernels.layout import USER


class Observed(NamedTuple):
    """What is known of an operator when a worker asks for work; costs and times are in processor ticks."""

    number: int
    name: str
    waiting: int
    """Records that no worker has claimed."""
    workers: int
    limit: int
    """How many workers can work for it at once."""
    cost: float
    """What a record takes."""
    selectivity: float
    """Outputs for a record."""
    behind: int
    """Records that wait for the operators that take its outputs."""
    spent: int
    """What workers spent on it in the current window."""
    slice: int
    """How long a worker stays."""


Heuristic = (
    Literal["queue-size", "last-in-pipeline", "estimated-time", "current-throughput"]
    | Callable[[Sequence[Observed]], int | None]
)


def heuristic_code(heuristic: Any) -> int:
    """The number by which kernels know a heuristic."""
    if callable(heuristic):
        return USER
    names = get_args(get_args(Heuristic)[0])
    one_of("heuristic", heuristic, names)
    return int(names.index(heuristic))
