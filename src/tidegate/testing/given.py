"""`rows`: what `tg.lookup` and `tg.history` find when a test calls a transaction as a plain function.

    with rows(Account(1, balance=100)) as found:
        close(Customer(7, account=1), fee=5)          looks up Account 1, and the bank's Account 0
    assert found.find(Account, 1).balance == 0
    assert found.find(Account, 0) == Account(0, balance=5)

A key that no given row has finds an absent row, made once and kept, so that a test can look at what became of it. For
one key there is one object: pass `found.find(Account, 1)` where a transaction also takes that row as a parameter.
Outside of the engine nobody takes back what an aborted transaction wrote.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

from tidegate.api.control import Abort, looking_up, remembering
from tidegate.api.table import layout_of
from tidegate.foundation.arguments import INT_MAX, items, whole
from tidegate.foundation.errors import InputError
from tidegate.testing.plain import absent

Row = TypeVar("Row")
Key = tuple[Any, ...]


class Rows:
    """The rows that a plain function can look up, those that were given and those that were made on demand."""

    def __init__(self, given: Sequence[Any], history: Sequence[tuple[int, Any]], now: int | None) -> None:
        self._rows: dict[tuple[type, Key], Any] = {}
        for row in given:
            place = (type(row), _key_of(row, "a row"))
            if place in self._rows:
                raise ValueError(f"rows: two rows have the key of {row!r}; a key has one row")
            self._rows[place] = row
        pairs = items("rows: history", history, "pairs of a time and a row, such as (5, Account(1, 80))", InputError)
        self._states = [_state(*_pair(entry)) for entry in pairs]
        latest = max((state.time for _, state in self._states), default=0)
        self._now = latest if now is None else whole("rows: now", now, least=-INT_MAX, error=InputError)

    def find(self, table: type[Row], key: Any) -> Row:
        """The row of a table with this key, as `tg.lookup` finds it; a composite key is a tuple."""
        parts = key if isinstance(key, tuple) else (key,)
        made = absent(table, *parts)  # converts the key to its column types, or raises
        place = (table, _key_of(made, "a row"))
        if any(part != part for part in place[1]):
            raise Abort(f"NaN key of {table.__name__}")
        found: Row = self._rows.setdefault(place, made)
        return found

    def __iter__(self) -> Iterator[Any]:
        """All rows, in the order in which they were given or first looked up."""
        return iter(self._rows.values())

    def states(self, row: Any, last: int) -> list[Any]:
        """The states of a row in the last units of time, newest first, as `tg.history` gives them."""
        place = (type(row), _key_of(row, "a row"))
        wanted = [state for found, state in self._states if found == place and self._now - last < state.time]
        return sorted((state for state in wanted if state.time <= self._now), key=lambda state: -state.time)


@contextlib.contextmanager
def rows(*given: Any, history: Sequence[tuple[int, Any]] = (), now: int | None = None) -> Iterator[Rows]:
    """Inside this `with` block, plain functions look up the given rows, and find the given earlier states.

    Args:
        given: row objects, of any tables. `tg.lookup` returns these objects; other keys find absent rows.
        history: the earlier states that `tg.history` finds: pairs of a time and the row as it was then.
        now: the time of the transaction that is called, which `tg.history` counts back from; by default the latest
            time in `history`.

    >>> import tidegate as tg
    >>> @tg.table(key="id")
    ... class Account:
    ...     id: int
    ...     balance: int = 0
    >>> with rows(Account(1, 100), history=[(5, Account(1, 80)), (9, Account(1, 100))], now=10) as found:
    ...     tg.lookup(Account, 1).balance -= 30
    ...     tg.lookup(Account, 2).balance += 30
    ...     [(state.time, state.balance) for state in tg.history(tg.lookup(Account, 1), last=3)]
    [(9, 100)]
    >>> list(found)
    [Account(id=1, balance=70), Account(id=2, balance=30)]
    """
    found = Rows(given, history, now)
    with looking_up(found.find), remembering(found.states):
        yield found


def _key_of(row: Any, what: str) -> Key:
    layout = layout_of(type(row))
    if layout is None:
        raise TypeError(
            f"rows: required {what} of a class declared with @tg.table, such as Account(1, balance=100), got {row!r}"
        )
    return tuple(getattr(row, name) for name in layout.key)


def _pair(entry: Any) -> tuple[int, Any]:
    if not isinstance(entry, tuple) or len(entry) != 2 or not isinstance(entry[0], int):
        raise TypeError(f"rows: history holds pairs of a time and a row, such as (5, Account(1, 80)), got {entry!r}")
    return entry


def _state(time: int, row: Any) -> tuple[tuple[type, Key], Any]:
    key = _key_of(row, "the second of each pair in history to be a row")
    layout = layout_of(type(row))
    assert layout is not None
    values = {column.name: getattr(row, column.name) for column in layout.value_columns}
    return (type(row), key), SimpleNamespace(time=time, exists=row.exists, **values)
