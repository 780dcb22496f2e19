"""A stand-in for `import tidegate as tg` that makes the model's plain data from a program's source text.

    names = declared(source)          names["votes"] is a model.Stream, names["validate"] a model.Procedure, ...
    model = model_of(source)          all graphs and plain procedures of the source, ready to run

Tables, rows, `require`, `abort` and `delete` are the oracle's; streams, windows, triggers, graphs, `emit`, `lookup`
and `history` are here. Nothing of Tidegate is imported: a program runs here before it runs anywhere else.
"""

from __future__ import annotations

import contextlib
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from . import oracle
from .graph_data import Graph, Procedure, Stream, Window
from .model import Model, Services

_services: list[Services] = []


def stream(name: str, /, **fields: type) -> Stream:
    return Stream(name, fields)


def window(
    over: Stream,
    /,
    *,
    rows: int | None = None,
    time: str | None = None,
    length: int | None = None,
    slide: int | None = None,
) -> Window:
    size = rows if rows is not None else length
    assert size is not None
    return Window(over, size, size if slide is None else slide, time)


def emit(target: Stream, /, **fields: Any) -> None:
    _services[-1].emit(target, fields)


def lookup(table: type[oracle.Row], key: Any) -> oracle.Row:
    return _services[-1].lookup(table, key)


def history(row: oracle.Row, *, last: int) -> Sequence[Any]:
    return _services[-1].history(row, last)


@contextlib.contextmanager
def serving(services: Services) -> Iterator[None]:
    """While this is open, a body's `emit`, `lookup` and `history` ask these."""
    _services.append(services)
    try:
        yield
    finally:
        _services.pop()


def transaction(
    function: Callable[..., Any] | None = None,
    *,
    compiled: bool = True,
    on: Stream | Window | None = None,
    emits: Sequence[Stream] = (),
    is_trigger: bool = False,
    time: str = "",
) -> Any:
    if function is None:
        return lambda given: transaction(given, compiled=compiled, on=on, emits=emits, is_trigger=is_trigger, time=time)
    hints = inspect.get_annotations(function, eval_str=True)
    parameters = []
    for name in inspect.signature(function).parameters:
        kind = hints[name]
        is_list = typing.get_origin(kind) is list
        parameters.append((name, typing.get_args(kind)[0] if is_list else kind, is_list))
    returns = oracle.without_none(hints.get("return"))
    named = tuple(_tables_in(function))
    given = (function.__name__, function, tuple(parameters), returns)
    return Procedure(*given, on, tuple(emits), is_trigger, time, named, compiled)


def _tables_in(function: Any) -> Iterator[type]:
    """The tables that a function's text names, or that of a helper that it calls."""
    for name in function.__code__.co_names:
        found = function.__globals__.get(name)
        if isinstance(found, type) and issubclass(found, oracle.Row):
            yield found
        elif isinstance(found, types.FunctionType):
            yield from _tables_in(found)


def trigger(*, on: Stream | Window, emits: Sequence[Stream] = (), compiled: bool = True, time: str = "") -> Any:
    return transaction(compiled=compiled, on=on, emits=emits, is_trigger=True, time=time)


def dataflow(
    transactions: Sequence[Procedure],
    *,
    nested: Sequence[Sequence[Procedure]] = (),
    atomic_batch: int | str = 1,
    name: str | None = None,
) -> Graph:
    graph = Graph(name or "", tuple(transactions), tuple(tuple(group) for group in nested), atomic_batch)
    return graph if name else Graph(graph.borders()[0].name, graph.members, graph.nested, atomic_batch)


STAND_IN = types.SimpleNamespace(
    **{**vars(oracle.STAND_IN), "transaction": transaction},
    stream=stream, window=window, emit=emit, trigger=trigger, dataflow=dataflow, lookup=lookup, history=history,
)  # fmt: skip


def declared(source: str) -> dict[str, Any]:
    """The namespace of a program's source."""
    return oracle.declarations(source, "<model>", STAND_IN)


def model_of(names: dict[str, Any], keeps: Mapping[str, int] | None = None) -> Model:
    """All graphs of a namespace, and all procedures that are on no stream.

    `keeps` is the largest `last` with which any text of the program asks for the history of a table.
    """
    items = [
        item for item in names.values() if isinstance(item, Graph) or (isinstance(item, Procedure) and item.on is None)
    ]
    return Model(items, serving, keeps or {})
