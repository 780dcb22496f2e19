"""Decimals in generated code: integers whose number of digits behind the point is known when the body is compiled.

    price * quantity            scales add          1.25 * 3.5  = 4.375     125 * 35  = 4375
    price + fee                 the larger scale    1.25 + 0.5  = 1.75      125 + 50  = 175
    (a / b).quantize(CENT)      one rounded division of integers
    round(x, 2)                 the same, by a power of ten

Python's default context has 28 digits, more than a 64-bit word: what fits a word is exact there, too, and what does not
escapes. A division alone has no fixed number of digits, so it must be rounded on the spot. Rounding it in one step is
what Python gets in two: its quotient is first rounded to 28 digits, and with a numerator and a divisor below 2**63 a
quotient that is no tie differs from the nearest one by more than that. A program that changes the decimal context is
not followed here.
"""

from __future__ import annotations

import ast
import decimal
from decimal import Decimal
from typing import TYPE_CHECKING

from tidegate.compiler import values
from tidegate.compiler.types import Term, describe
from tidegate.foundation import words
from tidegate.operations.decimals import DIGITS_MAX, Digits
from tidegate.operations.kinds import Kind

if TYPE_CHECKING:
    from tidegate.compiler.expressions import Expressions
    from tidegate.compiler.numbers import Numbers

SCALE_MAX = 2 * DIGITS_MAX
_ADVICE = "or declare it with @tg.transaction(compiled=False), which runs any Python, more slowly"
_MODES = {
    decimal.ROUND_HALF_EVEN: words.HALF_EVEN,
    decimal.ROUND_HALF_UP: words.HALF_UP,
    decimal.ROUND_HALF_DOWN: words.HALF_DOWN,
    decimal.ROUND_DOWN: words.DOWN,
    decimal.ROUND_UP: words.UP,
    decimal.ROUND_FLOOR: words.FLOOR,
    decimal.ROUND_CEILING: words.CEILING,
}


def arithmetic(c: Numbers, left: Term, right: Term, operation: type[ast.operator], node: ast.AST) -> Term:
    """left op right, where one is a Decimal and neither is None."""
    for term in (left, right):
        if not isinstance(term.type, Digits) and term.type not in (Kind.INT, Kind.BOOL):
            c.refuse(
                node,
                f"{operation.__name__} of {describe(left.type)} and {describe(right.type)}: Python does not mix them",
                "convert the other one to Decimal",
            )
    if operation is ast.Mult:
        scale = _scale(left) + _scale(right)
        if scale > SCALE_MAX:
            c.refuse(
                node, f"the product has {scale} digits behind the point", "write round(..., n) around a part of it"
            )
        return Term(
            c.checked(f"multiply({_whole(c, left, node)}, {_whole(c, right, node)})", Kind.INT).code, _of(scale)
        )
    if operation in (ast.Add, ast.Sub):
        scale = max(_scale(left), _scale(right))
        first, second = (_lifted(c, term, scale, node) for term in (left, right))
        function = "add" if operation is ast.Add else "subtract"
        return Term(c.checked(f"{function}({first}, {second})", Kind.INT).code, _of(scale))
    if operation is ast.Div:
        c.refuse(
            node,
            "the quotient of two Decimals has no fixed number of digits",
            f"round it on the spot: round(a / b, 2) or (a / b).quantize(Decimal('0.01')), {_ADVICE}",
        )
    c.refuse(node, f"{operation.__name__} of Decimals cannot be compiled", _ADVICE)


def _of(scale: int) -> Digits:
    return Digits(DIGITS_MAX, scale)


def _scale(term: Term) -> int:
    return term.type.scale if isinstance(term.type, Digits) else 0


def _whole(c: Numbers, term: Term, node: ast.AST) -> str:
    return term.code if isinstance(term.type, Digits) else c.integer(term, node).code


def _lifted(c: Numbers, term: Term, scale: int, node: ast.AST) -> str:
    """The units of a number at a larger scale."""
    return _times(c, _whole(c, term, node), scale - _scale(term))


def _times(c: Numbers, code: str, digits: int) -> str:
    """A word times a power of ten; one that 64 bits cannot hold escapes, unless the word is zero."""
    if digits == 0:
        return code
    if digits > DIGITS_MAX:
        c.escape_if(f"{code} != 0")
        return "0"
    return c.checked(f"multiply({code}, {10**digits})", Kind.INT).code


def negated(c: Numbers, term: Term) -> Term:
    """-x."""
    return Term(c.checked(f"subtract(0, {term.code})", Kind.INT).code, term.type)


# --- rounding ---------------------------------------------------------------------------------------------------


def rounded(c: Expressions, node: ast.expr, scale: int, mode: int, place: ast.Call) -> Term | None:
    """An expression rounded to so many digits behind the point; None if it is no Decimal."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        left, right = (values.plain(c, c.value(part)) for part in (node.left, node.right))
        if not isinstance(left.type, Digits) and not isinstance(right.type, Digits):
            return None
        for term in (left, right):
            if not isinstance(term.type, Digits) and term.type not in (Kind.INT, Kind.BOOL):
                c.refuse(place, f"Div of {describe(left.type)} and {describe(right.type)}: Python does not mix them")
        top, bottom = c.keep(_whole(c, left, node)), c.keep(_whole(c, right, node))
        c.escape_if(f"{bottom} == 0")  # DivisionByZero, or InvalidOperation
        shift = scale + _scale(right) - _scale(left)
        top, bottom = (_times(c, top, shift), bottom) if shift >= 0 else (top, _times(c, bottom, -shift))
        if shift < -DIGITS_MAX:
            c.leave("ESCAPE")
            return Term("0", _of(scale))
        return Term(c.checked(f"round_divide({top}, {bottom}, {mode})", Kind.INT).code, _of(scale))
    term = values.plain(c, c.value(node))
    return rounded_term(c, term, scale, mode) if isinstance(term.type, Digits) else None


def rounded_term(c: Numbers, term: Term, scale: int, mode: int) -> Term:
    """A Decimal rounded to so many digits behind the point."""
    less = _scale(term) - scale
    if less <= 0:
        return Term(_times(c, term.code, -less), _of(scale))
    if less > DIGITS_MAX:
        c.leave("ESCAPE")
        return Term("0", _of(scale))
    return Term(c.checked(f"round_divide({term.code}, {10**less}, {mode})", Kind.INT).code, _of(scale))


def whole(c: Numbers, term: Term, mode: int) -> Term:
    """A Decimal as an int."""
    return Term(rounded_term(c, term, 0, mode).code, Kind.INT)


def real(c: Numbers, term: Term) -> Term:
    """float(x), which is the nearest float."""
    scale = _scale(term)
    if scale > 15:
        c.leave("ESCAPE")
        return Term("0.0", Kind.FLOAT)
    return c.checked(f"divide({term.code}, {10**scale})", Kind.FLOAT)


def quantized(c: Expressions, node: ast.Call) -> Term | None:
    """x.quantize(Decimal("0.01")), with rounding= if it is a constant."""
    assert isinstance(node.func, ast.Attribute)
    named = {str(keyword.arg): keyword.value for keyword in node.keywords}
    given = dict(zip(("exp", "rounding"), node.args, strict=False)) | named
    if not given or len(given) != len(node.args) + len(node.keywords) or not given.keys() <= {"exp", "rounding"}:
        c.refuse(node, "quantize() takes a constant such as Decimal('0.01'), and rounding=", _ADVICE)
    unit = values.constant_value(c, given["exp"])
    mode = values.constant_value(c, given["rounding"]) if "rounding" in given else decimal.ROUND_HALF_EVEN
    exponent = unit.as_tuple().exponent if isinstance(unit, Decimal) else None
    if not isinstance(exponent, int) or not -DIGITS_MAX <= exponent <= 0:
        c.refuse(node, f"quantize() takes a constant such as Decimal('0.01'), got {ast.unparse(given['exp'])}", _ADVICE)
    if mode not in _MODES:
        c.refuse(node, f"quantize(): rounding is a constant of decimal, got {mode!r}", _ADVICE)
    return rounded(c, node.func.value, -exponent, _MODES[mode], node)


def round_call(c: Expressions, node: ast.Call) -> Term | None:
    """round(x) and round(x, n) of a Decimal; None if it is none."""
    if not 1 <= len(node.args) <= 2 or node.keywords:
        return None
    if len(node.args) == 1:
        return None
    digits = values.constant_value(c, node.args[1])
    if not isinstance(digits, int) or not 0 <= digits <= DIGITS_MAX:
        c.refuse(node, "round(x, n): n is a constant from 0 to 18 in a transaction", _ADVICE)
    found = rounded(c, node.args[0], digits, words.HALF_EVEN, node)
    if found is None:
        c.refuse(node, "round(x, n) is for Decimals in a transaction", f"round a float with round(x), {_ADVICE}")
    return found


def construct(c: Expressions, target: object, node: ast.Call) -> Term | None:
    """Decimal("0.19") of a constant, and Decimal(n) of an int; None for other functions."""
    if target is not Decimal:
        return None
    made = values.evaluated(c, target, node)
    if made is not None:
        return made
    if len(node.args) == 1 and not node.keywords:
        term = values.plain(c, c.value(node.args[0]))
        if isinstance(term.type, Digits):
            return term
        if term.type in (Kind.INT, Kind.BOOL):
            return Term(c.keep(c.integer(term, node).code), _of(0))
    c.refuse(node, "Decimal() takes a text that is a constant, or an int, in a transaction", _ADVICE)
