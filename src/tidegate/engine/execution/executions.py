"""How a batch was run: what a runner says about it, for one piece or for several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidegate.operations.decision import Decision


@dataclass(frozen=True, slots=True)
class Execution:
    """How a batch was run."""

    strategy: str
    workers: int = 1
    decision: Decision | None = None
    interpreted: int = 0
    why: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    properties: dict[str, float] = field(default_factory=dict)


def joined(executions: list[Execution]) -> Execution:
    """One report for the pieces of a batch: sums, and what the last piece chose."""
    seconds: dict[str, float] = {}
    for execution in executions:
        seconds = added(seconds, execution.seconds)
    names = dict.fromkeys(execution.strategy for execution in executions)
    return replace(
        executions[-1],
        strategy=", ".join(names),
        interpreted=sum(execution.interpreted for execution in executions),
        seconds=seconds,
        properties={**executions[-1].properties, "pieces": len(executions)},
    )


def added(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """Two sums of seconds, or of counts, as one."""
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in {**one, **other}}
