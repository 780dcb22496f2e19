"""`tg.window`: the latest tuples of a stream, private to the transaction that declares it.

    recent = tg.window(valid, rows=100, slide=10)               the last 100 tuples, renewed every 10
    minute = tg.window(valid, time="ts", length=60, slide=10)   the last 60 units of the field `ts`, renewed every 10

    @tg.transaction(on=valid)
    def rank(contestant: Contestant, votes: Annotated[tg.WindowRows, recent]) -> None:

`Annotated` tells type checkers what the body sees. At run time the window alone works as an annotation too:
`votes: recent`.

New tuples are staged: they become visible when the window slides. Without `slide` it is a tumbling window. The body
sees the visible rows, oldest first, and aggregates. Except for the sum of a float field they cost the same for a window
of a hundred rows and of a million; that one adds up the rows whenever it is asked for, because no shorter way gives the
sum that a loop gives:

    len(votes)   votes.slid   votes[0].contestant   for vote in votes: ...
    votes.sum("amount")  .min("amount")  .max("amount")  .distinct("phone")  .frequency("phone", 7)  .top("phone", 3)

By rows, a window slides at every `slide`-th tuple, also before it is full. The tuple that makes it slide is among the
visible rows.

    rows=4, slide=2      1   2   3   4   5   6
    visible              -   12  12  1-4 1-4 3-6

By time, it is cut at the multiples of `slide` (0, 10, 20, ... and -10, ...), whatever the time of the first tuple. The
first tuple at or after a cut makes it slide. The tuples of the last `length` before the cut are then visible; the tuple
itself is staged until the next cut. A late tuple is never dropped: it gets the latest time that the window has seen.
All staged tuples become visible at the next slide, once, even if a long pause has passed.

    length=20, slide=10      ts=7   ts=9   ts=10   ts=8 (late)   ts=20
    visible                  -      -      7 9     7 9           7 9 10 8
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

from tidegate.api.control import Abort
from tidegate.api.stream import Stream
from tidegate.foundation.arguments import items, name, shown, whole
from tidegate.foundation.errors import DefinitionError, InputError
from tidegate.foundation.tracebacks import briefly
from tidegate.operations.layout import Kind

_INT_LIMIT = 2**63
_numbers = itertools.count(1)


class Window:
    """A window declared with `tg.window`; it annotates a parameter: `recent: Annotated[tg.WindowRows, window]`."""

    def __init__(self, stream: Stream, size: int, slide: int, time: str) -> None:
        self.stream, self.size, self.slide, self.time = stream, size, slide, time
        self.identity = next(_numbers)

    def __repr__(self) -> str:
        extent = f"time={self.time!r}, length={self.size}" if self.time else f"rows={self.size}"
        return f"<window over {self.stream.name}, {extent}, slide={self.slide}>"


@briefly
def window(
    over: Stream,
    /,
    *,
    rows: int | None = None,
    time: str | None = None,
    length: int | None = None,
    slide: int | None = None,
) -> Window:
    """Declare a window over a stream.

    Args:
        over: the stream that its transaction is on.
        rows: how many rows it holds.
        time: instead of `rows`, the int field of the stream that carries the time.
        length: with `time`, how many units of time the window spans.
        slide: how many new rows, or units of time, make it slide; by default its whole size: a tumbling window. By rows
            it also slides before it is full; by time it is cut at the multiples of `slide`.
    """
    if not isinstance(over, Stream):
        raise DefinitionError(f"tg.window takes a stream first, got {shown(over)}")
    what = f"window over {over.name!r}"
    if (rows is None) == (time is None) or (time is None) != (length is None):
        raise DefinitionError(f"{what}: required: either rows=..., or time=... and length=...")
    size = rows if rows is not None else length
    slide = size if slide is None else slide
    size = whole(f"{what}: {'rows' if rows is not None else 'length'}", size)
    slide = whole(f"{what}: slide", slide)
    if slide > size:
        raise DefinitionError(f"{what}: it slides by {slide}, more than its {size}; rows would be lost unseen")
    if time is not None:
        time = name(f"{what}: time", time, "the name of an int field of the stream")
        field = over.layout.field(time)
        if field is None or field.type is not Kind.INT:
            raise DefinitionError(
                f"{what}: the time {time!r} is not an int field of it; fields are: "
                f"{', '.join(f.name for f in over.layout.fields)}"
            )
    return Window(over, size, slide, time or "")


class WindowRows(Sequence[Any]):
    """The visible rows of a window, as a transaction sees them.

    Window parameters are annotated with this type, and tests pass such an object to the plain function:

    >>> recent = WindowRows([{"amount": 3}, {"amount": 4}], slid=True)
    >>> recent.sum("amount"), recent[-1].amount, len(recent)
    (7, 4, 2)
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]] = (), slid: bool = False) -> None:
        found = items("WindowRows", rows, 'a list of dicts such as [{"amount": 3}]', InputError)
        for row in found:
            if not isinstance(row, Mapping):
                raise InputError(f'WindowRows: required rows that are dicts such as {{"amount": 3}}, got {shown(row)}')
        self._rows = [SimpleNamespace(**row) for row in found]
        self.slid = slid

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, position: Any) -> Any:
        return self._rows[position]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)

    def _values(self, field: str) -> list[Any]:
        for row in self._rows:
            if not hasattr(row, field):
                raise TypeError(f"the window has no field {field!r}; fields are: {', '.join(vars(row))}")
        return [getattr(row, field) for row in self._rows]

    def sum(self, field: str) -> int:
        """The sum of an int or float field, which `sum` gives for its values, oldest first: 0 for an empty window."""
        total = sum(self._values(field))
        if isinstance(total, float):
            return cast("int", total)  # to type checkers an int is a float as well, but not the other way round
        total = int(total)
        if not -_INT_LIMIT <= total < _INT_LIMIT:
            raise Abort("overflow")
        return total

    def min(self, field: str) -> int:
        """What `min` gives for the values of an int or float field, oldest first; ValueError for an empty window."""
        return cast("int", min(self._values(field)))

    def max(self, field: str) -> int:
        """What `max` gives for the values of an int or float field, oldest first; ValueError for an empty window."""
        return cast("int", max(self._values(field)))

    def distinct(self, field: str) -> int:
        """How many different values there are."""
        return len(set(self._values(field)))

    def frequency(self, field: str, value: int | str) -> int:
        """How many rows have this value."""
        return self._values(field).count(value)

    def top(self, field: str, count: int) -> list[int]:
        """The most frequent values of an int or float field, at most `count`; of equally frequent ones the smaller.

        NaN does not count, and both zeros are 0.0.
        """
        values = [value + 0.0 if isinstance(value, float) else value for value in self._values(field) if value == value]
        ranked = sorted(set(values), key=lambda value: (-values.count(value), value))
        return cast("list[int]", ranked[: max(count, 0)])
