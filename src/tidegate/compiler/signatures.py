"""Reads a transaction's signature: which parameters are rows, which are values, what it returns."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NoReturn, get_args, get_origin, get_type_hints

from tidegate.api.annotations import CHOICES, Unsuitable, value_type
from tidegate.api.stream import Stream
from tidegate.api.table import layout_of
from tidegate.api.window import Window, WindowRows
from tidegate.foundation.errors import DefinitionError
from tidegate.foundation.places import Place
from tidegate.operations.plan import Parameter, ResultType, RowParameter, ValueParameter

UNKNOWN = object()


@dataclasses.dataclass(frozen=True, slots=True)
class Signature:
    """What a function's signature says."""

    parameters: tuple[Parameter, ...]
    classes: dict[str, type]
    windows: dict[str, Window]
    result: Any


def read_parameters(
    function: Callable[..., Any], place: Place, names: Mapping[str, Any], streaming: bool = False
) -> Signature:
    """The parameters, the tables and windows that they name, and the return annotation (or UNKNOWN)."""
    what = f"transaction {function.__name__!r}"

    def refuse(message: str, advice: str = "") -> NoReturn:
        raise DefinitionError(place.describe(f"{what}: {message}", advice))

    try:
        hints = get_type_hints(function, localns=dict(names))
        annotated = get_type_hints(function, localns=dict(names), include_extras=True)
    except NameError as error:
        refuse(f"an annotation cannot be resolved: {error}", "define the table above the transaction")
    parameters: list[Parameter] = []
    classes: dict[str, type] = {}
    windows: dict[str, Window] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            refuse(f"*{name} is not possible: every parameter is an event column")
        if parameter.default is not parameter.empty:
            refuse(f"parameter {name!r} has a default; every event carries its value", "remove the default")
        if name not in hints:
            refuse(f"parameter {name!r} has no annotation", _CHOICES)
        hint, named = hints[name], _windows_in(annotated[name])
        if named:
            if hint is not WindowRows or len(named) > 1:
                count = "a window" if len(named) == 1 else "two windows"
                refuse(f"parameter {name!r} is annotated {_shown(hint)} with {count}", f"write {name}: {_WINDOW}")
            hint = named[0]
        if isinstance(hint, Window):
            if not streaming:
                refuse(f"parameter {name!r} is a window", "windows belong to transactions that are on a stream")
            windows[name] = hint
            continue
        many = get_origin(hint) is list
        whole = annotated[name]
        while get_origin(whole) is Annotated and many:
            whole = get_args(whole)[0]
        inner = get_args(whole)[0] if many and get_args(whole) else whole
        table = layout_of(get_args(hint)[0] if many and get_args(hint) else hint)
        try:
            found = value_type(inner) if table is None else None
        except Unsuitable as error:
            refuse(f"parameter {name!r}: {error.problem}", error.advice)
        if table is not None:
            declared = get_args(hint)[0] if many else hint
            if classes.setdefault(table.name, declared) is not declared:
                refuse(f"two different tables are named {table.name!r}", "rename one")
            parameters.append(RowParameter(name, table, many))
        elif found is not None:
            parameters.append(ValueParameter(name, found, many))
        elif hint is WindowRows:
            refuse(f"parameter {name!r} does not say which window it is", f"write {name}: {_WINDOW}")
        else:
            refuse(
                f"parameter {name!r} is annotated {_shown(hint)}, which is neither a table nor a value",
                _CHOICES,
            )
    if not streaming and not any(isinstance(parameter, RowParameter) for parameter in parameters):
        refuse(
            "it has no row parameter",
            "annotate at least one parameter with a table: that is the state it touches",
        )
    return Signature(tuple(parameters), classes, windows, annotated.get("return", UNKNOWN))


def check_fields(signature: Signature, on: Stream | Window, refuse: Callable[[str, str], NoReturn]) -> None:
    """Refuse a streaming transaction whose parameters are not fields of its stream."""
    stream = on.stream if isinstance(on, Window) else on
    fields = f"fields of {stream.name!r} are: {', '.join(field.name for field in stream.layout.fields)}"
    for parameter in signature.parameters:
        if parameter.many:
            refuse(
                f"parameter {parameter.name!r} is a list; a stream carries no lists", "emit a tuple for each element"
            )
        field = stream.layout.field(parameter.name)
        if field is None:
            refuse(f"parameter {parameter.name!r} is not a field of the stream {stream.name!r}", fields)
        if isinstance(parameter, RowParameter):
            wanted = tuple(column.type for column in parameter.table.key_columns)
            if field.types != wanted or (field.table is not None and field.table != parameter.table):
                refuse(f"the field {parameter.name!r} does not carry the key of {parameter.table.name}", fields)
        elif field.type != parameter.type:
            refuse(f"the field {parameter.name!r} does not carry {parameter.type.label}", fields)
    known: dict[int, str] = {}
    for name, window in signature.windows.items():
        other = known.setdefault(window.identity, name)
        if other != name:
            refuse(
                f"the parameters {other!r} and {name!r} are one window, which takes in each tuple once",
                "leave one of them out, or declare a second tg.window(...)",
            )
        if window.stream is not stream:
            refuse(
                f"the window {name!r} is over {window.stream.name!r}, but the transaction is on {stream.name!r}",
                "a window takes in what starts its transaction",
            )


def read_result(annotation: Any, refuse: Callable[[str, str], NoReturn]) -> ResultType | None:
    """The result type that an annotation declares; None for `-> None`."""
    if annotation is None or annotation is type(None):
        return None
    if get_origin(annotation) in (typing.Union, types.UnionType):
        inner = [part for part in get_args(annotation) if part is not type(None)]
        if len(inner) == 1:
            return read_result(inner[0], refuse)
    try:
        plain, found = value_type(annotation), struct_fields(annotation)
    except Unsuitable as error:
        refuse(f"its result: {error.problem}", error.advice)
    if plain is not None:
        return ResultType((("", plain),), struct=False)
    if found is None:
        refuse(
            f"it returns {_shown(annotation)}, which a column cannot hold",
            f"return {CHOICES}, or a NamedTuple or dataclass of those",
        )
    return found


def struct_fields(candidate: Any) -> ResultType | None:
    """The fields of a NamedTuple or dataclass of plain values; None for anything else."""
    if not isinstance(candidate, type) or layout_of(candidate) is not None:
        return None
    if dataclasses.is_dataclass(candidate):
        names = [field.name for field in dataclasses.fields(candidate)]
    elif issubclass(candidate, tuple) and hasattr(candidate, "_fields"):
        names = list(candidate._fields)
    else:
        return None
    hints = get_type_hints(candidate, include_extras=True)
    found = [(name, value_type(hints.get(name))) for name in names]
    if not found or any(of is None for _, of in found):
        return None
    return ResultType(tuple((name, of) for name, of in found if of is not None), struct=True)


def _windows_in(hint: Any) -> list[Window]:
    """The windows in `Annotated[..., window]`."""
    extras = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return [found for found in extras if isinstance(found, Window)]


_WINDOW = "Annotated[tg.WindowRows, tg.window(...)]"
_CHOICES = f"required: a table (a row), list[a table], {CHOICES}, or a list of those"


def _shown(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint)
