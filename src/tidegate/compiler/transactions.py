"""Compiles a transaction: its body, and around it the function that undoes what an abort leaves.

    def transfer(i, r_src, r_dst, p_amount, c7_Account_balance, e_Account, valid, result_0):
        u0 = c7_Account_balance[r_src]            # every field that the body may write
        u1 = c7_Account_balance[r_dst]
        ...
        status = body_of_transfer(...)
        if status != 0:
            c7_Account_balance[r_src] = u0
            ...
        return status

Saving at entry makes aliases harmless: two parameters that are the same row save the same values.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, NoReturn

from tidegate.compiler.functions import FunctionCompiler, Unit, parameter_codes
from tidegate.compiler.signatures import UNKNOWN, read_result, struct_fields
from tidegate.compiler.source import FunctionSource
from tidegate.compiler.statements import ALWAYS, ASSIGNABLE
from tidegate.compiler.types import MIXED, Nothing, Row, RowList, Term, Type, ValueList, describe
from tidegate.foundation.places import Place
from tidegate.operations.layout import Kind
from tidegate.operations.plan import (
    Parameter,
    ResultType,
    RowParameter,
    TransactionPlan,
    column_array,
    generated_name,
)


class TransactionCompiler(FunctionCompiler):
    """Lowers a transaction's body: it returns a status and stores its result."""

    def __init__(self, source: FunctionSource, parameters: tuple[Parameter, ...], annotation: Any) -> None:
        types = {parameter.name: _type(parameter) for parameter in parameters}
        super().__init__(source, types, Unit(generated_name(source.function.__name__)))
        self.unit.compiling.append(source.function)
        self.declared = annotation is not UNKNOWN
        self.result: ResultType | None = None
        if self.declared:
            self.result = read_result(annotation, self._refuse_result)

    def _refuse_result(self, message: str, advice: str) -> NoReturn:
        self.refuse(self.source.tree, message, advice)

    def fingerprint(self) -> tuple[Any, ...]:
        """What decides the generated code besides the body's text."""
        return (*super().fingerprint(), self.result)

    def round(self) -> None:
        """Lower the body once."""
        super().round()
        if self.assigned is not ALWAYS:
            self.emit("return 0")

    def leave(self, code: str) -> None:
        """Leave with a status that is not success."""
        self.emit(f"return {code}")

    def give_back(self, node: ast.Return) -> None:
        """A return statement: store the result, and succeed."""
        value = node.value
        if value is None or (isinstance(value, ast.Constant) and value.value is None):
            self.emit("return 0")
            return
        struct = struct_fields(self.source.resolve(value.func)) if isinstance(value, ast.Call) else None
        if struct is not None:
            assert isinstance(value, ast.Call)
            terms = self.struct_terms(value, struct)
            self.settle(struct, node)
        else:
            term = self.value(value)
            if isinstance(term.type, Nothing):
                self.emit("return 0")
                return
            if term.type is MIXED:
                term = self.real(term, node)
            if not isinstance(term.type, Kind):
                self.refuse(node, f"a value is required here, got {describe(term.type)}", "return a field of the row")
            terms = [term]
            self.settle(ResultType((("", term.type),), struct=False), node, term)
        assert self.result is not None
        for position, ((_, kind), term) in enumerate(zip(self.result.fields, terms, strict=True)):
            converted = self.real(term, node) if kind is Kind.FLOAT else term
            converted = self.integer(term, node) if kind is Kind.INT else converted
            self.emit(f"{self.array(f'result_{position}')}[i] = {converted.code}")
        self.emit(f"{self.array('valid')}[i] = True")
        self.emit("return 0")

    def settle(self, found: ResultType, node: ast.Return, term: Term | None = None) -> None:
        """Agree on one result type for all return statements."""
        if self.declared and self.result is None:
            self.refuse(node, "it is annotated to return nothing, but returns a value")
        if self.result is None:
            self.result = found
        if found == self.result:
            return
        if not found.struct and not self.result.struct and term is not None:
            target, kind = self.result.fields[0][1], found.fields[0][1]
            if target is Kind.FLOAT and kind in (Kind.INT, Kind.BOOL) and (self.declared or term.constant is not None):
                return
            if target is Kind.INT and kind is Kind.BOOL and self.declared:
                return
            if target is Kind.INT and kind is Kind.FLOAT and not self.declared and not self.final:
                self.result = found
                return
        self.refuse(node, f"it returns {_shown(found)} here and {_shown(self.result)} elsewhere or by its annotation")

    def struct_terms(self, node: ast.Call, struct: ResultType) -> list[Term]:
        """The fields of a returned struct, in order."""
        given: dict[str, ast.expr] = {}
        for (name, _), argument in zip(struct.fields, node.args, strict=False):
            given[name] = argument
        given |= {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg is not None}
        if list(given) != [name for name, _ in struct.fields] and set(given) != {name for name, _ in struct.fields}:
            self.refuse(node, f"{ast.unparse(node.func)}() needs each of: {', '.join(n for n, _ in struct.fields)}")
        terms = {name: self.value(argument) for name, argument in given.items()}
        for name, kind in struct.fields:
            if terms[name].type not in ASSIGNABLE.get(kind, (kind,)):
                self.refuse(node, f"field {name!r} holds {kind.value}, got {describe(terms[name].type)}")
        return [terms[name] for name, _ in struct.fields]


def compile_transaction(
    function: Callable[..., Any], place: Place, parameters: tuple[Parameter, ...], annotation: Any
) -> TransactionPlan:
    """The plan of a transaction with its generated source."""
    source = FunctionSource(function, f"transaction {function.__name__!r}")
    compiler = TransactionCompiler(source, parameters, annotation)
    compiler.compile()
    name = compiler.unit.name
    arrays = tuple(sorted(compiler.arrays))
    header = ["i"] + [c for n, t in compiler.parameters.items() for c in parameter_codes(n, t)]
    undo = _Undo(compiler)
    arguments = [*header, *arrays, *(a for a in undo.arrays if a not in arrays)]
    body = [f"@generated\ndef body_of_{name}({', '.join([*header, *arrays])}):", *compiler.lines]
    wrapper = [
        f"@generated\ndef {name}({', '.join([*arguments, *undo.scratch])}):",
        *undo.save,
        f"    status = body_of_{name}({', '.join([*header, *arrays])})",
        *(["    if status != 0:", *undo.restore] if undo.restore else []),
        "    return status",
    ]
    helpers = [helper.source for helper in compiler.unit.helpers.values()]
    text = "\n\n\n".join([*helpers, "\n".join(body), "\n".join(wrapper)])
    return TransactionPlan(
        name=function.__name__,
        place=place,
        parameters=parameters,
        accesses=tuple(compiler.accesses),
        reasons=tuple(compiler.unit.reasons),
        literals=tuple(compiler.unit.literals),
        result=compiler.result,
        source=text,
        arguments=tuple(arguments),
        undo_lists=tuple(undo.lists),
    )


class _Undo:
    """The code that saves what a body may write, and restores it."""

    def __init__(self, compiler: TransactionCompiler) -> None:
        self.save: list[str] = []
        self.restore: list[str] = []
        self.arrays: list[str] = []
        self.scratch: list[str] = []
        self.lists: list[tuple[str, Kind]] = []
        written: dict[str, dict[str, Kind]] = {}
        for access in compiler.accesses:
            parameter = compiler.parameters[access.parameter]
            if access.action != "read" and isinstance(parameter, Row | RowList):
                kinds = {column.name: column.kind for column in parameter.table.value_columns}
                fields = written.setdefault(access.parameter, {"exists": Kind.BOOL})
                if access.field != "exists":
                    fields[access.field] = kinds[access.field]
        for name, fields in written.items():
            parameter = compiler.parameters[name]
            assert isinstance(parameter, Row | RowList)
            for field, kind in fields.items():
                table = parameter.table.name
                array = f"e_{table}" if field == "exists" else column_array(table, field)
                self.arrays.append(array)
                (self._row if isinstance(parameter, Row) else self._list)(name, array, kind)

    def _row(self, name: str, array: str, _kind: Kind) -> None:
        saved = f"u{len(self.save)}"
        self.save.append(f"    {saved} = {array}[r_{name}]")
        self.restore.append(f"        {array}[r_{name}] = {saved}")

    def _list(self, name: str, array: str, kind: Kind) -> None:
        scratch = f"scratch_{len(self.lists)}"
        self.scratch.append(scratch)
        self.lists.append((name, kind))
        span = f"range(l_{name}_stop - l_{name}_start)"
        element = f"{array}[l_{name}_data[l_{name}_start + q]]"
        self.save += [f"    for q in {span}:", f"        {scratch}[q] = {element}"]
        self.restore += [f"        for q in {span}:", f"            {element} = {scratch}[q]"]


def _type(parameter: Parameter) -> Type:
    if isinstance(parameter, RowParameter):
        kind = RowList if parameter.many else Row
        return kind(parameter.table, frozenset({parameter.name}))
    return ValueList(parameter.kind) if parameter.many else parameter.kind


def _shown(result: ResultType) -> str:
    return "a struct" if result.struct else result.fields[0][1].value
