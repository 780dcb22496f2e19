"""Values of the types that a kind carries, in generated code: None, constants, comparison, truth and storing.

A term's code is the word; its type says what the word means. `Optional` types have a word for None. Using such a value
as what it is when it is not None emits one comparison; if it is None the transaction escapes, and plain Python raises
what it raises there. A `Literal`, an `IntEnum` and a `StrEnum` become the int or str that they are as soon as something
else than their identity is asked for.

Arithmetic is in `times` and `decimals`.
"""

from __future__ import annotations

import ast
import enum
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tidegate.api.annotations import Unsuitable, value_type
from tidegate.api.outside import MISSING
from tidegate.compiler import strings
from tidegate.compiler.types import MIXED, NOTHING, NUMBERS, Nothing, RecordOf, Row, Term, Type, describe, given_code
from tidegate.operations.decimals import DIGITS_MAX, Digits
from tidegate.operations.kinds import FLOAT_NONE_BITS, STR_NONE, Carried, Kind, ValueType
from tidegate.operations.texts import Bytes, Uuid
from tidegate.operations.times import Date, DateTime, Duration
from tidegate.operations.values import Choice, Enumeration, Optional

if TYPE_CHECKING:
    from tidegate.compiler.numbers import Numbers

INT_MIN_CODE = "(-9223372036854775807 - 1)"
_NONE_CODE = {Kind.INT: INT_MIN_CODE, Kind.STR: str(STR_NONE), Kind.FLOAT: f"float_of_bits({FLOAT_NONE_BITS})"}


def is_special(*terms: Term) -> bool:
    """Whether one of the terms is no plain value, row or list: the functions here are for those."""
    return any(isinstance(term.type, Carried | Nothing) for term in terms)


def in_body(declared: ValueType) -> ValueType:
    """The type of a value inside a body: a decimal may have as many digits as its word holds."""
    if isinstance(declared, Optional):
        return Optional(in_body(declared.base))
    return Digits(DIGITS_MAX, declared.scale) if isinstance(declared, Digits) else declared


# --- constants ------------------------------------------------------------------------------------------------


def constant(c: Numbers, value: object, node: ast.AST) -> Term | None:
    """A constant of one of these types; None for anything else."""
    found: ValueType | None = None
    if value is None:
        return Term("0", NOTHING)
    if isinstance(value, enum.Enum):
        try:
            found = value_type(type(value))
        except Unsuitable as error:
            c.refuse(node, error.problem, error.advice)
    elif isinstance(value, Decimal):
        exponent = value.as_tuple().exponent
        if not isinstance(exponent, int) or not -DIGITS_MAX <= exponent <= DIGITS_MAX:
            c.refuse(node, f"the constant {value} has no digits that 64 bits hold", _INTERPRET)
        found = Digits(DIGITS_MAX, max(-exponent, 0))
    elif isinstance(value, datetime):
        found = DateTime(instant=value.tzinfo is not None)
    else:
        known: dict[type, ValueType] = {date: Date(), timedelta: Duration(), bytes: Bytes(), UUID: Uuid()}
        found = known.get(type(value))
    if found is None:
        return None
    try:
        plain = found.encode(found.fit(value))
    except (OverflowError, ValueError, TypeError):
        c.refuse(node, f"the constant {value!r} does not fit 64 bits", _INTERPRET)
    code = c.literal(plain).code if found.kind is Kind.STR else c.constant(plain, node).code
    return Term(code, found, plain)


_INTERPRET = "or declare it with @tg.transaction(compiled=False), which runs any Python, more slowly"


# --- None -----------------------------------------------------------------------------------------------------


def is_none(term: Term) -> str:
    """Code for `term is None`."""
    if isinstance(term.type, RecordOf):
        return f"(not {given_code(term.code)})" if term.type.optional else "False"
    if not isinstance(term.type, Optional):
        return str(isinstance(term.type, Nothing))
    if term.type.kind is Kind.FLOAT:
        return f"(bits_of_float({term.code}) == {FLOAT_NONE_BITS})"
    return f"({term.code} == {_NONE_CODE[term.type.kind]})"


def known(term: Term) -> Term:
    """The value of an optional that is not None."""
    if not isinstance(term.type, Optional):
        return term
    base = term.type.base
    return Term(f"({term.code} != 0)" if base is Kind.BOOL else term.code, base)


def present(c: Numbers, term: Term) -> Term:
    """The value of an optional; where it is None, plain Python says what happens."""
    if not isinstance(term.type, Optional):
        return term
    kept = Term(c.keep(term.code), term.type)
    c.escape_if(is_none(kept))
    return known(kept)


def plain(c: Numbers, term: Term) -> Term:
    """The int, float, bool or str that a value is, where it is one; None, where it may be that, escapes."""
    term = present(c, term)
    if isinstance(term.type, Choice) and (not isinstance(term.type, Enumeration) or _is_mixed(term.type)):
        return Term(term.code, term.type.kind, term.constant)
    return term


def is_text(found: Type) -> bool:
    """Whether values of a type are strings, where they are not None."""
    base = found.base if isinstance(found, Optional) else found
    if isinstance(base, Choice) and base.kind is Kind.STR:
        return not isinstance(base, Enumeration) or _is_mixed(base)
    return base is Kind.STR


def formats_itself(found: Type) -> bool:
    """Whether the class of a value may say how it is written, and fail at it."""
    return isinstance(found.base if isinstance(found, Optional) else found, Enumeration)


def _is_mixed(found: Enumeration) -> bool:
    """Whether members are ints or strs themselves."""
    return found.python is not None and issubclass(found.python, int | str)


def _wrapped(c: Numbers, term: Term, base: ValueType) -> str:
    """The word of a value in a type that has None as well."""
    if base is Kind.BOOL:
        return f"int({term.code})"
    if base.kind is Kind.FLOAT:
        return f"canonical({term.code})"
    if base is Kind.INT or isinstance(base, Duration):
        kept = c.keep(term.code)
        c.escape_if(f"{kept} == {INT_MIN_CODE}")
        return kept
    return term.code


# --- one type for two ---------------------------------------------------------------------------------------------


def common(first: Type, second: Type) -> Type | None:
    """The type of a value that is of one type or the other; None if there is none."""
    if first == second:
        return first
    if isinstance(first, Optional | Nothing) or isinstance(second, Optional | Nothing):
        bases = [t.base if isinstance(t, Optional) else t for t in (first, second) if not isinstance(t, Nothing)]
        joined = bases[0] if len(bases) == 1 else common(*bases)
        return Optional(joined) if isinstance(joined, Kind | Carried) else None
    if isinstance(first, Digits) or isinstance(second, Digits):
        scales = [t.scale if isinstance(t, Digits) else 0 for t in (first, second) if isinstance(t, Digits | Kind)]
        whole = all(isinstance(t, Digits) or t is Kind.INT for t in (first, second))
        return Digits(DIGITS_MAX, max(scales)) if whole and max(scales) <= DIGITS_MAX else None
    if isinstance(first, Choice) or isinstance(second, Choice):
        types = [t.kind if isinstance(t, Choice) and not isinstance(t, Enumeration) else t for t in (first, second)]
        return types[0] if types[0] == types[1] else None
    return None


def converted(c: Numbers, term: Term, target: ValueType, node: ast.AST) -> Term:
    """A term in the type that `common` chose."""
    return Term(stored(c, term, target, node, "this"), target)


# --- storing -----------------------------------------------------------------------------------------------------


def stored(c: Numbers, term: Term, target: ValueType, node: ast.AST, what: str) -> str:
    """Code for the word of a term in a place of a type; refuses what does not fit. `what` names the place."""
    if isinstance(target, Optional):
        return _stored_optional(c, term, target, node, what)
    if term.type == target:
        return _within_digits(c, term.code, target) if isinstance(target, Digits) else term.code
    if isinstance(term.type, Optional):
        term = present(c, term)
        if term.type == target:
            return term.code
    if isinstance(target, Choice):
        _require_member(c, term, target, node, what)
        return term.code
    if isinstance(target, Digits) and term.type in (Kind.INT, Kind.BOOL):
        if term.type is Kind.INT:
            return _within_digits(c, _scaled(c, term.code, target.scale), target)
    elif isinstance(target, Digits) and isinstance(term.type, Digits):
        if term.type.scale > target.scale:
            _refuse(c, node, what, target, term, f"write round(..., {target.scale}) or .quantize(...)")
        return _within_digits(c, _scaled(c, term.code, target.scale - term.type.scale), target)
    term = plain(c, term)
    if target is Kind.INT and term.type in (Kind.INT, Kind.BOOL):
        return c.integer(term, node).code
    if target is Kind.FLOAT and term.type in NUMBERS:
        return c.real(term, node).code
    if term.type != target:
        floats = target is Kind.INT and term.type in (Kind.FLOAT, MIXED)
        _refuse(c, node, what, target, term, "write int(...) or round(...)" if floats else "")
    return term.code


def _stored_optional(c: Numbers, term: Term, target: Optional, node: ast.AST, what: str) -> str:
    if isinstance(term.type, Nothing):
        return _NONE_CODE[target.kind]
    if term.type == target and not isinstance(target.base, Digits):
        return term.code
    if not isinstance(term.type, Optional):
        code = stored(c, term, target.base, node, what)
        return _wrapped(c, Term(code, target.base, term.constant), target.base)
    result = c.keep(_NONE_CODE[target.kind])
    kept = Term(c.keep(term.code), term.type)
    with c.block(f"if not {is_none(kept)}:"):
        code = stored(c, known(kept), target.base, node, what)
        c.emit(f"{result} = {_wrapped(c, Term(code, target.base), target.base)}")
    return result


def _within_digits(c: Numbers, code: str, target: Digits) -> str:
    """A number of units; one of more digits than declared escapes, and plain Python aborts with overflow."""
    kept, limit = c.keep(code), 10**target.precision
    c.escape_if(f"{kept} <= -{limit} or {kept} >= {limit}")
    return kept


def _scaled(c: Numbers, code: str, digits: int) -> str:
    return code if digits == 0 else c.checked(f"multiply({code}, {10**digits})", Kind.INT).code


def _require_member(c: Numbers, term: Term, target: Choice, node: ast.AST, what: str) -> None:
    if isinstance(target, Enumeration):
        names = ", ".join(f"{target.name}.{name}" for name in target.names[:3])
        _refuse(c, node, what, target, term, f"assign a member, for example {names}")
    if term.constant is not None and term.type is target.kind:
        if term.constant in target.values:
            return
        c.refuse(node, f"{what} holds {target.label}, got {term.constant!r}", "assign one of its values")
    literal = isinstance(term.type, Choice) and not isinstance(term.type, Enumeration)
    if literal and set(term.type.values) <= set(target.values):  # type: ignore[union-attr]
        return
    _refuse(c, node, what, target, term, "assign one of its values, written out, or a value of the same Literal")


def _refuse(c: Numbers, node: ast.AST, what: str, target: ValueType, term: Term, advice: str) -> None:
    c.refuse(node, f"{what} holds {target.label}, got {describe(term.type)}", advice)


# --- comparison -----------------------------------------------------------------------------------------------


def compared(c: Numbers, left: Term, sign: str, right: Term, node: ast.AST) -> str:
    """Code for left sign right, where one of them is special."""
    if sign in ("==", "!=") and any(isinstance(t.type, Optional | Nothing) for t in (left, right)):
        return _equal_or_none(c, left, sign, right, node)
    left, right = plain(c, left), plain(c, right)
    a, b = left.type, right.type
    if not is_special(left, right):
        return c.ordered(left, sign, right, node)
    if isinstance(a, DateTime) and isinstance(b, DateTime) and a != b:
        c.refuse(
            node, f"{sign} between a datetime with a zone and one without", "declare both with a zone, or both without"
        )
    if isinstance(a, Digits | Kind) and isinstance(b, Digits | Kind):
        joined = common(a, b)
        if joined is None:
            c.refuse(node, f"{sign} between {describe(a)} and {describe(b)} cannot be compiled", _INTERPRET)
        assert isinstance(joined, Digits)
        first, second = (_aligned(c, term, joined.scale) for term in (left, right))
        return f"{first} {sign} {second}"
    if a != b or (isinstance(a, Enumeration) and _overrides(a, "__eq__", "__ne__")):
        c.refuse(
            node, f"{sign} between {describe(a)} and {describe(b)} cannot be compiled", f"convert one, {_INTERPRET}"
        )
    if isinstance(a, Bytes | Uuid):
        return strings.ordered(c, left, sign, right)
    if sign not in ("==", "!=") and not isinstance(a, Date | DateTime | Duration):
        c.refuse(
            node, f"{sign} between {describe(a)} values cannot be compiled", f"compare with == and !=, {_INTERPRET}"
        )
    return f"{left.code} {sign} {right.code}"


def _aligned(c: Numbers, term: Term, scale: int) -> str:
    return _scaled(c, term.code, scale - (term.type.scale if isinstance(term.type, Digits) else 0))


def _equal_or_none(c: Numbers, left: Term, sign: str, right: Term, node: ast.AST) -> str:
    first, second = is_none(left), is_none(right)
    if isinstance(left.type, Nothing) or isinstance(right.type, Nothing):
        code = second if isinstance(left.type, Nothing) else first
        return code if sign == "==" else f"(not {code})"
    left, right = (Term(c.keep(term.code), term.type, term.constant) for term in (left, right))
    first, second = c.keep(is_none(left)), c.keep(is_none(right))
    result = c.keep(f"{first} and {second}")
    with c.block(f"if not {first} and not {second}:"):
        c.emit(f"{result} = {c.ordered(known(left), '==', known(right), node)}")
    return result if sign == "==" else f"(not {result})"


def identical(c: Numbers, left: Term, right: Term, node: ast.AST) -> str | None:
    """Code for `left is right`, for None and members; None where that cannot be told."""
    if isinstance(left.type, Nothing) or isinstance(right.type, Nothing):
        if isinstance(left.type, Row) or isinstance(right.type, Row):
            c.refuse(node, "a row is never None", "test tg.exists(row)")
        return is_none(right if isinstance(left.type, Nothing) else left)
    bases = [t.type.base if isinstance(t.type, Optional) else t.type for t in (left, right)]
    if not isinstance(bases[0], Enumeration) or bases[0] != bases[1]:
        return None
    return f"({left.code} == {right.code})"


def extreme(c: Numbers, sign: str, terms: list[Term], node: ast.AST) -> Term:
    """min and max of dates, times and Decimals: the first of those that no other one precedes."""
    joined = terms[0].type
    for term in terms[1:]:
        joined = c.join(Term("", joined), term, node)
    ordered = [c.convert(term, joined, node) for term in terms]
    result = c.keep(ordered[0].code)
    for term in ordered[1:]:
        with c.block(f"if {c.ordered(term, sign, Term(result, joined), node)}:"):
            c.emit(f"{result} = {term.code}")
    return Term(result, joined)


def truth(c: Numbers, term: Term, node: ast.AST) -> str:
    """Code for bool(term)."""
    found = term.type
    if isinstance(found, Nothing):
        return "False"
    if isinstance(found, Optional):
        kept = Term(c.keep(term.code), found)
        result = c.keep(f"not {is_none(kept)}")
        with c.block(f"if {result}:"):
            c.emit(f"{result} = {c.truth(known(kept), node)}")
        return result
    term = plain(c, term)
    if not is_special(term):
        return c.truth(term, node)
    if isinstance(found, Duration | Digits):
        return f"({term.code} != 0)"
    if isinstance(found, Bytes):
        return f"({term.code} != {c.literal('').code})"
    if isinstance(found, Enumeration) and _overrides(found, "__bool__", "__len__"):
        c.refuse(node, f"{found.name} says itself what it is as a condition", _INTERPRET)
    return "True"


def member_attribute(c: Numbers, term: Term, name: str, node: ast.AST) -> Term | None:
    """`.value` and `.name` of a member."""
    found = term.type
    assert isinstance(found, Enumeration)
    if _overrides(found, name):
        return None
    if name == "value":
        return Term(term.code, found.kind, term.constant)
    if name != "name":
        return None
    result, keyword = c.fresh(), "if"
    for value, text in zip(found.values[1:], found.names[1:], strict=True):
        word = c.literal(value) if isinstance(value, str) else c.constant(value, node)
        with c.block(f"{keyword} {term.code} == {word.code}:"):
            c.emit(f"{result} = {c.literal(text).code}")
        keyword = "elif"
    if keyword == "if":
        return c.literal(found.names[0])
    with c.block("else:"):
        c.emit(f"{result} = {c.literal(found.names[0]).code}")
    return Term(result, Kind.STR)


def _overrides(found: Enumeration, *names: str) -> bool:
    """Whether a user's class says itself what one of these means."""
    own: list[Any] = [] if found.python is None else [t for t in found.python.__mro__ if t.__module__ != "enum"]
    return any(name in vars(t) for t in own if t.__module__ != "builtins" for name in names)


# --- constants that a body computes -----------------------------------------------------------------------------


def constant_value(c: Numbers, node: ast.expr) -> Any:
    """The Python value of an expression that is known at declaration: a literal, a name of the module; or MISSING."""
    match node:
        case ast.Constant(value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.Name() if c.variable(node) is not None:
            return MISSING
        case ast.Name() | ast.Attribute():
            return c.source.resolve(node)
        case ast.Call():
            target = c.source.resolve(node.func)
            if target in (Decimal, date, datetime, timedelta, UUID):
                return _called(c, target, node)
    return MISSING


def _called(c: Numbers, target: Any, node: ast.Call) -> Any:
    arguments = [constant_value(c, argument) for argument in node.args]
    named = {str(keyword.arg): constant_value(c, keyword.value) for keyword in node.keywords}
    if any(value is MISSING for value in (*arguments, *named.values())) or any(k.arg is None for k in node.keywords):
        return MISSING
    try:
        return target(*arguments, **named)
    except (TypeError, ValueError, ArithmeticError) as error:
        c.refuse(node, f"{ast.unparse(node)} cannot be computed: {error}")


def evaluated(c: Numbers, target: Any, node: ast.Call) -> Term | None:
    """The call of a constructor with constants, as a constant; None if an argument is none."""
    value = _called(c, target, node)
    return None if value is MISSING else constant(c, value, node)
