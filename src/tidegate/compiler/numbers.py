"""Numbers in generated code, with Python's semantics: unbounded ints, floats, and mixtures of both.

Integer operations are checked: where a result would leave 64 bits, or a division of huge integers
would be rounded differently, the transaction escapes and plain Python runs it. Comparisons of an int
with a float are exact. A number that is an int on one path and a float on another (`Mixed`) is computed
as a float only as long as the result equals Python's.
"""

from __future__ import annotations

import abc
import ast
import math
from typing import NoReturn

from tidegate.compiler import decimals, strings, times, values
from tidegate.compiler.emission import ESCAPES, Emitter
from tidegate.compiler.source import FunctionSource
from tidegate.compiler.types import MIXED, Row, Term, Type, carriers, describe
from tidegate.foundation.arithmetic import EXACT_FLOAT, fits
from tidegate.operations.decimals import Digits
from tidegate.operations.kinds import Carried, Kind, Plain, encodable

INTERPRET = "or declare it with @tg.transaction(compiled=False), which runs any Python, more slowly"

CHECKED_INT = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Pow: "power",
    ast.LShift: "shift_left",
    ast.RShift: "shift_right",
}
BITWISE = {ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^"}
PLAIN_FLOAT = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
ZERO_CODE = {Kind.INT: "0", Kind.FLOAT: "0.0", Kind.BOOL: "False", Kind.STR: "0"}


class Numbers(Emitter, abc.ABC):
    """Constants, arithmetic and comparison of numbers."""

    source: FunctionSource
    final: bool  # the last round: types have settled, so any remaining mismatch is refused

    @abc.abstractmethod
    def literal(self, text: str) -> Term:
        """A string known at compile time."""

    @abc.abstractmethod
    def operation(self, left: Term, right: Term, node: ast.BinOp | ast.AugAssign) -> Term:
        """left op right."""

    @abc.abstractmethod
    def truth(self, term: Term, node: ast.AST) -> str:
        """Code for bool(term)."""

    @abc.abstractmethod
    def variable(self, node: ast.Name) -> Term | None:
        """A parameter or local variable; None for a name from outside the function."""

    @abc.abstractmethod
    def leave(self, code: str) -> None:
        """Leave the function with a status."""

    @abc.abstractmethod
    def reason(self, text: str) -> str:
        """The status that stands for an abort reason."""

    @abc.abstractmethod
    def continue_in_python(self, node: ast.AST) -> None:
        """Leave for plain Python, which computes `node` and may abort there."""

    def refuse(self, node: ast.AST, message: str, advice: str = "") -> NoReturn:
        """Raise a DefinitionError at `node`."""
        self.source.refuse(node, message, advice)

    def escape_if(self, condition: str) -> None:
        """Emit code that hands the transaction to plain Python if `condition` holds."""
        with self.block(f"if {condition}:"):
            self.leave(ESCAPES)

    def bind(self, name: str, term: Term) -> None:
        """Emit code that gives a term a name."""
        for part, found in zip(carriers(name, term.type), carriers(term.code, term.type), strict=True):
            self.emit(f"{part} = {found}")

    def kept(self, term: Term) -> Term:
        """The same value in a temporary of its own."""
        name = self.fresh()
        self.bind(name, term)
        return Term(name, term.type, term.constant)

    def constant(self, value: Plain, node: ast.AST) -> Term:
        """A value known at compile time."""
        if isinstance(value, bool):
            return Term(repr(bool(value)), Kind.BOOL, bool(value))
        if isinstance(value, int):
            if not fits(value):
                self.leave(ESCAPES)
                return Term("0", Kind.INT)
            return Term(repr(int(value)) if value > -(2**63) else "(-9223372036854775807 - 1)", Kind.INT, int(value))
        if isinstance(value, float):
            names = {"inf": "infinity", "-inf": "(-infinity)", "nan": "not_a_number"}
            code = repr(float(value))
            return Term(code if math.isfinite(value) else names[code], Kind.FLOAT, float(value))
        if not encodable(value):
            self.refuse(node, f"the string {value!r} holds half of a surrogate pair, which no column can hold")
        return self.literal(value)

    def integer(self, term: Term, node: ast.AST) -> Term:
        """The term as an int; a bool counts as 0 or 1."""
        if term.type is Kind.INT:
            return term
        if term.type is Kind.BOOL:
            if term.constant is not None:
                return self.constant(int(term.constant), node)
            return Term(f"int({term.code})", Kind.INT)
        self.refuse(node, f"an int is required here, got {describe(term.type)}")

    def real(self, term: Term, node: ast.AST) -> Term:
        """The term as a float, as Python converts an int operand."""
        if term.type in (Kind.FLOAT, MIXED):
            return Term(term.code, Kind.FLOAT, term.constant)
        whole = self.integer(term, node)
        if isinstance(whole.constant, int):
            return self.constant(float(whole.constant), node)
        return Term(f"float({whole.code})", Kind.FLOAT)

    def loosen(self, term: Term, node: ast.AST) -> Term:
        """A number as `Mixed`, a float that may still be an int; an int that no float equals escapes."""
        if term.type in (Kind.FLOAT, MIXED):
            return Term(term.code, MIXED, term.constant)
        converted = self.real(term, node)
        if not exact(term):
            code = self.keep(converted.code)
            self.escape_if(f"abs({code}) >= {EXACT_FLOAT}")
            return Term(code, MIXED)
        return Term(converted.code, MIXED)

    def join(self, first: Term, second: Term, node: ast.AST) -> Type:
        """The common type of a value that is one term or the other."""
        a, b = first.type, second.type
        if a == b:
            return a
        joined = values.common(a, b) if values.is_special(first, second) else None
        if joined is not None:
            return joined
        if isinstance(a, Row) and isinstance(b, Row) and a.table == b.table:
            return Row(a.table, a.origins | b.origins)
        if {a, b} <= {Kind.INT, Kind.FLOAT, MIXED}:
            return MIXED
        self.refuse(node, f"this is {describe(a)} in one case and {describe(b)} in the other", "convert one of them")

    def convert(self, term: Term, target: Type, node: ast.AST) -> Term:
        """A term converted to the type that `join` or `widen` chose."""
        if target is MIXED:
            return self.loosen(term, node)
        if isinstance(target, Carried):
            return values.converted(self, term, target, node)
        return self.real(term, node) if target is Kind.FLOAT else term

    def checked(self, code: str, kind: Kind) -> Term:
        """Call an arithmetic function that may escape."""
        result, escape = self.fresh(), self.fresh()
        self.emit(f"{result}, {escape} = {code}")
        self.escape_if(escape)
        return Term(result, kind)

    def arithmetic(self, left: Term, right: Term, operator: ast.operator, node: ast.AST) -> Term:
        """left op right."""
        operation = type(operator)
        if MIXED in (left.type, right.type):
            if Kind.FLOAT not in (left.type, right.type):
                return self.mixed_arithmetic(left, right, operation, node)
            left, right = self.real(left, node), self.real(right, node)
        if operation in BITWISE:
            if left.type is right.type is Kind.BOOL:
                return Term(f"({left.code} {BITWISE[operation]} {right.code})", Kind.BOOL)
            a, b = self.integer(left, node), self.integer(right, node)
            return Term(self.keep(f"{a.code} {BITWISE[operation]} {b.code}"), Kind.INT)
        if operation in (ast.Div, ast.FloorDiv, ast.Mod):
            return self.division(left, right, operation, node)
        if Kind.FLOAT not in (left.type, right.type):
            a, b = self.integer(left, node), self.integer(right, node)
            if operation in CHECKED_INT:
                return self.checked(f"{CHECKED_INT[operation]}({a.code}, {b.code})", Kind.INT)
        elif operation in PLAIN_FLOAT:
            a, b = self.real(left, node), self.real(right, node)
            return Term(self.keep(f"{a.code} {PLAIN_FLOAT[operation]} {b.code}"), Kind.FLOAT)
        elif operation is ast.Pow:
            a, b = self.real(left, node), self.real(right, node)
            return self.checked(f"float_power({a.code}, {b.code})", Kind.FLOAT)
        self.refuse(node, f"{operation.__name__} is not defined for {describe(left.type)} and {describe(right.type)}")

    def special_arithmetic(self, left: Term, right: Term, node: ast.BinOp | ast.AugAssign) -> Term:
        """left op right, where one of them is no plain number."""
        left, right, operator = values.plain(self, left), values.plain(self, right), node.op
        if isinstance(left.type, Digits) or isinstance(right.type, Digits):
            return decimals.arithmetic(self, left, right, type(operator), node)
        if isinstance(left.type, times.TIMES) or isinstance(right.type, times.TIMES):
            return times.arithmetic(self, left, right, type(operator), node)
        if not values.is_special(left, right):
            return self.operation(left, right, node)
        self.refuse(
            node, f"{type(operator).__name__} of {describe(left.type)} and {describe(right.type)} is not possible"
        )

    def division(self, left: Term, right: Term, operation: type[ast.operator], node: ast.AST) -> Term:
        """/, // and %, which abort with ZeroDivisionError."""
        whole = Kind.FLOAT not in (left.type, right.type)
        convert = self.integer if whole else self.real
        a, b = convert(left, node), convert(right, node)
        if not b.constant:
            with self.block(f"if {b.code} == 0:"):
                self.leave(self.reason("ZeroDivisionError"))
        if operation is ast.Div:
            if whole:
                return self.checked(f"divide({a.code}, {b.code})", Kind.FLOAT)
            return Term(self.keep(f"{a.code} / {b.code}"), Kind.FLOAT)
        if operation is ast.FloorDiv:
            if whole:
                return self.checked(f"floor_divide({a.code}, {b.code})", Kind.INT)
            return Term(self.keep(f"float_floor_divide({a.code}, {b.code})"), Kind.FLOAT)
        function = "modulo" if whole else "float_modulo"
        return Term(self.keep(f"{function}({a.code}, {b.code})"), Kind.INT if whole else Kind.FLOAT)

    def mixed_arithmetic(self, left: Term, right: Term, operation: type[ast.operator], node: ast.AST) -> Term:
        """left op right where both may be ints: computed as floats while that is exact, else by plain Python."""
        a, b = self.loosen(left, node), self.loosen(right, node)
        if operation is ast.Pow:
            self.leave(ESCAPES)
            return Term("0.0", MIXED)
        if operation in (ast.Div, ast.FloorDiv, ast.Mod):
            result = self.division(self.real(a, node), self.real(b, node), operation, node)
            if operation is ast.Div:
                return result
            self.escape_if(f"{result.code} == 0.0 or abs({result.code}) >= {EXACT_FLOAT}")
            return Term(result.code, MIXED)
        if operation not in PLAIN_FLOAT:
            self.refuse(
                node,
                f"{operation.__name__} is not defined for {describe(left.type)} and {describe(right.type)}",
            )
        code = self.keep(f"{a.code} {PLAIN_FLOAT[operation]} {b.code}")
        zero = f" or {code} == 0.0" if operation is ast.Mult else ""
        self.escape_if(f"abs({code}) >= {EXACT_FLOAT}{zero}")
        return Term(code, MIXED)

    def ordered(self, left: Term, sign: str, right: Term, node: ast.AST) -> str:
        """Code for left sign right."""
        if values.is_special(left, right):
            return values.compared(self, left, sign, right, node)
        left = self.real(left, node) if left.type is MIXED else left
        right = self.real(right, node) if right.type is MIXED else right
        kinds = (left.type, right.type)
        if any(isinstance(kind, Row) for kind in kinds):
            self.refuse(node, "a row is used where a value is needed", "compare fields, or use `is` for the same row")
        if Kind.STR in kinds:
            if kinds != (Kind.STR, Kind.STR):
                self.refuse(
                    node,
                    f"{sign} between {describe(left.type)} and {describe(right.type)} cannot be compiled",
                    f"strings compare with strings, {INTERPRET}",
                )
            return strings.ordered(self, left, sign, right)
        if kinds.count(Kind.FLOAT) == 1:
            if exact(left):
                left = self.real(left, node)
            elif exact(right):
                right = self.real(right, node)
            else:
                return self.mixed(left, sign, right, node)
        return f"{left.code} {sign} {right.code}"

    def mixed(self, left: Term, sign: str, right: Term, node: ast.AST) -> str:
        """An int against a float: exact, as Python compares them."""
        if left.type is Kind.FLOAT:
            left, sign, right = right, MIRRORED[sign], left
        order = self.keep(f"compare({self.integer(left, node).code}, {right.code})")
        conditions = {"<": "== -1", "<=": "<= 0", ">": "== 1", ">=": ">= 0", "==": "== 0", "!=": "!= 0"}
        unordered = f" and {order} != 2" if sign == ">=" else ""
        return f"({order} {conditions[sign]}{unordered})"


def exact(term: Term) -> bool:
    """Whether a term is an int constant that is exact as a float."""
    return isinstance(term.constant, int) and abs(int(term.constant)) <= EXACT_FLOAT
