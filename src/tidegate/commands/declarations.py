"""Reads the declarations of a user's file without running the job beside them.

A script often declares tables and transactions and then starts a stream, without a main guard. To explain it, only
these statements are executed:

    imports, functions and classes         all: defining them does nothing
    assignments, loops, with blocks        those that declare something, or bind a name that a declaration needs
    if and try                             their branches, by the same rules
    everything else, calls above all       never

What declares something: a decorated function or class, and a statement that calls `transaction`, `trigger` or
`dataflow`, or a function of the file that does. Binding the name that the user asks for counts as well.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
from collections.abc import Iterator
from types import ModuleType

from tidegate.foundation.errors import DefinitionError, TidegateError

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_VERBS = frozenset({"transaction", "trigger", "dataflow"})


def read_declarations(file: str, name: str = "") -> ModuleType:
    """A module with what a file declares, and with `name` if it binds that."""
    with open(file, "rb") as handle:
        text = handle.read()
    module_name = os.path.basename(file).removesuffix(".py")
    spec = importlib.util.spec_from_file_location(module_name, file)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # annotations and dataclasses look there
    try:
        tree = ast.parse(text, file)
        tree.body = declarations(tree.body, {name} if name else set())
        exec(compile(tree, file, "exec"), module.__dict__)
    except (TidegateError, ImportError):
        raise
    except SyntaxError as error:
        raise DefinitionError(f"{error.filename or file}:{error.lineno}: {error.msg}") from error
    except Exception as error:
        raise DefinitionError(
            f"{file}: its declarations cannot be executed without the rest of the file, which is not run here "
            f"({type(error).__name__}: {error}); move them into a module of their own, and name that"
        ) from error
    return module


def declarations(statements: list[ast.stmt], wanted: set[str]) -> list[ast.stmt]:
    """The statements that declare something or bind a wanted name, and those that they need, in their order."""
    flat = list(_flat(statements))
    verbs = _VERBS | {s.name for s in flat if isinstance(s, ast.FunctionDef) and _called(s) & _VERBS}
    needed = wanted.union(*(_used(s) for s in flat if _declares(s, verbs)))
    while True:
        kept = [s for s in flat if _is_kept(s, needed, verbs)]
        reached = [s for s in kept if not isinstance(s, _DEFINITIONS) or s.name in needed]
        chosen = set(map(id, kept))
        more = needed.union(*(_used(s) for s in reached), *(_used(test) for test in _tests(statements, chosen)))
        if more == needed:
            return _chosen(statements, chosen)
        needed = more


def _flat(statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements that are kept or dropped as a whole: the branches of if and try are entered."""
    for statement in statements:
        if isinstance(statement, ast.If | ast.Try):
            for branch in _branches(statement):
                yield from _flat(branch)
        else:
            yield statement


def _branches(statement: ast.If | ast.Try) -> list[list[ast.stmt]]:
    if isinstance(statement, ast.If):
        return [statement.body, statement.orelse]
    return [statement.body, *(h.body for h in statement.handlers), statement.orelse, statement.finalbody]


def _tests(statements: list[ast.stmt], kept: set[int]) -> Iterator[ast.expr]:
    """The conditions under which statements that are kept stand."""
    for statement in statements:
        if isinstance(statement, ast.If | ast.Try) and not kept.isdisjoint(map(id, _flat([statement]))):
            if isinstance(statement, ast.If):
                yield statement.test
            yield from _tests([s for branch in _branches(statement) for s in branch], kept)


def _chosen(statements: list[ast.stmt], kept: set[int]) -> list[ast.stmt]:
    found: list[ast.stmt] = []
    for statement in statements:
        if isinstance(statement, ast.If | ast.Try):
            if kept.isdisjoint(map(id, _flat([statement]))):
                continue
            for branch in _branches(statement):
                branch[:] = _chosen(branch, kept)
            statement.body = statement.body or [ast.copy_location(ast.Pass(), statement)]
            for handler in getattr(statement, "handlers", []):
                handler.body = handler.body or [ast.copy_location(ast.Pass(), handler)]
            found.append(statement)
        elif id(statement) in kept:
            found.append(statement)
    return found


def _is_kept(statement: ast.stmt, needed: set[str], verbs: frozenset[str]) -> bool:
    if isinstance(statement, (ast.Import, ast.ImportFrom, *_DEFINITIONS)) or _declares(statement, verbs):
        return True
    return not isinstance(statement, ast.Expr) and bool(_bound(statement) & needed)


def _declares(statement: ast.stmt, verbs: frozenset[str]) -> bool:
    if isinstance(statement, _DEFINITIONS):
        return bool(statement.decorator_list)
    return isinstance(statement, ast.Assign | ast.AnnAssign) and bool(_called(statement) & verbs)


def _called(node: ast.AST) -> set[str]:
    """The names of the functions, without their modules, that are called or decorate somewhere in a statement."""
    functions = [found.func for found in ast.walk(node) if isinstance(found, ast.Call)]
    functions += [found for inner in ast.walk(node) for found in getattr(inner, "decorator_list", [])]
    return {getattr(function, "attr", getattr(function, "id", "")) for function in functions}


def _used(node: ast.AST) -> set[str]:
    """The names that a statement needs from outside: of a function those that are not its own."""
    found = _names(node, ast.Load)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        outside = [*node.decorator_list, *node.args.defaults, *node.args.kw_defaults]
        found -= _names(node, ast.Store) | {inner.arg for inner in ast.walk(node) if isinstance(inner, ast.arg)}
        found |= {name for part in outside if part is not None for name in _names(part, ast.Load)}
    return found


def _bound(statement: ast.stmt) -> set[str]:
    """The names that a statement binds, or whose elements or attributes it assigns to."""
    targets = [node for node in ast.walk(statement) if isinstance(node, ast.Subscript | ast.Attribute)]
    assigned = [target.value for target in targets if isinstance(target.ctx, ast.Store)]
    return _names(statement, ast.Store).union(*(_names(value, ast.Load) for value in assigned))


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {found.id for found in ast.walk(node) if isinstance(found, ast.Name) and isinstance(found.ctx, context)}
