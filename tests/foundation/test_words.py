"""Compiled arithmetic on words gives what Python's dates and Decimals give."""

from __future__ import annotations

import decimal
import struct
from datetime import date, timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.foundation import words
from tidegate.foundation.jit import inline

WORDS = st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(-50, 50)
MODES = {
    words.HALF_EVEN: decimal.ROUND_HALF_EVEN,
    words.HALF_UP: decimal.ROUND_HALF_UP,
    words.HALF_DOWN: decimal.ROUND_HALF_DOWN,
    words.DOWN: decimal.ROUND_DOWN,
    words.UP: decimal.ROUND_UP,
    words.FLOOR: decimal.ROUND_FLOOR,
    words.CEILING: decimal.ROUND_CEILING,
}


@inline
def civil(days: int) -> int:
    return words.civil(days)


@inline
def round_divide(numerator: int, divisor: int, mode: int) -> tuple[int, bool]:
    return words.round_divide(numerator, divisor, mode)


@inline
def bits(value: float) -> int:
    return words.bits_of_float(value)


@inline
def from_bits(value: int) -> float:
    return words.float_of_bits(value)


@inline
def canonical(value: float) -> float:
    return words.canonical(value)


@settings(max_examples=300)
@given(st.dates())
def test_the_parts_of_a_date(day: date) -> None:
    days = (day - date(1970, 1, 1)) // timedelta(days=1)
    assert civil(days) == words.civil(days) == day.year * 512 + day.month * 32 + day.day


@settings(max_examples=500)
@given(WORDS, WORDS.filter(bool), st.sampled_from(sorted(MODES)))
def test_a_rounded_division_is_that_of_decimal_in_its_default_context(a: int, b: int, mode: int) -> None:
    found, escape = round_divide(a, b, mode)
    assert (found, escape) == words.round_divide(a, b, mode)
    with decimal.localcontext(decimal.Context(prec=28)):
        assert escape or found == (Decimal(a) / Decimal(b)).quantize(Decimal(1), rounding=MODES[mode])


def test_the_smallest_word_escapes() -> None:
    assert round_divide(-(2**63), 3, words.HALF_EVEN)[1]
    assert words.round_divide(5, -(2**63), words.HALF_EVEN)[1]


@pytest.mark.parametrize("word", [0, -1, 0x7FF8_0000_0000_4E4F, 2**62])
def test_bits_pass_through_floats(word: int) -> None:
    assert bits(from_bits(word)) == words.bits_of_float(words.float_of_bits(word)) == word


def test_a_nan_of_a_user_never_has_the_bits_of_none() -> None:
    none = words.float_of_bits(0x7FF8_0000_0000_4E4F)
    for found in (canonical(none), words.canonical(none)):
        assert found != found and struct.pack("<d", found) != struct.pack("<d", none)
    assert canonical(1.5) == 1.5
