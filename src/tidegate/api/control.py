"""The verbs inside a transaction: `require`, `abort`, `exists`, `delete`, `lookup`, `history`.

In plain Python they do what they say: `require` and `abort` raise `Abort`, `delete` empties the
row object. The compiler knows them by identity and turns them into outcomes and writes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, NoReturn, TypeVar

Row = TypeVar("Row")
Finder = Callable[[type, Any], Any]
Rememberer = Callable[[Any, int], Sequence[Any]]
_finder: ContextVar[Finder | None] = ContextVar("finder", default=None)
_rememberer: ContextVar[Rememberer | None] = ContextVar("rememberer", default=None)


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


def exists(row: Any, /) -> bool:
    """Whether a row exists: it was loaded, or a transaction assigned to one of its fields, and nobody deleted it since.

    The same as `row.exists`. Type checkers know this function; of the attribute, which no table declares, they do not.
    """
    return bool(row.exists)


def delete(row: Any) -> None:
    """Delete a row: it no longer exists, and its fields read as their defaults again."""
    layout = getattr(type(row), "__tidegate_layout__", None)
    if layout is not None:
        for column in layout.value_columns:
            row.__dict__[column.name] = column.default
        row.__dict__["_assigned"] = True
    row.exists = False


def lookup(table: type[Row], key: Any) -> Row:
    """The row of a table under a key that is known only now: read from another row, or computed.

    What a signature can say it should: rows that are parameters are known before the transaction runs, so that more
    of them can run side by side. A composite key is a tuple. In plain Python the row comes from the test
    (`tidegate.testing.looking_up`).
    """
    finder = _finder.get()
    if finder is None:
        raise LookupError(
            f"tg.lookup({table.__name__}, {key!r}): outside an engine the rows come from the test; open "
            "`with tidegate.testing.looking_up(finder):` around the call"
        )
    found: Row = finder(table, key)
    return found


@contextlib.contextmanager
def setting(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    """While this is open, a context variable has a value."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def looking_up(finder: Finder) -> AbstractContextManager[None]:
    """While this is open, plain functions' `lookup` asks `finder(table, key)` for a row object.

    >>> class Account: ...
    >>> with looking_up(lambda table, key: (table.__name__, key)):
    ...     lookup(Account, 7)
    ('Account', 7)
    """
    return setting(_finder, finder)


def history(row: Any, *, last: int) -> Sequence[Any]:
    """The states that a row had in the last units of time, the newest first; each has the row's fields and `time`.

    A state begins when a transaction commits that changed the row, at that transaction's time: the parameter that
    `@tg.transaction(time="ts")` names. Of several that commit together it is the time of the one that changed the row
    last, and a row that is what it was before them has no new state. What is given are states with
    `now - last < time <= now`, where now is the time of the transaction that asks. Every transaction that writes the
    table must say its time. States are kept as long as some transaction of the program may ask for them, counted from
    the latest time of a state of the table, and no longer.
    """
    rememberer = _rememberer.get()
    if rememberer is None:
        raise LookupError(
            "tg.history: outside an engine the states come from the test; open "
            "`with tidegate.testing.remembering(rememberer):` around the call"
        )
    return rememberer(row, last)


def remembering(rememberer: Rememberer) -> AbstractContextManager[None]:
    """While this is open, plain functions' `history` asks `rememberer(row, last)` for a list of states."""
    return setting(_rememberer, rememberer)
