"""Reads the source of a user's function: its syntax tree, its lines, and what its names stand for."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import textwrap
import types
from collections.abc import Callable
from typing import Any, NoReturn

from tidegate.api.outside import MISSING, OutsideName
from tidegate.foundation.errors import DefinitionError
from tidegate.foundation.places import Place


class FunctionSource:
    """A user's function with its syntax tree and the places of its lines."""

    def __init__(self, function: Callable[..., Any], what: str) -> None:
        code = function.__code__
        self.function = function
        self.what = what
        self.file = code.co_filename
        lines, first = inspect.getsourcelines(function)
        text = textwrap.dedent("".join(lines))
        tree = ast.parse(text).body[0]
        if not isinstance(tree, ast.FunctionDef):
            raise DefinitionError(
                Place(self.file, first + tree.lineno - 1).describe(
                    f"{what}: required a plain function (def), got {type(tree).__name__}"
                )
            )
        self.tree: ast.FunctionDef = tree
        self._first = first
        self._own = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        self._own |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        self.outside: dict[str, OutsideName] = {}
        """The names from outside the function that `resolve` was asked for, as they were found."""

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


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return MISSING
