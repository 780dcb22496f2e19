"""Lowers the body of a transaction: a function that returns a status and stores its result.

Status 0 is success, -1 asks for plain Python, any other number stands for the reason of an abort. The
body writes rows in place and does not undo its writes when it fails: the function that wraps it does that
(see `transactions`).
"""

from __future__ import annotations

import ast
from collections import Counter
from typing import Any, NoReturn

from tidegate.compiler import strings, values
from tidegate.compiler.functions import FunctionCompiler
from tidegate.compiler.names import list_code, list_parts, row_code
from tidegate.compiler.signatures import UNKNOWN, read_result, struct_fields
from tidegate.compiler.source import FunctionSource
from tidegate.compiler.statements import ALWAYS
from tidegate.compiler.types import MIXED, Nothing, Row, RowList, Term, Type, ValueList, WindowOf, describe
from tidegate.compiler.unit import NOT_FLOWING, Flowing, Unit
from tidegate.operations.kinds import Carried, Kind
from tidegate.operations.plan import Access, MadeText, Parameter, ResultType, RowParameter, generated_name, text_word
from tidegate.operations.values import Optional


class TransactionCompiler(FunctionCompiler):
    """Lowers a transaction's body: it returns a status and stores its result."""

    def __init__(
        self, source: FunctionSource, parameters: tuple[Parameter, ...], annotation: Any, flowing: Flowing = NOT_FLOWING
    ) -> None:
        types = {parameter.name: _type(parameter) for parameter in parameters}
        types |= {window.name: WindowOf(window) for window in flowing.windows}
        super().__init__(source, types, Unit(generated_name(source.function.__name__), flowing))
        self.unit.compiling.append(source.function)
        self.declared = annotation is not UNKNOWN
        self.result: ResultType | None = None
        if self.declared:
            self.result = read_result(annotation, self._refuse_result)

    def _refuse_result(self, message: str, advice: str) -> NoReturn:
        self.refuse(self.source.tree, message, advice)

    def fingerprint(self) -> tuple[Any, ...]:
        """Everything besides the body's text that determines the generated code."""
        return (*super().fingerprint(), self.result)

    def round(self) -> None:
        """Lower the body once."""
        super().round()
        if self.assigned is not ALWAYS:
            self.emit("return 0")

    def begin(self) -> None:
        """Reset the rows that have expired: the body finds them absent."""
        for name, known in self.parameters.items():
            if not isinstance(known, Row | RowList) or not known.table.expires:
                continue
            if isinstance(known, Row):
                with self.if_expired(known.table, row_code(name)):
                    self.reset(known.table, row_code(name))
            else:
                data, start, stop = list_parts(list_code(name))
                place = self.fresh()
                with self.block(f"for {place} in range({start}, {stop}):"):
                    row = self.keep(f"{data}[{place}]")
                    with self.if_expired(known.table, row):
                        self.reset(known.table, row)
            self.accesses.append(Access(name, "exists", "expire", (), self.source.place(self.source.tree).line))

    def leave(self, code: str) -> None:
        """Leave with a status that is not success."""
        self.emit(f"return {code}")

    def give_back(self, node: ast.Return) -> None:
        """A return statement: store the result and return success."""
        value = node.value
        if value is None or (isinstance(value, ast.Constant) and value.value is None):
            self.emit("return 0")
            return
        struct = struct_fields(self.source.resolve(value.func)) if isinstance(value, ast.Call) else None
        if struct is not None:
            assert isinstance(value, ast.Call)
            terms, texts = self.struct_terms(value, struct)
            self.settle(struct, node)
        else:
            term, text = strings.made_later(self, value)
            if isinstance(term.type, Nothing):
                self.emit("return 0")
                return
            if isinstance(term.type, Optional):  # the result of None is null
                term = Term(self.keep(term.code), term.type)
                with self.block(f"if {values.is_none(term)}:"):
                    self.emit("return 0")
                term = values.known(term)
            if term.type is MIXED:
                term = self.real(term, node)
            if not isinstance(term.type, Kind | Carried):
                self.refuse(node, f"a value is required here, got {describe(term.type)}", "return a field of the row")
            terms, texts = [term], [text]
            self.settle(ResultType((("", term.type),), struct=False), node, term)
        assert self.result is not None
        fields = zip(self.result.fields, terms, strict=True)
        words = [
            values.stored(self, t, of, node, f"field {name!r}" if name else "its result") for (name, of), t in fields
        ]
        for position, (word, text) in enumerate(zip(words, texts, strict=True)):
            found = word if text is None else self.keep_parts(text, position, node)
            self.emit(f"{self.array(f'result_{position}')}[i] = {found}")
        self.emit(f"{self.array('valid')}[i] = True")
        self.emit("return 0")

    def keep_parts(self, text: strings.Made, field: int, node: ast.Return) -> str:
        """Store the parts of a new string; returns the word that stands for it in the result."""
        assert self.result is not None
        used: Counter[Kind] = Counter()
        places = []
        for part in text.parts:
            assert isinstance(part.type, Kind | Carried)
            kind = part.type.kind
            place = self.unit.part_places.setdefault((kind, used[kind]), len(self.unit.part_places))
            used[kind] += 1
            self.emit(f"{self.array(f'result_{len(self.result.fields) + place}')}[i] = {part.code}")
            places.append((place, part.type))
        known, key = self.unit.texts, (node.lineno, node.col_offset, field)
        known[key] = MadeText(field, text.template, tuple(places))
        return str(text_word(list(known).index(key)))

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
            if isinstance(target, Carried) and self.declared:
                return  # storing it says what does not fit
            joined = values.common(target, kind) if values.is_special(Term("", target), term) else None
            if isinstance(joined, Kind | Carried) and (joined == target or not self.declared):
                self.result = ResultType((("", joined),), struct=False)
                return
        self.refuse(node, f"it returns {_shown(found)} here and {_shown(self.result)} elsewhere or by its annotation")

    def struct_terms(self, node: ast.Call, struct: ResultType) -> tuple[list[Term], list[strings.Made | None]]:
        """The fields of a returned struct, in order, and how those that are new strings are made."""
        given: dict[str, ast.expr] = {}
        for (name, _), argument in zip(struct.fields, node.args, strict=False):
            given[name] = argument
        given |= {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg is not None}
        if list(given) != [name for name, _ in struct.fields] and set(given) != {name for name, _ in struct.fields}:
            self.refuse(node, f"{ast.unparse(node.func)}() needs each of: {', '.join(n for n, _ in struct.fields)}")
        terms = {name: strings.made_later(self, argument) for name, argument in given.items()}
        return [terms[name][0] for name, _ in struct.fields], [terms[name][1] for name, _ in struct.fields]


def _type(parameter: Parameter) -> Type:
    if isinstance(parameter, RowParameter):
        kind = RowList if parameter.many else Row
        return kind(parameter.table, frozenset({parameter.name}))
    found = values.in_body(parameter.type)
    return ValueList(found) if parameter.many else found


def _shown(result: ResultType) -> str:
    return "a struct" if result.struct else result.fields[0][1].label
