"""What a batch gives out beside its changes: outcomes that clients await by id, and tuples of output streams.

    000000000007.change
      Account                  rows that version 7 changed           the state
      outcomes                 request id, committed, reason, result  a record
      output alerts            the stream's fields, batch             a record
      rows                     all events with their outcomes         a record, of calls in a foreachBatch only

A record stands in the change file of its version, so it exists exactly if the version does: a client that sees a
balance can find the outcome that made it. Engines do not keep records in memory and snapshots do not hold them; they
are removed with the change files of versions that are no longer kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.engine.state.columns import one_piece
from tidegate.operations.outcomes import OUTCOME_COLUMNS, Outcome

Array = npt.NDArray[Any]

OUTCOMES = "outcomes"
"""The record of outcomes by request id."""

ROWS = "rows"
"""The record of what a call in a foreachBatch gave out, whole."""

ID = "request id"

_OUTPUT = "output "
_WAITING = "waiting "
_BY_TRANSACTION = b"results are by transaction"


def output_record(stream: str) -> str:
    """The name of the record that holds an output stream's tuples."""
    return f"{_OUTPUT}{stream}"


def output_streams(records: Mapping[str, int]) -> list[str]:
    """The streams that a version's records are of."""
    return [name.removeprefix(_OUTPUT) for name in records if name.startswith(_OUTPUT)]


def waiting_record(stream: str) -> str:
    """The name of the record that holds the tuples of an output stream that nobody took yet."""
    return f"{_WAITING}{stream}"


def waiting_streams(records: Mapping[str, int]) -> list[str]:
    """The streams whose tuples wait in a version's records."""
    return [name.removeprefix(_WAITING) for name in records if name.startswith(_WAITING)]


def outcome_record(outcomes: pa.Table, requests: str, ranks: Array, by_transaction: bool) -> pa.Table:
    """The outcomes of the events that carry an id in the column `requests`; of several with one id, that of the last.

    `ranks` are the places of the events in the order in which they ran; `by_transaction` says that a result is a struct
    with one field for each transaction.
    """
    ids = one_piece(outcomes.column(requests))
    order = np.argsort(ranks, kind="stable")
    order = order[np.asarray(ids.is_valid().to_numpy(zero_copy_only=False))[order]]
    codes = ids.dictionary_encode()
    last = np.full(len(codes.dictionary), -1)
    last[codes.indices.fill_null(0).to_numpy()[order]] = order  # where a code stands twice, the later one stays
    kept = pa.array(np.sort(last))
    kind = pa.int64() if pa.types.is_integer(ids.type) else pa.large_string()
    columns = [ids.take(kept).cast(kind), *(outcomes.column(name).take(kept) for name in OUTCOME_COLUMNS)]
    metadata = {_BY_TRANSACTION: b""} if by_transaction else None
    fields = [pa.field(ID, kind), *(outcomes.schema.field(name) for name in OUTCOME_COLUMNS)]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, metadata))


def row_of(record: pa.Table, request_id: int | str) -> int:
    """The row of a request in a record of outcomes; -1 if it has none."""
    column = record.column(ID)
    if not fits(record, request_id):
        return -1
    return int(column.index(pa.scalar(request_id, column.type)).as_py())


def fits(record: pa.Table, request_id: int | str) -> bool:
    """Whether an id is of the type that a record's ids have."""
    return bool(pa.types.is_integer(record.schema.field(ID).type)) == isinstance(request_id, int)


def outcome_in(record: pa.Table, row: int) -> Outcome:
    """An outcome as `tg.Engine.execute` gives it."""
    committed, reason, result = (record.column(name)[row].as_py() for name in OUTCOME_COLUMNS)
    if result is not None and _BY_TRANSACTION in (record.schema.metadata or {}):
        result = next((value for value in result.values() if value is not None), None)
    return Outcome(committed, reason, result)
