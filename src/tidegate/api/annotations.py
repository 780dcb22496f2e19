"""From annotations to value types: which types fields, parameters, list elements and results may have.

    price: Annotated[Decimal, tg.digits(10, 2)]        seen: Annotated[datetime, UTC]        note: str | None

`value_type` gives the type of an annotation, None for one that stands for no value at all, and raises `Unsuitable` for
one that nearly does: its message says what is missing, and how to write it.
"""

from __future__ import annotations

import enum
import types
import typing
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Literal, get_args, get_origin
from uuid import UUID
from zoneinfo import ZoneInfo

from tidegate.foundation.arguments import shown
from tidegate.foundation.errors import DefinitionError
from tidegate.operations.decimals import DIGITS_MAX, Digits
from tidegate.operations.kinds import INT_NONE, Carried, Kind, ValueType
from tidegate.operations.texts import Bytes, Uuid
from tidegate.operations.times import Date, DateTime, Duration
from tidegate.operations.values import Choice, Enumeration, Optional

CHOICES = (
    "int, float, bool, str, date, datetime, Annotated[datetime, UTC], timedelta, "
    "Annotated[Decimal, tg.digits(18, 2)], bytes, UUID, an Enum, a Literal, or one of those | None"
)

_PLAIN: dict[Any, ValueType] = {
    int: Kind.INT,
    float: Kind.FLOAT,
    bool: Kind.BOOL,
    str: Kind.STR,
    date: Date(),
    datetime: DateTime(instant=False),
    timedelta: Duration(),
    bytes: Bytes(),
    UUID: Uuid(),
}


class Unsuitable(Exception):
    """An annotation that cannot be a value type as it is: what is wrong, and what to write."""

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__(problem, advice)
        self.problem, self.advice = problem, advice


def digits(precision: int, scale: int) -> Digits:
    """The digits of a Decimal: `Annotated[Decimal, tg.digits(18, 2)]` has 18 in all, two of them behind the point.

    Args:
        precision: how many digits in all, 18 at most.
        scale: how many of them are behind the point.

    >>> digits(18, 2).label
    'decimal(18, 2)'
    """
    given: tuple[tuple[str, Any, int, int], ...] = (
        ("precision", precision, 1, DIGITS_MAX),
        ("scale", scale, 0, precision),
    )
    for name, value, least, most in given:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise DefinitionError(
                f"tg.digits: {name}: required a whole number from {least} to {most}, got {shown(value)}; a wider "
                f"column can be cast to decimal({DIGITS_MAX}, s) before the transactions"
            )
    return Digits(precision, scale)


def value_type(hint: Any) -> ValueType | None:
    """The value type that an annotation stands for; None if it stands for something else."""
    if get_origin(hint) is Annotated:
        inner, *extras = get_args(hint)
        return _annotated(inner, extras)
    if get_origin(hint) in (typing.Union, types.UnionType):
        return _optional(get_args(hint))
    if get_origin(hint) is Literal:
        return _literal(get_args(hint))
    if hint is Decimal:
        raise Unsuitable("Decimal does not say how many digits it has", "write Annotated[Decimal, tg.digits(18, 2)]")
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _enumeration(hint)
    try:
        return _PLAIN.get(hint)
    except TypeError:  # it cannot be hashed
        return None


def key_type(found: ValueType | None) -> None:
    """Raise unless values of a type can be keys."""
    if found is not None and found.optional:
        raise Unsuitable("it is part of the key, and a key is never None", "leave `| None` out")


def _annotated(inner: Any, extras: list[Any]) -> ValueType | None:
    if inner is Decimal:
        found = [extra for extra in extras if isinstance(extra, Digits)]
        if len(found) != 1:
            raise Unsuitable("Decimal needs its digits, once", "write Annotated[Decimal, tg.digits(18, 2)]")
        return found[0]
    zones = [extra for extra in extras if isinstance(extra, timezone | ZoneInfo)]
    if inner is datetime and zones:
        if any(zone != UTC and getattr(zone, "key", "") != "UTC" for zone in zones):
            raise Unsuitable(
                f"datetime is annotated with {', '.join(map(str, zones))}, and state holds instants, in UTC",
                "write Annotated[datetime, UTC]: columns of any zone are accepted, convert the results for display",
            )
        return DateTime(instant=True)
    return value_type(inner)


def _optional(parts: tuple[Any, ...]) -> ValueType | None:
    inner = [part for part in parts if part is not type(None)]
    if len(inner) != 1:
        return None
    found = value_type(inner[0])
    if found is None or len(inner) == len(parts):
        return None
    if isinstance(found, Choice) and INT_NONE in found.values:
        raise Unsuitable(f"{INT_NONE} stands for None", "choose another value")
    return Optional(found)


def _literal(values: tuple[Any, ...]) -> ValueType:
    plain = tuple(value for value in values if value is not None)
    found = Choice(_few(plain, f"Literal{list(values)}"))
    return found if len(plain) == len(values) else Optional(found)


def _enumeration(declared: type[enum.Enum]) -> Carried:
    members = list(declared)
    if issubclass(declared, enum.Flag):
        raise Unsuitable(f"{declared.__name__} is a Flag, whose values combine", "declare int, and test bits with &")
    values = _few(tuple(member.value for member in members), declared.__name__)
    return Enumeration(values, declared.__name__, tuple(member.name for member in members), declared)


def _few(values: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    kinds = {type(value) for value in values}
    if kinds not in ({int}, {str}) or any(isinstance(value, int) and not -(2**63) <= value < 2**63 for value in values):
        shown = ", ".join(repr(value) for value in values) or "none"
        raise Unsuitable(f"the values of {name} are {shown}", "required: all str, or all int of 64 bits")
    return values
