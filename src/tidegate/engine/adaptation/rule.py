"""The published rule: thresholds decide the three dimensions of a decision, each independently.

    exploration   structured (bfs) if there are many dependencies and no skew, else by signals (ns)
    unit          a group if nothing is cyclic, temporal dependencies are many and parametric ones few
    abort         lazy if functions are cheap and many transactions abort, else eager

The thresholds are those of the released system, by workload; they are relative to the number of
transactions in the batch where that system's thresholds were. Tidegate's own rule is in `model`; this
one is kept for comparison, and for users who want the published behaviour.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.operations.decision import Decision


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Where the rule changes its decision; shares are relative to the batch's transactions."""

    many_dependencies: float
    skewed: float
    few_temporal: float
    many_parametric: float
    costly_us: float
    many_aborts: float


LEDGER = Thresholds(0.8, 0.3, 0.2, 0.3, 40.0, 0.7)
"""For the streaming ledger and similar workloads."""

GREP_AND_SUM = Thresholds(3000 / 10240, 0.2, 500 / 10240, 6500 / 10240, 40.0, 0.2)
"""For grep and sum, whose published thresholds are counts of dependencies in batches of 10,240 transactions."""

THRESHOLDS = {"ledger": LEDGER, "grep and sum": GREP_AND_SUM}


@dataclass(frozen=True, slots=True)
class GraphProperties:
    """The seven properties of a batch's graph that the rule looks at."""

    transactions: int
    temporal: int
    parametric: int
    logical: int
    skew: float
    cyclic: bool
    cost_us: float
    abort_ratio: float


def decide(found: GraphProperties, thresholds: Thresholds = LEDGER) -> Decision:
    """The rule's decision for a batch."""
    count = max(found.transactions, 1)
    dependencies = found.temporal + found.parametric + found.logical
    structured = dependencies > thresholds.many_dependencies * count and found.skew < thresholds.skewed
    single = (
        found.cyclic
        or found.temporal < thresholds.few_temporal * count
        or found.parametric > thresholds.many_parametric * count
    )
    eager = found.cost_us >= thresholds.costly_us or found.abort_ratio < thresholds.many_aborts
    return Decision("bfs" if structured else "ns", "operation" if single else "group", "eager" if eager else "lazy")
