"""Compiles the functions of ordered pipelines: operators, filters and key functions over records.

A function becomes a body that returns how many records it wrote, and a wrapper that undoes what the body wrote to the
state if it has no outputs to show (see `operations.pipeline` for what such a function returns):

    @inline
    def body_of_operator_0(value__click__0, value__click__1, row__state, out, room, table__Visit__clicks, ...):
        out_words = integers_at(out)
        ...
        if 0 >= room:
            return OUTPUTS_FULL
        out_words[2] = t1__0
        out_words[3] = t1__1
        return 1

The record comes as the values of its fields, the state as the slot of its row. A list of records is written to the
output rows as it grows, so a function has one such list at a time.

`link_operators` joins the functions of a pipeline: `$operator` in their text becomes the operator's number, and each
gets views of the arrays that it uses.
"""

from __future__ import annotations

import ast
import re
import types
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tidegate.compiler import values
from tidegate.compiler.emission import ESCAPES
from tidegate.compiler.names import row_code, value_code, variable_code
from tidegate.compiler.operate import view_code
from tidegate.compiler.records import OperatorUnit, RecordFunction
from tidegate.compiler.source import WRAPPED, FunctionSource, LambdaSource
from tidegate.compiler.statements import ALWAYS
from tidegate.compiler.transactions import Undo
from tidegate.compiler.types import MIXED, NOTHING, Nothing, RecordList, RecordOf, Row, Term, Type, carriers, describe
from tidegate.foundation.errors import DefinitionError
from tidegate.foundation.places import Place
from tidegate.operations.arrays import ArraySpec, column_array, exists_array, name_in_code
from tidegate.operations.kinds import Carried, Kind
from tidegate.operations.layout import TableLayout
from tidegate.operations.pipeline import (
    FRAME_OUT,
    FRAME_ROOM,
    FRAME_SLOT,
    HEADER,
    Many,
    OperatorPlan,
    PipelinePlan,
    RecordLayout,
    Role,
    unusual,
)

FULL = "OUTPUTS_FULL"
"""The status that generated code returns if there is no room for an output."""

OWN = "$operator"
"""Stands for an operator's own name in its text: no name of a user's can hold it."""


def compile_operator(
    function: Callable[..., Any],
    role: Role,
    record: RecordLayout,
    state: TableLayout | None = None,
    outputs: RecordLayout | None = None,
    many: Many = "one",
) -> OperatorPlan:
    """The plan of an operator; raises DefinitionError, with the line and the reason, if it cannot be compiled.

    `outputs` and `many` say what a function of the role "map" returns. A function with a `state` takes it first.
    """
    source = _source(function)
    compiler = OperatorCompiler(source, role, record, state, outputs, many)
    compiler.compile()
    key = compiler.key if isinstance(compiler.key, Kind | Carried) else None
    if role == "key" and key is None:
        source.refuse(source.tree, "its key is always None")
    arrays = tuple(sorted(compiler.arrays))
    undo = Undo(compiler)
    exists = [] if state is None or not undo.restore else [f"{exists_array(state.name)}[{compiler.slot}] = True"]
    arguments = [*compiler.header, *arrays, *(name for name in undo.arrays if name not in arrays)]
    listed = ", ".join(arguments)
    functions = [helper.source for helper in compiler.unit.helpers.values()]
    functions.append("\n".join([f"@inline\ndef body_of_{OWN}({listed}):", *compiler.lines]))
    wrapper = [
        f"@inline\ndef undoing_{OWN}({listed}):",
        *undo.save,
        f"    status = body_of_{OWN}({listed})",
        *(["    if status < 0:", *undo.restore, "    else:", f"        {exists[0]}"] if exists else []),
        "    return status",
    ]
    functions.append("\n".join(wrapper))
    outside = tuple(found for each in compiler.unit.sources for found in each.outside.values())
    return OperatorPlan(
        name=function.__name__,
        place=source.place(source.tree),
        role=role,
        record=record,
        source="\n\n\n".join(functions),
        arguments=tuple(arguments),
        arrays=tuple(_specs(arguments[len(compiler.header) :], state)),
        literals=tuple(compiler.unit.literals),
        in_python=tuple(compiler.unit.in_python),
        key=key,
        outside=outside,
    )


def _source(function: Callable[..., Any]) -> FunctionSource:
    """The source of a function that is a plain one."""
    name = getattr(function, "__name__", None) or type(function).__name__
    if not isinstance(function, types.FunctionType) or hasattr(function, "__wrapped__"):
        code = getattr(function, "__code__", None)
        problem = f"operator {name!r}: required a plain function, got {type(function).__name__}"
        if isinstance(function, types.FunctionType):
            problem = f"operator {name!r}: it is {WRAPPED}"
        raise DefinitionError(
            Place(code.co_filename, code.co_firstlineno).describe(problem)
            if isinstance(code, types.CodeType)
            else problem
        )
    try:
        if name == "<lambda>":
            return LambdaSource(function, "operator lambda")
        return FunctionSource(function, f"operator {name!r}")
    except (OSError, TypeError, SyntaxError) as error:
        place = Place(function.__code__.co_filename, function.__code__.co_firstlineno)
        raise DefinitionError(place.describe(f"operator {name!r}: its source cannot be read ({error})")) from error


def _specs(names: Sequence[str], state: TableLayout | None) -> list[ArraySpec]:
    """The arrays with these names; which operator's they are is known when it is linked."""
    known = {name: ArraySpec(name, "worker", "", name) for name in ("literals", "texts", "signals")}
    if state is not None:
        exists = exists_array(state.name)
        known[exists] = ArraySpec(exists, "state", "", "exists", dtype=Kind.BOOL.dtype)
        for column in state.value_columns:
            name = column_array(state.name, column.name)
            known[name] = ArraySpec(name, "state", "", "columns", column.name, column.kind.dtype)
    return [known[name] for name in names]


class OperatorCompiler(RecordFunction):
    """Lowers the function of an operator: it writes output rows and returns how many."""

    def __init__(
        self,
        source: FunctionSource,
        role: Role,
        record: RecordLayout,
        state: TableLayout | None,
        outputs: RecordLayout | None,
        many: Many,
    ) -> None:
        self.role, self.record, self.state, self.many = role, record, state, many
        self.outputs = outputs if role == "map" and outputs is not None else record
        self.key: Type = NOTHING
        self.has_key = False
        names = _parameters(source, 1 if state is None else 2)
        self.record_name = names[-1]
        parameters: dict[str, Type] = {self.record_name: RecordOf(record)}
        if state is not None:
            parameters[names[0]] = Row(state, frozenset({names[0]}))
        layouts = tuple(dict.fromkeys((self.outputs, record)))
        super().__init__(source, parameters, OperatorUnit(OWN, layouts=layouts))
        self.unit.compiling.append(source.function)
        for layout in layouts:
            if problem := unusual(layout.python, "read"):
                self.refuse(source.tree, problem)
        if state is not None and any(column.name == "exists" for column in state.columns):
            self.refuse(source.tree, f"a field of {state.name} is named 'exists'", "give it another name")
        self.slot = row_code(names[0])
        slots = [] if state is None else [self.slot]
        self.header = [*carriers(value_code(self.record_name), RecordOf(record)), *slots, "out", "room"]

    def fingerprint(self) -> tuple[Any, ...]:
        """Everything besides the body's text that determines the generated code."""
        return (*super().fingerprint(), self.key, set(self.unit.loose), set(self.unit.read))

    def begin(self) -> None:
        """Views of the memory of output rows."""
        self.emit("out_words = integers_at(out)")
        self.emit("out_floats = floats_at(out)")

    def round(self) -> None:
        """Lower the body once, and its helpers; a function that ends without `return` returns None."""
        self.unit.helpers.clear()
        self.unit.sources[:] = [self.source]
        super().round()
        if self.assigned is not ALWAYS:
            self.give_back(ast.copy_location(ast.Return(None), self.source.tree))

    def leave(self, code: str) -> None:
        """Leave without outputs."""
        self.emit(f"return {code}")

    # --- results ------------------------------------------------------------------------------------

    def give_back(self, node: ast.Return) -> None:
        """A return statement: write what it returns to output rows."""
        value = node.value or ast.copy_location(ast.Constant(None), node)
        if self.role == "filter":
            with self.block(f"if {self.test(value)}:"):
                self.write_only(Term(value_code(self.record_name), RecordOf(self.record)))
            self.emit("return 0")
        elif self.role == "key":
            self.give_key(self.value(value), node)
        elif self.many == "list":
            self.give_list(value, node)
        else:
            self.give_record(self.value(value), node)

    def give_record(self, term: Term, node: ast.AST) -> None:
        """return of a record, or of None."""
        if isinstance(term.type, Nothing):
            self.give_nothing()
            return
        record = self.output(term, node)
        if values.is_none(term) != "False":
            with self.block(f"if {values.is_none(term)}:"):
                self.give_nothing()
        self.write_only(record)

    def give_nothing(self) -> None:
        """return None."""
        if self.many == "optional":
            self.emit("return 0")
        else:
            self.leave(ESCAPES)

    def give_key(self, term: Term, node: ast.AST) -> None:
        """return of a key: the record, and the key behind its fields."""
        if term.type is MIXED:
            term = self.real(term, node)
        if not isinstance(term.type, Kind | Carried | Nothing):
            self.refuse(node, f"a key is one value, got {describe(term.type)}", "return a field")
        if not self.has_key:
            self.has_key, self.key = True, term.type
        elif term.type != self.key:
            self.key = self.joined_key(term, node)
        if self.key is Kind.INT:
            term = self.integer(term, node)
        elif self.key is Kind.FLOAT:
            term = self.real(self.loosen(term, node), node)  # an int that no float equals is no such key
        term = self.kept(self.convert(term, self.key, node))
        record = Term(value_code(self.record_name), RecordOf(self.record))
        self.require_room("0")
        self.write_row(record, "0")
        place = self.record.stride
        if isinstance(self.key, Kind | Carried) and self.key.kind is Kind.FLOAT:
            self.escape_if(f"{term.code} != {term.code}" + (f" and not {values.is_none(term)}" * self.key.optional))
            self.emit(f"out_floats[{place}] = {term.code}")
            with self.block(f"if {term.code} == 0.0:"):  # -0.0 and 0.0 are one key, as in Python
                self.emit(f"out_words[{place}] = 0")
        else:
            self.emit(f"out_words[{place}] = {term.code}")
        self.emit("return 1")

    def joined_key(self, term: Term, node: ast.AST) -> Type:
        """One type for keys of two; numbers that are equal are one key."""
        if {self.key, term.type} <= {Kind.INT, Kind.BOOL}:
            return Kind.INT
        joined = self.join(Term("", self.key), term, node)
        return Kind.FLOAT if joined is MIXED else joined

    # --- output rows --------------------------------------------------------------------------------

    def output(self, term: Term, node: ast.AST) -> Term:
        """A term that must be an output record; whether it is None is not looked at."""
        wanted = RecordOf(self.outputs)
        if not isinstance(term.type, RecordOf) or term.type.layout != self.outputs:
            self.refuse(node, f"it is declared to return {describe(wanted)}, got {describe(term.type)}")
        return Term(term.code, wanted)

    def write_only(self, record: Term) -> None:
        """Write the only output, and return."""
        self.require_room("0")
        self.write_row(record, "0")
        self.emit("return 1")

    def require_room(self, position: str) -> None:
        """Leave unless there is room for an output row at a position."""
        with self.block(f"if {position} >= room:"):
            self.leave(FULL)

    def write_row(self, record: Term, position: str) -> None:
        """Write the fields of a record to the output row at a position."""
        assert isinstance(record.type, RecordOf)
        layout = record.type.layout
        begin = "" if position == "0" else f"{self.keep(f'{position} * {layout.stride}')} + "
        parts = carriers(record.code, record.type)
        for place, (column, part) in enumerate(zip(layout.fields, parts, strict=True), HEADER):
            array = "out_floats" if column.kind is Kind.FLOAT else "out_words"
            self.emit(f"{array}[{begin}{place}] = {part}")

    # --- lists --------------------------------------------------------------------------------------

    def statement(self, node: ast.stmt) -> None:
        """Any statement; what makes a list of records is known by its form."""
        match node:
            case ast.Assign(targets=[ast.Name(name)], value=value) if self.is_list(value):
                self.begin_list(name, value, node)
            case ast.AnnAssign(target=ast.Name(name), value=ast.expr() as value) if self.is_list(value):
                self.begin_list(name, value, node)
            case ast.AugAssign(target=ast.Name(name), op=ast.Add(), value=value) if self.is_list(value):
                self.grow(self.listed(ast.copy_location(ast.Name(name, ast.Load()), node)), value)
            case _:
                super().statement(node)

    def is_list(self, node: ast.expr) -> bool:
        """Whether an expression makes a list."""
        if isinstance(node, ast.IfExp):
            return self.is_list(node.body) and self.is_list(node.orelse)
        empty = isinstance(node, ast.Call) and not node.args and not node.keywords and self.called(node.func) is list
        return self.many == "list" and (empty or isinstance(node, ast.List | ast.ListComp))

    def begin_list(self, name: str, value: ast.expr, node: ast.stmt) -> None:
        """Assign a new list of records to a variable."""
        found = RecordList(self.outputs)
        others = [other for other, of in self.types.items() if of == found and other != name]
        if others or self.types.setdefault(name, found) != found:
            self.refuse(node, f"a second list, {name!r}", "an operator fills one list, which it returns")
        count = self.keep("0")
        self.grow(count, value)
        self.bind(variable_code(name), Term(count, found))
        self.note_assigned(name)

    def assign(self, name: str, term: Term, node: ast.AST) -> None:
        """Assign to a local variable."""
        if isinstance(term.type, RecordList):
            self.refuse(node, f"a list of records cannot be given a second name, {name!r}")
        super().assign(name, term, node)

    def listed(self, node: ast.expr) -> str:
        """Code for how many records the list holds that an expression stands for."""
        term = self.value(node)
        if not isinstance(term.type, RecordList):
            self.refuse(node, f"a list of records is required here, got {describe(term.type)}")
        return term.code

    def effect(self, node: ast.Call) -> None:
        """A call used as a statement: it may add to the list of records."""
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name() as owner, attr=name)) if self.is_filled(owner):
                count = self.listed(owner)
                match name, node.args, node.keywords:
                    case "append", [record], []:
                        self.append(count, self.value(record), record)
                    case "extend", [more], []:
                        self.grow(count, more)
                    case "clear", [], []:
                        self.emit(f"{count} = 0")
                    case _:
                        self.refuse(node, f"{ast.unparse(node.func)}() cannot be compiled", "append, extend or clear")
            case _:
                super().effect(node)

    def is_filled(self, node: ast.Name) -> bool:
        """Whether a name is the list of records."""
        return isinstance(self.types.get(node.id), RecordList)

    def grow(self, count: str, value: ast.expr) -> None:
        """Add what a list holds that is written out, or made by a comprehension."""
        match value:
            case ast.List(elts=nodes):
                records = [self.value(node) for node in nodes]  # Python evaluates all before it makes the list
                for record, node in zip(records, nodes, strict=True):
                    self.append(count, record, node)
            case ast.ListComp():
                with self.each(ast.copy_location(ast.Call(ast.Name("list"), [value], []), value)) as record:
                    self.append(count, record, value)
            case ast.IfExp():
                with self.guarded(f"if {self.test(value.test)}:", value.test):
                    self.grow(count, value.body)
                with self.guarded("else:", ast.UnaryOp(ast.Not(), value.test)):
                    self.grow(count, value.orelse)
            case _ if not self.is_list(value):
                self.refuse(value, "a list must be written out, or be a comprehension, to be added", "append in a loop")

    def append(self, count: str, term: Term, node: ast.AST) -> None:
        """Add one record."""
        record = self.output(self.given(term) if isinstance(term.type, RecordOf) else term, node)
        self.require_room(count)
        self.write_row(record, count)
        self.emit(f"{count} = {count} + 1")

    def give_list(self, value: ast.expr, node: ast.AST) -> None:
        """return of a list: written out, or the one that grew."""
        if isinstance(value, ast.IfExp):
            with self.guarded(f"if {self.test(value.test)}:", value.test):
                self.give_list(value.body, node)
            self.give_list(value.orelse, node)
        elif self.is_list(value):
            count = self.keep("0")
            self.grow(count, value)
            self.emit(f"return {count}")
        elif isinstance(value, ast.Constant) and value.value is None:
            self.leave(ESCAPES)
        else:
            self.emit(f"return {self.listed(value)}")


def _parameters(source: FunctionSource, count: int) -> tuple[str, ...]:
    """The names of a function's parameters, which are a record, or a state and a record."""
    code = source.function.__code__
    if code.co_argcount != count or code.co_kwonlyargcount or code.co_flags & 0x0C:
        wanted = "the record" if count == 1 else "the state and the record"
        source.refuse(source.tree, f"it must take {wanted} and nothing else", "give constants as names of the module")
    return code.co_varnames[:count]


# --- linking -----------------------------------------------------------------------------------------------------


def link_operators(plans: Sequence[OperatorPlan | None]) -> PipelinePlan:
    """The generated code of a pipeline; None is an operator that plain Python runs."""
    arrays: dict[ArraySpec, int] = {}
    literals: list[str] = []
    parts: list[str] = []
    lines = ["@entry", "def operate(context, operator, record, frame):"]
    for number, plan in enumerate(plans):
        if plan is None:
            continue
        name = f"operator_{number}"
        parts.append(f"literals_of_{name} = {len(literals)}")
        literals += plan.literals
        parts.append(plan.source.replace(OWN, name))
        views = []
        for spec in plan.arrays:
            linked = spec
            if spec.owner == "state":
                linked = replace(spec, name=name_in_code("state", number, str(spec.key or "")), of=number)
            place = arrays.setdefault(linked, len(arrays))
            views.append(f"    {spec.name} = {view_code(place, spec)}")
        parts.append(_calling(plan, name, views))
        lines += [f"    if operator == {number}:", f"        return {name}(context, record, frame)"]
    parts.append("\n".join([*lines, "    return ESCAPE"]))
    return PipelinePlan("\n\n\n".join(parts) + "\n", tuple(arrays), tuple(literals))


def _calling(plan: OperatorPlan, name: str, views: list[str]) -> str:
    """The function that makes views of all that an operator's functions take, and calls them."""
    fields = [
        f"floats[{place}]" if column.kind is Kind.FLOAT else f"words[{place}]" + " != 0" * (column.type is Kind.BOOL)
        for place, column in enumerate(plan.record.fields, HEADER)
    ]
    frame = {"out": f"given[{FRAME_OUT}]", "room": f"given[{FRAME_ROOM}]"}
    rest = plan.arguments[len(fields) :]
    passed = [frame.get(a, f"given[{FRAME_SLOT}]" if re.match("row__", a) else a) for a in rest]
    return "\n".join(
        [
            f"@inline\ndef {name}(context, record, frame):",
            "    addresses = integers_at(context)",
            "    words = integers_at(record)",
            "    floats = floats_at(record)",
            "    given = integers_at(frame)",
            *views,
            f"    return undoing_{name}({', '.join([*fields, *passed])})",
        ]
    )
