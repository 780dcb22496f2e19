"""Records inside the functions of ordered pipelines: values that are made, copied and read, but never changed.

A record is carried by one variable for each field, in the words of the field's type, so making one costs nothing until
it is written to an output row, and a field that nobody reads is not even loaded:

    out = Session(click.user, 1)        t1__0 = value__click__1
                                        t1__1 = 1
    return out

A field holds what it declares: between two operators, and in a state between two records, an int that was given to a
float field is a float. In between it is still the int in plain Python, so a float field that is given ints and read in
the same function is read as a number that may be either (`Mixed`).

What plain Python would do to an object besides (`__post_init__`, properties, assigning to a field of a
record) is refused, and the operator runs as plain Python.

Operators have no reasons: whatever fails escapes, and plain Python raises it again with its traceback.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import enum
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from tidegate.compiler import values
from tidegate.compiler.emission import ESCAPES
from tidegate.compiler.functions import FunctionCompiler, HelperCompiler
from tidegate.compiler.numbers import INTERPRET
from tidegate.compiler.source import FunctionSource
from tidegate.compiler.statements import zeros
from tidegate.compiler.types import (
    MIXED,
    Nothing,
    RecordList,
    RecordOf,
    Row,
    Term,
    Type,
    carriers,
    describe,
    given_code,
)
from tidegate.compiler.unit import Unit
from tidegate.operations.arrays import column_array
from tidegate.operations.decimals import Digits
from tidegate.operations.kinds import Kind
from tidegate.operations.layout import Column
from tidegate.operations.pipeline import RecordLayout, unusual
from tidegate.operations.values import Choice, Optional

_REPLACE = (dataclasses.replace, getattr(copy, "replace", dataclasses.replace))


@dataclass(slots=True)
class OperatorUnit(Unit):
    """What the functions of one operator share: also the records that they may make."""

    layouts: tuple[RecordLayout, ...] = ()
    loose: set[tuple[str, str]] = field(default_factory=set)
    """The fields that are given ints where they declare another type."""
    read: set[tuple[str, str]] = field(default_factory=set)
    """The fields that are read."""


class RecordFunction(FunctionCompiler):
    """A function that works with records: an operator, or a helper that it calls."""

    unit: OperatorUnit

    def helper_compiler(self, source: FunctionSource, parameters: dict[str, Type]) -> HelperCompiler:
        """What compiles the helpers of this function."""
        return RecordHelper(source, parameters, self.unit)

    def refuse(self, node: ast.AST, message: str, advice: str = "") -> NoReturn:
        """Raise a DefinitionError at `node`; what cannot be compiled runs as plain Python without being told to."""
        super().refuse(node, message, advice.replace(f", {INTERPRET}", "").replace(INTERPRET, ""))

    # --- failing ------------------------------------------------------------------------------------

    def reason(self, text: str) -> str:
        """Whatever the reason is, plain Python finds it again."""
        return ESCAPES

    def fail(self, node: ast.AST, reason: str | None) -> None:
        """Leave for plain Python, which raises."""
        self.leave(ESCAPES)

    def raised(self, node: ast.Raise) -> None:
        """raise: of anything."""
        self.leave(ESCAPES)

    # --- what transactions have and operators have not -----------------------------------------------

    def look_up(self, node: ast.Call) -> Term:
        """tg.lookup(Table, key)."""
        self.refuse(node, "an operator has no tables: lookup() belongs to transactions")

    def remember(self, node: ast.Call) -> Term:
        """tg.history(row, last=...)."""
        self.refuse(node, "an operator has no tables: history() belongs to transactions")

    def send(self, node: ast.Call) -> None:
        """tg.emit(stream, field=value, ...)."""
        self.refuse(node, "an operator has no streams: emit() belongs to transactions", "return a list of records")

    def remove(self, node: ast.expr, statement: ast.Call) -> None:
        """tg.delete(row)."""
        self.refuse(statement, "an operator's state cannot be deleted: delete() belongs to transactions")

    # --- reading ------------------------------------------------------------------------------------

    def field(self, owner: Term, node: ast.Attribute) -> Term:
        """A field of a record or of the state, or a part of a value."""
        if isinstance(owner.type, Row):
            columns = [column.name for column in owner.type.table.value_columns]
            if node.attr not in columns:
                self.refuse(node, f"{node.attr!r} is no field of the state", f"fields are: {', '.join(columns)}")
        if not isinstance(owner.type, RecordOf):
            return super().field(owner, node)
        layout = owner.type.layout
        fields = [each.name for each in layout.fields]
        if node.attr not in fields:
            self.refuse(node, f"{node.attr!r} is no field of {layout.name}", f"fields are: {', '.join(fields)}")
        owner = self.given(owner)
        position = fields.index(node.attr)
        of = self.type_of(layout.name, layout.fields[position], node)
        return Term(carriers(owner.code, owner.type)[position], of)

    def type_of(self, owner: str, column: Column, node: ast.AST) -> Type:
        """The type of what a field holds: where it is given ints, too, plain Python reads an int."""
        self.unit.read.add((owner, column.name))
        if (owner, column.name) not in self.unit.loose:
            return super().type_of(owner, column, node)
        if column.type is not Kind.FLOAT:
            what = f"{owner}.{column.name} holds {column.type.label}, and is given an int elsewhere"
            self.refuse(node, what, f"write {'Decimal' if isinstance(column.type, Digits) else 'float'}(...) there")
        return MIXED

    def fitting(self, owner: str, column: Column, term: Term, node: ast.AST) -> Term:
        """A term that goes into a field; an int for another type is noted."""
        target, given = (of.base if isinstance(of, Optional) else of for of in (column.type, term.type))
        ints = given in (Kind.INT, Kind.BOOL, MIXED) or isinstance(given, Choice)
        if not ints or not (target is Kind.FLOAT or isinstance(target, Digits)):
            return term
        self.unit.loose.add((owner, column.name))
        exact = column.type is Kind.FLOAT and (owner, column.name) in self.unit.read
        return self.loosen(values.plain(self, term), node) if exact else term

    def write(self, row: Term, column: Column, term: Term, node: ast.stmt) -> None:
        """Write a field of the state; that it exists from now on is noted when the operator has ended."""
        assert isinstance(row.type, Row)
        table = row.type.table.name
        term = self.fitting(table, column, term, node)
        code = values.stored(self, term, column.type, node, f"{table}.{column.name}")
        self.access(row.type, column.name, "write", node)
        self.emit(f"{self.array(column_array(table, column.name))}[{row.code}] = {code}")

    def given(self, term: Term) -> Term:
        """A record that is not None; where it is, plain Python says what happens."""
        assert isinstance(term.type, RecordOf)
        if not term.type.optional:
            return term
        self.escape_if(f"not {given_code(term.code)}")
        return Term(term.code, RecordOf(term.type.layout))

    def row(self, term: Term, node: ast.expr) -> Term:
        """A term that must be a row: the state."""
        if isinstance(term.type, RecordOf):
            self.refuse(
                node,
                f"a record is a value: its fields cannot be assigned, got {ast.unparse(node)!r}",
                f"return a new one, for example dataclasses.replace({ast.unparse(node)}, ...)",
            )
        return super().row(term, node)

    def truth(self, term: Term, node: ast.AST) -> str:
        """Code for bool(term)."""
        if isinstance(term.type, RecordList):
            return f"({term.code} > 0)"
        if isinstance(term.type, RecordOf):
            self.require_usual(term.type.layout, "test", node)
            return given_code(term.code) if term.type.optional else "True"
        return super().truth(term, node)

    def ordered(self, left: Term, sign: str, right: Term, node: ast.AST) -> str:
        """Code for left sign right."""
        for term in (left, right):
            if isinstance(term.type, RecordOf | RecordList):
                self.refuse(node, f"{sign} of {describe(term.type)} cannot be compiled", "compare fields")
        return super().ordered(left, sign, right, node)

    # --- one type for two -----------------------------------------------------------------------------

    def join(self, first: Term, second: Term, node: ast.AST) -> Type:
        """The common type of a value that is one term or the other."""
        return _common(first.type, second.type) or super().join(first, second, node)

    def widen(self, name: str, known: Type, term: Term, node: ast.AST) -> Type:
        """The type of a variable that is assigned two types."""
        return _common(known, term.type) or super().widen(name, known, term, node)

    def convert(self, term: Term, target: Type, node: ast.AST) -> Term:
        """A term converted to the type that `join` or `widen` chose."""
        if not isinstance(target, RecordOf) or term.type == target:
            return super().convert(term, target, node)
        name = self.fresh()
        parts = zeros(target)
        if isinstance(term.type, RecordOf):
            parts = ("True", *carriers(term.code, term.type))
        for part, found in zip(carriers(name, target), parts, strict=True):
            self.emit(f"{part} = {found}")
        return Term(name, target)

    # --- making -------------------------------------------------------------------------------------

    def call(self, node: ast.Call) -> Term:
        """The value of a call: it may make a record."""
        target = self.called(node.func)
        for layout in self.unit.layouts:
            if target is layout.python:
                return self.made(layout, node)
        if any(target is function for function in _REPLACE):
            return self.replaced(node)
        if target is len and len(node.args) == 1 and isinstance(node.args[0], ast.Name):
            listed = self.variable(node.args[0])
            if listed is not None and isinstance(listed.type, RecordList):
                return Term(self.keep(listed.code), Kind.INT)
        return super().call(node)

    def called(self, node: ast.expr) -> Any:
        """What a called name stands for outside of the function; None for a variable and its attributes."""
        root = node
        while isinstance(root, ast.Attribute):
            root = root.value
        own = isinstance(root, ast.Name) and (root.id in self.stored or root.id in self.parameters)
        return None if own else self.source.resolve(node)

    def made(self, layout: RecordLayout, node: ast.Call) -> Term:
        """Record(...): its fields by position, by name, and by default."""
        self.require_usual(layout, "make", node)
        declared = {each.name: each for each in dataclasses.fields(layout.python)}
        names = [name for name, each in declared.items() if each.init and not each.kw_only]
        if len(node.args) > len(names) or any(isinstance(argument, ast.Starred) for argument in node.args):
            self.refuse(node, f"{layout.name}() takes at most {len(names)} values by position, got {len(node.args)}")
        given = {name: self.value(argument) for name, argument in zip(names, node.args, strict=False)}
        for keyword in node.keywords:
            if keyword.arg not in declared or keyword.arg in given or not declared[keyword.arg].init:
                self.refuse(node, f"{layout.name}(): argument {keyword.arg!r} does not fit")
            given[keyword.arg] = self.value(keyword.value)
        terms = [given.get(each.name) or self.unsaid(layout, declared[each.name], node) for each in layout.fields]
        return self.filled(layout, terms, node)

    def unsaid(self, layout: RecordLayout, declared: dataclasses.Field[Any], node: ast.AST) -> Term:
        """The default of a field."""
        value = declared.default
        if value is dataclasses.MISSING:
            made = "is made by a function" if declared.default_factory is not dataclasses.MISSING else "has no default"
            self.refuse(node, f"{layout.name}() is not given {declared.name!r}, which {made}", "give it a value")
        plain = isinstance(value, bool | int | float | str) and not isinstance(value, enum.Enum)
        found = self.constant(value, node) if plain else values.constant(self, value, node)
        if found is None:
            self.refuse(node, f"the default of {layout.name}.{declared.name} is not a plain constant")
        return found

    def replaced(self, node: ast.Call) -> Term:
        """dataclasses.replace(record, field=...)."""
        if len(node.args) != 1:
            self.refuse(node, "replace() takes a record, and fields by name")
        record = self.value(node.args[0])
        if not isinstance(record.type, RecordOf):
            self.refuse(node, f"replace() takes a record here, got {describe(record.type)}")
        layout = record.type.layout
        self.require_usual(layout, "make", node)
        given = {keyword.arg: self.value(keyword.value) for keyword in node.keywords}
        fields = {each.name for each in dataclasses.fields(layout.python) if each.init}
        if not set(given) <= fields or len(fields) < len(layout.fields):
            self.refuse(node, f"replace() is given {', '.join(map(str, given))}; {layout.name} is made of others")
        record = self.given(record)
        parts = zip(layout.fields, carriers(record.code, record.type), strict=True)
        terms = [given.get(each.name) or Term(part, values.in_body(each.type)) for each, part in parts]
        return self.filled(layout, terms, node)

    def filled(self, layout: RecordLayout, terms: list[Term], node: ast.AST) -> Term:
        """A record with these values, each in the word of its field."""
        record = Term(self.fresh(), RecordOf(layout))
        words = [self.word(layout, each, term, node) for each, term in zip(layout.fields, terms, strict=True)]
        for part, word in zip(carriers(record.code, record.type), words, strict=True):
            self.emit(f"{part} = {word}")
        return record

    def word(self, layout: RecordLayout, column: Column, term: Term, node: ast.AST) -> str:
        """Code for the word of a value in a field."""
        term = self.fitting(layout.name, column, term, node)
        return values.stored(self, term, column.type, node, f"{layout.name}.{column.name}")

    def require_usual(self, layout: RecordLayout, use: Literal["make", "test"], node: ast.AST) -> None:
        """Refuse records whose class does more than hold fields."""
        if problem := unusual(layout.python, use):
            self.refuse(node, f"{problem}, which only plain Python runs")


class RecordHelper(RecordFunction, HelperCompiler):
    """A helper function that an operator calls."""


def _common(first: Type, second: Type) -> Type | None:
    """The type of what may be a record or None; None if neither is a record."""
    layouts = {found.layout for found in (first, second) if isinstance(found, RecordOf)}
    if len(layouts) != 1 or not all(isinstance(found, RecordOf | Nothing) for found in (first, second)):
        return None
    return RecordOf(layouts.pop(), first != second or (isinstance(first, RecordOf) and first.optional))
