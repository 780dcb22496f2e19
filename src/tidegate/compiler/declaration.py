"""`@tg.transaction` and `@tg.trigger`: check and compile a function where it is declared."""

from __future__ import annotations

import ast
import dataclasses
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, ParamSpec, TypeVar, overload

from tidegate.api.control import history, lookup
from tidegate.api.outside import OutsideName
from tidegate.api.stream import Stream
from tidegate.api.transaction import Transaction
from tidegate.api.window import Window
from tidegate.compiler.signatures import UNKNOWN, Signature, check_fields, read_parameters, read_result
from tidegate.compiler.source import FunctionSource
from tidegate.compiler.transactions import compile_transaction
from tidegate.compiler.unit import Flowing
from tidegate.foundation.arguments import flag, items, shown
from tidegate.foundation.errors import DefinitionError
from tidegate.foundation.places import Place
from tidegate.foundation.tracebacks import shortened
from tidegate.operations.flow import WindowParameter
from tidegate.operations.layout import Kind
from tidegate.operations.plan import TransactionPlan, ValueParameter
from tidegate.operations.times import is_time

P = ParamSpec("P")
R = TypeVar("R")


@overload
def transaction(function: Callable[P, R]) -> Transaction[Callable[P, R]]: ...
@overload
def transaction(
    *, compiled: bool = True, on: Stream | None = None, emits: Sequence[Stream] = (), time: str = ""
) -> Callable[[Callable[P, R]], Transaction[Callable[P, R]]]: ...
def transaction(
    function: Callable[..., Any] | None = None,
    *,
    compiled: bool = True,
    on: Stream | None = None,
    emits: Sequence[Stream] = (),
    time: str = "",
) -> Any:
    """Declare a transaction: a plain function whose signature is its read and write set.

    A parameter annotated with a table is a row, `list[Table]` a list of rows; the event's column of that
    name carries the key. Every other parameter is a plain event column.

    Args:
        function: the function, if the decorator is written without parentheses.
        compiled: True compiles the body to machine code and refuses, with the line, what cannot be
            compiled. False runs it as plain Python: everything is allowed, about a hundred times slower.
        on: the stream whose tuples start it, for a step of a dataflow graph: its fields are the parameters.
        emits: the streams that it may `tg.emit` into.
        time: the int or datetime parameter that carries its own time. Rows with a `ttl` expire by it; `tg.history`
            needs one that is an int.

    Returns:
        The transaction. It can still be called as a plain function on plain rows; type checkers see its signature.
    """
    names = sys._getframe(1).f_locals

    def declare(declared: Callable[P, R]) -> Transaction[Callable[P, R]]:
        try:
            return _declare(declared, compiled, names, _Declared(on, emits, time=time))
        except DefinitionError as error:
            raise shortened(error)  # noqa: B904 - it is the same error

    return declare if function is None else declare(function)


def trigger(
    *, on: Stream | Window, emits: Sequence[Stream] = (), compiled: bool = True, time: str = ""
) -> Callable[[Callable[P, R]], Transaction[Callable[P, R]]]:
    """Declare a trigger: a step that runs inside another transaction, as a part of it.

    Args:
        on: a stream or a window. On a stream, it runs for every tuple inside the transaction that emits it, after that
            transaction has taken all tuples of its round and before any transaction on the stream. On a window, it runs
            inside the window's transaction at each slide, before the body, on the tuple that caused the slide.
        emits: the streams that it may `tg.emit` into.
        compiled: False runs it as plain Python.
        time: the parameter that carries its own time, as for a transaction.
    """
    names = sys._getframe(1).f_locals

    def declare(declared: Callable[P, R]) -> Transaction[Callable[P, R]]:
        try:
            return _declare(declared, compiled, names, _Declared(on, emits, trigger=True, time=time))
        except DefinitionError as error:
            raise shortened(error)  # noqa: B904 - it is the same error

    return declare


@dataclass(frozen=True, slots=True)
class _Declared:
    """What the decorator was given."""

    on: Stream | Window | None = None
    emits: Sequence[Stream] = ()
    trigger: bool = False
    time: str = ""


def _declare(function: Callable[P, R], compiled: bool, names: Any, given: _Declared) -> Transaction[Callable[P, R]]:
    if not isinstance(function, types.FunctionType):
        verb = "trigger" if given.trigger else "transaction"
        raise DefinitionError(f"@tg.{verb} decorates a function, got {shown(function)}")
    place = Place(function.__code__.co_filename, _definition_line(function))

    def refuse(message: str, advice: str) -> NoReturn:
        raise DefinitionError(place.describe(f"transaction {function.__name__!r}: {message}", advice))

    what = f"transaction {function.__name__!r}"
    flag(f"{what}: compiled", compiled)
    given = dataclasses.replace(given, emits=tuple(items(f"{what}: emits", given.emits, "a list of streams")))
    signature = read_parameters(function, place, names, streaming=given.on is not None)
    flowing = _flowing(signature, given, refuse)
    plan, outside = None, tuple[OutsideName, ...]()
    if compiled:
        try:
            plan, outside = compile_transaction(function, place, signature.parameters, signature.result, flowing)
        except (OSError, SyntaxError) as error:
            warnings.warn(
                f"{place.file}:{place.line}: the source of transaction {function.__name__!r} cannot be read "
                f"({error}), so it runs interpreted; define it in a file, or say compiled=False",
                stacklevel=4,
            )
    if plan is None:
        plan = _interpreted(function, place, signature.parameters, signature.result)
        plan = dataclasses.replace(plan, windows=flowing.windows, time=flowing.time)
    classes = signature.classes | {found.__name__: found for found in plan.lookup_classes}
    return Transaction(function, plan, classes, given.on, tuple(given.emits), signature.windows, given.trigger, outside)


def _flowing(signature: Signature, given: _Declared, refuse: Callable[[str, str], NoReturn]) -> Flowing:
    if not isinstance(given.time, str):
        refuse(f"time is the name of an int or datetime parameter, got {shown(given.time)}", "")
    timed = [p for p in signature.parameters if p.name == given.time]
    kinds = [p.type for p in timed if isinstance(p, ValueParameter) and not p.many]
    if given.time and not (kinds and is_time(kinds[0]) and kinds[0] is not Kind.FLOAT):
        advice = "name the parameter that carries its time"
        refuse(f"time={given.time!r} is not an int or datetime parameter of it", advice)
    for stream in given.emits:
        if not isinstance(stream, Stream):
            refuse(f"emits lists streams, got {shown(stream)}", "write emits=[...] with streams of tg.stream(...)")
    if given.on is None:
        if given.emits:
            refuse("it emits, but is not on a stream", "write @tg.transaction(on=..., emits=...)")
        return Flowing(time=given.time)
    if not isinstance(given.on, Stream | Window):
        refuse(f"`on` is a stream, got {shown(given.on)}", "declare it with tg.stream(...)")
    if isinstance(given.on, Window) and not given.trigger:
        refuse("a transaction is on a stream, not on a window", "write @tg.trigger(on=...)")
    check_fields(signature, given.on, refuse)
    windows = tuple(
        WindowParameter(name, window.stream.layout, window.size, window.slide, window.time, window.identity)
        for name, window in signature.windows.items()
    )
    return Flowing(windows, tuple(stream.layout for stream in given.emits), given.time, streaming=True)


def _interpreted(function: Callable[..., Any], place: Place, parameters: Any, annotation: Any) -> TransactionPlan:
    def refuse(message: str, advice: str) -> Any:
        raise DefinitionError(place.describe(f"transaction {function.__name__!r}: {message}", advice))

    for verb in _calls_of(function, (lookup, history)):
        refuse(f"tg.{verb} needs a compiled body: only there is known which rows are written", "drop compiled=False")
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


def _calls_of(function: Callable[..., Any], verbs: tuple[Any, ...]) -> list[str]:
    """The names of those functions among `verbs` that a body calls."""
    try:
        source = FunctionSource(function, "")
    except (OSError, SyntaxError):
        return []
    called = [source.resolve(node.func) for node in ast.walk(source.tree) if isinstance(node, ast.Call)]
    return [verb.__name__ for verb in verbs if any(found is verb for found in called)]


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
