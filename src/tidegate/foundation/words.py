"""Arithmetic on the words that carry dates, decimals and None, as Python computes it on their values.

As in `arithmetic`, each function exists twice: plain Python is the definition, and compiled code has its own form. A
result that does not fit is told by an escape.
"""

from __future__ import annotations

import struct
from datetime import date
from typing import Any

from tidegate.foundation.arithmetic import INT_MIN, Checked, fits
from tidegate.foundation.jit import compiled_form, intrinsic, ir, types

HALF_EVEN, HALF_UP, HALF_DOWN, DOWN, UP, FLOOR, CEILING = range(7)
"""How `round_divide` rounds, as `decimal` names it."""

_EPOCH_DAY = date(1970, 1, 1).toordinal()


def bits_of_float(value: float) -> int:
    """The bits of a float as an integer."""
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


def float_of_bits(bits: int) -> float:
    """The float with these bits."""
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])


def canonical(value: float) -> float:
    """The same float; a NaN becomes the one that users' NaNs are stored as, which never has the bits of None."""
    return value if value == value else float("nan")


def civil(days: int) -> int:
    """The date of a day since 1970-01-01, as year * 512 + month * 32 + day."""
    found = date.fromordinal(int(days) + _EPOCH_DAY)
    return found.year * 512 + found.month * 32 + found.day


def round_divide(numerator: int, divisor: int, mode: int) -> Checked:
    """numerator / divisor, which is not zero, rounded to an integer; escapes for -2**63."""
    n, d = int(numerator), int(divisor)
    if n == INT_MIN or d == INT_MIN:
        return 0, True
    quotient, rest = divmod(abs(n), abs(d))
    if _rounds_up(quotient, rest, abs(d) - rest, (n < 0) != (d < 0), mode):
        quotient += 1
    found = -quotient if (n < 0) != (d < 0) else quotient
    return (found, False) if fits(found) else (0, True)


def _rounds_up(quotient: int, rest: int, other: int, negative: bool, mode: int) -> bool:
    """Whether an amount is rounded away from zero; `other` is what `rest` lacks to a whole."""
    if mode == HALF_EVEN:
        return rest > other or (rest == other and quotient % 2 == 1)
    if mode == HALF_UP:
        return rest >= other
    if mode == HALF_DOWN:
        return rest > other
    if mode == UP:
        return rest > 0
    if mode == FLOOR:
        return rest > 0 and negative
    return mode == CEILING and rest > 0 and not negative


# --- the same, for compiled code ----------------------------------------------------------------------------------


@intrinsic  # type: ignore[untyped-decorator]
def _to_bits(_context: Any, _value: Any) -> Any:
    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def _from_bits(_context: Any, _bits: Any) -> Any:
    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), codegen


compiled_form(of=bits_of_float)(lambda value: _to_bits(value))
compiled_form(of=float_of_bits)(lambda bits: _from_bits(bits))
compiled_form(of=canonical)(lambda value: value if value == value else _from_bits(0x7FF8000000000000))


@compiled_form(of=civil)
def _compiled_civil(days):  # type: ignore[no-untyped-def]
    shifted = days + 719468  # from 0000-03-01 on: leap days end a year, and 400 years are 146,097 days
    era = shifted // 146097
    of_era = shifted - era * 146097
    year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    months = (5 * of_year + 2) // 153  # since March
    day = of_year - (153 * months + 2) // 5 + 1
    month = months + 3 if months < 10 else months - 9
    return (year + era * 400 + (1 if month <= 2 else 0)) * 512 + month * 32 + day


@compiled_form(of=_rounds_up)
def _compiled_rounds_up(quotient, rest, other, negative, mode):  # type: ignore[no-untyped-def]
    if mode == HALF_EVEN:
        return rest > other or (rest == other and quotient % 2 == 1)
    if mode == HALF_UP:
        return rest >= other
    if mode == HALF_DOWN:
        return rest > other
    if mode == UP:
        return rest > 0
    if mode == FLOOR:
        return rest > 0 and negative
    return mode == CEILING and rest > 0 and not negative


@compiled_form(of=round_divide)
def _compiled_round_divide(numerator, divisor, mode):  # type: ignore[no-untyped-def]
    if numerator == INT_MIN or divisor == INT_MIN:
        return 0, True
    whole = abs(divisor)
    quotient = abs(numerator) // whole
    rest = abs(numerator) - quotient * whole
    negative = (numerator < 0) != (divisor < 0)
    if _rounds_up(quotient, rest, whole - rest, negative, mode):
        quotient += 1
    return (-quotient if negative else quotient), False
