"""What the last batch did, in numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchReport:
    """One batch: how many events, what became of them, how it was run and where the time went.

    `interpreted` counts the events that plain Python ran: transactions declared with `compiled=False`,
    and those in which an integer left 64 bits on the way.
    """

    events: int
    committed: int
    aborted: dict[str, int]
    strategy: str
    interpreted: int
    seconds: dict[str, float]
