"""`@tg.table`: a class becomes a table, and stays a class.

The class's annotations are the columns, and its defaults are the values of an absent row. An instance
is a plain row object, which is what a transaction sees when it is called as plain Python:

    @tg.table(key="id")
    class Account:
        id: int
        balance: int = 0

    Account(7, balance=100)        a row that exists
    Account(7, exists=False)       an absent row: reads as the defaults

Assigning to a field makes the row exist. A row object enforces its columns' types, so that the plain
function computes what the engine computes: an `int` field aborts with "overflow" if a value does not fit
into 64 bits, a `float` field turns an int into a float, and any other mismatch is a TypeError. The other types
that fields may have (`annotations`) follow the same rule: a value is taken as it is, or refused.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from types import FrameType
from typing import Any, TypeVar, dataclass_transform, get_type_hints

from tidegate.api.annotations import CHOICES, Unsuitable, key_type, value_type
from tidegate.api.control import Abort
from tidegate.foundation.arguments import shown
from tidegate.foundation.errors import DefinitionError
from tidegate.foundation.places import Place
from tidegate.foundation.tracebacks import shortened
from tidegate.operations.kinds import TooLarge
from tidegate.operations.layout import Column, Kind, TableLayout, ValueType
from tidegate.operations.times import DateTime, Duration, is_time

Class = TypeVar("Class", bound=type)

RESERVED = frozenset({"exists"})


@dataclass_transform()
def table(
    *, key: str | tuple[str, ...], ttl: int | float | timedelta | None = None, by: str | None = None
) -> Callable[[Class], Class]:
    """Declare a table: the decorated class's annotations are its columns, `key` names its key.

    Rows of a table with a `ttl` expire. The state has a clock: the highest time of all events so far, in their order.
    The time of an event is the parameter that its transaction declares, `@tg.transaction(time="ts")`. If a transaction
    that touches a table with a `ttl` declares none, the column `order_by` is the time of all events whose transactions
    declare none, and a run without it is refused. Otherwise such events leave the clock as it is; so does
    `engine.execute` of a transaction that declares no time.

    Before an event runs, the clock advances to its time if that is higher. A late event does not set it back. Events
    that abort advance it; events that are refused before they run (a null, an unknown transaction, a late event with
    `late="refuse"`) do not. Inside a dataflow all transactions of a round run at the clock of the event that started
    the round.

    A row is absent for an event if its field `by` is less than clock - ttl: it reads as the defaults, `exists` is
    False, and an assignment makes a new row from the defaults. A batch ends with removing all rows that are absent by
    then, so `read`, `scan` and `read_state` do not see them. This takes time for the rows that expire and for those
    that the batch wrote, and not for others. A row whose `by` is NaN does not expire. The clock is stored with the
    state: it is the same after a restart, and a rollback takes it back with the rows.

    `ttl` may be changed, added and removed between two runs of a state; it then holds from the next event on.

    Args:
        key: one field, or a tuple of fields for a composite key.
        ttl: the time to live, in the unit of `by`; for a datetime, a timedelta or a number of seconds. None for rows
            that stay.
        by: the int, float or datetime field that says when a row was last alive; required with `ttl`.

    >>> @table(key="id")
    ... class Account:
    ...     id: int
    ...     balance: int = 0
    >>> Account(1).balance
    0
    """
    frame = sys._getframe(1)
    place = Place(frame.f_code.co_filename, frame.f_lineno)
    named: object = key  # annotations are not enforced: users may pass anything
    if not isinstance(named, str | tuple) or not named or not all(isinstance(name, str) for name in named):
        raise DefinitionError(
            place.describe(
                f"table: key must name a field or be a tuple of field names, got {shown(key)}",
                'write for example @tg.table(key="id")',
            )
        )
    names = (key,) if isinstance(key, str) else tuple(key)

    def declare(declared: Class) -> Class:
        try:
            layout = _with_ttl(_layout(declared, names, place, frame), ttl, by, place)
        except DefinitionError as error:
            raise shortened(error)  # noqa: B904 - it is the same error
        _make_rows(declared, layout)
        return declared

    return declare


def layout_of(candidate: object) -> TableLayout | None:
    """The layout of a table class; None for anything else."""
    found = candidate.__dict__.get("__tidegate_layout__") if isinstance(candidate, type) else None
    return found if isinstance(found, TableLayout) else None


def coerce(wanted: ValueType, value: Any, where: str) -> Any:
    """`value` as a type holds it, by the rules that plain rows and the engine share; `where` is for the message."""
    try:
        return wanted.fit(value)
    except TooLarge:
        raise Abort("overflow") from None
    except UnicodeEncodeError:
        raise
    except TypeError:
        raise TypeError(f"{where} holds {wanted.label}, got {value!r}") from None
    except ValueError as error:
        raise ValueError(f"{where} holds {wanted.label}, got {value!r}: {error}") from None


def _layout(declared: type, key: tuple[str, ...], place: Place, frame: FrameType) -> TableLayout:
    given: object = declared
    if not isinstance(given, type):
        raise DefinitionError(place.describe(f"table: @tg.table decorates a class, got {shown(given)}"))
    where = f"table {declared.__name__}"
    try:
        hints = get_type_hints(declared, localns=dict(frame.f_locals), include_extras=True)
    except NameError as error:
        raise DefinitionError(place.describe(f"{where}: {error}")) from error
    columns = []
    for name, hint in hints.items():
        at = _field_place(name, place)
        try:
            found = value_type(hint)
            key_type(found if name in key else None)
        except Unsuitable as error:
            raise DefinitionError(at.describe(f"{where}: field {name!r}: {error.problem}", error.advice)) from None
        if found is None:
            called = getattr(hint, "__name__", str(hint))
            raise DefinitionError(
                at.describe(
                    f"{where}: field {name!r} has type {called}, which a column cannot hold", f"required: {CHOICES}"
                )
            )
        if name in RESERVED or name.startswith("_"):
            raise DefinitionError(at.describe(f"{where}: the field name {name!r} is reserved; choose another"))
        default = found.zero
        if name in declared.__dict__:
            try:
                default = found.encode(coerce(found, declared.__dict__[name], f"{where}.{name}"))
            except (TypeError, ValueError, Abort) as error:
                raise DefinitionError(
                    at.describe(f"{where}: the default of field {name!r} does not fit: {error}")
                ) from error
        columns.append(Column(name, found, default))
    for name in key:
        if name not in hints:
            raise DefinitionError(
                place.describe(f"{where}: the key {name!r} is not a field", f"fields are: {', '.join(hints) or 'none'}")
            )
    if len(set(key)) != len(key):
        raise DefinitionError(place.describe(f"{where}: the key {key!r} names a field twice"))
    return TableLayout(declared.__name__, tuple(columns), key)


def _with_ttl(layout: TableLayout, ttl: object, by: object, place: Place) -> TableLayout:
    """The layout of a table whose rows expire, where a time to live is declared."""
    where = f"table {layout.name}"
    if ttl is None and by is None:
        return layout
    timed = [column.name for column in layout.columns if is_time(column.type)]
    known = f"int, float and datetime fields are: {', '.join(timed) or 'none'}"
    if by is None or ttl is None:
        missing = "ttl" if ttl is None else "by"
        advice = 'rows expire with both, for example @tg.table(key="id", ttl=3600, by="seen_at")'
        raise DefinitionError(place.describe(f"{where}: {missing} is missing", f"{advice}; {known}"))
    column = next((column for column in layout.columns if column.name == by), None)
    if column is None or column.name not in timed:
        problem = "not a field" if column is None else f"a field of type {column.type.label}"
        raise DefinitionError(place.describe(f"{where}: by={by!r} is {problem}", known))
    found = _lifetime(ttl, column.type)
    if found is None or not 0 < found < 2**63:
        required = f"a positive {'whole ' if column.type is Kind.INT else ''}number, in the unit of {by!r}"
        if isinstance(column.type, DateTime):
            required = "a positive timedelta, or a number of seconds"
        told = f"{where}: ttl={ttl!r} is no time to live"
        raise DefinitionError(place.describe(told, f"required: {required} ({column.type.label})"))
    return replace(layout, ttl=found, by=column.name)


def _lifetime(ttl: object, of: ValueType) -> int | float | None:
    """A time to live in the words of the type of `by`; None if it is none."""
    if isinstance(of, DateTime) and isinstance(ttl, timedelta):
        return Duration().encode(ttl)
    if isinstance(ttl, bool) or not isinstance(ttl, int if of is Kind.INT else int | float):
        return None
    if isinstance(of, DateTime):
        return round(ttl * 1_000_000) if math.isfinite(ttl) else None
    return ttl if of is Kind.INT else float(ttl)


def _field_place(name: str, table_place: Place) -> Place:
    """The line that annotates `name`, searched for from the decorator on."""
    for offset in range(200):
        candidate = Place(table_place.file, table_place.line + offset)
        if re.match(rf"{re.escape(name)}\s*:", candidate.text):
            return candidate
    return table_place


def _make_rows(declared: Any, layout: TableLayout) -> None:
    """Give the class the behaviour of a row object."""
    columns = {column.name: column for column in layout.columns}
    keys = frozenset(layout.key)
    defaults = {column.name: column.type.decode(column.default) for column in layout.columns}

    def fitted(name: str, value: Any) -> Any:
        return coerce(columns[name].type, value, f"{layout.name}.{name}")

    def __init__(self: Any, *values: Any, exists: bool = True, **named: Any) -> None:
        if len(values) > len(columns):
            raise TypeError(f"{layout.name} has {len(columns)} fields, got {len(values)} values")
        given = dict(zip(columns, values, strict=False))
        for name, value in named.items():
            if name not in columns or name in given:
                problem = "given twice" if name in given else f"not a field; fields are: {', '.join(columns)}"
                raise TypeError(f"{layout.name}: {name!r} is {problem}")
            given[name] = value
        missing = [name for name in layout.key if name not in given]
        if missing:
            raise TypeError(f"{layout.name}: the key {', '.join(missing)} is missing")
        for name in columns:
            self.__dict__[name] = fitted(name, given[name]) if name in given else defaults[name]
        self.__dict__.update(exists=bool(exists), _assigned=False)

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if name in keys:
            raise AttributeError(f"{layout.name}.{name} is the key; a row's key never changes")
        if name == "exists":
            self.__dict__["exists"] = bool(value)
            return
        if name not in columns:
            raise AttributeError(f"{layout.name} has no field {name!r}; fields are: {', '.join(columns)}")
        self.__dict__[name] = fitted(name, value)
        self.__dict__.update(exists=True, _assigned=True)

    def __repr__(self: Any) -> str:
        shown = ", ".join(f"{name}={self.__dict__[name]!r}" for name in columns)
        return f"{layout.name}({shown}{'' if self.exists else ', exists=False'})"

    def __eq__(self: Any, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(self.__dict__[name] == other.__dict__[name] for name in (*columns, "exists"))

    methods: dict[str, Any] = {
        "__init__": __init__,
        "__setattr__": __setattr__,
        "__repr__": __repr__,
        "__eq__": __eq__,
        "__hash__": object.__hash__,
        "__match_args__": tuple(columns),
        "__tidegate_layout__": layout,
    }
    for name, method in methods.items():
        setattr(declared, name, method)
