"""What became of one transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
