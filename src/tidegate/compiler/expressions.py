"""Turns the expressions of a body into generated code with exactly Python's semantics.

`value` returns a term for any expression, `test` code for its truth. What Python evaluates lazily (and, or,
conditional expressions, chained comparisons) becomes branches. Where machine arithmetic would differ from
Python (an integer that leaves 64 bits, a division of huge integers), the code escapes: the transaction is
undone and run as plain Python instead.
"""

from __future__ import annotations

import abc
import ast
import contextlib
import enum
from collections.abc import Iterator

from tidegate.api.outside import MISSING
from tidegate.api.table import layout_of
from tidegate.compiler import decimals, strings, times, values
from tidegate.compiler.names import list_parts
from tidegate.compiler.numbers import COMPARISONS, INTERPRET, Numbers
from tidegate.compiler.types import (
    MIXED,
    NUMBERS,
    Mixed,
    Nothing,
    Row,
    RowList,
    Term,
    Type,
    ValueList,
    WindowOf,
    describe,
)
from tidegate.operations.arrays import column_array, exists_array, key_array
from tidegate.operations.decimals import Digits
from tidegate.operations.kinds import Carried, Kind
from tidegate.operations.layout import Column
from tidegate.operations.plan import Access
from tidegate.operations.times import Duration
from tidegate.operations.values import Enumeration, Optional


class Expressions(Numbers):
    """Expressions of one function; subclasses add calls and statements."""

    accesses: list[Access]
    conditions: list[str]

    @abc.abstractmethod
    def call(self, node: ast.Call) -> Term:
        """The value of a call."""

    @abc.abstractmethod
    def window_or_none(self, node: ast.expr) -> Term | None:
        """The window or window row that an expression stands for; None for anything else."""

    @abc.abstractmethod
    def window_field(self, term: Term, field: str, node: ast.AST) -> Term:
        """window.slid, or a field of a window's row."""

    @abc.abstractmethod
    def window_length(self, term: Term) -> str:
        """Code for len(window)."""

    @contextlib.contextmanager
    def guarded(self, header: str, condition: ast.expr) -> Iterator[None]:
        """A block that runs under a condition from the user's code."""
        depth = len(self.conditions)
        self.conditions.append(ast.unparse(condition))
        with self.block(header):
            yield
        del self.conditions[depth:]

    # --- helpers --------------------------------------------------------------------------------

    def access(self, row: Row | RowList, field: str, action: str, node: ast.AST) -> None:
        """Note that the body reads, writes or deletes a field."""
        line = self.source.place(node).line
        self.accesses.extend(
            Access(origin, field, action, tuple(self.conditions), line) for origin in sorted(row.origins)
        )

    def number(self, node: ast.expr) -> Term:
        """The value of an expression that must be a number."""
        return self.as_number(self.value(node), node)

    def as_number(self, term: Term, node: ast.AST) -> Term:
        """The term, which must be a number; None escapes."""
        term = values.plain(self, term)
        self.require_number(term, node)
        return term

    def require_number(self, term: Term, node: ast.AST) -> None:
        """Refuse a term that is no number."""
        if term.type not in NUMBERS:
            advice = "name the field, for example row.balance" if isinstance(term.type, Row) else ""
            self.refuse(node, f"a number is required here, got {describe(term.type)}", advice)

    # --- values ---------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Term:
        """The value of any expression."""
        match node:
            case ast.Constant(value=bool() | int() | float() | str() as constant):
                return self.constant(constant, node)
            case ast.Constant(value=None | bytes() as constant):
                return self.known_constant(constant, node)
            case ast.Name():
                return self.variable(node) or self.outside(node)
            case ast.Attribute():
                return self.attribute(node)
            case ast.BinOp(op=ast.Mod(), right=ast.Tuple()):
                return self.percent(node)
            case ast.BinOp():
                return self.operation(self.value(node.left), self.value(node.right), node)
            case ast.JoinedStr():
                return strings.formatted(self, node)
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
        if isinstance(found, bool | int | float | str) and not isinstance(found, enum.Enum):
            return self.constant(found, node)
        known = values.constant(self, found, node)
        if known is not None:
            return known
        name = ast.unparse(node)
        if found is MISSING:
            self.refuse(node, f"the name {name!r} is not defined")
        if layout_of(found) is not None:
            self.refuse(
                node,
                f"{name!r} is a table, and a transaction does not go through all rows of a table",
                f"keep a row that sums up what you need (a count, a total) and update it with each change, look one "
                f"row up with tg.lookup({name}, key), or read all rows outside: engine.scan, read_state",
            )
        self.refuse(
            node,
            f"{name!r} is {type(found).__name__}, which a transaction cannot use as a value",
            "constants of the module must be of a type that a field may have",
        )

    def known_constant(self, value: object, node: ast.AST) -> Term:
        """None, or a literal of bytes."""
        found = values.constant(self, value, node)
        assert found is not None
        return found

    def attribute(self, node: ast.Attribute) -> Term:
        """A field of a row or of a window, or a constant of a module."""
        window = self.window_or_none(node.value)
        if window is not None:
            return self.window_field(window, node.attr, node)
        owner = self.owner_or_none(node.value)
        if owner is None:
            return self.outside(node)
        return self.field(owner, node)

    def field(self, owner: Term, node: ast.Attribute) -> Term:
        """A field of a row, or a part of a value."""
        if isinstance(owner.type, Carried):
            return self.part(owner, node)
        owner = self.row(owner, node.value)
        assert isinstance(owner.type, Row)
        table, field = owner.type.table, node.attr
        if field == "exists":
            self.access(owner.type, field, "read", node)
            return Term(self.keep(f"{self.array(exists_array(table.name))}[{owner.code}]"), Kind.BOOL)
        if field in table.key:
            return self.key_field(owner.code, owner.type, field)
        for column in table.value_columns:
            if column.name == field:
                self.access(owner.type, field, "read", node)
                array = self.array(column_array(table.name, field))
                return Term(self.keep(f"{array}[{owner.code}]"), self.type_of(table.name, column, node))
        fields = ", ".join(column.name for column in table.columns)
        self.refuse(node, f"table {table.name} has no field {field!r}", f"fields are: {fields} (and exists)")

    def type_of(self, owner: str, column: Column, node: ast.AST) -> Type:
        """The type of what a field holds, inside a body."""
        return values.in_body(column.type)

    def key_field(self, row: str, row_type: Row, field: str) -> Term:
        """A field of a row's key, which never changes."""
        table = row_type.table
        position = table.key.index(field)
        key = table.key_columns[position]
        array = self.array(key_array(table.name, key.kind))
        read = f"{array}[{row}, {position}]"
        return Term(self.keep(f"{read} != 0" if key.kind is Kind.BOOL else read), values.in_body(key.type))

    def row_or_none(self, node: ast.expr) -> Term | None:
        """The row that an expression stands for; None if its name is not a variable of the function."""
        term = self.owner_or_none(node)
        return None if term is None else self.row(term, node)

    def owner_or_none(self, node: ast.expr) -> Term | None:
        """What has the attributes of an expression; None if its name is not a variable of the function."""
        if isinstance(node, ast.Name):
            return self.variable(node)
        if isinstance(node, ast.Attribute) and self.owner_or_none(node.value) is None:
            return None
        return self.value(node)

    def part(self, owner: Term, node: ast.Attribute) -> Term:
        """A part of a value: date.year, member.value and their like."""
        owner = values.present(self, owner)
        found = None
        if isinstance(owner.type, times.TIMES):
            found = times.attribute(self, owner, node.attr)
        elif isinstance(owner.type, Enumeration):
            found = values.member_attribute(self, owner, node.attr, node)
        if found is None:
            self.refuse(node, f".{node.attr} of {describe(owner.type)} cannot be compiled", f"rewrite it, {INTERPRET}")
        return found

    def row(self, term: Term, node: ast.expr) -> Term:
        """A term that must be a row."""
        if not isinstance(term.type, Row):
            advice = "fields belong to rows" + (
                ": take one with [i] or a loop" if isinstance(term.type, RowList) else ""
            )
            self.refuse(node, f"a row is required here, got {describe(term.type)}", advice)
        return term

    def element(self, node: ast.Subscript) -> Term:
        """An element of a list parameter or a window; an index out of range aborts with IndexError."""
        window = self.window_or_none(node)
        if window is not None:
            return window
        term = self.value(node.value)
        if term.type is Kind.STR:
            return strings.part_of(self, node)
        if not isinstance(term.type, RowList | ValueList) or isinstance(node.slice, ast.Slice):
            self.refuse(
                node,
                f"only list parameters and strings can be indexed, by one number; got {ast.unparse(node)!r}",
                INTERPRET,
            )
        index = self.integer(self.number(node.slice), node.slice).code
        data, start, stop = list_parts(term.code)
        position = self.keep(f"{index} + {start} if {index} >= 0 else {index} + {stop}")
        with self.block(f"if {position} < {start} or {position} >= {stop} or {index} >= {stop} - {start}:"):
            self.leave(self.reason("IndexError"))
        return Term(self.keep(f"{data}[{position}]"), element_type(term.type))

    # --- arithmetic -----------------------------------------------------------------------------

    def operation(self, left: Term, right: Term, node: ast.BinOp | ast.AugAssign) -> Term:
        """left op right, of numbers, strings, times or Decimals."""
        if values.is_special(left, right):
            return self.special_arithmetic(left, right, node)
        if Kind.STR in (left.type, right.type):
            return strings.combined(self, left, right, node)
        first, second = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)
        return self.arithmetic(self.as_number(left, first), self.as_number(right, second), node.op, node)

    def percent(self, node: ast.BinOp) -> Term:
        """text % (a, b)."""
        left = self.value(node.left)
        assert isinstance(node.right, ast.Tuple)
        if left.type is not Kind.STR:
            self.refuse(node, f"a tuple is formatted by a string only, got {describe(left.type)}")
        for part in node.right.elts:
            strings.plain(self, self.value(part), part)
        return strings.made(self, Kind.STR, node)

    def unary(self, node: ast.UnaryOp) -> Term:
        """-x, +x and ~x."""
        literal = node.operand.value if isinstance(node.operand, ast.Constant) else None
        if isinstance(node.op, ast.USub) and isinstance(literal, int | float) and not isinstance(literal, bool):
            return self.constant(-literal, node)
        term = values.plain(self, self.value(node.operand))
        if isinstance(term.type, Digits | Duration) and not isinstance(node.op, ast.Invert):
            if isinstance(node.op, ast.UAdd):
                return term
            return decimals.negated(self, term) if isinstance(term.type, Digits) else times.negated(self, term)
        self.require_number(term, node.operand)
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

    # --- truth ----------------------------------------------------------------------------------

    def truth(self, term: Term, node: ast.AST) -> str:
        """Code for bool(term)."""
        if values.is_special(term):
            return values.truth(self, term, node)
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
            case WindowOf():
                return f"({self.window_length(term)} > 0)"
        self.refuse(node, f"a condition is required here, got {describe(term.type)}", "test tg.exists(row) or a field")

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
        if isinstance(first.type, Optional) and isinstance(node.op, ast.Or):
            return self.default(node, first)
        result = self.kept(first).code
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
                self.bind(result, other)
        return Term(result, first.type)

    def default(self, node: ast.BoolOp, first: Term) -> Term:
        """`x or y`, where x may be None: y takes the place of None, and of what counts as false."""
        kept = Term(self.keep(first.code), first.type)
        known = values.known(kept)
        result = self.keep(known.code)
        taken = self.keep(self.truth(kept, node))
        for operand in node.values[1:]:
            with self.guarded(f"if not {taken}:", node.values[0]):
                other = self.value(operand)
                if not isinstance(known.type, Kind | Carried) or isinstance(other.type, Optional | Nothing):
                    self.refuse(
                        operand, f"or mixes {describe(first.type)} and {describe(other.type)}", "test `is None`"
                    )
                self.emit(f"{result} = {values.stored(self, other, known.type, node, 'what stands before or')}")
                self.emit(f"{taken} = {self.truth(Term(result, known.type), node)}")
        return Term(result, known.type)

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
            self.bind(result, self.convert(second, joined, node))
        with self.insertion(place, depth):
            self.bind(result, self.convert(first, joined, node))
        return Term(result, joined)

    @contextlib.contextmanager
    def insertion(self, place: int, depth: int) -> Iterator[None]:
        """Replace line number `place` by the lines emitted in this block."""
        lines, self.lines = self.lines, []
        self._depth, depth = depth, self._depth
        yield
        lines[place : place + 1] = self.lines
        self.lines, self._depth = lines, depth

    # --- comparison -----------------------------------------------------------------------------

    def comparison(self, node: ast.Compare) -> Term:
        """Chained comparisons: operands are evaluated once, left to right, up to the first that is false."""
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
            return self.membership(left, operator, right_node)
        right = self.comparand(right_node)
        if isinstance(operator, ast.Is | ast.IsNot):
            found = values.identical(self, left, right, node) if values.is_special(left, right) else None
            if found is not None:
                return (found if isinstance(operator, ast.Is) else f"(not {found})"), right
            if not (isinstance(left.type, Row) and isinstance(right.type, Row)):
                self.refuse(node, "`is` compares rows, members of an Enum, and None", "use == for values")
            same = left.type.table == right.type.table
            sign = "==" if isinstance(operator, ast.Is) else "!="
            return (f"{left.code} {sign} {right.code}" if same else str(sign == "!=")), right
        return self.ordered(left, COMPARISONS[type(operator)], right, node), right

    def membership(self, left: Term, operator: ast.In | ast.NotIn, node: ast.expr) -> tuple[str, Term]:
        """x in (a, b, c), or a string in a string; and the right operand for the next comparison in the chain."""
        negation = "not " if isinstance(operator, ast.NotIn) else ""
        if not isinstance(node, ast.Tuple | ast.List | ast.Set):
            whole, left = values.plain(self, self.value(node)), values.plain(self, left)
            if whole.type is not Kind.STR or left.type is not Kind.STR:
                self.refuse(
                    node,
                    f"`in` needs a string in a string, or a tuple written out, for example x in (1, 2, 3); "
                    f"got {describe(left.type)} in {describe(whole.type)}",
                    INTERPRET,
                )
            return f"({negation}{strings.contains(self, left, whole)})", whole
        choices = [self.comparand(choice) for choice in node.elts]  # Python evaluates all before it compares any
        if left.type in (Kind.FLOAT, MIXED) and any(choice.constant is None for choice in choices):
            self.escape_if(f"{left.code} != {left.code}")  # `in` finds an identical NaN, == does not
        if isinstance(left.type, Optional) and left.type.kind is Kind.FLOAT:
            self.escape_if(f"{left.code} != {left.code} and not {values.is_none(left)}")
        result = self.keep("False")
        for choice in choices:
            with self.block(f"if not {result}:"):
                self.emit(f"{result} = {self.ordered(left, '==', choice, node)}")
        return f"({negation}{result})", left


def element_type(of: RowList | ValueList) -> Type:
    """The type of a list's elements."""
    return Row(of.table, of.origins) if isinstance(of, RowList) else of.type
