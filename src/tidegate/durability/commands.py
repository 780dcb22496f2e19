"""Commands as bytes: what an engine was asked to do, so that it can be done again.

    record     what was asked for                 bytes
    Execute    one transaction, its arguments     number, arguments in the order of the parameters
    Run        a batch of events                  order_by, Arrow IPC stream
    Load       rows written into a table          name, Arrow IPC stream
    Take       tuples handed out of a stream      name, count
    Step       one streaming transaction          dataflow, round, group, bytes of its own
    Void       the batch before it failed         nothing

No row is logged: transactions are deterministic, so the same commands on the same rows give the same rows. A record
starts with one number, `transaction << 3 | form`, or `kind << 3 | 4`, and ends with its last part, so records stand
back to back. A transfer of 250 from account 1 to account 2, transaction 0 of its program:

    transfer(src=1, dst=2, amount=250)      00    02    04    f4 03
                                            0<<3  src   dst   amount

Values may be null only in the form "with nulls". An argument that is not a plain value of its declared type is
converted as the engine does it (`argument_columns`): what that refuses raises the same InputError here; what it
converts is logged and run as converted. So what runs is what would be replayed, even if an argument can be read only
once.

Invariant: for every call that an engine accepts, the decoded arguments give the outcome that the call's own give.

Not here: values (value_bytes.py), frames, checksums and files (log_format.py).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.durability import value_bytes
from tidegate.durability.scratch import Scratch
from tidegate.durability.table_streams import read_stream, stream_size, write_stream
from tidegate.durability.value_bytes import Get, Put, Unusual
from tidegate.engine.arguments import taken_arguments
from tidegate.foundation.errors import InputError, RecoveryImpossible
from tidegate.foundation.places import Place
from tidegate.operations.layout import Column, TableLayout
from tidegate.operations.plan import Parameter, RowParameter, TransactionPlan, ValueParameter
from tidegate.operations.values import from_json

CHUNK_ROWS_MIN = 1024
"""Tables whose chunks are smaller on average are logged in one piece: each chunk costs some 200 bytes."""


@dataclass(frozen=True, slots=True)
class Execute:
    """One transaction by its number, with its arguments in the order of its parameters.

    `key` is what the caller gave to have the call done once only. A row is its key, a composite one a tuple.
    """

    transaction: int
    arguments: tuple[Any, ...]
    key: int | str | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """A batch of events, with the columns that were given."""

    events: pa.Table
    order_by: str | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """Rows that were written into a table."""

    table: str
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class Take:
    """Tuples that were handed out of an output stream: the first `count`."""

    stream: str
    count: int


@dataclass(frozen=True, slots=True)
class Step:
    """One streaming transaction of a dataflow; what is in `payload` is its caller's matter."""

    dataflow: int
    round: int
    group: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Void:
    """The batch of events before it failed after it was logged: it changed nothing, and is not run again."""


Record = Execute | Run | Load | Take | Step | Void

_WITH_KEY, _WITH_NULLS, _OTHER = 1, 2, 4
_FORM_BITS = 3


class Codec:
    """Encodes and decodes the records of one program."""

    def __init__(self, transactions: Sequence[TransactionPlan]) -> None:
        self._transactions = [_Transaction(number, plan) for number, plan in enumerate(transactions)]

    def execute(
        self, number: int, arguments: Mapping[str, Any], key: int | str | None = None
    ) -> tuple[bytes, Mapping[str, Any]]:
        """The record of a call of `execute`, and the arguments to run it with; refuses what an engine would."""
        transaction = self._transactions[number]
        try:
            return transaction.encode(arguments, key, with_nulls=False), arguments
        except (Unusual, UnicodeEncodeError):
            return transaction.encode_unusual(arguments, key)

    def encode(self, record: Record) -> bytes:
        """A record as bytes."""
        if isinstance(record, Execute):
            names = self._transactions[record.transaction].names
            return self.execute(record.transaction, dict(zip(names, record.arguments, strict=True)), record.key)[0]
        number, (_, parts) = next((n, kind) for n, kind in enumerate(_KINDS) if kind[0] is type(record))
        out = bytearray()
        value_bytes.put_word(out, number << _FORM_BITS | _OTHER)
        for name, put, _ in parts:
            put(out, getattr(record, name))
        return bytes(out)

    def encode_later(self, batch: Run) -> LaterRecord:
        """The record of a batch, which may become bytes when there is time for it, in any thread."""
        start, events = bytearray(), _loggable(batch.events)
        size = _table_size(events)
        value_bytes.put_word(start, _RUN << _FORM_BITS | _OTHER)
        _ORDER_BY[0](start, batch.order_by)
        value_bytes.put_word(start, size)
        return LaterRecord(bytes(start), events, len(start) + size)

    def decode(self, data: bytes) -> Iterator[Record]:
        """The records that stand back to back in a payload."""
        at, number = 0, 0
        while at < len(data):
            record, at = self.record(data, at, number)
            yield record
            number += 1

    def record(self, data: bytes, at: int, number: int) -> tuple[Record, int]:
        """The record at a place in a payload, its `number`th, and the place behind it."""
        try:
            return self._record(data, at)
        except (IndexError, ValueError, struct.error, pa.ArrowException) as error:
            raise RecoveryImpossible(
                f"record {number} of a logged command cannot be read, at byte {at} of {len(data)}: {error}. Its "
                "checksum is right, so another program or another Tidegate wrote it: use the one that did."
            ) from error

    def _record(self, data: bytes, at: int) -> tuple[Record, int]:
        word, at = value_bytes.get_word(data, at)
        number, form = word >> _FORM_BITS, word & (1 << _FORM_BITS) - 1
        if form < _OTHER:
            if number >= len(self._transactions):
                raise ValueError(f"transaction {number}, required: less than {len(self._transactions)}")
            return self._transactions[number].decode(data, at, form)
        if form > _OTHER or number >= len(_KINDS):
            raise ValueError(f"a record of form {form}, number {number} is not known")
        made, parts = _KINDS[number]
        values = {}
        for name, _, get in parts:
            values[name], at = get(data, at)
        return made(**values), at


@dataclass(frozen=True, slots=True)
class LaterRecord:
    """A batch's record of a size that is known, whose bytes are not made yet."""

    start: bytes
    events: pa.Table
    size: int

    def encode(self, scratch: Scratch) -> pa.Buffer:
        """The record as bytes, in memory that is used again."""
        memory = scratch.take(self.size)
        memory[: len(self.start)] = np.frombuffer(self.start, np.uint8)
        write_stream(self.events, pa.FixedSizeBufferWriter(pa.py_buffer(memory[len(self.start) :])))
        return pa.py_buffer(memory)


def signatures(transactions: Sequence[TransactionPlan]) -> list[Any]:
    """The names and parameters of transactions as plain JSON values: all that decoding needs."""
    return [[plan.name, [_parameter_to_json(parameter) for parameter in plan.parameters]] for plan in transactions]


def plans(listed: Sequence[Any]) -> tuple[TransactionPlan, ...]:
    """Transactions with the parameters that `signatures` listed, and no body."""
    found = []
    for name, listed_parameters in listed:
        parameters = tuple(_parameter_from_json(*parameter) for parameter in listed_parameters)
        found.append(TransactionPlan(name, Place("", 0), parameters, (), (), (), None, "", (), (), (), False, ""))
    return tuple(found)


def _parameter_to_json(parameter: Parameter) -> list[Any]:
    if isinstance(parameter, ValueParameter):
        return [parameter.name, parameter.many, parameter.type.to_json()]
    table = parameter.table
    return [parameter.name, parameter.many, table.name, [[key.name, key.type.to_json()] for key in table.key_columns]]


def _parameter_from_json(name: str, many: bool, kind: Any, keys: Sequence[Any] | None = None) -> Parameter:
    if keys is None:
        return ValueParameter(name, from_json(kind), many)
    types = [(field, from_json(of)) for field, of in keys]
    columns = tuple(Column(field, of, of.zero) for field, of in types)
    return RowParameter(name, TableLayout(kind, columns, tuple(column.name for column in columns)), many)


# --- one transaction --------------------------------------------------------------------------------------------


class _Transaction:
    """How the arguments of one transaction are written and read; all that depends on its parameters is made once."""

    def __init__(self, number: int, plan: TransactionPlan) -> None:
        self.names = tuple(parameter.name for parameter in plan.parameters)
        self._number, self._plan = number, plan
        self._prefixes = []
        for form in range(_OTHER):
            prefix = bytearray()
            value_bytes.put_word(prefix, number << _FORM_BITS | form)
            self._prefixes.append(bytes(prefix))
        self._puts: dict[bool, list[tuple[str, Put]]] = {}
        self._gets: dict[bool, list[Get]] = {}
        for with_nulls in (False, True):
            codecs = [value_bytes.parameter_codec(parameter, with_nulls) for parameter in plan.parameters]
            self._puts[with_nulls] = [(name, put) for name, (put, _) in zip(self.names, codecs, strict=True)]
            self._gets[with_nulls] = [get for _, get in codecs]

    def encode(self, arguments: Mapping[str, Any], key: int | str | None, *, with_nulls: bool) -> bytes:
        """The record of a call with plain arguments."""
        form = with_nulls * _WITH_NULLS | (key is not None) * _WITH_KEY
        out = bytearray(self._prefixes[form])
        if key is not None:
            _put_key(out, key)
        for name, put in self._puts[with_nulls]:
            put(out, arguments[name])
        return bytes(out)

    def encode_unusual(self, arguments: Mapping[str, Any], key: int | str | None) -> tuple[bytes, Mapping[str, Any]]:
        """The record of a call with any arguments, and these as a batch takes them."""
        taken = taken_arguments(self._plan, arguments)
        try:
            return self.encode(taken, key, with_nulls=False), taken
        except Unusual:
            return self.encode(taken, key, with_nulls=True), taken

    def decode(self, data: bytes, at: int, form: int) -> tuple[Execute, int]:
        """The record whose first number ends at a place."""
        key = None
        if form & _WITH_KEY:
            key, at = _get_key(data, at)
        values = []
        for get in self._gets[bool(form & _WITH_NULLS)]:
            value, at = get(data, at)
            values.append(value)
        return Execute(self._number, tuple(values), key), at


# --- parts of records -------------------------------------------------------------------------------------------


def _put_name(out: bytearray, name: str) -> None:
    try:
        value_bytes.put_bytes(out, name.encode())
    except UnicodeEncodeError as error:
        raise InputError(f"required a text that UTF-8 can hold, got {name!r} ({error})") from error


def _put_key(out: bytearray, key: Any) -> None:
    out.append(isinstance(key, str))
    try:
        (value_bytes.put_str if isinstance(key, str) else value_bytes.put_int)(out, key)
    except (Unusual, UnicodeEncodeError) as error:
        raise InputError(
            f"a call's key: required an int of 64 bits or a str that UTF-8 can hold, got {key!r}"
        ) from error


def _get_key(data: bytes, at: int) -> tuple[int | str, int]:
    text, at = value_bytes.get_bool(data, at)
    return value_bytes.get_str(data, at) if text else value_bytes.get_int(data, at)


def _put_table(out: bytearray, table: pa.Table) -> None:
    table = _loggable(table)
    value_bytes.put_word(out, _table_size(table))
    sink = pa.BufferOutputStream()
    write_stream(table, sink)
    out += sink.getvalue()


def _get_table(data: bytes, at: int) -> tuple[pa.Table, int]:
    stream, at = value_bytes.get_bytes(data, at)
    return read_stream(stream), at


def _loggable(table: pa.Table) -> pa.Table:
    """A table without what need not be logged."""
    table = table.replace_schema_metadata(None)  # what pandas says of itself there is longer than a small batch
    chunks = max((column.num_chunks for column in table.columns), default=0)
    return table.combine_chunks() if chunks > 1 and table.num_rows < chunks * CHUNK_ROWS_MIN else table


def _table_size(table: pa.Table) -> int:
    try:
        return stream_size(table)
    except pa.ArrowException as error:
        raise InputError(f"a table with the columns {table.schema.names} cannot be logged: {error}") from error


_NAME, _COUNT = (_put_name, value_bytes.get_str), (value_bytes.put_word, value_bytes.get_word)
_NUMBER, _BYTES = (value_bytes.put_int, value_bytes.get_int), (value_bytes.put_bytes, value_bytes.get_bytes)
_TABLE = (_put_table, _get_table)

_ORDER_BY, _RUN = value_bytes.null_codec(*_NAME), 0

_KINDS: tuple[tuple[type[Run | Load | Take | Step | Void], tuple[tuple[str, Put, Get], ...]], ...] = (
    (Run, (("order_by", *_ORDER_BY), ("events", *_TABLE))),
    (Load, (("table", *_NAME), ("rows", *_TABLE))),
    (Take, (("stream", *_NAME), ("count", *_COUNT))),
    (Step, (("dataflow", *_NUMBER), ("round", *_NUMBER), ("group", *_NUMBER), ("payload", *_BYTES))),
    (Void, ()),
)
"""The kinds of records besides `Execute`, by their numbers in the log, with their parts."""
