"""What a batch did: in numbers for people (`BatchReport`), and as a whole for the caller of the run (`BatchResult`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.operations.decision import Decision

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class BatchReport:
    """One batch: how many events, what became of them, how it was run and where the time went.

    `interpreted` counts the events, and the groups of graphs, that plain Python ran: those with a transaction that is
    declared with `compiled=False`, or in which an integer left 64 bits. `decision` is the scheduling decision, if one
    was made, `properties` what was measured on the batch's graph, `why` the reason for the strategy in a sentence.

    `aborted` counts events by reason. `interior_aborts` counts what no event shows by itself: the steps of dataflow
    graphs inside (not on a border stream, and triggers) that failed, by transaction and reason. Each of them undid its
    group.
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
    interior_aborts: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BatchResult:
    """All that a run gives to its caller; what it did not ask for is empty, and took no time."""

    outcomes: pa.Table
    """The events that were decided, those that had waited first, with `committed`, `reason` and `result`."""
    report: BatchReport
    order: Array
    """The positions of all events, those that had waited first, in the order in which they ran."""
    undecided: Array
    """The positions of the events that have no outcome: they wait for the rest of their atomic batch."""
    written_bytes: int
    """About what the rows take that the batch wrote, each counted once, without the bytes of strings.

    For engines that do not track changes; where `changes` can be collected, not all rows are counted.
    """
    steps: bytes
    """The steps of dataflow graphs in the order of commit, as `unpack_steps` takes them, if they were traced."""
    changes: dict[str, pa.Table]
    """The changed rows by table, with `exists`, if they were collected: what `EngineCore.apply` takes."""
    outputs: dict[str, pa.Table]
    """The tuples in output streams, by stream, if they were collected."""

    @property
    def ranks(self) -> Array:
        """For each row of `outcomes`, the place of its event in the order in which the batch ran."""
        found = np.empty_like(self.order)
        found[self.order] = np.arange(len(found))
        return np.delete(found, self.undecided)
