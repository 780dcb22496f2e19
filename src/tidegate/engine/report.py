"""What the last batch did, in numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegate.operations.decision import Decision


@dataclass(frozen=True, slots=True)
class BatchReport:
    """One batch: how many events, what became of them, how it was run and where the time went.

    `interpreted` counts the events that plain Python ran: transactions declared with `compiled=False`,
    and those in which an integer left 64 bits on the way. `decision` is the scheduling decision, if one was
    made, `properties` what was measured on the batch's graph, `why` the reason for the strategy in a sentence.
    """

    events: int
    committed: int
    aborted: dict[str, int]
    strategy: str
    interpreted: int
    seconds: dict[str, float]
    workers: int = 1
    decision: Decision | None = None
    properties: dict[str, float] = field(default_factory=dict)
    why: str = ""
