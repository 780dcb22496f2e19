"""The outcome of a transaction: whether it committed, why not, and what it returned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

COMMITTED_COLUMN = "committed"
REASON_COLUMN = "reason"
RESULT_COLUMN = "result"
OUTCOME_COLUMNS = (COMMITTED_COLUMN, REASON_COLUMN, RESULT_COLUMN)
TRANSACTION_COLUMN = "transaction"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one transaction: `reason` is None when it committed, `result` when it aborted."""

    committed: bool
    reason: str | None
    result: Any


class Step(NamedTuple):
    """One entry of an engine's history: a transaction of a dataflow graph in one round, or a plain transaction.

    Steps are numbered in the order of execution. A plain transaction has no `dataflow`, batch 0 and group -1.
    """

    sequence: int
    dataflow: str
    transaction: str
    batch: int
    group: int
    committed: bool
    tuples: int
