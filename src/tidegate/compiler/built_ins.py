"""Python's built-in functions, and those of `math`, inside a body: one function here for each that can be compiled."""

from __future__ import annotations

import ast
import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidegate.api.control import exists
from tidegate.compiler import decimals, strings, values
from tidegate.compiler.emission import ESCAPES
from tidegate.compiler.numbers import INTERPRET
from tidegate.compiler.types import MIXED, HistoryOf, RowList, Term, ValueList, WindowOf, describe
from tidegate.foundation import words
from tidegate.operations.decimals import Digits
from tidegate.operations.kinds import Kind
from tidegate.operations.texts import Bytes
from tidegate.operations.times import Duration

if TYPE_CHECKING:
    from tidegate.compiler.calls import Calls

COMPENSATED = tuple(sys.version_info) >= (3, 12)  # sum() of floats uses compensated (Neumaier) summation


def _length(calls: Calls, node: ast.Call) -> Term:
    if len(node.args) != 1:
        calls.refuse(node, "len() takes one argument")
    term = calls.value(node.args[0])
    if isinstance(term.type, HistoryOf):
        count = calls.keep("0")
        with calls.each_state(term):
            calls.emit(f"{count} = {count} + 1")
        return Term(count, Kind.INT)
    term = values.plain(calls, term)
    if term.type is Kind.STR or isinstance(term.type, Bytes):
        return strings.length(calls, term)
    if not isinstance(term.type, RowList | ValueList | WindowOf):
        calls.refuse(node, f"len() of {describe(term.type)} cannot be compiled", INTERPRET)
    return Term(calls.length_of(term), Kind.INT)


def _exists(calls: Calls, node: ast.Call) -> Term:
    """tg.exists(row) is row.exists."""
    if len(node.args) != 1:
        calls.refuse(node, f"exists() takes one row, got {len(node.args)} arguments")
    row = node.args[0]
    if isinstance(row, ast.Name) and calls.variable(row) is None:
        calls.refuse(node, f"exists() takes a row, got {row.id!r}", "give it a parameter, or what tg.lookup returns")
    return calls.attribute(ast.copy_location(ast.Attribute(row, "exists", ast.Load()), node))


def _absolute(calls: Calls, node: ast.Call) -> Term:
    term = calls.one_value(node)
    if isinstance(term.type, Digits | Duration):
        calls.escape_if(f"{term.code} == {values.INT_MIN_CODE}")
        return Term(calls.keep(f"abs({term.code})"), term.type)
    calls.require_number(term, node.args[0])
    if term.type in (Kind.FLOAT, MIXED):
        return Term(calls.keep(f"abs({term.code})"), term.type)
    whole = calls.keep(calls.integer(term, node).code)
    calls.escape_if(f"{whole} == -9223372036854775807 - 1")
    return Term(calls.keep(f"abs({whole})"), Kind.INT)


def _extreme(sign: str) -> Callable[[Calls, ast.Call], Term]:
    def lower(calls: Calls, node: ast.Call) -> Term:
        if len(node.args) < 2:
            calls.refuse(node, f"{ast.unparse(node.func)}() takes two or more numbers or strings here", INTERPRET)
        terms = [values.plain(calls, calls.value(argument)) for argument in node.args]
        if values.is_special(*terms):
            return values.extreme(calls, sign, terms, node)
        kinds = {term.type for term in terms}
        if kinds != {Kind.STR}:
            terms = [calls.as_number(term, argument) for term, argument in zip(terms, node.args, strict=True)]
        if len(kinds) > 1:
            if Kind.BOOL in kinds:
                shown = ", ".join(describe(term.type) for term in terms)
                calls.refuse(node, f"{ast.unparse(node.func)}() mixes {shown}", "convert them to one type")
            terms = [calls.loosen(term, node) for term in terms]
        result = calls.keep(terms[0].code)
        for term in terms[1:]:
            test = calls.ordered(term, sign, Term(result, terms[0].type), node)
            calls.emit(f"{result} = {term.code} if {test} else {result}")
        return Term(result, terms[0].type)

    return lower


def _integer(calls: Calls, node: ast.Call) -> Term:
    term = calls.one_value(node)
    if term.type is Kind.STR:
        return strings.made(calls, Kind.INT, node)
    if isinstance(term.type, Digits):
        return decimals.whole(calls, term, words.DOWN)
    calls.require_number(term, node.args[0])
    if term.type in (Kind.FLOAT, MIXED):
        return calls.checked(f"truncate({term.code})", Kind.INT)
    return Term(calls.keep(calls.integer(term, node).code), Kind.INT)


def _real(calls: Calls, node: ast.Call) -> Term:
    term = calls.one_value(node)
    if term.type is Kind.STR:
        return strings.made(calls, Kind.FLOAT, node)
    if isinstance(term.type, Digits):
        return decimals.real(calls, term)
    calls.require_number(term, node.args[0])
    return Term(calls.keep(calls.real(term, node).code), Kind.FLOAT)


def _string(calls: Calls, node: ast.Call) -> Term:
    """str(x); a string is itself."""
    term = strings.plain(calls, calls.one_value(node), node)
    return term if term.type is Kind.STR else strings.made(calls, Kind.STR, node)


def _in_python(kind: Kind, counts: tuple[int, ...]) -> Callable[[Calls, ast.Call], Term]:
    """A function that plain Python computes, of so many arguments."""

    def lower(calls: Calls, node: ast.Call) -> Term:
        if len(node.args) not in counts:
            calls.refuse(node, f"{ast.unparse(node.func)}() takes {max(counts)} arguments, got {len(node.args)}")
        for argument in node.args:
            strings.plain(calls, calls.value(argument), argument)
        return strings.made(calls, kind, node)

    return lower


def _truth(calls: Calls, node: ast.Call) -> Term:
    if len(node.args) != 1:
        calls.refuse(node, "bool() takes one argument")
    return Term(calls.keep(calls.test(node.args[0])), Kind.BOOL)


def _whole(function: str, mode: int) -> Callable[[Calls, ast.Call], Term]:
    def lower(calls: Calls, node: ast.Call) -> Term:
        term = calls.one_value(node)
        if isinstance(term.type, Digits):
            return decimals.whole(calls, term, mode)
        calls.require_number(term, node.args[0])
        if term.type in (Kind.FLOAT, MIXED):
            return calls.checked(f"{function}({term.code})", Kind.INT)
        return calls.integer(term, node)

    return lower


def _round(calls: Calls, node: ast.Call) -> Term:
    return decimals.round_call(calls, node) or _whole("round_half_even", words.HALF_EVEN)(calls, node)


def sum_up(calls: Calls, node: ast.Call) -> Term:
    """sum(): Python 3.12 and later use compensated summation for floats, so generated code does too."""
    before = len(calls.lines)
    total, lost = calls.fresh(), calls.fresh()
    kind: Kind | Digits = Kind.INT
    with calls.each(node) as element:
        element = values.plain(calls, element)
        if isinstance(element.type, Digits):
            kind = element.type
            step = calls.checked(f"add({total}, {element.code})", Kind.INT)
            calls.emit(f"{total} = {step.code}")
        elif element.type in (Kind.FLOAT, MIXED):
            kind = Kind.FLOAT
            if element.type is MIXED:
                calls.leave(ESCAPES)
            _add_float(calls, total, lost, calls.keep(element.code))
        else:
            step = calls.checked(f"add({total}, {calls.integer(element, node).code})", Kind.INT)
            calls.emit(f"{total} = {step.code}")
    indent = "    " * calls._depth
    zero = "0.0" if kind is Kind.FLOAT else "0"
    calls.lines.insert(before, f"{indent}{total} = {zero}")
    if kind is Kind.FLOAT and COMPENSATED:
        calls.lines.insert(before, f"{indent}{lost} = 0.0")
        with calls.block(f"if {lost} != 0.0 and math.isfinite({lost}):"):
            calls.emit(f"{total} = {total} + {lost}")
    return Term(total, MIXED if kind is Kind.FLOAT else kind)  # the sum of an empty list is the int 0


def _add_float(calls: Calls, total: str, lost: str, element: str) -> None:
    if not COMPENSATED:
        calls.emit(f"{total} = {total} + {element}")
        return
    step = calls.keep(f"{total} + {element}")
    with calls.block(f"if abs({total}) >= abs({element}):"):
        calls.emit(f"{lost} = {lost} + (({total} - {step}) + {element})")
    with calls.block("else:"):
        calls.emit(f"{lost} = {lost} + (({element} - {step}) + {total})")
    calls.emit(f"{total} = {step}")


def _quantifier(start: str, negation: str) -> Callable[[Calls, ast.Call], Term]:
    def lower(calls: Calls, node: ast.Call) -> Term:
        result = calls.keep(start)
        with calls.each(node) as element, calls.block(f"if {negation}{calls.truth(element, node)}:"):
            calls.emit(f"{result} = {negation == ''}")
            calls.emit("break")
        return Term(result, Kind.BOOL)

    return lower


def _root(calls: Calls, node: ast.Call) -> Term:
    code = calls.keep(calls.real(calls.one_number(node), node).code)
    with calls.block(f"if {code} < 0.0:"):
        calls.leave(calls.reason("ValueError"))
    return Term(calls.keep(f"math.sqrt({code})"), Kind.FLOAT)


def _float_function(name: str, kind: Kind) -> Callable[[Calls, ast.Call], Term]:
    def lower(calls: Calls, node: ast.Call) -> Term:
        return Term(calls.keep(f"{name}({calls.real(calls.one_number(node), node).code})"), kind)

    return lower


KNOWN: dict[Any, Callable[[Calls, ast.Call], Term]] = {
    exists: _exists,
    len: _length,
    abs: _absolute,
    min: _extreme("<"),
    max: _extreme(">"),
    int: _integer,
    float: _real,
    bool: _truth,
    str: _string,
    repr: _in_python(Kind.STR, (1,)),
    format: _in_python(Kind.STR, (1, 2)),
    chr: _in_python(Kind.STR, (1,)),
    ord: _in_python(Kind.INT, (1,)),
    round: _round,
    sum: sum_up,
    any: _quantifier("False", ""),
    all: _quantifier("True", "not "),
    math.floor: _whole("floor", words.FLOOR),
    math.ceil: _whole("ceil", words.CEILING),
    math.trunc: _whole("truncate", words.DOWN),
    math.sqrt: _root,
    math.fabs: _float_function("abs", Kind.FLOAT),
    math.isnan: _float_function("math.isnan", Kind.BOOL),
    math.isinf: _float_function("math.isinf", Kind.BOOL),
    math.isfinite: _float_function("math.isfinite", Kind.BOOL),
}
