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


REASON_LENGTH_MAX = 500
"""A reason that is made of an exception's message is cut behind so many characters."""


def error_reason(error: Exception, compiled: bool) -> str:
    """Why a transaction aborts whose function raised: compiled code knows the exception's name, and no message."""
    name, message = type(error).__name__, "" if compiled else str(error)
    reason = f"{name}: {message}"[:REASON_LENGTH_MAX] if message else name
    return reason.encode(errors="replace").decode()  # Arrow takes no unpaired surrogates


def rolled_back(transaction: str, reason: str) -> str:
    """Why a transaction aborted that did not fail itself: another one of its group did, for this reason."""
    return f"rolled back by {transaction}: {reason}"


class Step(NamedTuple):
    """One entry of an engine's history: a transaction of a dataflow graph in one round, or a plain transaction.

    Steps are numbered in the order of execution. A plain transaction has no `dataflow`, batch 0 and group -1. `reason`
    says why the step aborted, and is None if it committed: its own reason, or `rolled back by NAME: ...` where another
    transaction of its group failed.
    """

    sequence: int
    dataflow: str
    transaction: str
    batch: int
    group: int
    committed: bool
    tuples: int
    reason: str | None = None
