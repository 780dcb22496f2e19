"""Dates, datetimes and timedeltas in generated code: their arithmetic, their parts, and what constructs them.

Words are days or microseconds, so arithmetic is that of integers, checked as theirs. A result that leaves 64 bits or
Python's years escapes: plain Python computes it, or raises OverflowError.
"""

from __future__ import annotations

import ast
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tidegate.compiler import values
from tidegate.compiler.types import Term, describe
from tidegate.operations.kinds import Kind
from tidegate.operations.times import DAY, DAY_MAX, DAY_MIN, TIME_MAX, TIME_MIN, Date, DateTime, Duration

if TYPE_CHECKING:
    from tidegate.compiler.expressions import Expressions
    from tidegate.compiler.numbers import Numbers

TIMES = (Date, DateTime, Duration)
_ADVICE = "or declare it with @tg.transaction(compiled=False), which runs any Python, more slowly"
_UNITS = {
    "days": DAY,
    "seconds": 1_000_000,
    "microseconds": 1,
    "milliseconds": 1_000,
    "minutes": 60_000_000,
    "hours": 3_600_000_000,
    "weeks": 7 * DAY,
}


def arithmetic(c: Numbers, left: Term, right: Term, operation: type[ast.operator], node: ast.AST) -> Term:
    """left op right, where one is a date or a time and neither is None."""
    whole = (Kind.INT, Kind.BOOL)
    match left.type, operation, right.type:
        case (Duration(), ast.Add | ast.Sub, Duration()):
            return _checked(c, operation, left, right, Duration())
        case (Duration(), ast.Mult, Kind()) if right.type in whole:
            return Term(c.checked(f"multiply({left.code}, {c.integer(right, node).code})", Kind.INT).code, Duration())
        case (Kind(), ast.Mult, Duration()) if left.type in whole:
            return arithmetic(c, right, left, operation, node)
        case (Duration(), ast.FloorDiv | ast.Mod | ast.Div, Duration()):
            found = c.division(_word(left), _word(right), operation, node)
            return Term(found.code, Duration()) if operation is ast.Mod else found
        case (Duration(), ast.FloorDiv, Kind()) if right.type in whole:
            return Term(c.division(_word(left), right, operation, node).code, Duration())
        case (Duration(), ast.Div, Kind()) if right.type in whole:
            divisor = c.keep(c.integer(right, node).code)
            with c.block(f"if {divisor} == 0:"):
                c.leave(c.reason("ZeroDivisionError"))
            return Term(c.checked(f"round_divide({left.code}, {divisor}, 0)", Kind.INT).code, Duration())
        case (DateTime() as found, ast.Add | ast.Sub, Duration()):
            return _within(c, _checked(c, operation, left, right, found), TIME_MIN, TIME_MAX)
        case (Date(), ast.Add | ast.Sub, Duration()):
            days = Term(c.keep(f"floor_divide({right.code}, {DAY})[0]"), Duration())  # its days, as Python does
            return _within(c, _checked(c, operation, left, days, Date()), DAY_MIN, DAY_MAX)
        case (Duration(), ast.Add, Date() | DateTime()):
            return arithmetic(c, right, left, operation, node)
        case (DateTime(), ast.Sub, DateTime()) if left.type == right.type:
            return Term(c.keep(f"{left.code} - {right.code}"), Duration())
        case (Date(), ast.Sub, Date()):
            return Term(c.keep(f"({left.code} - {right.code}) * {DAY}"), Duration())
    c.refuse(
        node,
        f"{operation.__name__} of {describe(left.type)} and {describe(right.type)} cannot be compiled",
        f"use timedelta with whole numbers, {_ADVICE}",
    )


def _word(term: Term) -> Term:
    return Term(term.code, Kind.INT, term.constant)


def _checked(c: Numbers, operation: type[ast.operator], left: Term, right: Term, found: Any) -> Term:
    function = "add" if operation is ast.Add else "subtract"
    return Term(c.checked(f"{function}({left.code}, {right.code})", Kind.INT).code, found)


def _within(c: Numbers, term: Term, least: int, most: int) -> Term:
    c.escape_if(f"{term.code} < {least} or {term.code} > {most}")
    return term


def negated(c: Numbers, term: Term) -> Term:
    """-timedelta."""
    return Term(c.checked(f"subtract(0, {term.code})", Kind.INT).code, Duration())


# --- parts ------------------------------------------------------------------------------------------------------

_DATE_PARTS = {"year": "({0} >> 9)", "month": "(({0} >> 5) & 15)", "day": "({0} & 31)"}
_TIME_PARTS = {
    "hour": (3_600_000_000, 24),
    "minute": (60_000_000, 60),
    "second": (1_000_000, 60),
    "microsecond": (1, 10**6),
}


def attribute(c: Numbers, term: Term, name: str) -> Term | None:
    """date.year, datetime.hour, timedelta.days and their like; None for what cannot be compiled."""
    found = term.type
    if isinstance(found, Duration):
        codes = {
            "days": f"{term.code} // {DAY}",
            "seconds": f"{term.code} % {DAY} // 1000000",
            "microseconds": f"{term.code} % 1000000",
        }
        return Term(c.keep(codes[name]), Kind.INT) if name in codes else None
    if name in _DATE_PARTS:
        return Term(c.keep(_DATE_PARTS[name].format(c.keep(f"civil({_days(term)})"))), Kind.INT)
    if isinstance(found, DateTime) and name in _TIME_PARTS:
        unit, count = _TIME_PARTS[name]
        return Term(c.keep(f"{term.code} // {unit} % {count}"), Kind.INT)
    return None


def method(c: Numbers, term: Term, name: str, node: ast.Call) -> Term | None:
    """date.weekday(), datetime.date(), timedelta.total_seconds() and their like; None for what cannot be compiled."""
    if node.args or node.keywords:
        return None
    found = term.type
    if isinstance(found, Duration):
        return c.checked(f"divide({term.code}, 1000000)", Kind.FLOAT) if name == "total_seconds" else None
    codes = {
        "weekday": f"({_days(term)} + 3) % 7",
        "isoweekday": f"({_days(term)} + 3) % 7 + 1",
        "toordinal": f"{_days(term)} + {date(1970, 1, 1).toordinal()}",
    }
    if name in codes:
        return Term(c.keep(codes[name]), Kind.INT)
    if isinstance(found, DateTime) and name == "date":
        return Term(c.keep(_days(term)), Date())
    if isinstance(found, DateTime) and found.instant and name == "timestamp":
        return c.checked(f"divide({term.code}, 1000000)", Kind.FLOAT)
    return None


def _days(term: Term) -> str:
    return f"({term.code} // {DAY})" if isinstance(term.type, DateTime) else term.code


# --- constructors ------------------------------------------------------------------------------------------------


def construct(c: Expressions, target: object, node: ast.Call) -> Term | None:
    """timedelta(...) of whole numbers, and dates and times of constants; None for other functions."""
    if target not in (date, datetime, timedelta):
        return None
    made = values.evaluated(c, target, node)
    if made is not None:
        return made
    if target is not timedelta:
        c.refuse(
            node, f"{ast.unparse(node.func)}() takes constants in a transaction", f"give it as a parameter, {_ADVICE}"
        )
    given = dict(zip(_UNITS, node.args, strict=False)) | {str(k.arg): k.value for k in node.keywords}
    if len(given) != len(node.args) + len(node.keywords) or not given.keys() <= _UNITS.keys():
        c.refuse(node, "timedelta() takes days, seconds, microseconds, milliseconds, minutes, hours and weeks")
    total = Term("0", Kind.INT)
    for unit, argument in given.items():
        amount = c.number(argument)
        if amount.type not in (Kind.INT, Kind.BOOL):
            c.refuse(node, f"timedelta({unit}=...) takes an int here, got {describe(amount.type)}", _ADVICE)
        part = c.checked(f"multiply({c.integer(amount, node).code}, {_UNITS[unit]})", Kind.INT)
        total = c.checked(f"add({total.code}, {part.code})", Kind.INT)
    return Term(total.code, Duration())
