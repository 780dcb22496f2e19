"""Decides whether a transaction may run speculatively, on values that may be undone later.

A speculative scheduler may show a transaction rows that serial execution never would: rows written by
a transaction that aborts afterwards. The reader's own writes are undone too, but it must terminate first.
In serial execution, termination may depend on the rows:

    tg.require(row.limit >= count, "too many")
    for step in range(count):                       the check keeps a count of 2**60 away

So a loop whose rounds are limited neither by a constant nor by the length of a list must not depend on
rows at all: not in its bounds, and not in any test, check or jump that may skip or end it.

Unlike in `slicing`, loops are taken apart: a piece is a simple statement, or the head of an `if` or of a loop.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tidegate.compiler.slicing import Piece, exclude_each_other


def can_run_ahead(pieces: list[Piece], row_names: set[str], private: set[str]) -> bool:
    """Whether a body terminates whatever its rows hold.

    `row_names` are the parameters and variables that stand for rows, `private` the variables of generators.
    """
    state = _reading_state(pieces)
    names = row_names | {name for piece in pieces if piece.position in state for name in piece.assigns}
    for piece in pieces:
        if piece.endless:
            return False
        if not piece.bounds:
            continue
        deciding = names | private if piece.position in state else names
        if state.intersection(_guards(pieces, piece)) or any(_mentions(bound, deciding) for bound in piece.bounds):
            return False
    return True


def _reading_state(pieces: list[Piece]) -> set[int]:
    """The pieces whose effect depends on rows: they read rows, use variables that do, or stand under such a head."""
    found: set[int] = set()
    names: set[str] = set()
    while True:
        before = len(found)
        for piece in pieces:
            if piece.reads or piece.uses & names or any(position in found for position, _ in piece.path):
                found.add(piece.position)
                names |= piece.assigns
        if len(found) == before:  # loops carry values back to their start
            return found


def _guards(pieces: list[Piece], loop: Piece) -> Iterator[int]:
    """The pieces that may skip or end a loop: heads around it, and checks and jumps before or inside it."""
    yield from (position for position, _ in loop.path)
    around = {position for position, _ in loop.path if isinstance(pieces[position].node, ast.For | ast.While)}
    for piece in pieces:
        jumps = piece.fails or isinstance(piece.node, ast.Return | ast.Break | ast.Continue)
        heads = {position for position, _ in piece.path}
        reached = piece.position <= loop.position or loop.position in heads or around & heads
        if jumps and reached and not exclude_each_other(piece, loop):
            yield piece.position
            yield from heads


def _mentions(expression: ast.expr, names: set[str]) -> bool:
    return any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(expression))


def head_of(node: ast.stmt) -> ast.AST:
    """A simple statement itself; of an `if` or a loop the test or iterable only, without the body."""
    match node:
        case ast.If() | ast.While():
            return node.test
        case ast.For():
            return node.iter
    return node
