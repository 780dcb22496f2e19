"""Splits a transaction's body into slices, one for each row that it writes.

TStream and MorphStream ask their users to write a transaction as operations on single rows. Here it is
cut from the function: the slice of a row is the part of the body that decides what is written to it.

    tg.require(src.balance >= amount, "...")      1   src
    src.balance -= amount                         2   src
    dst.balance += amount                         3         dst
    return src.balance                            4   src

The pieces are simple statements and whole loops; an `if` is taken apart into its test and the pieces
of its branches. Pieces are numbered as they stand in the source, and since loops are not taken apart,
pieces are executed in the order of their numbers.

A slice holds the pieces that write its rows and what those depend on: assignments to the variables that
they use, tests around them, earlier returns. It reads other rows as they were before the transaction; where
it needs what the transaction wrote to another row, the two become one slice. Checks (require, abort, assert,
raise, an index out of range) stay out of slices that do not need them: each belongs to one slice, and if it
fails there, the others are undone. Every slice that holds a piece computes in it what serial execution
would, unless a piece with a smaller number failed: so the failure with the smallest number is the one that
Python reports.

One danger is left: a loop that ends only because a check before it did not fail. A slice with such a loop
holds all checks before the loop. Whether that suffices on values that may be undone later is a separate
question (see `run_ahead`).

This module only decides; `slices` finds the facts and generates the code.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

Field = tuple[str, str]  # a row parameter and one of its fields, or "exists"


@dataclass(eq=False, slots=True)
class Piece:
    """A statement, a loop, or the test of an `if`, and what it does.

    `path` are the tests around it with the branch taken. It `fails` if it can abort the transaction and
    `exits` if it always does. It is `endless` if it holds a loop whose rounds nothing limits (while), and
    `bounds` are the expressions that limit the rounds of its other loops, constants and lengths of lists
    left out. It `returns` if what follows it may not be reached because of a return, and `gives_result` if that
    may return a value.
    """

    position: int
    node: ast.stmt
    path: tuple[tuple[int, bool], ...]
    line: int
    reads: set[Field] = field(default_factory=set)
    writes: set[Field] = field(default_factory=set)
    rows: set[str] = field(default_factory=set)
    uses: set[str] = field(default_factory=set)
    assigns: set[str] = field(default_factory=set)
    fails: bool = False
    exits: bool = False
    endless: bool = False
    bounds: list[ast.expr] = field(default_factory=list)
    returns: bool = field(init=False)
    gives_result: bool = field(init=False)

    def __post_init__(self) -> None:
        found = [] if self.is_test else [node.value for node in ast.walk(self.node) if isinstance(node, ast.Return)]
        self.returns = bool(found)
        nothing = [value is None or (isinstance(value, ast.Constant) and value.value is None) for value in found]
        self.gives_result = not all(nothing)

    @property
    def is_test(self) -> bool:
        """Whether this is the test of an `if`, and not the statement."""
        return isinstance(self.node, ast.If)

    @property
    def written_rows(self) -> set[str]:
        """The row parameters that it may write."""
        return {row for row, _ in self.writes}

    def forget(self) -> None:
        """Forget what was observed: the body is lowered several times."""
        for found in (self.reads, self.writes, self.rows, self.uses, self.assigns):
            found.clear()
        self.fails = False


Path = tuple[tuple[int, bool], ...]


def list_pieces(statements: list[ast.stmt], inside_loops: bool = False, path: Path = (), first: int = 0) -> list[Piece]:
    """The pieces of a body in the order of the source; with `inside_loops`, loops are taken apart too."""
    pieces: list[Piece] = []
    for statement in statements:
        if _does_nothing(statement):
            continue
        position = first + len(pieces)
        pieces.append(Piece(position, statement, path, statement.lineno))
        blocks: list[tuple[list[ast.stmt], bool]] = []
        if isinstance(statement, ast.If):
            blocks = [(statement.body, True), (statement.orelse, False)]
        elif inside_loops and isinstance(statement, ast.For | ast.While):
            blocks = [(statement.body, True)]
        for block, taken in blocks:
            pieces += list_pieces(block, inside_loops, (*path, (position, taken)), first + len(pieces))
    return pieces


def _does_nothing(statement: ast.stmt) -> bool:
    match statement:
        case ast.Pass() | ast.Expr(value=ast.Constant()) | ast.AnnAssign(value=None):
            return True
    return False


@dataclass(slots=True)
class Part:
    """A slice in the making: the rows that it writes, what it must hold, and all that it holds.

    With `gives_result` it computes the values of returns; in the other slices, a return only leaves the body.
    """

    writes: set[str]
    wanted: set[int]
    gives_result: bool = False
    held: set[int] = field(default_factory=set)


class Slicing:
    """Splits the pieces of one body.

    `written` are the row parameters that it writes, in the order of the signature. After `split` the
    slices are in `parts`, and `joined` says in prose why rows had to share one.
    """

    def __init__(self, pieces: list[Piece], written: list[str]) -> None:
        self.pieces = pieces
        self.written = written
        self.parts: list[Part] = []
        self.joined: list[str] = []
        self._before = [
            [other for other in pieces[: piece.position] if not exclude_each_other(other, piece)] for piece in pieces
        ]
        """For each piece those that may have been executed before it in the same transaction."""

    def split(self) -> list[Part]:
        """The slices, each with at least one row that no other one writes."""
        self.parts = [Part({row}, set()) for row in self.written]
        self._settle()
        for piece in self.pieces:
            if not self._is_covered(piece):
                best = min(self.parts, key=lambda part: self._cost(piece, part))
                self._give(piece, best)
                self._settle()
        return self.parts

    def _settle(self) -> None:
        """Close every slice over what it depends on, and join slices until none writes another's rows."""
        while True:
            for part in self.parts:
                self._close(part, self.joined)
                others = [other for other in self.parts if other is not part and other.writes & part.writes]
                if others:
                    for other in others:
                        part.writes |= other.writes
                        part.wanted |= other.wanted
                        part.gives_result |= other.gives_result
                        self.parts.remove(other)
                    break
            else:
                return

    def _is_covered(self, piece: Piece) -> bool:
        return any(piece.position in part.held and (part.gives_result or not piece.gives_result) for part in self.parts)

    def _give(self, piece: Piece, part: Part) -> None:
        """Make a slice hold a piece; a single slice computes the result, for all return statements."""
        part.wanted.add(piece.position)
        if piece.gives_result:
            part.gives_result = True
            part.wanted.update(other.position for other in self.pieces if other.gives_result)

    def _cost(self, piece: Piece, part: Part) -> tuple[int, int, int]:
        """The cost of giving a piece to a slice: rows that must join it, rows shared (negated), pieces added."""
        trial = Part(set(part.writes), set(part.wanted), part.gives_result)
        alone = Part(set(), set())
        for taker in (trial, alone):
            self._give(piece, taker)
            self._close(taker, [])
        shared = self._rows(alone) & self._rows(part)
        return len(trial.writes) - len(part.writes), -len(shared), len(trial.held) - len(part.held)

    def _rows(self, part: Part) -> set[str]:
        return {row for position in part.held for row in self.pieces[position].rows}

    # --- dependencies -------------------------------------------------------------------------------

    def _close(self, part: Part, joined: list[str]) -> None:
        """Add to a slice all that it depends on; its rows grow where it needs what is written to others."""
        part.held = set()
        pending = set(part.wanted)
        while True:
            pending |= {piece.position for piece in self.pieces if piece.written_rows & part.writes} - part.held
            if not pending:
                return
            piece = self.pieces[pending.pop()]
            part.held.add(piece.position)
            leaving = isinstance(piece.node, ast.Return) and not part.gives_result
            needed = set(self._control(piece))
            if not leaving:
                needed.update(self._data(piece))
                for row, why in self._foreign_writes(piece, part.writes):
                    part.writes.add(row)
                    joined.append(f"line {piece.line} {why}")
            pending |= needed - part.held

    def _control(self, piece: Piece) -> Iterator[int]:
        """The pieces that decide whether a piece is executed; checks count only for loops without a fixed limit."""
        yield from (position for position, _ in piece.path)
        yield from (other.position for other in self._before[piece.position] if other.returns)
        if piece.bounds or piece.endless:
            yield from (other.position for other in self._before[piece.position] if other.fails)

    def _data(self, piece: Piece) -> Iterator[int]:
        """The assignments to the variables that a piece uses.

        Where one branch assigns and the other aborts, the slice needs the abort too. Without it, the variable
        could be unassigned in this slice although it is assigned in the whole body.
        """
        before = self._before[piece.position]
        for other in before:
            if other.assigns & piece.uses:
                yield other.position
                yield from (e.position for e in before if e.exits and exclude_each_other(e, other))

    def _foreign_writes(self, piece: Piece, own: set[str]) -> Iterator[tuple[str, str]]:
        """The rows of other slices whose writes a piece contains or reads, with the reason."""
        for row in sorted(piece.written_rows - own):
            yield row, f"writes {row} together with {', '.join(sorted(own)) or 'others'}"
        earlier = {written for other in self._before[piece.position] for written in other.writes}
        for row, name in sorted(piece.reads & earlier):
            if row not in own and row not in piece.written_rows:
                yield row, f"reads {row}.{name}, which the transaction may have assigned before"


def exclude_each_other(one: Piece, other: Piece) -> bool:
    """Whether two pieces stand in different branches of an `if`."""
    branches = dict(one.path)
    return any(branches.get(position, taken) != taken for position, taken in other.path)


# --- the slice as source --------------------------------------------------------------------------


class Body:
    """The statements of one slice; `positions` finds a statement's number, by the identity of its node."""

    def __init__(self, pieces: list[Piece], part: Part) -> None:
        self._part = part
        self._numbers = {id(piece.node): piece for piece in pieces}
        self.positions: dict[int, int] = {}

    def build(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """The statements that the slice holds; returns lose their values unless the slice gives the result."""
        found: list[ast.stmt] = []
        for statement in statements:
            piece = self._numbers.get(id(statement))
            if piece is None or piece.position not in self._part.held:
                continue
            taken = self._branch(statement) if isinstance(statement, ast.If) else self._plain(statement, piece)
            self.positions[id(taken)] = piece.position
            found.append(taken)
        return found

    def _branch(self, node: ast.If) -> ast.If:
        test, body, orelse = node.test, self.build(node.body), self.build(node.orelse)
        if orelse and not body:
            test, body, orelse = ast.copy_location(ast.UnaryOp(ast.Not(), test), test), orelse, []
        return ast.copy_location(ast.If(test, body or [ast.copy_location(ast.Pass(), node)], orelse), node)

    def _plain(self, node: ast.stmt, piece: Piece) -> ast.stmt:
        if not piece.gives_result or self._part.gives_result:
            return node
        changed = copy.deepcopy(node)
        for inner in ast.walk(changed):
            if isinstance(inner, ast.Return):
                inner.value = None
        return changed


def source_of(statements: Iterable[ast.stmt]) -> str:
    """Statements as text."""
    return "\n".join(ast.unparse(statement) for statement in statements)
