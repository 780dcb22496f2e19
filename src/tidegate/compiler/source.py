"""Reads the source of a user's function: its syntax tree, its lines, and what its names stand for."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import linecache
import textwrap
import types
from collections.abc import Callable
from typing import Any, NoReturn

from tidegate.api.outside import MISSING, OutsideName
from tidegate.foundation.errors import DefinitionError
from tidegate.foundation.places import Place

WRAPPED = "wrapped by a decorator, whose code is not what would be compiled"


class FunctionSource:
    """A user's function with its syntax tree and the places of its lines."""

    def __init__(self, function: Callable[..., Any], what: str) -> None:
        self.function = function
        self.what = what
        self.file = function.__code__.co_filename
        self.tree, self._first = self.read()
        tree = self.tree
        self._own = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        self._own |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        self.outside: dict[str, OutsideName] = {}
        """The names from outside the function that `resolve` was asked for, as they were found."""

    def read(self) -> tuple[ast.FunctionDef, int]:
        """The function's syntax tree, and the line of the file at which its first line stands."""
        lines, first = inspect.getsourcelines(self.function)
        tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
        if not isinstance(tree, ast.FunctionDef):
            raise DefinitionError(
                Place(self.file, first + tree.lineno - 1).describe(
                    f"{self.what}: required a plain function (def), got {type(tree).__name__}"
                )
            )
        return tree, first

    def place(self, node: ast.AST) -> Place:
        """Where `node` stands in the user's file."""
        return Place(self.file, self._first + getattr(node, "lineno", 1) - 1)

    def refuse(self, node: ast.AST, message: str, advice: str = "") -> NoReturn:
        """Raise a DefinitionError that shows the line of `node`."""
        raise DefinitionError(self.place(node).describe(f"{self.what}: {message}", advice))

    def resolve(self, node: ast.expr) -> Any:
        """The object that a global, enclosing or built-in name refers to (dotted names too), or MISSING."""
        found = self._look(node)
        if found is not MISSING and (name := ast.unparse(node)).partition(".")[0] not in self._own:
            looked = functools.partial(self._look, node)
            self.outside.setdefault(name, OutsideName(self.what, name, self.place(node), found, looked))
        return found

    def _look(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Name):
            for name, cell in zip(self.function.__code__.co_freevars, self.function.__closure__ or (), strict=True):
                if name == node.id:
                    return _contents(cell)
            found = self.function.__globals__.get(node.id, MISSING)
            return getattr(builtins, node.id, MISSING) if found is MISSING else found
        if isinstance(node, ast.Attribute):
            owner = self._look(node.value)
            if owner is MISSING or not isinstance(owner, types.ModuleType | type):
                return MISSING
            return getattr(owner, node.attr, MISSING)
        return MISSING


class LambdaSource(FunctionSource):
    """A lambda, as a function that returns its body."""

    def read(self) -> tuple[ast.FunctionDef, int]:
        """The syntax tree of such a function."""
        found = _lambda_of(self.function.__code__)
        if found is None:
            raise DefinitionError(
                Place(self.file, self.function.__code__.co_firstlineno).describe(
                    f"{self.what}: its source cannot be read, or not be told from that of another lambda",
                    "write a plain function (def)",
                )
            )
        body = ast.copy_location(ast.Return(found.body), found.body)
        tree = ast.FunctionDef("lambda_", found.args, [body], [])
        return ast.fix_missing_locations(ast.copy_location(tree, found)), 1


def _lambda_of(code: types.CodeType) -> ast.Lambda | None:
    """The lambda that was compiled to `code`: its instructions lie in the lambda's body, and in no lambda inside it."""
    linecache.checkcache(code.co_filename)
    try:
        module = ast.parse("".join(linecache.getlines(code.co_filename)))
    except SyntaxError:
        return None
    spans = {((line, column), (last, end)) for line, last, column, end in code.co_positions()}
    known = {place for span in spans if span[0] != span[1] and None not in {*span[0], *span[1]} for place in span}
    lambdas = [node for node in ast.walk(module) if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno]
    if known:
        lambdas = [node for node in lambdas if all(_begin(node.body) <= place <= _end(node.body) for place in known)]
        lambdas = sorted(lambdas, key=lambda node: _begin(node.body))[-1:]
    if len(lambdas) != 1 or not _is_compiled_to(lambdas[0], code):
        return None
    return lambdas[0]


def _begin(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _end(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or 0, node.end_col_offset or 0


def _is_compiled_to(node: ast.Lambda, code: types.CodeType) -> bool:
    """Whether a lambda mentions what the code mentions; otherwise the file has changed since it was imported."""
    compiled = compile(ast.Expression(node), "", "eval")
    made = next((c for c in compiled.co_consts if isinstance(c, types.CodeType)), compiled)
    return all(_mentioned(made, kind) == _mentioned(code, kind) for kind in ("names", "consts", "parameters"))


def _mentioned(code: types.CodeType, kind: str) -> Any:
    if kind == "names":
        return {*code.co_names, *code.co_freevars}
    if kind == "consts":
        return [repr(constant) for constant in code.co_consts if not isinstance(constant, types.CodeType)]
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount], code.co_flags & 0x0C


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return MISSING
