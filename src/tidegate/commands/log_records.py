"""The commands in a log as people read them, and as JSON; a segment says how its own are decoded.

    number   command
        41   load 3 rows into Account (id, balance)
        42   transfer(src=1, dst=2, amount=30)
        43   transfer(src=1, dst=2, amount=30), once: 'order-7'
        44   run 200 events (transaction, src, dst, amount)
        44   6 steps of it
        45   take 4 from bills

No program is needed: every segment lists the names and the parameters of its transactions. Steps have no number of
their own, they belong to the batch before them.

Not here: whether a log is whole (log_check.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tidegate.durability.commands import Codec, Execute, Load, Record, Run, Step, Take, Void, plans
from tidegate.durability.log_format import Frame, Segment, frames
from tidegate.durability.log_segments import numbers, open_segment
from tidegate.engine.graphs.steps import unpack_steps
from tidegate.foundation.storage import Storage


@dataclass(frozen=True, slots=True)
class Logged:
    """A record of a log, and where it stands."""

    number: int
    segment: Segment
    offset: int
    record: Record


def decode(segment: Segment, frame: Frame, codec: Codec, number: int) -> list[Logged]:
    """The records of a frame; `number` is that of the last command before it."""
    found = []
    for record in codec.decode(frame.payload):
        number += not isinstance(record, Step)
        found.append(Logged(number, segment, frame.offset, record))
    return found


def codec_of(segment: Segment) -> Codec:
    """What decodes the records of a segment."""
    return Codec(plans(segment.transactions))


def read_commands(storage: Storage, first: int = 1) -> Iterator[Logged]:
    """All records from a command on, in the order of the log; damage raises what it is."""
    there = numbers(storage)
    for number, following in zip(there, [*there[1:], None], strict=True):
        if following is not None and following <= first:
            continue
        try:
            opened = open_segment(storage, number)
        except FileNotFoundError:  # a running engine has removed it: a checkpoint has its commands
            continue
        segment, last = opened.header.segment, number - 1
        codec = codec_of(segment)
        for part in frames(opened.file, opened.data, opened.header):
            if isinstance(part, Frame):
                for each in decode(segment, part, codec, last):
                    last = each.number
                    if last >= first:
                        yield each


def text(logged: Logged) -> str:
    """A record as people read it."""
    record = logged.record
    match record:
        case Execute():
            name, names = _transaction(logged.segment, record)
            arguments = ", ".join(f"{n}={value!r}" for n, value in zip(names, record.arguments, strict=True))
            once = "" if record.key is None else f", once: {record.key!r}"
            return f"{name}({arguments}){once}"
        case Run():
            order = "" if record.order_by is None else f", in the order of {record.order_by}"
            return f"run {record.events.num_rows:,} events ({', '.join(record.events.column_names)}){order}"
        case Load():
            return f"load {record.rows.num_rows:,} rows into {record.table} ({', '.join(record.rows.column_names)})"
        case Take():
            return f"take {record.count:,} from {record.stream}"
        case Step():
            return f"{len(unpack_steps(record.payload)):,} steps of it"
        case Void():
            return "the batch before it failed: void"


def to_json(logged: Logged) -> dict[str, Any]:
    """A record as JSON values."""
    record, told = logged.record, {"number": logged.number, "file": logged.segment.name, "offset": logged.offset}
    match record:
        case Execute():
            name, names = _transaction(logged.segment, record)
            arguments = dict(zip(names, record.arguments, strict=True))
            return {**told, "kind": "execute", "transaction": name, "arguments": arguments, "key": record.key}
        case Run():
            events = {"events": record.events.num_rows, "columns": record.events.column_names}
            return {**told, "kind": "run", **events, "order_by": record.order_by}
        case Load():
            rows = {"rows": record.rows.num_rows, "columns": record.rows.column_names}
            return {**told, "kind": "load", "table": record.table, **rows}
        case Take():
            return {**told, "kind": "take", "stream": record.stream, "count": record.count}
        case Step():
            steps = len(unpack_steps(record.payload))
            return {**told, "kind": "steps", "steps": steps, "size": len(record.payload)}
        case Void():
            return {**told, "kind": "void"}


def _transaction(segment: Segment, record: Execute) -> tuple[str, list[str]]:
    name, parameters = segment.transactions[record.transaction]
    return name, [parameter[0] for parameter in parameters]
