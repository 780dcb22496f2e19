"""The verbs inside a transaction: `require`, `abort`, `delete`.

In plain Python they do what they say: `require` and `abort` raise `Abort`, `delete` empties the
row object. The compiler knows them by identity and turns them into outcomes and writes.
"""

from __future__ import annotations

from typing import Any, NoReturn


class Abort(Exception):
    """Ends a transaction without effect. On the engine this is an outcome, not an exception."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def require(condition: object, reason: str) -> None:
    """Abort the transaction with `reason` unless `condition` holds.

    >>> require(3 > 2, "not enough")
    """
    if not condition:
        raise Abort(reason)


def abort(reason: str) -> NoReturn:
    """Abort the transaction with `reason`: nothing that it did remains."""
    raise Abort(reason)


def delete(row: Any) -> None:
    """Delete a row: it no longer exists, and its fields read as their defaults again."""
    layout = getattr(type(row), "__tidegate_layout__", None)
    if layout is not None:
        for column in layout.value_columns:
            row.__dict__[column.name] = column.default
        row.__dict__["_assigned"] = True
    row.exists = False
