"""How a batch is scheduled, as values.

A scheduling decision has three dimensions, each chosen independently:

    exploration   how workers walk the graph of operations
                  "bfs"  layer by layer, with a barrier for all workers after each layer
                  "dfs"  each worker walks its own share and waits until an operation's inputs are ready
                  "ns"   the worker that finishes an operation signals the operations that wait for it
    unit          what a worker takes at a time: one "operation", or the "group" of operations of one row
    abort         "eager"  a write becomes visible when its transaction is decided; nothing is ever undone
                  "lazy"   a write becomes visible at once; failures are repaired after the graph was explored

The baselines from the literature are chosen by name: see `BASELINES`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from tidegate.foundation.arguments import shown, whole
from tidegate.foundation.errors import DefinitionError

Exploration = Literal["bfs", "dfs", "ns"]
Unit = Literal["operation", "group"]
Abort = Literal["eager", "lazy"]
Placement = Literal["shared-nothing", "shared-everything"]

BASELINES = ("lock", "mvlk", "partitioned", "chains", "unsafe-nolock")
NAMES = ("adaptive", "serial", *BASELINES)


def _require(what: str, found: object, allowed: tuple[str, ...]) -> None:
    if not isinstance(found, str) or found not in allowed:
        raise DefinitionError(f"{what} must be one of {', '.join(allowed)}, got {shown(found)}")


@dataclass(frozen=True, slots=True)
class Decision:
    """One way to schedule a batch's operations on several workers.

    >>> Decision("ns", "operation", "eager")
    Decision(exploration='ns', unit='operation', abort='eager')
    """

    exploration: Exploration = "ns"
    unit: Unit = "operation"
    abort: Abort = "eager"

    def __post_init__(self) -> None:
        for name, allowed in (("exploration", Exploration), ("unit", Unit), ("abort", Abort)):
            _require(f"Decision: {name}", getattr(self, name), get_args(allowed))

    def __str__(self) -> str:
        return f"{self.exploration}/{self.unit}/{self.abort}"


@dataclass(frozen=True, slots=True)
class Chains:
    """The strategy "chains" with its setting: one operation chain per row; `placement` says which worker walks it."""

    placement: Placement = "shared-nothing"

    def __post_init__(self) -> None:
        _require("Chains: placement", self.placement, get_args(Placement))

    def __str__(self) -> str:
        return f"chains/{self.placement}"


@dataclass(frozen=True, slots=True)
class Partitioned:
    """The strategy "partitioned" with its setting: transactions enter each state partition in timestamp order."""

    partitions: int = 16

    def __post_init__(self) -> None:
        whole("Partitioned: partitions", self.partitions, most=PARTITIONS_MAX)

    def __str__(self) -> str:
        return f"partitioned/{self.partitions}"


@dataclass(frozen=True, slots=True)
class Families:
    """Connected components: transactions linked by shared rows run serially on one worker, the others in parallel."""

    def __str__(self) -> str:
        return "families"


@dataclass(frozen=True, slots=True)
class Published:
    """The published adaptive rule: thresholds on the properties of each batch's graph choose the decision."""

    thresholds: Literal["ledger", "grep and sum"] = "ledger"

    def __post_init__(self) -> None:
        _require("Published: thresholds", self.thresholds, ("ledger", "grep and sum"))

    def __str__(self) -> str:
        return f"published rule/{self.thresholds}"


PARTITIONS_MAX = 62
"""The partitions that a transaction touches are stored as the bits of one 64-bit integer."""

Strategy = str | Decision | Chains | Families | Partitioned | Published

DECISIONS: tuple[Decision, ...] = tuple(
    Decision(exploration, unit, abort)
    for exploration in get_args(Exploration)
    for unit in get_args(Unit)
    for abort in get_args(Abort)
)
"""All twelve combinations."""


def check_strategy(strategy: object, lasting: bool = False) -> None:
    """Raise DefinitionError unless this is a strategy; `lasting` (durable) state refuses one that gives wrong rows."""
    if lasting and isinstance(strategy, str) and strategy == "unsafe-nolock":
        raise DefinitionError(
            "strategy: 'unsafe-nolock' gives wrong rows by design, and they would be kept; required for state that "
            "lasts: any other strategy. To see what coordination costs, measure it with a tg.Engine in memory"
        )
    if isinstance(strategy, Decision | Chains | Families | Partitioned | Published):
        return
    if not isinstance(strategy, str) or strategy not in NAMES:
        raise DefinitionError(
            f"strategy: got {shown(strategy)}, required one of {', '.join(NAMES)}, or "
            "tg.Decision(exploration, unit, abort)"
        )
