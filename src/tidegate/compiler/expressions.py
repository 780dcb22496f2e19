"""Turns the expressions of a body into generated code, with Python's meaning and nobody else's.

`value` gives a term for any expression, `test` its truth. What Python evaluates lazily (and, or,
conditional expressions, chained comparisons) becomes branches. What the machine cannot compute as
Python would (an integer that leaves 64 bits, a division of huge integers) becomes `escape`: the
transaction is undone and run as plain Python instead.
"""

from __future__ import annotations

import abc
import ast
import contextlib
import math
from collections.abc import Iterator
from typing import NoReturn

from tidegate.compiler.emission import Emitter
from tidegate.compiler.source import MISSING, FunctionSource
from tidegate.compiler.types import MIXED, NUMBERS, Mixed, Row, RowList, Term, Type, ValueList, describe
from tidegate.foundation.arithmetic import EXACT_FLOAT, fits
from tidegate.operations.layout import Kind, Value
from tidegate.operations.plan import ESCAPE, Access

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


class Expressions(Emitter, abc.ABC):
    """Expressions of one function; calls and statements are added by the classes built on it."""

    source: FunctionSource
    accesses: list[Access]
    conditions: list[str]
    final: bool  # the last round: types have settled, so what still does not fit is refused

    @abc.abstractmethod
    def call(self, node: ast.Call) -> Term:
        """The value of a call."""

    @abc.abstractmethod
    def variable(self, node: ast.Name) -> Term | None:
        """A parameter or local variable; None for a name from outside the function."""

    @abc.abstractmethod
    def literal(self, text: str) -> Term:
        """A string known by now."""

    @abc.abstractmethod
    def leave(self, code: str) -> None:
        """Leave the function with a status."""

    @abc.abstractmethod
    def reason(self, text: str) -> str:
        """The status that stands for an abort reason."""

    @contextlib.contextmanager
    def guarded(self, header: str, condition: ast.expr) -> Iterator[None]:
        """A block that runs under a condition of the user's."""
        depth = len(self.conditions)
        self.conditions.append(ast.unparse(condition))
        with self.block(header):
            yield
        del self.conditions[depth:]

    # --- helpers --------------------------------------------------------------------------------

    def refuse(self, node: ast.AST, message: str, advice: str = "") -> NoReturn:
        """Raise a DefinitionError at `node`."""
        self.source.refuse(node, message, advice)

    def escape_if(self, condition: str) -> None:
        """Have plain Python run this transaction where `condition` holds."""
        with self.block(f"if {condition}:"):
            self.leave(str(ESCAPE))

    def access(self, row: Row | RowList, field: str, action: str, node: ast.AST) -> None:
        """Note that the body touches a field."""
        line = self.source.place(node).line
        self.accesses.extend(
            Access(origin, field, action, tuple(self.conditions), line) for origin in sorted(row.origins)
        )

    def constant(self, value: Value, node: ast.AST) -> Term:
        """A value known by now."""
        if isinstance(value, bool):
            return Term(repr(bool(value)), Kind.BOOL, bool(value))
        if isinstance(value, int):
            if not fits(value):
                self.leave(str(ESCAPE))
                return Term("0", Kind.INT)
            return Term(repr(int(value)) if value > -(2**63) else "(-9223372036854775807 - 1)", Kind.INT, int(value))
        if isinstance(value, float):
            names = {"inf": "infinity", "-inf": "(-infinity)", "nan": "not_a_number"}
            code = repr(float(value))
            return Term(code if math.isfinite(value) else names[code], Kind.FLOAT, float(value))
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

    def number(self, node: ast.expr) -> Term:
        """The value of an expression that must be a number."""
        term = self.value(node)
        if term.type not in NUMBERS:
            advice = "name the field, for example row.balance" if isinstance(term.type, Row) else ""
            self.refuse(node, f"a number is required here, got {describe(term.type)}", advice)
        return term

    # --- values ---------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Term:
        """The value of any expression."""
        match node:
            case ast.Constant(value=bool() | int() | float() | str() as constant):
                return self.constant(constant, node)
            case ast.Name():
                return self.variable(node) or self.outside(node)
            case ast.Attribute():
                return self.attribute(node)
            case ast.BinOp():
                return self.arithmetic(self.number(node.left), self.number(node.right), node.op, node)
            case ast.UnaryOp(op=ast.Not()):
                return Term(f"(not {self.test(node.operand)})", Kind.BOOL)
            case ast.UnaryOp():
                return self.unary(node)
            case ast.BoolOp():
                return self.lazy(node)
            case ast.Compare():
                return self.comparison(node)
            case ast.IfExp():
                return self.choice(node)
            case ast.Subscript():
                return self.element(node)
            case ast.Call():
                return self.call(node)
        what = ast.unparse(node)
        self.refuse(
            node,
            f"{what!r} is outside what can be compiled ({type(node).__name__})",
            f"rewrite it, {INTERPRET}",
        )

    def outside(self, node: ast.Name | ast.Attribute) -> Term:
        """A constant of the module or of an enclosing function."""
        found = self.source.resolve(node)
        if isinstance(found, bool | int | float | str):
            return self.constant(found, node)
        name = ast.unparse(node)
        if found is MISSING:
            self.refuse(node, f"the name {name!r} is not defined")
        self.refuse(
            node,
            f"{name!r} is {type(found).__name__}, which a transaction cannot use as a value",
            "constants of the module must be int, float, bool or str",
        )

    def attribute(self, node: ast.Attribute) -> Term:
        """A field of a row, or a constant of a module."""
        owner = self.row_or_none(node.value)
        if owner is None:
            return self.outside(node)
        assert isinstance(owner.type, Row)
        table, field = owner.type.table, node.attr
        if field == "exists":
            self.access(owner.type, field, "read", node)
            return Term(self.keep(f"{self.array(f'e_{table.name}')}[{owner.code}]"), Kind.BOOL)
        if field in table.key:
            return self.key_field(owner.code, owner.type, field)
        for column in table.value_columns:
            if column.name == field:
                self.access(owner.type, field, "read", node)
                array = self.array(f"c_{table.name}_{field}")
                return Term(self.keep(f"{array}[{owner.code}]"), column.kind)
        fields = ", ".join(column.name for column in table.columns)
        self.refuse(node, f"table {table.name} has no field {field!r}", f"fields are: {fields} (and exists)")

    def key_field(self, row: str, row_type: Row, field: str) -> Term:
        """A field of a row's key, which never changes."""
        table = row_type.table
        position = table.key.index(field)
        kind = table.key_columns[position].kind
        array = self.array(f"f_{table.name}" if kind is Kind.FLOAT else f"k_{table.name}")
        read = f"{array}[{row}, {position}]"
        return Term(self.keep(f"{read} != 0" if kind is Kind.BOOL else read), kind)

    def row_or_none(self, node: ast.expr) -> Term | None:
        """The row that an expression gives; None where it stands for something outside the function."""
        if isinstance(node, ast.Name | ast.Attribute):
            if isinstance(node, ast.Name):
                term = self.variable(node)
                if term is None:
                    return None
            else:
                inner = self.row_or_none(node.value)
                if inner is None:
                    return None
                term = self.value(node)
        else:
            term = self.value(node)
        if not isinstance(term.type, Row):
            advice = "fields belong to rows" + (
                ": take one with [i] or a loop" if isinstance(term.type, RowList) else ""
            )
            self.refuse(node, f"a row is required here, got {describe(term.type)}", advice)
        return term

    def element(self, node: ast.Subscript) -> Term:
        """An element of a list parameter; out of range aborts with IndexError."""
        term = self.value(node.value)
        if not isinstance(term.type, RowList | ValueList) or isinstance(node.slice, ast.Slice):
            self.refuse(
                node,
                f"only list parameters can be indexed, by one number; got {ast.unparse(node)!r}",
                INTERPRET,
            )
        index = self.integer(self.number(node.slice), node.slice).code
        data, start, stop = list_parts(term.code)
        position = self.keep(f"{index} + {start} if {index} >= 0 else {index} + {stop}")
        with self.block(f"if {position} < {start} or {position} >= {stop} or {index} >= {stop} - {start}:"):
            self.leave(self.reason("IndexError"))
        element: Type = Row(term.type.table, term.type.origins) if isinstance(term.type, RowList) else term.type.kind
        return Term(self.keep(f"{data}[{position}]"), element)

    # --- arithmetic -----------------------------------------------------------------------------

    def unary(self, node: ast.UnaryOp) -> Term:
        """-x, +x and ~x."""
        literal = node.operand.value if isinstance(node.operand, ast.Constant) else None
        if isinstance(node.op, ast.USub) and isinstance(literal, int | float) and not isinstance(literal, bool):
            return self.constant(-literal, node)
        term = self.number(node.operand)
        if term.type in (Kind.FLOAT, MIXED):
            if isinstance(node.op, ast.Invert):
                self.refuse(node, "~ is not defined for float")
            if term.type is MIXED:
                self.escape_if(f"{term.code} == 0.0")
                return Term(f"(-{term.code})" if isinstance(node.op, ast.USub) else term.code, MIXED)
            return Term(f"(-{term.code})", Kind.FLOAT) if isinstance(node.op, ast.USub) else term
        whole = self.integer(term, node)
        if isinstance(node.op, ast.USub):
            return self.checked(f"subtract(0, {whole.code})", Kind.INT)
        return Term(f"(~{whole.code})", Kind.INT) if isinstance(node.op, ast.Invert) else whole

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

    def mixed_arithmetic(self, left: Term, right: Term, operation: type[ast.operator], node: ast.AST) -> Term:
        """left op right where both may be ints: as floats while that is exact, else plain Python."""
        a, b = self.loosen(left, node), self.loosen(right, node)
        if operation is ast.Pow:
            self.leave(str(ESCAPE))
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

    def loosen(self, term: Term, node: ast.AST) -> Term:
        """A number as a float that may still be an int; an int that is not exact as a float escapes."""
        if term.type in (Kind.FLOAT, MIXED):
            return Term(term.code, MIXED, term.constant)
        converted = self.real(term, node)
        if not exact(term):
            code = self.keep(converted.code)
            self.escape_if(f"abs({code}) >= {EXACT_FLOAT}")
            return Term(code, MIXED)
        return Term(converted.code, MIXED)

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

    # --- truth ----------------------------------------------------------------------------------

    def truth(self, term: Term, node: ast.AST) -> str:
        """Code for bool(term)."""
        match term.type:
            case Kind.BOOL:
                return term.code
            case Kind.INT:
                return f"({term.code} != 0)"
            case Kind.FLOAT | Mixed():
                return f"({term.code} != 0.0)"
            case Kind.STR:
                return f"({term.code} != {self.literal('').code})"
            case RowList() | ValueList():
                _, start, stop = list_parts(term.code)
                return f"({stop} > {start})"
        self.refuse(node, f"a condition is required here, got {describe(term.type)}", "test row.exists or a field")

    def test(self, node: ast.expr) -> str:
        """Code for the truth of an expression."""
        if not isinstance(node, ast.BoolOp):
            return self.truth(self.value(node), node)
        result = self.keep(self.test(node.values[0]))
        negation = "" if isinstance(node.op, ast.And) else "not "
        for operand in node.values[1:]:
            with self.guarded(f"if {negation}{result}:", node.values[0]):
                self.emit(f"{result} = {self.test(operand)}")
        return result

    def lazy(self, node: ast.BoolOp) -> Term:
        """`and` and `or` as values: the last operand that was evaluated."""
        first = self.value(node.values[0])
        if first.type is Kind.BOOL or isinstance(first.type, RowList | ValueList):
            return self.lazy_bool(node, first)
        result = self.keep(first.code)
        negation = "" if isinstance(node.op, ast.And) else "not "
        for operand in node.values[1:]:
            with self.guarded(f"if {negation}{self.truth(Term(result, first.type), node)}:", node.values[0]):
                other = self.value(operand)
                if other.type != first.type and (self.final or {other.type, first.type} != {Kind.INT, Kind.FLOAT}):
                    self.refuse(
                        node,
                        f"and/or mix {describe(first.type)} and {describe(other.type)}",
                        "compare explicitly, for example `x != 0 and ...`",
                    )
                self.emit(f"{result} = {other.code}")
        return Term(result, first.type)

    def lazy_bool(self, node: ast.BoolOp, first: Term) -> Term:
        """`and` and `or` that begin with a bool: all operands are bools."""
        result = self.keep(self.truth(first, node))
        negation = "" if isinstance(node.op, ast.And) else "not "
        for operand in node.values[1:]:
            with self.guarded(f"if {negation}{result}:", node.values[0]):
                other = self.value(operand)
                if other.type is not Kind.BOOL:
                    self.refuse(operand, f"and/or mix bool and {describe(other.type)}", "compare explicitly")
                self.emit(f"{result} = {other.code}")
        return Term(result, Kind.BOOL)

    def choice(self, node: ast.IfExp) -> Term:
        """a if condition else b."""
        result = self.fresh()
        condition = self.test(node.test)
        with self.guarded(f"if {condition}:", node.test):
            first = self.value(node.body)
            place, depth = len(self.lines), self._depth
            self.emit("pass")
        with self.guarded("else:", ast.UnaryOp(ast.Not(), node.test)):
            second = self.value(node.orelse)
            joined = self.join(first, second, node)
            self.emit(f"{result} = {self.convert(second, joined, node).code}")
        with self.insertion(place, depth):
            self.emit(f"{result} = {self.convert(first, joined, node).code}")
        return Term(result, joined)

    @contextlib.contextmanager
    def insertion(self, place: int, depth: int) -> Iterator[None]:
        """Emit lines in the place of line number `place` instead of at the end."""
        lines, self.lines = self.lines, []
        self._depth, depth = depth, self._depth
        yield
        lines[place : place + 1] = self.lines
        self.lines, self._depth = lines, depth

    def join(self, first: Term, second: Term, node: ast.AST) -> Type:
        """The type of a value that may be either."""
        a, b = first.type, second.type
        if a == b:
            return a
        if isinstance(a, Row) and isinstance(b, Row) and a.table == b.table:
            return Row(a.table, a.origins | b.origins)
        if {a, b} <= {Kind.INT, Kind.FLOAT, MIXED}:
            return MIXED
        self.refuse(node, f"this is {describe(a)} in one case and {describe(b)} in the other", "convert one of them")

    def convert(self, term: Term, target: Type, node: ast.AST) -> Term:
        """A term as the type that it was joined to."""
        if target is MIXED:
            return self.loosen(term, node)
        return self.real(term, node) if target is Kind.FLOAT else term

    # --- comparison -----------------------------------------------------------------------------

    def comparison(self, node: ast.Compare) -> Term:
        """Chained comparisons, each operand evaluated once, left to right, as far as needed."""
        left = self.comparand(node.left)
        if len(node.ops) == 1:
            return Term(self.keep(self.compare(left, node.ops[0], node.comparators[0], node)[0]), Kind.BOOL)
        result = self.fresh()
        code, left = self.compare(left, node.ops[0], node.comparators[0], node)
        self.emit(f"{result} = {code}")
        depth = 0
        for operator, right in zip(node.ops[1:], node.comparators[1:], strict=True):
            self.emit(f"if {result}:")
            self._depth += 1
            depth += 1
            code, left = self.compare(left, operator, right, node)
            self.emit(f"{result} = {code}")
        self._depth -= depth
        return Term(result, Kind.BOOL)

    def comparand(self, node: ast.expr) -> Term:
        """An operand of a comparison: anything but a list."""
        term = self.value(node)
        if isinstance(term.type, RowList | ValueList):
            self.refuse(node, f"a value is required here, got {describe(term.type)}")
        return term

    def compare(self, left: Term, operator: ast.cmpop, right_node: ast.expr, node: ast.AST) -> tuple[str, Term]:
        """Code for one comparison, and its right operand for the next in the chain."""
        if isinstance(operator, ast.In | ast.NotIn):
            return self.membership(left, operator, right_node), left
        right = self.comparand(right_node)
        if isinstance(operator, ast.Is | ast.IsNot):
            if not (isinstance(left.type, Row) and isinstance(right.type, Row)):
                self.refuse(node, "`is` compares rows only", "use == for values")
            same = left.type.table == right.type.table
            sign = "==" if isinstance(operator, ast.Is) else "!="
            return (f"{left.code} {sign} {right.code}" if same else str(sign == "!=")), right
        return self.ordered(left, COMPARISONS[type(operator)], right, node), right

    def ordered(self, left: Term, sign: str, right: Term, node: ast.AST) -> str:
        """Code for left sign right."""
        left = self.real(left, node) if left.type is MIXED else left
        right = self.real(right, node) if right.type is MIXED else right
        kinds = (left.type, right.type)
        if any(isinstance(kind, Row) for kind in kinds):
            self.refuse(node, "a row is used where a value is needed", "compare fields, or use `is` for the same row")
        if Kind.STR in kinds:
            if kinds != (Kind.STR, Kind.STR) or sign not in ("==", "!="):
                self.refuse(
                    node,
                    f"{sign} between {describe(left.type)} and {describe(right.type)} cannot be compiled",
                    f"strings compare with == and != to strings, {INTERPRET}",
                )
            return f"{left.code} {sign} {right.code}"
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

    def membership(self, left: Term, operator: ast.In | ast.NotIn, node: ast.expr) -> str:
        """x in (a, b, c)."""
        if not isinstance(node, ast.Tuple | ast.List | ast.Set):
            self.refuse(node, "`in` needs a tuple written out, for example x in (1, 2, 3)", INTERPRET)
        choices = [self.comparand(choice) for choice in node.elts]  # all of them, before any is compared
        result = self.keep("False")
        for choice in choices:
            with self.block(f"if not {result}:"):
                self.emit(f"{result} = {self.ordered(left, '==', choice, node)}")
        return f"(not {result})" if isinstance(operator, ast.NotIn) else result


def exact(term: Term) -> bool:
    """Whether a term is an int constant that is exact as a float."""
    return isinstance(term.constant, int) and abs(int(term.constant)) <= EXACT_FLOAT


def list_parts(code: str) -> tuple[str, str, str]:
    """The array, the first position and the end of a list in generated code."""
    return f"{code}_data", f"{code}_start", f"{code}_stop"
