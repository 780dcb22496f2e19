"""Compiled arithmetic gives what the definition gives, to the bit, or escapes where the definition does."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidegate.foundation import arithmetic
from tidegate.foundation.jit import inline

integers = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-70, 70),
    st.sampled_from([2**53, 2**53 + 1, -(2**53) - 1, 2**62, -(2**63), 2**63 - 1, 3037000500]),
)
floats = st.one_of(st.floats(), st.sampled_from([0.5, -0.5, 1.5, 2.5, 2.0**53, 2.0**63, -(2.0**63), 9.3e18]))


def compiled(name: str, arguments: int) -> Callable[..., Any]:
    names = ", ".join("abc"[:arguments])
    space: dict[str, Any] = {"function": getattr(arithmetic, name)}
    exec(f"def call({names}): return function({names})", space)
    return inline(space["call"])


def bits(value: Any) -> Any:
    if isinstance(value, tuple):
        return ("escape",) if value[1] else (bits(value[0]), False)
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("d", value)
    return int(value)


INTEGERS = ("add", "subtract", "multiply", "power", "shift_left", "shift_right")
DIVISIONS = ("floor_divide", "modulo", "divide")
FLOATS = ("float_power",)
FLOAT_DIVISIONS = ("float_floor_divide", "float_modulo")
ROUNDINGS = ("truncate", "floor", "ceil", "round_half_even")
FUNCTIONS = {
    **{name: compiled(name, 2) for name in (*INTEGERS, *DIVISIONS, *FLOATS, *FLOAT_DIVISIONS, "compare")},
    **{name: compiled(name, 1) for name in ROUNDINGS},
    "can_count": compiled("can_count", 3),
}


def check(name: str, *values: Any) -> None:
    assert bits(FUNCTIONS[name](*values)) == bits(getattr(arithmetic, name)(*values)), (name, values)


@pytest.mark.parametrize("name", [*INTEGERS, *DIVISIONS])
@settings(max_examples=300, deadline=None)
@given(integers, integers)
@example(-(2**63), -1)
def test_integers(name: str, a: int, b: int) -> None:
    if b != 0 or name not in DIVISIONS:
        check(name, a, b)


@pytest.mark.parametrize("name", [*FLOATS, *FLOAT_DIVISIONS])
@settings(max_examples=300, deadline=None)
@given(floats, floats)
def test_floats(name: str, a: float, b: float) -> None:
    if b != 0 or name not in FLOAT_DIVISIONS:
        check(name, a, b)


@settings(max_examples=300, deadline=None)
@given(integers, st.one_of(floats, integers.map(float)))
def test_an_integer_against_a_float(a: int, b: float) -> None:
    check("compare", a, b)


@pytest.mark.parametrize("name", ROUNDINGS)
@settings(max_examples=300, deadline=None)
@given(floats)
def test_rounding(name: str, a: float) -> None:
    check(name, a)


@settings(max_examples=300, deadline=None)
@given(integers, integers, integers.filter(bool))
def test_counting(start: int, stop: int, step: int) -> None:
    check("can_count", start, stop, step)
