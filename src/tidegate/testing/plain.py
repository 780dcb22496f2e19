"""The plain functions, run one by one in order: the reference that every engine must agree with.

No compiler, no arrays, no Arrow inside: rows are objects of the user's table classes in a dict, and a
transaction is a Python call on copies of them. Slow and short, so that it is easy to check by reading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

import pyarrow as pa

from tidegate.api.control import Abort, looking_up, remembering
from tidegate.api.outside import require_unchanged
from tidegate.api.table import coerce, layout_of
from tidegate.api.transaction import Transaction
from tidegate.foundation.arguments import items, refusal, shown
from tidegate.foundation.arrow_tables import RowData, as_table
from tidegate.foundation.errors import InputError
from tidegate.operations.layout import TableLayout, Value, ValueType, encodable
from tidegate.operations.outcomes import TRANSACTION_COLUMN, Outcome, error_reason
from tidegate.operations.plan import RowParameter, TransactionPlan

Key = tuple[Any, ...]
Row = TypeVar("Row")


def absent(table: type[Row], *key: Value) -> Row:
    """A row that does not exist, for a plain function: it reads as the defaults until a field is assigned.

    >>> import tidegate as tg
    >>> @tg.table(key="id")
    ... class Account:
    ...     id: int
    ...     balance: int = 5
    >>> absent(Account, 7)
    Account(id=7, balance=5, exists=False)
    """
    layout = _layout(table)
    if len(key) != len(layout.key):
        raise TypeError(f"the key of {layout.name} is ({', '.join(layout.key)}), got {len(key)} values")
    row: Any = table
    found: Row = row(**dict(zip(layout.key, key, strict=True)), exists=False)
    return found


class _Refused(Exception):
    """An event that cannot run; its text is the reason."""


class PlainProgram:
    """Tables as dicts of row objects, and transactions as calls."""

    def __init__(self, transactions: Sequence[Transaction], initial: Mapping[type, RowData] | None = None) -> None:
        required = "a list of functions declared with @tg.transaction"
        for found in items("transactions", transactions, required):
            if not isinstance(found, Transaction):
                raise refusal("transactions", "functions declared with @tg.transaction", found)
        require_unchanged(outside for transaction in transactions for outside in transaction.outside)
        self._transactions = {transaction.__name__: transaction for transaction in transactions}
        self._parameters = {
            t.__name__: sorted(t.plan.parameters, key=lambda p: not isinstance(p, RowParameter)) for t in transactions
        }
        self._touched: dict[tuple[str, Key], Any] = {}
        """The row objects that the running transaction works on, by table and key."""
        self._now = 0
        expiring = [layout for t in transactions for layout in t.plan.tables if layout.expires]
        self._times = expiring[0].by_type if expiring else None
        self._clock: int | float | None = None
        """The highest time of an event so far, by which rows expire."""
        self._orders_are_times = any(
            layout.expires for t in transactions if not t.plan.time for layout in t.plan.tables
        )
        self.classes: dict[str, type] = {name: found for t in transactions for name, found in t.classes.items()}
        self._rows: dict[str, dict[Key, Any]] = {name: {} for name in self.classes}
        self._states: dict[str, list[tuple[Key, Any]]] = {}
        self._keeps: dict[str, int] = {}
        for transaction in transactions:
            for layout, last in transaction.plan.histories:
                self._keeps[layout.name] = max(last, self._keeps.get(layout.name, 0))
        for table, rows in loaded(initial).items():
            layout = _layout(table)
            if layout.name not in self.classes:
                raise refusal("initial", f"tables of the program, {', '.join(self.classes)}", table, InputError)
            types = {column.name: column.type for column in layout.columns}
            for found in rows.to_pylist():
                values = {name: types[name].take(value) for name, value in found.items()}
                self._rows[layout.name][tuple(values[key] for key in layout.key)] = self.classes[layout.name](**values)

    def run(self, events: RowData, order_by: str | None = None) -> list[Outcome]:
        """The outcome of each event, in the order of the table."""
        rows = as_table("events", events).to_pylist()
        outcomes: list[Outcome | None] = [None] * len(rows)
        numbers = list(range(len(rows)))
        if order_by is not None:
            for number in numbers:
                place = rows[number][order_by]
                if place is None or place != place:
                    what = "null" if place is None else "NaN"
                    outcomes[number] = Outcome(False, f"{what} in order column {order_by!r}", None)
            numbers = sorted((n for n in numbers if outcomes[n] is None), key=lambda n: rows[n][order_by])
        with looking_up(self._looked_up), remembering(self._remembered):
            for number in numbers:
                outcomes[number] = self._execute(rows[number], order_by)
        return [outcome for outcome in outcomes if outcome is not None]

    def execute(self, event: Mapping[str, Any]) -> Outcome:
        """Run one event."""
        given: object = event
        if not isinstance(given, Mapping):
            raise refusal("execute", 'an event such as {"dst": 1, "amount": 5}', given, InputError)
        with looking_up(self._looked_up), remembering(self._remembered):
            return self._execute(event)

    def _execute(self, event: Mapping[str, Any], order_by: str | None = None) -> Outcome:
        self._touched = {}
        before = self._clock
        try:
            transaction = self._named(event)
            self._advance(event.get(transaction.plan.time or (order_by if self._orders_are_times else None) or ""))
            arguments = self._arguments(transaction, event)
            self._now = arguments[transaction.plan.time] if transaction.plan.time else 0
            result = _as_column(transaction.plan, transaction(**arguments))
        except _Refused as refused:
            self._clock = before
            return Outcome(False, str(refused), None)
        except Abort as aborted:
            return Outcome(False, aborted.reason if encodable(aborted.reason) else UnicodeEncodeError.__name__, None)
        except Exception as error:
            return Outcome(False, error_reason(error, transaction.plan.compiled), None)
        for (table, key), row in self._touched.items():
            self._note_state(table, key, row)
            if row.exists:
                self._rows[table][key] = row
            else:
                self._rows[table].pop(key, None)
        return Outcome(True, None, result)

    def _advance(self, time: Any) -> None:
        """Let the clock be a higher time, in its plain form: microseconds for a datetime."""
        if time is not None and self._times is not None:
            word = self._times.encode(self._times.take(time))
            self._clock = word if self._clock is None else max(self._clock, word)

    def _has_expired(self, layout: TableLayout, row: Any) -> bool:
        if layout.ttl is None or self._clock is None:
            return False
        return bool(layout.by_type.encode(getattr(row, layout.by)) < self._clock - layout.ttl)

    def _note_state(self, table: str, key: Key, row: Any) -> None:
        """Record the new state of a row if it changed and its table keeps a history."""
        if table not in self._keeps:
            return
        fields = [column.name for column in _layout(type(row)).value_columns]
        before = self._rows[table].get(key)
        old = self.classes[table](*key, exists=False) if before is None else before
        if old.exists == row.exists and all(_equal(getattr(old, f), getattr(row, f)) for f in fields):
            return
        values = {field: getattr(row, field) for field in fields}
        self._states.setdefault(table, []).append((key, SimpleNamespace(time=self._now, exists=row.exists, **values)))

    def _remembered(self, row: Any, last: int) -> list[Any]:
        """The states of a row, newest first; all states are stored, so those beyond the retention time are skipped."""
        layout = _layout(type(row))
        key = tuple(getattr(row, name) for name in layout.key)
        states = self._states.get(layout.name, [])
        latest = max((state.time for _, state in states), default=0)
        oldest = max(self._now - last, latest - self._keeps[layout.name])
        return [state for k, state in reversed(states) if k == key and oldest < state.time <= self._now]

    def rows(self, table: type) -> list[dict[str, Any]]:
        """The committed rows, sorted by key."""
        layout = _layout(table)
        found = {key: row for key, row in self._rows[layout.name].items() if not self._has_expired(layout, row)}
        types = [column.type for column in layout.key_columns]
        ordered = sorted(found, key=lambda key: [of.encode(part) for of, part in zip(types, key, strict=True)])
        return [{c.name: getattr(found[key], c.name) for c in layout.columns} for key in ordered]

    def _named(self, event: Mapping[str, Any]) -> Transaction:
        if len(self._transactions) == 1 and TRANSACTION_COLUMN not in event:
            return next(iter(self._transactions.values()))
        name = event[TRANSACTION_COLUMN]
        if name is None:
            raise _Refused("null transaction")
        if name not in self._transactions:
            raise _Refused(f"unknown transaction {name!r}")
        return self._transactions[name]

    def _arguments(self, transaction: Transaction, event: Mapping[str, Any]) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        for parameter in self._parameters[transaction.__name__]:
            given = event[parameter.name]
            values = given if parameter.many and given is not None else [given]
            if isinstance(parameter, RowParameter):
                made = [self._row(parameter, value) for value in values]
            else:
                if (given is None or any(v is None for v in values)) and not (
                    parameter.type.optional and (given is not None or not parameter.many)
                ):
                    raise _Refused(f"null in column {parameter.name!r}")
                made = [_taken(parameter.type, value, parameter.type.label, parameter.name) for value in values]
            arguments[parameter.name] = made if parameter.many else made[0]
        return arguments

    def _row(self, parameter: RowParameter, value: Any) -> Any:
        layout = parameter.table
        key: Key = (value,) if len(layout.key) == 1 or value is None else tuple(value[name] for name in layout.key)
        if None in key:
            raise _Refused(f"null key in column {parameter.name!r}")
        if any(part != part for part in key):
            raise _Refused(f"NaN key in column {parameter.name!r}")
        columns = layout.key_columns
        label = columns[0].type.label if len(columns) == 1 else f"key of {layout.name}"
        taken = (_taken(column.type, part, label, parameter.name) for column, part in zip(columns, key, strict=True))
        return self._object(layout, tuple(taken))

    def _looked_up(self, table: type, key: Any) -> Any:
        layout = _layout(table)
        parts = key if isinstance(key, tuple) else (key,)
        row = self._absent(layout, parts)  # converts the key to its column types, or raises
        fitted = tuple(getattr(row, name) for name in layout.key)
        if any(part != part for part in fitted):
            raise Abort(f"NaN key of {layout.name}")
        return self._object(layout, fitted)

    def _object(self, layout: TableLayout, key: Key) -> Any:
        """The row object that the running transaction works on; there is one per row."""
        place = (layout.name, key)
        if place not in self._touched:
            found = self._rows[layout.name].get(key)
            there = found is not None and not self._has_expired(layout, found)
            self._touched[place] = _copied(found) if there else self._absent(layout, key)
        return self._touched[place]

    def _absent(self, layout: TableLayout, key: Key) -> Any:
        return self.classes[layout.name](**dict(zip(layout.key, key, strict=True)), exists=False)


def loaded(initial: Mapping[type, RowData] | None) -> dict[type, pa.Table]:
    """The rows of `initial` as Arrow tables."""
    given: object = {} if initial is None else initial
    if not isinstance(given, Mapping):
        raise refusal("initial", "rows by table, such as {Account: rows}", given, InputError)
    return {table: as_table(f"initial rows of {_layout(table).name}", rows) for table, rows in given.items()}


def _copied(row: Any) -> Any:
    """A copy of a row object, as by `copy.copy`, in a quarter of the time."""
    copied = object.__new__(type(row))
    copied.__dict__.update(row.__dict__)
    return copied


def _equal(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))


def _layout(table: type) -> TableLayout:
    layout = layout_of(table)
    if layout is None:
        raise TypeError(f"{shown(table)} is not a table; declare it with @tg.table")
    return layout


def _as_column(plan: TransactionPlan, result: Any) -> Any:
    """The result as the result column stores it: a struct as a dict, an int in a float column as a float."""
    if result is None or plan.result is None:
        return None
    if not plan.result.struct:
        ((_, kind),) = plan.result.fields
        return _fitted(kind, result)
    return {name: _fitted(kind, getattr(result, name)) for name, kind in plan.result.fields}


def _fitted(value_type: ValueType, value: Any) -> Any:
    return coerce(value_type, value, "result")


def _taken(value_type: ValueType, value: Any, label: str, column: str) -> Any:
    """The Python value of an event's value."""
    try:
        return value_type.take(value)
    except ValueError:
        raise _Refused(f"no {label} in column {column!r}") from None
