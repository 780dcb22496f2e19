"""The verbs inside a transaction: `require`, `abort`, `exists`, `delete`, `lookup`, `history`.

Called as plain Python, `require` and `abort` raise `Abort`, and `delete` resets the row object to its
defaults. The compiler recognises the verbs by identity and turns them into outcomes and writes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, NoReturn, TypeVar

from tidegate.foundation.arguments import shown

Row = TypeVar("Row")
Finder = Callable[[type, Any], Any]
Rememberer = Callable[[Any, int], Sequence[Any]]
_finder: ContextVar[Finder | None] = ContextVar("finder", default=None)
_rememberer: ContextVar[Rememberer | None] = ContextVar("rememberer", default=None)


class Abort(Exception):
    """Ends a transaction without effect. On the engine this is an outcome, not an exception."""

    def __init__(self, reason: str) -> None:
        given: object = reason
        if not isinstance(given, str):
            raise TypeError(f"the reason of an abort: required a text, got {shown(reason)}")
        super().__init__(reason)
        self.reason = reason


def require(condition: object, reason: str) -> None:
    """Abort the transaction with `reason` unless `condition` holds.

    >>> require(3 > 2, "not enough")
    """
    if not condition:
        raise Abort(reason)


def abort(reason: str) -> NoReturn:
    """Abort the transaction with `reason`: all its effects are undone."""
    raise Abort(reason)


def exists(row: Any, /) -> bool:
    """Whether a row exists: it was loaded, or a transaction assigned one of its fields, and it was not deleted since.

    The same as `row.exists`. Type checkers know this function, but not the attribute, because no table declares it.
    """
    return _exists(row, "tg.exists")


def delete(row: Any) -> None:
    """Delete a row: it no longer exists, and its fields read as their defaults again."""
    _exists(row, "tg.delete")
    layout = getattr(type(row), "__tidegate_layout__", None)
    if layout is not None:
        for column in layout.value_columns:
            row.__dict__[column.name] = column.type.decode(column.default)
        row.__dict__["_assigned"] = True
    row.exists = False


def _exists(row: Any, verb: str) -> bool:
    """Whether a row exists; TypeError for anything that is no row."""
    found = None if isinstance(row, type) else getattr(row, "exists", None)
    if not isinstance(found, bool):
        raise TypeError(f"{verb}: required a row, such as Account(1), got {shown(row)}")
    return found


def lookup(table: type[Row], key: Any) -> Row:
    """The row of a table whose key is known only inside the transaction: read from another row, or computed.

    Prefer row parameters where possible: their keys are known before the transaction runs, so more transactions can
    run in parallel. A composite key is a tuple. In plain Python, the test supplies the rows (`tidegate.testing.rows`).
    """
    if "__tidegate_layout__" not in getattr(table, "__dict__", {}):
        raise TypeError(f"tg.lookup: required a class declared with @tg.table first, got {shown(table)}")
    finder = _finder.get()
    if finder is None:
        raise LookupError(
            f"tg.lookup({table.__name__}, {key!r}): outside an engine the rows come from the test; open `with "
            "tidegate.testing.rows(...):` around the call, with the rows that it may look up"
        )
    found: Row = finder(table, key)
    return found


@contextlib.contextmanager
def setting(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    """Set a context variable inside the `with` block, and reset it afterwards."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def looking_up(finder: Finder) -> AbstractContextManager[None]:
    """Inside this `with` block, `lookup` in plain functions gets its row objects from `finder(table, key)`.

    >>> class Account:
    ...     __tidegate_layout__ = ()  # as @tg.table makes it
    >>> with looking_up(lambda table, key: (table.__name__, key)):
    ...     lookup(Account, 7)
    ('Account', 7)
    """
    return setting(_finder, _callable("looking_up", "finder(table, key)", finder))


def _callable(what: str, required: str, given: Any) -> Any:
    if not callable(given):
        raise TypeError(f"{what}: required a function {required}, got {shown(given)}")
    return given


def history(row: Any, *, last: int) -> Sequence[Any]:
    """The states that a row had in the `last` units of time, newest first; each has the row's fields and `time`.

    A state begins when a transaction that changed the row commits. Its time is that transaction's time: the parameter
    named by `@tg.transaction(time="ts")`. If several transactions commit together, the time is that of the last one
    that changed the row, and there is no new state if the row ends up as it was before. The result holds the states
    with `now - last < time <= now`, where `now` is the time of the calling transaction. Every transaction that writes
    the table must declare its time. States are kept for the longest `last` that the program uses for the table,
    counted back from the latest time of any state of the table.
    """
    if getattr(type(row), "__tidegate_layout__", None) is None:
        raise TypeError(f"tg.history: required a row, such as Account(1), got {shown(row)}")
    rememberer = _rememberer.get()
    if rememberer is None:
        raise LookupError(
            "tg.history: outside an engine the states come from the test; open `with tidegate.testing.rows(history="
            "[(5, Account(1, 80)), ...]):` around the call, with the times and the rows as they were"
        )
    return rememberer(row, last)


def remembering(rememberer: Rememberer) -> AbstractContextManager[None]:
    """Inside this `with` block, `history` in plain functions gets its states from `rememberer(row, last)`.

    >>> class Account:
    ...     __tidegate_layout__ = ()  # as @tg.table makes it
    >>> with remembering(lambda row, last: [f"what it was in the last {last}"]):
    ...     history(Account(), last=60)
    ['what it was in the last 60']
    """
    return setting(_rememberer, _callable("remembering", "rememberer(row, last)", rememberer))
