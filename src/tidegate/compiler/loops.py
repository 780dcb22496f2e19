"""Finds loops whose number of rounds is not known before they run, in a body and in the helpers it calls.

The event decides the rounds of a loop over a list; a loop over `range(10)` has ten. The others are `while`
loops and ranges with computed bounds. These bounds decide whether a loop ends in reasonable time, so it
matters what they depend on (see `run_ahead`).
"""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator

from tidegate.compiler.source import FunctionSource


def helpers_of(tree: ast.AST, source: FunctionSource) -> Iterator[FunctionSource]:
    """The user's functions that are called in `tree`."""
    for node in ast.walk(tree):
        called = source.resolve(node.func) if isinstance(node, ast.Call) else None
        if isinstance(called, types.FunctionType):
            yield FunctionSource(called, called.__name__)


def has_endless_loop(helper: FunctionSource) -> bool:
    """Whether a function contains a `while`, or calls one that does."""
    return any(isinstance(node, ast.While) for node in ast.walk(helper.tree)) or any(
        has_endless_loop(inner) for inner in helpers_of(helper.tree, helper)
    )


def open_bounds(tree: ast.AST, source: FunctionSource, own: set[str]) -> Iterator[ast.expr]:
    """The bounds of ranges that are neither constant nor the length of a list.

    `own` are the names that the function binds. Where a loop may end early, or the bound is computed in a
    helper, the whole enclosing call is yielded as the bound, because all of it matters.
    """
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = source.resolve(node.func)
        if called is range:
            yield from (bound for bound in node.args if not _is_fixed(bound, source, own))
        elif (called is any or called is all) and any(
            True for part in node.args for _ in open_bounds(part, source, own)
        ):
            yield node
        elif isinstance(called, types.FunctionType):
            given = _bounds_in_helper(FunctionSource(called, called.__name__), node)
            yield from (bound for bound in given if not _is_fixed(bound, source, own))


def _bounds_in_helper(helper: FunctionSource, call: ast.Call) -> Iterator[ast.expr]:
    """The arguments of a call that bound loops inside the helper, or the call itself if that cannot be told."""
    code = helper.function.__code__
    names = code.co_varnames[: code.co_argcount]
    given = dict(zip(names, call.args, strict=False)) | {k.arg: k.value for k in call.keywords if k.arg}
    jumps = any(
        isinstance(inner, ast.Break | ast.Return)
        for loop in ast.walk(helper.tree)
        if isinstance(loop, ast.For)
        for inner in ast.walk(loop)
    )
    rebound = {n.id for n in ast.walk(helper.tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for bound in open_bounds(helper.tree, helper, set(code.co_varnames) | rebound):
        plain = isinstance(bound, ast.Name) and bound.id in names and bound.id not in rebound
        if jumps or not plain:
            yield call
        elif isinstance(bound, ast.Name) and bound.id in given:  # otherwise its default applies, a constant
            yield given[bound.id]


def _is_fixed(bound: ast.expr, source: FunctionSource, own: set[str]) -> bool:
    """Whether a bound is a constant, or the length of a list."""
    match bound:
        case ast.Constant() | ast.UnaryOp(operand=ast.Constant()):
            return True
        case ast.Call(func=ast.Name(id="len")):
            return source.resolve(bound.func) is len
        case ast.Name():
            return bound.id not in own
        case ast.Attribute():
            return isinstance(source.resolve(bound), int)
    return False
