"""The oracle: what a program must compute, found in the most obvious way.

It shares no code with Tidegate. A program is given as source text; while that text runs, `import
tidegate` yields the small stand-in below, so the decorators, the rows, `require`, `abort` and
`delete` are the oracle's own. State is a dict per table, and transactions run one by one:

    take the event's rows out of the dicts (the same key gives the same object)
    call the function
    it returned:   put the rows back, or remove those that no longer exist
    it raised:     forget the rows; the reason is the abort's text or the exception's class name

The clock is the highest time of an event that ran. A row that has expired by it is taken for absent wherever rows are
taken out or listed; nothing ever removes it.

Invariant: the dicts change only after the function has returned and its result has been checked,
so an abort needs no undo. What it does not do: speed, Arrow, batches kept on disk, late events.
"""

from __future__ import annotations

import builtins
import dataclasses
import functools
import inspect
import linecache
import math
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

SMALLEST, LARGEST = -(2**63), 2**63 - 1
ZEROS: dict[type, Any] = {int: 0, float: 0.0, bool: False, str: ""}
Key = tuple[Any, ...]


class Abort(Exception):
    """Raised by `require`, `abort` and an overflowing assignment."""


class Row:
    """One row while a transaction runs; the subclass made by `table` knows its fields."""

    _fields: dict[str, type]
    _defaults: dict[str, Any]
    _key: tuple[str, ...]
    _ttl: int | float | None
    _by: str

    def __init__(self, key: Key, values: dict[str, Any] | None) -> None:
        self.__dict__.update(self._defaults if values is None else values)
        self.__dict__.update(zip(self._key, key, strict=True))
        self.__dict__["exists"] = values is not None

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._key or name not in self._fields:
            raise AttributeError(f"{type(self).__name__}.{name} cannot be assigned")
        self.__dict__[name] = stored(value, self._fields[name])
        self.__dict__["exists"] = True


def stored(value: Any, kind: Any) -> Any:
    """The value as a field or a result of this kind holds it; an integer beyond 64 bits aborts."""
    if value is None:
        return None
    if kind is float and isinstance(value, (int, float)):
        return float(value)
    if kind is int and isinstance(value, int):
        if not SMALLEST <= value <= LARGEST:
            raise Abort("overflow")
        return int(value)
    if (kind is bool and isinstance(value, bool)) or (kind is str and isinstance(value, str)):
        return value
    members = struct_members(kind)
    if members is not None:
        return {name: stored(getattr(value, name), member) for name, member in members.items()}
    raise TypeError(f"{value!r} is no {kind!r}")


@functools.cache
def struct_members(kind: Any) -> dict[str, Any] | None:
    """The fields of a NamedTuple or dataclass, or None for every other type."""
    if isinstance(kind, type) and (dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")):
        return typing.get_type_hints(kind)
    return None


def require(condition: Any, reason: str) -> None:
    if not condition:
        raise Abort(reason)


def abort(reason: str) -> None:
    raise Abort(reason)


def exists(row: Any) -> bool:
    return row.exists  # type: ignore[no-any-return]


def delete(row: Row) -> None:
    row.__dict__.update(row._defaults)
    row.__dict__["exists"] = False


def table(*, key: str | tuple[str, ...], ttl: int | float | None = None, by: str = "") -> Callable[[type], type]:
    names = (key,) if isinstance(key, str) else tuple(key)

    def declare(cls: type) -> type:
        hints = typing.get_type_hints(cls)
        defaults = {
            name: stored(getattr(cls, name, ZEROS[kind]), kind) for name, kind in hints.items() if name not in names
        }
        body = {"_fields": hints, "_defaults": defaults, "_key": names, "_ttl": ttl, "_by": by}
        return type(cls.__name__, (Row,), body)

    return declare


@dataclasses.dataclass(frozen=True)
class Transaction:
    """A function with its parameters: name, the type of a row or value, and whether a list of it."""

    name: str
    function: Callable[..., Any]
    parameters: tuple[tuple[str, type, bool], ...]
    returns: Any
    time: str


def transaction(function: Callable[..., Any] | None = None, *, compiled: bool = True, time: str = "") -> Any:
    if function is None:
        return lambda given: declared(given, time)
    return declared(function, time)


def declared(function: Callable[..., Any], time: str) -> Transaction:
    hints = inspect.get_annotations(function, eval_str=True)
    parameters = []
    for name in inspect.signature(function).parameters:
        kind = hints[name]
        is_list = typing.get_origin(kind) is list
        parameters.append((name, typing.get_args(kind)[0] if is_list else kind, is_list))
    return Transaction(function.__name__, function, tuple(parameters), without_none(hints.get("return")), time)


def without_none(kind: Any) -> Any:
    """`int` for `int | None`: every result may be absent."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        (kind,) = (part for part in typing.get_args(kind) if part is not type(None))
    return kind


STAND_IN = types.SimpleNamespace(
    table=table, transaction=transaction, require=require, abort=abort, exists=exists, delete=delete, Abort=Abort
)


def declarations(source: str, filename: str = "<oracle>", stand_in: Any = STAND_IN) -> dict[str, Any]:
    """Runs a program's source with the stand-in for Tidegate and returns its namespace."""

    def import_module(name: str, *arguments: Any, **keywords: Any) -> Any:
        return stand_in if name == "tidegate" else builtins.__import__(name, *arguments, **keywords)

    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    module = sys.modules["oracle_program"] = types.ModuleType("oracle_program")  # dataclasses look there
    module.__dict__["__builtins__"] = {**vars(builtins), "__import__": import_module}
    exec(compile(source, filename, "exec"), module.__dict__)
    return module.__dict__


@dataclasses.dataclass(frozen=True)
class Outcome:
    """`faults` are all that is wrong with a bad event: which of them is the reason is not specified.

    `told` is the reason where the function is not compiled: an exception's name and message.
    """

    committed: bool
    reason: str | None
    result: Any
    faults: tuple[str, ...] = dataclasses.field(default=(), repr=False, compare=False)
    told: str | None = dataclasses.field(default=None, repr=False, compare=False)

    def bare(self, reason: str | None) -> str | None:
        """A reason that an engine gave, without the message if it is this one's."""
        return self.reason if reason is not None and reason == self.told else reason


class Oracle:
    """A program's tables and its transactions, run one by one."""

    def __init__(self, source: str, transactions: Sequence[str] | None = None) -> None:
        names = declarations(source)
        found = {name: value for name, value in names.items() if isinstance(value, Transaction)}
        self.transactions = {name: found[name] for name in (transactions or found)}
        self.tables: dict[str, type[Row]] = {}
        for declared in self.transactions.values():
            for _, kind, _ in declared.parameters:
                if issubclass(kind, Row):
                    self.tables[kind.__name__] = kind
        self.state: dict[str, dict[Key, dict[str, Any]]] = {name: {} for name in self.tables}
        self.clock: int | float | None = None

    def load(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        kind = self.tables[name]
        for row in rows:
            given = {field: stored(row[field], kind._fields[field]) for field in kind._defaults if field in row}
            values = {**kind._defaults, **given}
            self.state[name][normal(tuple(row[part] for part in kind._key))] = values

    def scan(self, name: str) -> list[dict[str, Any]]:
        """The table's rows sorted by key, each with its fields in declared order."""
        kind = self.tables[name]
        rows = {key: row for key, row in self.state[name].items() if not self._expired(kind, key, row)}
        return [
            {field: {**rows[key], **dict(zip(kind._key, key, strict=True))}[field] for field in kind._fields}
            for key in sorted(rows)
        ]

    def run(self, events: Sequence[Mapping[str, Any]], order_by: str | None = None) -> list[Outcome]:
        """Runs the events in order (ties: as given) and returns their outcomes as given."""
        outcomes: dict[int, Outcome] = {}
        positions = range(len(events))
        if order_by is not None:
            for position in positions:
                if events[position][order_by] is None:
                    faults = (f"null in order column {order_by!r}", *self._faults(events[position]))
                    outcomes[position] = Outcome(False, faults[0], None, faults)
            positions = sorted(
                (position for position in positions if position not in outcomes),
                key=lambda position: events[position][order_by],
            )
        for position in positions:
            outcomes[position] = self.execute(events[position], order_by)
        return [outcomes[position] for position in range(len(events))]

    def execute(self, event: Mapping[str, Any], order_by: str | None = None) -> Outcome:
        """One event: bad input, an abort, an exception or a commit, each as an outcome."""
        faults = self._faults(event)
        if faults:
            return Outcome(False, faults[0], None, faults)
        time = self._named(event).time or order_by
        if time is not None and not isinstance(event[time], str):
            self.clock = event[time] if self.clock is None else max(self.clock, event[time])
        return self._call(self._named(event), event)

    def _expired(self, kind: type[Row], key: Key, values: Mapping[str, Any]) -> bool:
        if kind._ttl is None or self.clock is None:
            return False
        time = {**values, **dict(zip(kind._key, key, strict=True))}[kind._by]
        number = kind._fields[kind._by]
        return bool(time < number(self.clock) - number(kind._ttl))

    def _named(self, event: Mapping[str, Any]) -> Transaction:
        if "transaction" in event:
            return self.transactions[event["transaction"]]
        (only,) = self.transactions.values()
        return only

    def _faults(self, event: Mapping[str, Any]) -> tuple[str, ...]:
        """All that keeps an event from running, in the order of the signature."""
        name = event.get("transaction", "")
        if name is None:
            return ("null transaction",)
        if "transaction" in event and name not in self.transactions:
            return (f"unknown transaction {name!r}",)
        found = ((name, self._fault(event[name], *kind)) for name, *kind in self._named(event).parameters)
        return tuple(f"{fault} in column {name!r}" for name, fault in found if fault is not None)

    def _call(self, declared: Transaction, event: Mapping[str, Any]) -> Outcome:
        rows: dict[tuple[str, Key], Row] = {}
        arguments: list[Any] = []
        for name, kind, is_list in declared.parameters:
            value = event[name]
            if issubclass(kind, Row):
                keys = [self._key(kind, part) for part in (value if is_list else [value])]
                taken = [self._take(rows, kind, key) for key in keys]
                arguments.append(taken if is_list else taken[0])
            else:
                arguments.append([fresh(item) for item in value] if is_list else fresh(value))
        try:
            result = stored(declared.function(*arguments), declared.returns)
        except Abort as abort:
            return Outcome(False, str(abort), None)
        except Exception as error:
            name = type(error).__name__
            return Outcome(False, name, None, told=f"{name}: {error}" if str(error) else name)
        for (name, key), row in rows.items():
            if row.exists:
                self.state[name][key] = {field: row.__dict__[field] for field in row._defaults}
            else:
                self.state[name].pop(key, None)
        return Outcome(True, None, result)

    def _take(self, rows: dict[tuple[str, Key], Row], kind: type[Row], key: Key) -> Row:
        name = kind.__name__
        if (name, key) not in rows:
            found = self.state[name].get(key)
            if found is not None and self._expired(kind, key, found):
                found = None
            rows[name, key] = kind(key, found and {field: fresh(value) for field, value in found.items()})
        return rows[name, key]

    @staticmethod
    def _key(kind: type[Row], value: Any) -> Key:
        return normal(tuple(value[part] for part in kind._key) if len(kind._key) > 1 else (value,))

    @staticmethod
    def _fault(value: Any, kind: type, is_list: bool) -> str | None:
        """What is wrong with a parameter's value: a null anywhere, or else a NaN in a key."""
        is_row = issubclass(kind, Row)
        if value is None:
            return "null key" if is_row else "null"
        items = value if is_list else [value]
        parts = [part for item in items for part in (item.values() if isinstance(item, dict) else [item])]
        if any(part is None for part in parts):
            return "null key" if is_row else "null"
        if is_row and any(isinstance(part, float) and math.isnan(part) for part in parts):
            return "NaN key"
        return None


def fresh(value: Any) -> Any:
    """NaN as an object of its own: `x in (x,)` asks for identity, and state keeps values, not objects."""
    return float("nan") if isinstance(value, float) and value != value else value


def normal(key: Key) -> Key:
    """Keys that compare equal are one key: minus zero is zero."""
    return tuple(part + 0.0 if isinstance(part, float) else part for part in key)
