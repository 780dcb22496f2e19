"""Python's arithmetic, exactly, in machine code.

Python's integers are unbounded, and its float operations follow rules that machine instructions do not (floor division
and modulo of negatives, correctly rounded division of integers, exact comparison of an integer with a float). Each
function exists twice: as plain Python, which is the definition, and as an `overload` that compiled code uses. If the
answer does not fit into 64 bits, the function says so:

    value, escape = add(a, b)          escape is true when a + b leaves 64 bits

The caller then runs that one transaction as plain Python. Callers check divisors for zero; nothing here raises.
"""

from __future__ import annotations

import math
from typing import Any

from tidegate.foundation.jit import compiled_form, intrinsic, ir, types

INT_MIN = -(2**63)
INT_MAX = 2**63 - 1
EXACT_FLOAT = 2**53  # integers up to here are exact as floats
_TWO_63 = 9223372036854775808.0

Checked = tuple[int, bool]


def fits(value: int) -> bool:
    """Whether `value` is a 64-bit integer."""
    return INT_MIN <= value <= INT_MAX


def _checked(value: int) -> Checked:
    return (value, False) if fits(value) else (0, True)


# --- integers ---------------------------------------------------------------------------------


def add(a: int, b: int) -> Checked:
    """a + b."""
    return _checked(int(a) + int(b))


def subtract(a: int, b: int) -> Checked:
    """a - b."""
    return _checked(int(a) - int(b))


def multiply(a: int, b: int) -> Checked:
    """a * b."""
    return _checked(int(a) * int(b))


def floor_divide(a: int, b: int) -> Checked:
    """a // b for b other than zero."""
    return _checked(int(a) // int(b))


def modulo(a: int, b: int) -> int:
    """a % b for b other than zero."""
    return int(a) % int(b)


def divide(a: int, b: int) -> tuple[float, bool]:
    """a / b for b other than zero; escapes if an operand exceeds 2**53, up to which floats are exact."""
    exact = abs(int(a)) <= EXACT_FLOAT and abs(int(b)) <= EXACT_FLOAT
    return (int(a) / int(b), False) if exact else (0.0, True)


def power(a: int, b: int) -> Checked:
    """a ** b; escapes for a negative exponent, whose result is a float."""
    if b < 0 or (b > 64 and abs(int(a)) > 1):
        return 0, True
    return _checked(int(a) ** int(b))


def shift_left(a: int, b: int) -> Checked:
    """a << b; escapes for a negative count, for which Python raises."""
    if b < 0 or (b > 62 and a != 0):
        return 0, True
    return _checked(int(a) << int(b)) if a != 0 else (0, False)


def shift_right(a: int, b: int) -> Checked:
    """a >> b; escapes for a negative count, for which Python raises."""
    return (0, True) if b < 0 else (int(a) >> min(int(b), 63), False)


def can_count(start: int, stop: int, step: int) -> bool:
    """Whether range(start, stop, step) can be walked with 64-bit arithmetic; step is not zero."""
    return fits(int(stop) - int(start)) and fits(int(stop) - int(start) + int(step))


# --- floats -----------------------------------------------------------------------------------


def float_floor_divide(a: float, b: float) -> float:
    """a // b for b other than zero."""
    return float(a) // float(b)


def float_modulo(a: float, b: float) -> float:
    """a % b for b other than zero."""
    return float(a) % float(b)


def float_power(a: float, b: float) -> tuple[float, bool]:
    """a ** b; escapes where Python may raise or return a complex number."""
    if not (a > 0.0 and math.isfinite(a) and math.isfinite(b)):
        return 0.0, True
    try:
        result = float(a) ** float(b)
    except OverflowError:
        return 0.0, True
    return (result, False) if math.isfinite(result) else (0.0, True)


def compare(a: int, b: float) -> int:
    """-1, 0 or 1 if the integer is below, equal to or above the float; 2 for NaN. Exact, as in Python."""
    if b != b:
        return 2
    exact, value = int(a), float(b)
    return (exact > value) - (exact < value)


def truncate(a: float) -> Checked:
    """int(a)."""
    return _checked(int(a)) if math.isfinite(a) else (0, True)


def floor(a: float) -> Checked:
    """math.floor(a)."""
    return _checked(math.floor(a)) if math.isfinite(a) else (0, True)


def ceil(a: float) -> Checked:
    """math.ceil(a)."""
    return _checked(math.ceil(a)) if math.isfinite(a) else (0, True)


def round_half_even(a: float) -> Checked:
    """round(a)."""
    return _checked(round(float(a))) if math.isfinite(a) else (0, True)


# --- the same, for compiled code ----------------------------------------------------------------


def _overflow_intrinsic(name: str) -> Any:
    @intrinsic  # type: ignore[untyped-decorator]
    def operation(_context: Any, _a: Any, _b: Any) -> Any:
        signature = types.Tuple((types.int64, types.boolean))(types.int64, types.int64)

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            word = ir.IntType(64)
            pair = ir.LiteralStructType([word, ir.IntType(1)])
            function = builder.module.globals.get(name)
            if function is None:
                function = ir.Function(builder.module, ir.FunctionType(pair, [word, word]), name)
            result = builder.call(function, arguments)
            parts = (builder.extract_value(result, 0), builder.extract_value(result, 1))
            return context.make_tuple(builder, signature.return_type, parts)

        return signature, codegen

    return operation


_add = _overflow_intrinsic("llvm.sadd.with.overflow.i64")
_subtract = _overflow_intrinsic("llvm.ssub.with.overflow.i64")
_multiply = _overflow_intrinsic("llvm.smul.with.overflow.i64")


@intrinsic  # type: ignore[untyped-decorator]
def _pow(_context: Any, _a: Any, _b: Any) -> Any:
    """The C library's pow, not simplified by the optimiser: pow(x, 2) may differ from x * x in the last bit."""
    signature = types.float64(types.float64, types.float64)

    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        double = ir.DoubleType()
        function = builder.module.globals.get("pow")
        if function is None:
            function = ir.Function(builder.module, ir.FunctionType(double, [double, double]), "pow")
            function.attributes.add("nobuiltin")
        return builder.call(function, arguments)

    return signature, codegen


@intrinsic  # type: ignore[untyped-decorator]
def _remainder(_context: Any, _a: Any, _b: Any) -> Any:
    """C's fmod, which is exact."""
    signature = types.float64(types.float64, types.float64)

    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.frem(*arguments)

    return signature, codegen


compiled_form(of=add)(lambda a, b: _add(a, b))
compiled_form(of=subtract)(lambda a, b: _subtract(a, b))
compiled_form(of=multiply)(lambda a, b: _multiply(a, b))


@compiled_form(of=floor_divide)
def _compiled_floor_divide(a, b):  # type: ignore[no-untyped-def]
    if b == -1:
        return _subtract(0, a)
    return a // b, False


@compiled_form(of=modulo)
def _compiled_modulo(a, b):  # type: ignore[no-untyped-def]
    if b == -1:
        return 0
    return a % b


@compiled_form(of=divide)
def _compiled_divide(a, b):  # type: ignore[no-untyped-def]
    if -EXACT_FLOAT <= a <= EXACT_FLOAT and -EXACT_FLOAT <= b <= EXACT_FLOAT:
        return float(a) / float(b), False
    return 0.0, True


@compiled_form(of=power)
def _compiled_power(a, b):  # type: ignore[no-untyped-def]
    if b < 0 or (b > 64 and (a > 1 or a < -1)):
        return 0, True
    if b > 64:
        b = 2 + (b & 1)  # for bases -1, 0 and 1 only the exponent's parity matters
    result = 1
    for _ in range(b):
        result, escape = _multiply(result, a)
        if escape:
            return 0, True
    return result, False


@compiled_form(of=shift_left)
def _compiled_shift_left(a, b):  # type: ignore[no-untyped-def]
    if a == 0 and b >= 0:
        return 0, False
    if b < 0 or b > 62:
        return 0, True
    return _multiply(a, 1 << b)


@compiled_form(of=shift_right)
def _compiled_shift_right(a, b):  # type: ignore[no-untyped-def]
    if b < 0:
        return 0, True
    return a >> min(b, 63), False


@compiled_form(of=can_count)
def _compiled_can_count(start, stop, step):  # type: ignore[no-untyped-def]
    span, escape = _subtract(stop, start)
    if escape:
        return False
    _, escape = _add(span, step)
    return not escape


@compiled_form(of=float_floor_divide)
def _compiled_float_floor_divide(a, b):  # type: ignore[no-untyped-def]
    remainder = _remainder(a, b)
    quotient = (a - remainder) / b
    if remainder != 0.0 and (b < 0.0) != (remainder < 0.0):
        quotient -= 1.0
    if quotient == 0.0:
        return math.copysign(0.0, a / b)
    result = math.floor(quotient) * 1.0 if abs(quotient) < 4503599627370496.0 else quotient
    if quotient - result > 0.5:
        result += 1.0
    return result


@compiled_form(of=float_modulo)
def _compiled_float_modulo(a, b):  # type: ignore[no-untyped-def]
    remainder = _remainder(a, b)
    if remainder == 0.0:
        return math.copysign(0.0, b)
    if (b < 0.0) != (remainder < 0.0):
        remainder += b
    return remainder


@compiled_form(of=float_power)
def _compiled_float_power(a, b):  # type: ignore[no-untyped-def]
    if not (a > 0.0 and math.isfinite(a) and math.isfinite(b)):
        return 0.0, True
    result = _pow(a, b)
    return (result, False) if math.isfinite(result) else (0.0, True)


@compiled_form(of=compare)
def _compiled_compare(a, b):  # type: ignore[no-untyped-def]
    if b != b:
        return 2
    if b >= _TWO_63:
        return -1
    if b < -_TWO_63:
        return 1
    whole = int(b)  # truncated towards zero, fits in 64 bits
    if a != whole:
        return 1 if a > whole else -1
    fraction = b - float(whole)
    if fraction == 0.0:
        return 0
    return -1 if fraction > 0.0 else 1


@compiled_form(of=truncate)
def _compiled_truncate(a):  # type: ignore[no-untyped-def]
    if a >= -_TWO_63 and a < _TWO_63:
        return int(a), False
    return 0, True


@compiled_form(of=floor)
def _compiled_floor(a):  # type: ignore[no-untyped-def]
    if a >= -_TWO_63 and a < _TWO_63:
        whole = int(a)
        return (whole - 1 if float(whole) > a else whole), False
    return 0, True


@compiled_form(of=ceil)
def _compiled_ceil(a):  # type: ignore[no-untyped-def]
    if a >= -_TWO_63 and a < _TWO_63:
        whole = int(a)
        return (whole + 1 if float(whole) < a else whole), False
    return 0, True


@compiled_form(of=round_half_even)
def _compiled_round_half_even(a):  # type: ignore[no-untyped-def]
    if not (a >= -_TWO_63 and a < _TWO_63):
        return 0, True
    whole = int(a)
    fraction = a - float(whole)  # exact: |a| < 2**53 wherever a fraction exists
    away = 1 if fraction > 0.0 else -1
    if abs(fraction) > 0.5 or (abs(fraction) == 0.5 and whole % 2 != 0):
        return whole + away, False
    return whole, False
