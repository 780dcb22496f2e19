"""Finds what the pieces of a body do, and generates the code of its slices.

Both are done by the compiler itself. `ObservedBody` lowers the whole body and notes for each piece which rows
it reads and writes, which variables it uses and assigns, and whether it can fail: what is true of the
generated code is true of the pieces. `SliceBody` lowers the part of the body that `slicing` kept for one
slice. It differs from a whole body in one respect: a failure reports the number of the piece that failed.

    @inline
    def slice_1_of_transaction__transfer(i, row__dst, value__amount, table__Account__balance, exists__Account):
        t1 = table__Account__balance[row__dst]
        ...
        return 0

A slice undoes nothing: the scheduler that runs slices gives them copies of rows to work on.
"""

from __future__ import annotations

import ast
import copy
import itertools
import re
import types
from dataclasses import dataclass
from typing import Any

from tidegate.api.control import abort
from tidegate.compiler.bodies import TransactionCompiler
from tidegate.compiler.emission import ESCAPES, INTERRUPTS
from tidegate.compiler.functions import parameter_codes
from tidegate.compiler.loops import has_endless_loop, helpers_of, open_bounds
from tidegate.compiler.run_ahead import can_run_ahead, head_of
from tidegate.compiler.slicing import Body, Part, Piece, Slicing, list_pieces, source_of
from tidegate.compiler.source import FunctionSource
from tidegate.compiler.types import Row, RowList, Term
from tidegate.compiler.unit import NOT_FLOWING, Flowing
from tidegate.foundation.errors import DefinitionError
from tidegate.operations.plan import NEVER, Parameter, RowParameter, Slice, failure


class ObservedBody(TransactionCompiler):
    """Lowers a whole body and notes what each piece does: whole loops (`pieces`), and their parts (`parts`)."""

    def __init__(
        self, source: FunctionSource, parameters: tuple[Parameter, ...], annotation: Any, flowing: Flowing = NOT_FLOWING
    ) -> None:
        super().__init__(source, parameters, annotation, flowing)
        self.signature = parameters
        self.pieces = list_pieces(source.tree.body)
        self.parts = list_pieces(source.tree.body, inside_loops=True)
        self.row_helpers: list[str] = []
        self._observed = [*self.pieces, *self.parts]
        self._by_node: dict[int, list[Piece]] = {}
        for piece in self._observed:
            self._by_node.setdefault(id(piece.node), []).append(piece)
            piece.line = source.place(piece.node).line
            piece.exits = _always_aborts(piece.node, source)
        self._piece = self._part = Piece(-1, ast.Pass(), (), 0)

    def round(self) -> None:
        """Lower the body once, and forget what earlier rounds found."""
        for piece in self._observed:
            piece.forget()
        self.row_helpers = []
        super().round()

    def statement(self, node: ast.stmt) -> None:
        """Any statement: what is observed from here on is attributed to its pieces."""
        match self._by_node.get(id(node), []):
            case [piece, part]:
                self._piece, self._part = piece, part
            case [part]:  # inside a loop, which is one piece
                self._part = part
        for doer in (self._piece, self._part):
            doer.fails |= isinstance(node, ast.Assert | ast.Raise)
        super().statement(node)

    def access(self, row: Row | RowList, field: str, action: str, node: ast.AST) -> None:
        """Note that the body reads, writes or deletes a field."""
        before = len(self.accesses)
        super().access(row, field, action, node)
        self._note_accesses(before)

    def _note_accesses(self, first: int) -> None:
        for access, doer in itertools.product(self.accesses[first:], (self._piece, self._part)):
            doer.rows.add(access.parameter)
            touched = (access.parameter, access.field)
            if access.action == "read":
                doer.reads.add(touched)
            else:
                doer.writes |= {touched, (access.parameter, "exists")}

    def variable(self, node: ast.Name) -> Term | None:
        """A parameter or local variable; None for a name from outside the function."""
        term = super().variable(node)
        own = node.id in self.stored and not any(node.id in scope for scope in self.private)
        for doer in (self._piece, self._part):
            if term is not None and isinstance(term.type, Row | RowList):
                doer.rows |= term.type.origins
            if own:
                doer.uses.add(node.id)
        return term

    def assign(self, name: str, term: Term, node: ast.AST) -> None:
        """Assign to a local variable."""
        super().assign(name, term, node)
        for doer in (self._piece, self._part):
            doer.assigns.add(name)

    def leave(self, code: str) -> None:
        """Leave with a status that is not success."""
        super().leave(code)
        if code not in (ESCAPES, INTERRUPTS):
            self._piece.fails = self._part.fails = True

    def continue_in_python(self, node: ast.AST) -> None:
        """Leave for plain Python, which computes `node` and may abort there."""
        self._piece.fails = self._part.fails = True
        super().continue_in_python(node)

    def helper(self, function: types.FunctionType, arguments: list[Term], node: ast.Call) -> Term:
        """Call a helper function of the user's."""
        before = len(self.accesses)
        term = super().helper(function, arguments, node)
        self._note_accesses(before)
        if any(isinstance(argument.type, Row | RowList) for argument in arguments):
            self.row_helpers.append(function.__name__)
        return term

    # --- after the last round -------------------------------------------------------------------------

    @property
    def row_parameters(self) -> list[str]:
        """The parameters that are rows or lists of rows, in order."""
        return [parameter.name for parameter in self.signature if isinstance(parameter, RowParameter)]

    @property
    def row_names(self) -> set[str]:
        """The parameters and variables that stand for rows."""
        found = {name for name, known in self.types.items() if isinstance(known, Row | RowList)}
        return found | set(self.row_parameters)

    def can_run_ahead(self) -> bool:
        """Whether the body may run on values that may be undone later."""
        private = _bound_names(self.source.tree) - self.stored
        return can_run_ahead(self.parts, self.row_names, private)

    def note_loops(self) -> None:
        """Note which pieces hold loops whose rounds are not known before they run."""
        own = set(self.parameters) | _bound_names(self.source.tree)
        for pieces, whole_loops in ((self.pieces, True), (self.parts, False)):
            for piece in pieces:
                whole = whole_loops and not isinstance(piece.node, ast.If)
                searched = piece.node if whole else head_of(piece.node)
                piece.bounds = list(open_bounds(searched, self.source, own))
                searched_loops = ast.walk(piece.node) if whole else [piece.node]
                piece.endless = any(isinstance(node, ast.While) for node in searched_loops)
                piece.endless |= any(has_endless_loop(helper) for helper in helpers_of(searched, self.source))


def _always_aborts(node: ast.stmt, source: FunctionSource) -> bool:
    match node:
        case ast.Raise():
            return True
        case ast.Expr(value=ast.Call(func=function)):
            return source.resolve(function) is abort
    return False


def _bound_names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


class SliceBody(TransactionCompiler):
    """Lowers one slice of a body that has been lowered as a whole."""

    def __init__(self, whole: ObservedBody, body: Body) -> None:
        source = copy.copy(whole.source)
        source.tree = copy.copy(whole.source.tree)
        source.tree.body = body.build(whole.source.tree.body)
        super().__init__(source, whole.signature, None)
        self.unit, self.declared, self.result = whole.unit, whole.declared, whole.result
        mentioned = {n.id for s in source.tree.body for n in ast.walk(s) if isinstance(n, ast.Name)}
        self.stored = whole.stored & mentioned  # a variable of the whole body is a variable in each slice
        self.types = {name: known for name, known in whole.types.items() if name in self.stored}
        self.first_failure = NEVER
        self._positions = body.positions
        self._position = 0

    def round(self) -> None:
        """Lower the slice once."""
        self.first_failure = NEVER
        super().round()

    def statement(self, node: ast.stmt) -> None:
        """Any statement: failures from here on report its number."""
        self._position = self._positions.get(id(node), self._position)
        super().statement(node)

    def leave(self, code: str) -> None:
        """Leave with a status that is not success, and report the piece that failed."""
        self.first_failure = min(self.first_failure, self._position)
        told = f"{failure(self._position, 0)} + {code}"
        if code in (ESCAPES, INTERRUPTS):
            told = code
        elif code.isidentifier():  # what a helper returned
            told = f"{code} if {code} < 0 else {told}"
        super().leave(told)

    def function(self, number: int, writes: set[str]) -> tuple[Slice, str]:
        """The slice and the text of its function."""
        lines = "\n".join(self.lines)
        words = set(re.findall(r"\w+", lines))
        codes = {name: parameter_codes(name, known) for name, known in self.parameters.items()}
        used = {name: found for name, found in codes.items() if words & set(found)}
        rows = [name for name, known in self.parameters.items() if isinstance(known, Row | RowList) and name in used]
        name = f"slice_{number}_of_{self.unit.name}"
        arguments = ["i", *(code for found in used.values() for code in found), *sorted(self.arrays)]
        part = Slice(
            name=name,
            rows=tuple(rows),
            writes=tuple(row for row in rows if row in writes),
            first_failure=self.first_failure,
            text=source_of(self.source.tree.body),
            accesses=tuple(self.accesses),
            arguments=tuple(arguments),
        )
        return part, f"@inline\ndef {name}({', '.join(arguments)}):\n{lines}"


@dataclass(frozen=True, slots=True)
class Split:
    """The result of splitting a body: its slices with their functions, or the reason why there are none."""

    slices: tuple[Slice, ...]
    functions: tuple[str, ...]
    speculative: bool
    unsplit: str


def lower_slices(whole: ObservedBody) -> Split:
    """The slices of a body that was lowered."""
    whole.note_loops()
    ahead = whole.can_run_ahead()
    written = {row for piece in whole.pieces for row in piece.written_rows}
    order = [row for row in whole.row_parameters if row in written]
    expiring = [p.table.name for p in whole.signature if isinstance(p, RowParameter) and p.table.expires]
    if expiring:
        return Split((), (), ahead, f"rows of {expiring[0]} expire, and are reset as a whole before it runs")
    if whole.row_helpers:
        return Split((), (), ahead, f"the helper {whole.row_helpers[0]}() takes a row, and may do anything with it")
    if len(order) < 2:
        return Split((), (), ahead, f"it writes one row only, {order[0]}" if order else "it writes no row")
    slicing = Slicing(whole.pieces, order)
    parts = slicing.split()
    if len(parts) == 1:
        return Split((), (), ahead, f"what it writes hangs together: {slicing.joined[0]}")
    try:
        found = [_lower(whole, number, part) for number, part in enumerate(parts)]
    except DefinitionError as error:
        return Split((), (), ahead, f"a part of it cannot be compiled alone: {error}")
    return Split(tuple(part for part, _ in found), tuple(text for _, text in found), ahead, "")


def _lower(whole: ObservedBody, number: int, part: Part) -> tuple[Slice, str]:
    compiler = SliceBody(whole, Body(whole.pieces, part))
    compiler.compile()
    return compiler.function(number, part.writes)
