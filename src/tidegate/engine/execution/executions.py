"""The types of execution: a job, an executor that runs it, and a report of how it went.

    Job ──> Executor.run ──> Execution

A job is a list of events of a batch, in execution order. There are several executors: the strategies run events of
plain transactions, a walk through the dataflow graphs runs any event, and `engine.stages` runs a whole batch by giving
each of these its part. What one executor runs must not depend on what another one runs at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tidegate.engine.batch import Batch
from tidegate.foundation.interrupts import Interrupts
from tidegate.operations.decision import Decision

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Job:
    """Events of a batch, to be run in this order."""

    batch: Batch
    order: Array
    interrupts: Interrupts
    untouched: bool = True
    """Whether nothing of the batch has run yet, so that an interrupt can still cancel it without side effects."""
    trace: bool = False
    """Whether the steps of dataflow graphs are recorded; then they run one by one."""

    @cached_property
    def transactions(self) -> Array:
        """The number of events per transaction, not counting refused events."""
        kinds, status = self.batch.kinds[self.order], self.batch.status[self.order]
        return np.bincount(kinds[status == 0], minlength=len(self.batch.plan.transactions))

    def part(self, order: Array, untouched: bool) -> Job:
        """Some of the events, for another executor."""
        return replace(self, order=order, untouched=self.untouched and untouched)


class Executor(Protocol):
    """Runs jobs."""

    def run(self, job: Job) -> Execution:
        """Run all events of a job; outcomes go to the batch, and written rows to the tables."""
        ...


@dataclass(frozen=True, slots=True)
class Execution:
    """How a job was run."""

    strategy: str
    workers: int = 1
    decision: Decision | None = None
    interpreted: int = 0
    why: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    properties: dict[str, float] = field(default_factory=dict)
    interior_aborts: dict[str, dict[str, int]] = field(default_factory=dict)
    """How often steps of graphs failed that no event started, by transaction and reason."""
    escaped: bool = False
    """Whether it was run again serially, because an operation turned out to need plain Python."""


def joined(executions: Sequence[Execution]) -> Execution:
    """One report for executions that ran one after the other: times and counts are summed, the last choice is kept."""
    seconds: dict[str, float] = {}
    for execution in executions:
        seconds = added(seconds, execution.seconds)
    names = dict.fromkeys(execution.strategy for execution in executions)
    return replace(
        executions[-1],
        strategy=", ".join(names),
        workers=max(execution.workers for execution in executions),
        interpreted=sum(execution.interpreted for execution in executions),
        seconds=seconds,
        interior_aborts={name: found for each in executions for name, found in each.interior_aborts.items()},
        properties={**executions[-1].properties, "pieces": len(executions)},
        escaped=any(execution.escaped for execution in executions),
    )


def added(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """Add two dictionaries of seconds, or of counts, name by name."""
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in {**one, **other}}
