"""`@tg.transaction`: checks and compiles a function where it is declared."""

from __future__ import annotations

import ast
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any, overload

from tidegate.api.transaction import Transaction
from tidegate.compiler.signatures import UNKNOWN, read_parameters, read_result
from tidegate.compiler.source import FunctionSource
from tidegate.compiler.transactions import compile_transaction
from tidegate.foundation.errors import DefinitionError
from tidegate.foundation.places import Place
from tidegate.operations.plan import TransactionPlan


@overload
def transaction(function: Callable[..., Any]) -> Transaction: ...
@overload
def transaction(*, compiled: bool = True) -> Callable[[Callable[..., Any]], Transaction]: ...
def transaction(
    function: Callable[..., Any] | None = None, *, compiled: bool = True
) -> Transaction | Callable[[Callable[..., Any]], Transaction]:
    """Declare a transaction: a plain function whose signature is its read and write set.

    A parameter annotated with a table is a row, `list[Table]` a list of rows; the event's column of that
    name carries the key. Every other parameter is a plain event column.

    Args:
        function: the function, where the decorator stands without parentheses.
        compiled: True compiles the body to machine code and refuses, with the line, what cannot be
            compiled. False runs it as plain Python: anything goes, about a hundred times slower.

    Returns:
        The transaction, still callable as the plain function on plain rows.
    """
    names = sys._getframe(1).f_locals

    def declare(declared: Callable[..., Any]) -> Transaction:
        return _declare(declared, compiled, names)

    return declare if function is None else declare(function)


def _declare(function: Callable[..., Any], compiled: bool, names: Any) -> Transaction:
    if not isinstance(function, types.FunctionType):
        raise DefinitionError(f"@tg.transaction decorates a function, got {function!r}")
    place = Place(function.__code__.co_filename, _definition_line(function))
    parameters, classes, annotation = read_parameters(function, place, names)
    plan = None
    if compiled:
        try:
            plan = compile_transaction(function, place, parameters, annotation)
        except (OSError, SyntaxError) as error:
            warnings.warn(
                f"{place.file}:{place.line}: the source of transaction {function.__name__!r} cannot be read "
                f"({error}), so it runs interpreted; define it in a file, or say compiled=False",
                stacklevel=4,
            )
    if plan is None:
        plan = _interpreted(function, place, parameters, annotation)
    return Transaction(function, plan, classes)


def _interpreted(function: Callable[..., Any], place: Place, parameters: Any, annotation: Any) -> TransactionPlan:
    def refuse(message: str, advice: str) -> Any:
        raise DefinitionError(place.describe(f"transaction {function.__name__!r}: {message}", advice))

    if annotation is UNKNOWN and _returns_a_value(function):
        refuse("it returns a value, and interpreted functions say of which type", "annotate it, for example -> int")
    result = None if annotation is UNKNOWN else read_result(annotation, refuse)
    return TransactionPlan(
        name=function.__name__,
        place=place,
        parameters=parameters,
        accesses=(),
        reasons=(),
        literals=(),
        result=result,
        source="",
        arguments=(),
        undo_lists=(),
        slices=(),
        speculative=False,
        unsplit="it runs as plain Python, and what that does is not known before",
    )


def _returns_a_value(function: Callable[..., Any]) -> bool:
    try:
        tree = FunctionSource(function, "").tree
    except (OSError, SyntaxError):
        return False
    returns = [node for node in ast.walk(tree) if isinstance(node, ast.Return)]
    return any(
        r.value is not None and not (isinstance(r.value, ast.Constant) and r.value.value is None) for r in returns
    )


def _definition_line(function: types.FunctionType) -> int:
    """The line of `def`, below any decorators."""
    first = function.__code__.co_firstlineno
    for line in range(first, first + 50):
        if Place(function.__code__.co_filename, line).text.startswith(("def ", "async def ")):
            return line
    return first
