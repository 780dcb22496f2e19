"""Reads a log segment so fast that millions of logged calls a second can be replayed.

    bytes of a segment --scan--> Payloads --CommandReader--> ExecuteBatch, Run, Execute, ... --replay--> rows

Machine code reads what is usual and stops before everything else; Python (log_format.py, commands.py) reads that, and
machine code goes on behind it. So one place distinguishes a torn frame from a damaged one, and one says why a record
cannot be read.

Calls that follow each other become one table of events, which the engine runs in row order:

    log      transfer(1, 2, 250)    deposit(3, 7)    deposit(3, 7, key="a")    transfer(3, 1, 5)   ...
             `------- ExecuteBatch --------------´   `------ Execute ------´   `-- ExecuteBatch ------

    transaction    src    dst    amount
    transfer       1      2      250
    deposit        0      3      7             columns that the transaction does not have hold zeros

Not in a batch: calls with a key or with nulls; calls whose arguments cannot be columns of events (another transaction
gives the same column another type); and a few calls between other records, since a batch takes 0.3 ms however small it
is. A transfer in a frame of its own takes 0.16 us to here, and 0.25 us with the engine's work.

While events wait for the rest of their atomic batch, calls are executed one by one: a batch would take those events in
again, and might change the types of their columns.

Invariant: scanning gives the frames, the tail or the error that `log_format.frames` gives. The commands, with the calls
of a batch in row order, are the records that `Codec.decode` gives; running a batch leaves the same rows as executing
its calls one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.durability.commands import Codec, Record
from tidegate.durability.kernels import frames as frame_kernels
from tidegate.durability.kernels import records as record_kernels
from tidegate.durability.log_format import End, Header, Tail, decode_header, frames
from tidegate.engine.intake import arrow_type
from tidegate.engine.single import makes_a_batch
from tidegate.engine.state.strings import read_only
from tidegate.foundation.storage import Bytes
from tidegate.operations.layout import Kind, ValueType
from tidegate.operations.outcomes import TRANSACTION_COLUMN
from tidegate.operations.plan import Parameter, ProgramPlan, RowParameter

Array = npt.NDArray[Any]

PIECE_BYTES = 1 << 23
"""How much of a file is scanned at once. Its payloads and the ends of its frames take 26 MB at most."""

ROWS_MAX, ROWS_MIN = 1 << 17, 64
"""Calls in a batch: more give nothing, and fewer are faster one by one."""

BATCH_BYTES_MAX, RECORD_BYTES_MAX = 1 << 23, 1 << 20
"""Bytes of records after which a batch ends, and those of the longest record that goes into one."""


# --- frames -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Payloads:
    """Whole frames that follow each other: their payloads back to back, and where each frame ends.

    Payload n is `content[bounds[n] : bounds[n + 1]]`; the frame's end is at offset `stops[n]` of the file, and
    `chains[n]` is its chain.
    """

    content: Array | bytes
    bounds: Array
    stops: Array
    chains: Array

    def __len__(self) -> int:
        return len(self.stops)

    def payload(self, number: int) -> bytes:
        """What one frame holds."""
        if isinstance(self.content, bytes) and len(self) == 1:
            return self.content  # it may be huge
        return bytes(self.content[self.bounds[number] : self.bounds[number + 1]])

    def end(self, number: int) -> End:
        """The end of the log when a frame was the last."""
        return End(int(self.stops[number]), int(self.chains[number]))

    def first(self, count: int) -> Payloads:
        """The first frames only."""
        return Payloads(self.content, self.bounds[: count + 1], self.stops[:count], self.chains[:count])


def scan(file: str, data: Bytes, header: Header | None = None) -> Iterator[Payloads | Tail]:
    """As `frames`, but many frames at a time."""
    if header is None:
        header = decode_header(file, data)
    view = read_only(np.frombuffer(data, np.uint8))
    end = header.start
    while True:
        limit = min(end.offset + PIECE_BYTES, len(view))
        found = _walk(view, header, end, limit)
        if len(found):
            yield found
            end = found.end(-1)
        if end.offset >= limit and limit < len(view):
            continue
        frame = next(frames(file, data, header, end))
        if isinstance(frame, Tail):
            yield frame
            return
        bounds, stop, chain = [0, len(frame.payload)], frame.end.offset, frame.end.chain
        yield Payloads(frame.payload, np.array(bounds), np.array([stop]), np.array([chain]))
        end = frame.end


def _walk(view: Array, header: Header, end: End, limit: int) -> Payloads:
    """The frames from an end on that are plain, up to the one that reaches a limit."""
    size = max(limit - end.offset, 0)
    room = size // frame_kernels.FRAME_SIZE_MIN + 1
    content = np.empty(size + frame_kernels.PAYLOAD_SIZE_MAX, np.uint8)
    bounds, stops, chains = np.empty(room + 1, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    standing = np.array([end.offset, end.chain], np.int64)
    head = np.empty(frame_kernels.HEAD_ROOM, np.uint8)
    count = frame_kernels.walk_frames(view, header.checksum, limit, standing, head, content, bounds, stops, chains)
    return Payloads(content, bounds[: count + 1], stops[:count], chains[:count])


# --- commands ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExecuteBatch:
    """Calls that follow each other in the log, as events that an engine runs in row order."""

    events: pa.Table

    def __len__(self) -> int:
        return int(self.events.num_rows)


class _Cursor:
    """Takes records out of payloads one by one; moves `standing` along."""

    def __init__(self, codec: Codec, payloads: Payloads, standing: Array) -> None:
        self._codec, self._payloads = codec, payloads
        self.standing = standing
        self._held, self._number = b"", -1

    def take(self) -> Record:
        """The next record; there must be one."""
        standing, bounds = self.standing, self._payloads.bounds
        payload, at, number, _ = standing.tolist()
        while at >= bounds[payload + 1]:
            payload, number = payload + 1, 0
        if payload != self._number:
            self._held, self._number = self._payloads.payload(payload), payload
        start = int(bounds[payload])
        record, stop = self._codec.record(self._held, at - start, number)
        standing[:] = payload, start + stop, number + 1, False
        return record


class CommandReader:
    """Reads the commands of one program."""

    def __init__(self, plan: ProgramPlan) -> None:
        self._codec = Codec(plan.transactions)
        self._plan = plan
        self._columns = _Columns(plan)
        self._names = pa.array(plan.names, pa.string())
        self._room: _Room | None = None

    def commands(self, payloads: Payloads) -> Iterator[ExecuteBatch | Record]:
        """What payloads hold, in order; raises `RecoveryImpossible` where a record cannot be read."""
        data = read_only(np.frombuffer(payloads.content, np.uint8))
        bounds, limits = read_only(payloads.bounds), (BATCH_BYTES_MAX, RECORD_BYTES_MAX)
        standing = np.array([0, payloads.bounds[0], 0, False], np.int64)
        cursor = _Cursor(self._codec, payloads, standing)
        while standing[record_kernels.PAYLOAD] < len(payloads):
            room = self._make_room(int(bounds[-1] - standing[record_kernels.AT]))
            before = standing.copy()
            rows = record_kernels.read_calls(data, bounds, limits, self._columns.program, standing, room.arrays)
            if rows:
                events = self._events(data, room, rows) if rows >= ROWS_MIN else None
                if events is None:
                    room.clear(rows)
                    again = _Cursor(self._codec, payloads, before)
                    yield from (again.take() for _ in range(rows))
                else:
                    self._room = None
                    yield ExecuteBatch(events)
            if standing[record_kernels.UNUSUAL]:
                yield cursor.take()

    def _make_room(self, size: int) -> _Room:
        """Arrays of zeros for all calls that `size` bytes can hold; the unused ones again, if they suffice."""
        rows, items = min(size, ROWS_MAX), min(size, BATCH_BYTES_MAX + RECORD_BYTES_MAX)
        if self._room is None or self._room.rows < rows or self._room.item_count < items:
            self._room = _Room(self._columns, rows, items)
        return self._room

    def _events(self, data: Array, room: _Room, rows: int) -> pa.Table | None:
        """The calls as events; None where a text is not UTF-8, which the decoder will say."""
        columns: dict[str, pa.Array] = {
            TRANSACTION_COLUMN: pa.DictionaryArray.from_arrays(pa.array(room.kinds[:rows]), self._names)
        }
        for column in self._columns.columns.values():
            columns[column.parameter.name] = column.to_arrow(data, room, rows)
        if self._columns.has_strings:
            try:
                for found in columns.values():
                    found.validate(full=True)
            except pa.ArrowInvalid:
                return None
        for name in self._plan.columns:
            if name not in columns:
                columns[name] = pa.nulls(rows)
        return pa.table(columns)


# --- columns ----------------------------------------------------------------------------------------------------

_CODES = {
    Kind.INT: record_kernels.INT,
    Kind.FLOAT: record_kernels.FLOAT,
    Kind.BOOL: record_kernels.BOOL,
    Kind.STR: record_kernels.STR,
}


class _Column:
    """An event column: where the kernel puts its values, by the names of a key's fields (a plain value's is empty)."""

    def __init__(self, parameter: Parameter, columns: _Columns) -> None:
        self.parameter = parameter
        self.list_number = columns.lists if parameter.many else -1
        columns.lists += parameter.many
        self.parts: dict[str, tuple[ValueType, int]] = {}
        for name, of in _parts_of(parameter):
            place = columns.item_words if parameter.many else columns.words
            self.parts[name] = (of, place)
            width = 2 if of.kind is Kind.STR else 1
            if parameter.many:
                columns.item_words += width
            else:
                columns.words += width

    def steps(self, parameter: Parameter) -> list[tuple[int, int, int]]:
        """How the kernel reads a parameter that goes into this column."""
        parts = _parts_of(parameter)
        assert all(self.parts[name][0] == of for name, of in parts), f"column {parameter.name!r} of two types"
        own = [(_CODES[of.kind], self.parts[name][1], 0) for name, of in parts]
        return [(record_kernels.LIST, self.list_number, len(own)), *own] if parameter.many else own

    def to_arrow(self, data: Array, room: _Room, rows: int) -> pa.Array:
        """The values of the first rows."""
        words, count = room.words, rows
        if self.parameter.many:
            words, count = room.items, int(room.ends[self.list_number, rows])
        parts = {name: _part(data, of, words, place, count) for name, (of, place) in self.parts.items()}
        values = parts[""] if "" in parts else pa.StructArray.from_arrays(list(parts.values()), names=list(parts))
        if not self.parameter.many:
            return values
        offsets = pa.array(room.ends[self.list_number, : rows + 1])
        return pa.LargeListArray.from_arrays(offsets, values, type=arrow_type(self.parameter))


def _parts_of(parameter: Parameter) -> list[tuple[str, ValueType]]:
    if not isinstance(parameter, RowParameter):
        return [("", parameter.type)]
    keys = parameter.table.key_columns
    return [("", keys[0].type)] if len(keys) == 1 else [(key.name, key.type) for key in keys]


def _part(data: Array, value_type: ValueType, words: Array, place: int, count: int) -> pa.Array:
    if not isinstance(value_type, Kind):
        plain = _part(data, value_type.kind, words, place, count)
        return value_type.pack(plain if value_type.kind is Kind.STR else plain.to_numpy())
    kind, values = value_type, words[place, :count]
    if kind is Kind.STR:
        offsets = np.empty(count + 1, np.int32)
        texts = np.empty(record_kernels.place_spans(words[place + 1, :count], offsets), np.uint8)
        record_kernels.copy_spans(data, values, offsets, texts)
        return pa.Array.from_buffers(kind.arrow, count, [None, pa.py_buffer(offsets), pa.py_buffer(texts)], 0)
    if kind is Kind.BOOL:
        values = np.packbits(values.astype(np.bool_), bitorder="little")
    return pa.Array.from_buffers(kind.arrow, count, [None, pa.py_buffer(values)], 0)


class _Columns:
    """The event columns of a program's calls, and how its transactions fill them."""

    def __init__(self, plan: ProgramPlan) -> None:
        self.words, self.item_words, self.lists = 0, 0, 0
        self.columns: dict[str, _Column] = {}
        first_steps = np.full(len(plan.transactions), -1, np.int64)
        steps: list[tuple[int, int, int]] = []
        for number in _callable(plan):
            first_steps[number] = len(steps)
            for parameter in plan.transactions[number].parameters:
                column = self.columns.get(parameter.name)
                if column is None:
                    column = self.columns[parameter.name] = _Column(parameter, self)
                steps += column.steps(parameter)
            steps.append((-1, 0, 0))
        self.program = first_steps, np.array(steps, np.int64).reshape(-1, 3)
        kinds = {of.kind for column in self.columns.values() for of, _ in column.parts.values()}
        self.has_strings = Kind.STR in kinds


def _callable(plan: ProgramPlan) -> list[int]:
    """The transactions that calls name and whose arguments are columns of events.

    Two of them that share a column agree on its type: what each of them gives must fit what the other one takes.
    Where None is a value, a byte says whether there is one: the kernel does not read such calls.
    """
    flows, streaming = plan.flows, set()
    for flow in flows.flows:
        if flow.name:
            members = [flows.members[number] for group in flow.groups for number in group.members]
            streaming |= {member.transaction for member in members}
    numbers = [number for number in range(len(plan.transactions)) if number not in streaming]
    return [number for number in numbers if makes_a_batch(plan, number) and _has_plain_arguments(plan, number)]


def _has_plain_arguments(plan: ProgramPlan, number: int) -> bool:
    """Whether the arguments are never None, and share their columns with none of another type."""
    for parameter in plan.transactions[number].parameters:
        parts = _parts_of(parameter)
        others = (other for t in plan.transactions for other in t.parameters if other.name == parameter.name)
        carried = any(not isinstance(of, Kind) for _, of in parts)
        if any(of.optional for _, of in parts) or (carried and any(_parts_of(other) != parts for other in others)):
            return False
    return True


class _Room:
    """Arrays of zeros that the kernel fills."""

    def __init__(self, columns: _Columns, rows: int, items: int) -> None:
        self.rows, self.item_count = rows, items
        self.kinds = np.zeros(rows, np.int32)
        self.words = np.zeros((columns.words, rows), np.int64)
        self.items = np.empty((columns.item_words, items), np.int64)
        self.ends = np.zeros((columns.lists, rows + 1), np.int64)

    @property
    def arrays(self) -> tuple[Array, Array, Array, Array]:
        """As the kernel takes them."""
        return self.kinds, self.words, self.items, self.ends

    def clear(self, rows: int) -> None:
        """Make the first rows zeros again."""
        self.words[:, :rows] = 0
