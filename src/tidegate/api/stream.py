"""`tg.stream` and `tg.emit`: what flows between transactions.

    valid = tg.stream("valid", contestant=int)          fields: any type that a table's fields may have
    seen = tg.stream("seen", vehicle=Vehicle)           or a table: the field carries the key of a row

A transaction declared with `emits=[valid]` may call `tg.emit(valid, contestant=3)`. In plain Python, `emit` passes
its tuple to the test (`tidegate.testing.collecting`), so that a function can be tested alone:

    with collecting(lambda stream, fields: found.append(fields)):
        validate(Voter(1), Contestant(3))
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

from tidegate.api.annotations import CHOICES, Unsuitable, value_type
from tidegate.api.control import setting
from tidegate.api.table import layout_of
from tidegate.foundation.arguments import shown
from tidegate.foundation.errors import DefinitionError
from tidegate.foundation.tracebacks import briefly
from tidegate.operations.flow import StreamField, StreamLayout

Sink = Callable[["Stream", dict[str, Any]], None]
_sink: ContextVar[Sink | None] = ContextVar("sink", default=None)


class Stream:
    """A named stream of tuples; declared with `tg.stream`."""

    def __init__(self, layout: StreamLayout, tables: dict[str, type]) -> None:
        self.layout = layout
        self.tables = tables

    @property
    def name(self) -> str:
        """The name that events and tools use."""
        return self.layout.name

    def __repr__(self) -> str:
        fields = ", ".join(f"{f.name}: {f.type.label if f.type else f.table.name}" for f in self.layout.fields)  # type: ignore[union-attr]
        return f"<stream {self.name}({fields})>"


@briefly
def stream(name: str, /, **fields: Any) -> Stream:
    """Declare a stream.

    Args:
        name: the name that events and tools use.
        fields: each field's type, as a table's fields have, or a table for the key of one of its rows.

    >>> stream("votes", phone=int, contestant=int)
    <stream votes(phone: int, contestant: int)>
    """
    named: object = name  # annotations are not enforced: users may pass anything
    if not isinstance(named, str) or not named.isidentifier():
        raise DefinitionError(f"a stream's name is an identifier, got {shown(name)}")
    if not fields:
        raise DefinitionError(f'stream {name!r} has no fields; write for example tg.stream("{name}", amount=int)')
    found, tables = [], {}
    for field, hint in fields.items():
        table, carried = layout_of(hint), None
        if table is not None:
            tables[table.name] = hint
        else:
            try:
                carried = value_type(hint)
            except Unsuitable as error:
                raise DefinitionError(f"stream {name!r}: field {field!r}: {error.problem}; {error.advice}") from None
            if carried is None:
                raise DefinitionError(
                    f"stream {name!r}: field {field!r} has type {getattr(hint, '__name__', hint)!s}; "
                    f"required: {CHOICES}, or a table (then it carries the key of a row)"
                )
        if field in ("batch", "transaction"):
            raise DefinitionError(f"stream {name!r}: the field name {field!r} is reserved; choose another")
        found.append(StreamField(field, carried, table))
    return Stream(StreamLayout(name, tuple(found)), tables)


def emit(target: Stream, /, **fields: Any) -> None:
    """Put a tuple on a stream: when this transaction commits, the tuple starts the transactions `on` the stream.

    Every field is given by name; a field that carries a key takes the key or the row itself.
    """
    if not isinstance(target, Stream):
        raise TypeError(f"tg.emit takes a stream, got {shown(target)}")
    wanted = [field.name for field in target.layout.fields]
    if set(fields) != set(wanted):
        raise TypeError(f"stream {target.name!r} has the fields {', '.join(wanted)}; got {', '.join(fields) or 'none'}")
    sink = _sink.get()
    if sink is not None:
        sink(target, {name: fields[name] for name in wanted})


def collecting(sink: Sink) -> AbstractContextManager[None]:
    """Inside this `with` block, `emit` in plain functions passes every tuple to `sink(stream, fields)`."""
    if not callable(sink):
        raise TypeError(f"collecting: required a function sink(stream, fields), got {shown(sink)}")
    return setting(_sink, sink)
