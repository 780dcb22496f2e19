"""Reads the declarations of a user's file without running the job that stands beside them.

A script often declares tables and transactions and then starts a stream, without a main guard. To explain it, only
these statements are executed:

    imports, functions and classes                 all of them: defining them does nothing
    assignments, conditions, loops, ...            those that bind a name which a declaration uses, or uses in turn
    calls and everything else                      none

A declaration is a decorated function or class, or an assignment that calls `dataflow`.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
from types import ModuleType

from tidegate.foundation.errors import DefinitionError, TidegateError

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def read_declarations(file: str) -> ModuleType:
    """A module with what a file declares; `DefinitionError` where that cannot be read alone."""
    name = os.path.basename(file).removesuffix(".py")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    with open(file, "rb") as handle:
        tree = ast.parse(handle.read(), file)
    tree.body = declarations(tree.body)
    sys.modules[name] = module  # annotations and dataclasses look there
    try:
        exec(compile(tree, file, "exec"), module.__dict__)
    except (TidegateError, ImportError):
        raise
    except Exception as error:
        raise DefinitionError(
            f"{file}: its declarations cannot be executed without the rest of the file, which is not run here "
            f"({type(error).__name__}: {error}); move them into a module of their own, and name that"
        ) from error
    return module


def declarations(statements: list[ast.stmt]) -> list[ast.stmt]:
    """The statements that declare something, and those that they need, in their order."""
    needed = {name for statement in statements if _declares(statement) for name in _used(statement)}
    while True:
        kept = [statement for statement in statements if _is_kept(statement, needed)]
        reached = [s for s in kept if not isinstance(s, _DEFINITIONS) or s.name in needed]
        wanted = needed.union(*(_used(statement) for statement in reached))
        if wanted == needed:
            return kept
        needed = wanted


def _is_kept(statement: ast.stmt, needed: set[str]) -> bool:
    if isinstance(statement, (ast.Import, ast.ImportFrom, *_DEFINITIONS)) or _declares(statement):
        return True
    if isinstance(statement, ast.Expr):
        return False
    inside = list(ast.walk(statement))
    optional_import = any(isinstance(node, ast.Import | ast.ImportFrom) for node in inside) and not any(
        isinstance(node, ast.Expr) for node in inside
    )
    return bool(_bound(statement) & needed) or optional_import


def _declares(statement: ast.stmt) -> bool:
    if isinstance(statement, _DEFINITIONS):
        return bool(statement.decorator_list)
    calls = [node.func for node in ast.walk(statement) if isinstance(node, ast.Call)]
    names = [getattr(function, "attr", getattr(function, "id", "")) for function in calls]
    return isinstance(statement, ast.Assign | ast.AnnAssign) and "dataflow" in names


def _used(statement: ast.stmt) -> set[str]:
    """The names that a statement needs from outside: of a function those that are not its own."""
    found = _names(statement, ast.Load)
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        outside = [*statement.decorator_list, *statement.args.defaults, *statement.args.kw_defaults]
        found -= _names(statement, ast.Store) | {node.arg for node in ast.walk(statement) if isinstance(node, ast.arg)}
        found |= {name for node in outside if node is not None for name in _names(node, ast.Load)}
    return found


def _bound(statement: ast.stmt) -> set[str]:
    """The names that a statement binds, or whose elements or attributes it assigns to."""
    targets = [node for node in ast.walk(statement) if isinstance(node, ast.Subscript | ast.Attribute)]
    assigned = [target.value for target in targets if isinstance(target.ctx, ast.Store)]
    return _names(statement, ast.Store).union(*(_names(value, ast.Load) for value in assigned))


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {found.id for found in ast.walk(node) if isinstance(found, ast.Name) and isinstance(found.ctx, context)}
