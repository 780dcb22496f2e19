"""Compiles one user function: a transaction's body, or a helper that a body calls.

Every local variable has one type in the whole function. Types are found by lowering the body repeatedly
until nothing changes (a fixed point, reached after a few rounds); the code of the last round is the result.
A variable that may be unassigned where it is read has a flag; if it is read while unassigned, the
transaction escapes to plain Python, which raises the error.
"""

from __future__ import annotations

import ast
import types
from typing import Any

from tidegate.compiler import values
from tidegate.compiler.emission import ESCAPES, INTERRUPTS
from tidegate.compiler.names import (
    assigned_flag,
    list_code,
    row_code,
    slid_flag,
    value_code,
    variable_code,
    window_code,
)
from tidegate.compiler.numbers import INTERPRET
from tidegate.compiler.source import WRAPPED, FunctionSource
from tidegate.compiler.statements import ALWAYS, Statements, zeros
from tidegate.compiler.types import (
    MIXED,
    NOTHING,
    HistoryOf,
    RecordList,
    Row,
    RowList,
    StateOf,
    Term,
    Type,
    ValueList,
    WindowOf,
    WindowRow,
    carriers,
    describe,
)
from tidegate.compiler.unit import Helper, Unit
from tidegate.operations.layout import Kind
from tidegate.operations.plan import Access

ROUNDS_MAX = 20


class FunctionCompiler(Statements):
    """Lowers one function; subclasses say what `return` and a failing exit mean."""

    def __init__(self, source: FunctionSource, parameters: dict[str, Type], unit: Unit) -> None:
        super().__init__()
        self.source = source
        self.parameters = parameters
        self.unit = unit
        unit.sources.append(source)
        self.types: dict[str, Type] = {}
        self.flagged: set[str] = set()
        self.final = False
        self.stored = {
            node.id
            for statement in source.tree.body
            for node in ast.walk(statement)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        } - _generator_variables(source.tree)
        for name in self.stored & set(parameters):
            if isinstance(parameters[name], RowList | ValueList):
                source.refuse(source.tree, f"the list parameter {name!r} is assigned to; use another name")
            self.types[name] = parameters[name]

    def compile(self) -> None:
        """Lower the body until its types are stable."""
        for _ in range(ROUNDS_MAX):
            before = self.fingerprint()
            self.round()
            if self.final:
                return
            self.final = self.fingerprint() == before
        raise AssertionError(f"types of {self.source.what} do not settle: {self.types}")

    def fingerprint(self) -> tuple[Any, ...]:
        """Everything besides the body's text that determines the generated code."""
        return dict(self.types), set(self.flagged), set(self.unit.lookup_writes)

    def round(self) -> None:
        """Lower the body once."""
        self.lines = []
        self.arrays = {}
        self._depth = 1
        self._temporaries = 0
        self.accesses = []
        self.conditions = []
        self.private = []
        self.assigned = frozenset(self.parameters)
        for name in sorted(self.stored & set(self.parameters)):
            given = Term(parameter_code(name, self.parameters[name]), self.parameters[name])
            if given.type != self.types[name]:
                given = self.convert(given, self.types[name], self.source.tree)
            self.bind(variable_code(name), given)
        for name in sorted(self.flagged):
            self.emit(f"{assigned_flag(name)} = False")
            found = self.types.get(name, NOTHING)
            for part, blank in zip(carriers(variable_code(name), found), zeros(found), strict=True):
                self.emit(f"{part} = {blank}")
        self.begin()
        self.block_of(self.source.tree.body)

    def begin(self) -> None:
        """What comes before the body."""

    # --- variables ----------------------------------------------------------------------------------

    def variable(self, node: ast.Name) -> Term | None:
        """A parameter or local variable; None for a name from outside the function."""
        for scope in reversed(self.private):
            if node.id in scope:
                return scope[node.id]
        if node.id in self.parameters and node.id not in self.stored:
            return Term(parameter_code(node.id, self.parameters[node.id]), self.parameters[node.id])
        if node.id not in self.stored:
            return None
        if node.id not in self.types:
            self.refuse(node, f"the variable {node.id!r} is read before anything is assigned to it")
        if not self.is_assigned(node.id):
            self.flagged.add(node.id)
            self.escape_if(f"not {assigned_flag(node.id)}")
        return Term(variable_code(node.id), self.types[node.id])

    def assign(self, name: str, term: Term, node: ast.AST) -> None:
        """Assign to a local variable."""
        if isinstance(term.type, ValueList) and self.unit.top_used and name not in self.flagged:
            self.keep_list(name, term, node)
            return
        if isinstance(term.type, RowList | ValueList | WindowOf | HistoryOf):
            self.refuse(node, f"{describe(term.type)} cannot be kept in the variable {name!r}")
        known = self.types.setdefault(name, term.type)
        if known != term.type:
            known = self.types[name] = self.widen(name, known, term, node)
        self.bind(variable_code(name), self.convert(term, known, node))
        self.note_assigned(name)

    def note_assigned(self, name: str) -> None:
        """From here on a variable has a value."""
        if name in self.flagged:
            self.emit(f"{assigned_flag(name)} = True")
        if self.assigned is not ALWAYS:
            self.assigned |= {name}

    def keep_list(self, name: str, term: Term, node: ast.AST) -> None:
        """Assign a list that a window's `top` returned; each has its own storage, so nothing is copied."""
        if self.types.setdefault(name, term.type) != term.type:
            self.refuse(node, f"the variable {name!r} is {describe(self.types[name])} elsewhere", "use another name")
        self.bind(variable_code(name), term)
        self.note_assigned(name)

    def widen(self, name: str, known: Type, term: Term, node: ast.AST) -> Type:
        """The type of a variable that is assigned two types."""
        if isinstance(known, Row) and isinstance(term.type, Row) and known.table == term.type.table:
            return Row(known.table, known.origins | term.type.origins)
        if {known, term.type} <= {Kind.INT, Kind.FLOAT, MIXED}:
            return MIXED
        joined = values.common(known, term.type)
        if joined is not None:
            return joined
        self.refuse(
            node,
            f"the variable {name!r} is {describe(known)} elsewhere and {describe(term.type)} here",
            "use another name: a variable has one type",
        )

    def literal(self, text: str) -> Term:
        """A string known at compile time: its number is looked up when the program starts."""
        if text not in self.unit.literals:
            self.unit.literals.append(text)
        position = self.unit.literals.index(text)
        return Term(f"{self.array('literals')}[literals_of_{self.unit.name} + {position}]", Kind.STR, text)

    def reason(self, text: str) -> str:
        """The status that stands for an abort reason."""
        if text not in self.unit.reasons:
            self.unit.reasons.append(text)
        return f"reasons_of_{self.unit.name} + {self.unit.reasons.index(text) + 1}"

    def continue_in_python(self, node: ast.AST) -> None:
        """Leave for plain Python, which computes `node` and may abort there.

        The comment makes the text of a program, and so its fingerprint, tell programs apart that compute other values.
        """
        text = ast.unparse(node)
        outside = [part for part in ast.walk(node) if isinstance(part, ast.Name | ast.Attribute)]
        known = {ast.unparse(part): self.source.resolve(part) for part in outside}
        constants = {name: value for name, value in known.items() if isinstance(value, bool | int | float | str)}
        self.unit.in_python[self.source.place(node).line, text] = None
        self.emit(f"# plain Python: {text!r} {constants!r}")
        self.leave(ESCAPES)

    # --- helpers ------------------------------------------------------------------------------------

    def helper(self, function: types.FunctionType, arguments: list[Term], node: ast.Call) -> Term:
        """Call a helper function of the user's, compiled for these argument types."""
        if any(isinstance(term.type, WindowOf | WindowRow | HistoryOf | StateOf | RecordList) for term in arguments):
            self.refuse(
                node,
                "a window, a history or a list of records cannot be given to a helper function",
                "give it the numbers it needs",
            )
        if function in self.unit.compiling:
            self.refuse(node, f"{function.__name__}() calls itself, which cannot be compiled")
        journalled = frozenset(self.unit.lookup_writes)  # tables whose rows a helper must journal when it looks them up
        key = (function, journalled, *(term.type for term in arguments))
        found = self.unit.helpers.get(key)
        if found is None:
            found = self.unit.helpers[key] = self.compile_helper(function, arguments, node)
        for array in found.arrays:
            self.array(array)
        prefix = tuple(self.conditions)
        self.accesses.extend(
            Access(a.parameter, a.field, a.action, prefix + a.conditions, a.line) for a in found.accesses
        )
        passed = [code for term in arguments for code in carriers(term.code, term.type)]
        status, value = self.fresh(), self.fresh()
        parts = ", ".join(carriers(value, found.result))
        self.emit(f"{status}, {parts} = {found.name}({', '.join([*passed, *found.arrays])})")
        with self.block(f"if {status} != 0:"):
            self.leave(status if found.fails or "signals" in found.arrays else ESCAPES)
        return Term(value, found.result)

    def helper_compiler(self, source: FunctionSource, parameters: dict[str, Type]) -> HelperCompiler:
        """What compiles the helpers of this function."""
        return HelperCompiler(source, parameters, self.unit)

    def compile_helper(self, function: types.FunctionType, arguments: list[Term], node: ast.Call) -> Helper:
        """Compile a helper function of the user's for the types of these arguments."""
        if hasattr(function, "__wrapped__"):
            self.refuse(node, f"{function.__name__}() is {WRAPPED}", f"call the function inside it, {INTERPRET}")
        try:
            source = FunctionSource(function, f"helper {function.__name__!r} of {self.source.what}")
        except (OSError, TypeError, SyntaxError) as error:
            self.refuse(node, f"the source of helper {function.__name__!r} cannot be read ({error})")
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        parameters = dict(zip(names, (term.type for term in arguments), strict=True))
        self.unit.compiling.append(function)
        try:
            compiler = self.helper_compiler(source, parameters)
            compiler.compile()
        finally:
            self.unit.compiling.pop()
        name = f"helper_{len(self.unit.helpers)}_of_{self.unit.name}"
        arrays = tuple(sorted(compiler.arrays))
        header = [code for n, t in parameters.items() for code in parameter_codes(n, t)]
        kinds = ", ".join(describe(term.type) for term in arguments)
        text = "\n".join(
            [
                f"# {function.__name__}({kinds})\n@inline\ndef {name}({', '.join([*header, *arrays])}):",
                *compiler.lines,
            ]
        )
        return Helper(name, text, compiler.returned, arrays, tuple(compiler.accesses), compiler.fails)


class HelperCompiler(FunctionCompiler):
    """Lowers a helper function: it returns (status, value)."""

    def __init__(self, source: FunctionSource, parameters: dict[str, Type], unit: Unit) -> None:
        super().__init__(source, parameters, unit)
        self.returned: Type = NOTHING
        self.has_return = False
        self.fails = False

    def fingerprint(self) -> tuple[Any, ...]:
        """Everything besides the body's text that determines the generated code."""
        return (*super().fingerprint(), self.returned)

    def round(self) -> None:
        """Lower the body once."""
        super().round()
        if self.assigned is not ALWAYS:
            if self.has_return and self.returned is not NOTHING:
                self.refuse(self.source.tree, f"it returns {describe(self.returned)} but may also end without return")
            self.emit("return 0, 0")

    def leave(self, code: str) -> None:
        """Leave with a status that is not success."""
        self.fails |= code not in (ESCAPES, INTERRUPTS)
        self.emit(f"return {code}, {', '.join(zeros(self.returned))}")

    def continue_in_python(self, node: ast.AST) -> None:
        """Leave for plain Python, which computes `node` and may abort there."""
        self.fails = True
        super().continue_in_python(node)

    def give_back(self, node: ast.Return) -> None:
        """A return statement."""
        if node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None):
            term = Term("0", NOTHING)
        else:
            term = self.value(node.value)
        if isinstance(term.type, RowList | ValueList | RecordList):
            self.refuse(node, "a helper cannot return a list")
        if not self.has_return:
            self.has_return, self.returned = True, term.type
        elif term.type != self.returned:
            self.returned = self.join(Term("", self.returned), term, node)
        self.emit(f"return 0, {', '.join(carriers(self.convert(term, self.returned, node).code, self.returned))}")


def parameter_code(name: str, value_type: Type) -> str:
    """How a parameter is named in generated code."""
    match value_type:
        case Row():
            return row_code(name)
        case RowList() | ValueList():
            return list_code(name)
        case WindowOf():
            return window_code(name)
    return value_code(name)


def parameter_codes(name: str, value_type: Type) -> tuple[str, ...]:
    """The arguments that carry a parameter; a window is carried by two."""
    code = parameter_code(name, value_type)
    return (code, slid_flag(name)) if isinstance(value_type, WindowOf) else carriers(code, value_type)


def _generator_variables(tree: ast.AST) -> set[str]:
    """Names that only generators bind: they are not variables of the function."""
    inside: set[str] = set()
    outside: set[str] = set()

    def visit(node: ast.AST, private: bool) -> None:
        if isinstance(node, ast.comprehension):
            visit(node.target, True)
            for part in (node.iter, *node.ifs):
                visit(part, False)
            return
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            (inside if private else outside).add(node.id)
        for child in ast.iter_child_nodes(node):
            visit(child, private)

    visit(tree, False)
    return inside - outside
