"""A ledger written by hand, straight in Numba: what the engine is measured against.

This is what a good programmer would write who needs this one ledger and nothing else, on one core:

    names       the bytes of the `transaction` column compared in place
    keys        one open-addressing index, key and row side by side in one cache line
    checks      null keys, funds, overflow
    apply       balances in one array, accounts opened when they are first written
    outcomes    Arrow columns `committed`, `reason`, `result`, bits packed by hand

It does for each event what the engine does, from an Arrow table to an Arrow table, and it gives the
same outcomes: the benchmark verifies both. `run_resolved` is the bound below it: the rows were
looked up before the clock started, and outcomes are plain arrays. Nothing else here is general: no
order, no strings as keys, no second table, no deletes, no durability.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.foundation.jit import kernel

Integers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

REASONS = ("", "insufficient funds", "overflow", "null key in column 'src'", "unknown transaction")
_COMMITTED, _INSUFFICIENT, _OVERFLOW, _NULL_KEY, _UNKNOWN = range(5)
_TRANSFER = np.frombuffer(b"transfer", np.uint8)
_DEPOSIT = np.frombuffer(b"deposit", np.uint8)
_LARGEST = 2**63 - 1


@dataclass(slots=True)
class HandWrittenLedger:
    """The accounts: an index from key to row, and the balances by row."""

    index: Integers
    """Slot i holds a key in 2i and its row in 2i + 1; a row of -1 marks a free slot."""
    keys: Integers
    balances: Integers
    rows: Integers
    """One number: how many rows are in use."""

    @classmethod
    def load(cls, accounts: pa.Table, rows_max: int) -> HandWrittenLedger:
        """A ledger that holds these accounts and has room for `rows_max`."""
        slots = 1 << (2 * rows_max - 1).bit_length()
        index = np.zeros(2 * slots, np.int64)
        index[1::2] = -1
        ledger = cls(index, np.zeros(rows_max, np.int64), np.zeros(rows_max, np.int64), np.zeros(1, np.int64))
        _fill(ledger.index, ledger.keys, ledger.balances, ledger.rows, *_integers(accounts, "id", "balance"))
        return ledger

    def run(self, events: pa.Table) -> pa.Table:
        """Run the events in the order of the table; returns them with their outcomes."""
        count = events.num_rows
        names = events["transaction"].chunk(0)
        offsets = np.frombuffer(names.buffers()[1], np.int32)[names.offset : names.offset + count + 1]
        buffers = (
            np.empty((count + 7) // 8, np.uint8),  # committed, as bits
            np.empty(count, np.int64),  # results
            np.empty(count + 1, np.int32),  # where reasons begin
            np.empty(count, np.uint8),  # the reason of each abort
        )
        aborts = _run(
            (offsets, np.frombuffer(names.buffers()[2], np.uint8)),
            (*_integers(events, "src", "dst", "amount"), _validity(events["src"].chunk(0))),
            (self.index, self.keys, self.balances, self.rows),
            buffers,
        )
        return _with_outcomes(events, buffers, aborts)

    def state(self) -> pa.Table:
        """The accounts, sorted by key."""
        used = int(self.rows[0])
        order = np.argsort(self.keys[:used])
        return pa.table({"id": self.keys[:used][order], "balance": self.balances[:used][order]})

    def resolve(self, events: pa.Table) -> tuple[Any, ...]:
        """The events with rows in place of keys, for `run_resolved`; all accounts must exist."""
        source, target, amount = _integers(events, "src", "dst", "amount")
        is_transfer = np.asarray(events["transaction"].chunk(0)) == "transfer"
        source = np.where(is_transfer, source, target)
        rows = np.empty((2, len(amount)), np.int64)
        _look_up(self.index, source, rows[0])
        _look_up(self.index, target, rows[1])
        return is_transfer, rows[0], rows[1], amount

    def run_resolved(self, resolved: tuple[Any, ...]) -> tuple[npt.NDArray[np.bool_], Integers]:
        """Run events whose rows are known; returns committed and result as plain arrays."""
        committed, result = np.empty(len(resolved[0]), np.bool_), np.empty(len(resolved[0]), np.int64)
        is_transfer, sources, targets, amounts = resolved
        _run_resolved(is_transfer, sources, targets, amounts, self.balances, committed, result)
        return committed, result


def _with_outcomes(events: pa.Table, buffers: tuple[Any, ...], aborts: int) -> pa.Table:
    """The events with the three outcome columns, whose buffers are filled."""
    committed, result, reason_offsets, reason_codes = buffers
    count = events.num_rows
    text = np.empty(int(reason_offsets[count]), np.uint8)
    _write_reasons(reason_codes[:aborts], _REASON_BYTES, _REASON_STARTS, text)
    yes, no, numbers, offsets, texts = map(pa.py_buffer, (committed, ~committed, result, reason_offsets, text))
    columns = {
        "committed": pa.BooleanArray.from_buffers(pa.bool_(), count, [None, yes], null_count=0),
        "reason": pa.StringArray.from_buffers(count, offsets, texts, no, null_count=count - aborts),
        "result": pa.Int64Array.from_buffers(pa.int64(), count, [yes, numbers], null_count=aborts),
    }
    for name, column in columns.items():
        events = events.append_column(name, column)
    return events


_REASON_BYTES = np.frombuffer("".join(REASONS).encode(), np.uint8)
_REASON_STARTS = np.cumsum([0, *map(len, REASONS)]).astype(np.int64)


def _integers(table: pa.Table, *names: str) -> list[Integers]:
    """Columns as arrays without a copy; the number at the place of a null has no meaning."""
    arrays = []
    for name in names:
        column = table[name].combine_chunks() if table[name].num_chunks != 1 else table[name].chunk(0)
        values = np.frombuffer(column.buffers()[1], np.int64)
        arrays.append(values[column.offset : column.offset + len(column)])
    return arrays


def _validity(column: pa.Array) -> Bytes:
    """The bits that say which values are not null; empty when all are there."""
    if column.null_count == 0:
        return np.empty(0, np.uint8)
    assert column.offset == 0
    return np.frombuffer(column.buffers()[0], np.uint8)


# The kernels hand plain arrays to each other, never tuples of arrays: Numba counts references on the
# way into a function, and for a tuple of four arrays that took 45 ns an event, more than the ledger.


@kernel
def _find(index: Integers, key: int) -> int:
    """The slot that holds the key, or the free one where it belongs."""
    mask = len(index) // 2 - 1
    slot = ((key * -7046029254386353131) >> 32) & mask
    while index[2 * slot + 1] >= 0 and index[2 * slot] != key:
        slot = (slot + 1) & mask
    return slot


@kernel
def _open(index: Integers, keys: Integers, balances: Integers, rows: Integers, key: int) -> int:
    """The row of a key; a new one, with nothing in it, when there is none."""
    slot = _find(index, key)
    if index[2 * slot + 1] < 0:
        row = rows[0]
        rows[0] += 1
        index[2 * slot] = key
        index[2 * slot + 1] = row
        keys[row] = key
        balances[row] = 0
    return int(index[2 * slot + 1])


@kernel
def _fill(
    index: Integers, keys: Integers, balances: Integers, rows: Integers, ids: Integers, opening: Integers
) -> None:
    for i in range(len(ids)):
        balances[_open(index, keys, balances, rows, ids[i])] = opening[i]


@kernel
def _same(text: Bytes, start: int, stop: int, name: Bytes) -> bool:
    if stop - start != len(name):
        return False
    for i in range(len(name)):  # noqa: SIM110 (a generator would not be compiled)
        if text[start + i] != name[i]:
            return False
    return True


@kernel
def _transfer(balances: Integers, source_row: int, target_row: int, same: bool, amount: int) -> tuple[int, int]:
    """The outcome's code and the source's new balance; a row of -1 is absent and holds nothing."""
    source_balance = balances[source_row] if source_row >= 0 else 0
    target_balance = balances[target_row] if target_row >= 0 else 0
    if source_balance < amount:
        return _INSUFFICIENT, 0
    if not same and amount > 0 and target_balance > _LARGEST - amount:
        return _OVERFLOW, 0
    return _COMMITTED, source_balance if same else source_balance - amount


@kernel
def _run(
    names: tuple[Any, ...], columns: tuple[Any, ...], ledger: tuple[Any, ...], outcomes_out: tuple[Any, ...]
) -> int:
    """Run all events; returns the number of aborts; their codes are the first in the array of codes."""
    offsets, text = names
    sources, targets, amounts, source_valid = columns
    index, keys, balances, rows = ledger
    committed_out, result_out, reason_offsets_out, reason_codes_out = outcomes_out
    aborts, reason_end, bits = 0, 0, 0
    reason_offsets_out[0] = 0
    for i in range(len(amounts)):
        amount, source, target = amounts[i], sources[i], targets[i]
        result = 0
        if _same(text, offsets[i], offsets[i + 1], _TRANSFER):
            if len(source_valid) > 0 and not (source_valid[i >> 3] >> (i & 7)) & 1:
                code = _NULL_KEY
            else:
                source_row = index[2 * _find(index, source) + 1]
                target_row = index[2 * _find(index, target) + 1]
                code, result = _transfer(balances, source_row, target_row, source == target, amount)
                if code == _COMMITTED:
                    if source_row < 0 or target_row < 0:
                        source_row = _open(index, keys, balances, rows, source)
                        target_row = _open(index, keys, balances, rows, target)
                    balances[source_row] -= amount
                    balances[target_row] += amount
        elif _same(text, offsets[i], offsets[i + 1], _DEPOSIT):
            target_row = index[2 * _find(index, target) + 1]
            balance = balances[target_row] if target_row >= 0 else 0
            code = _COMMITTED
            if amount > 0 and balance > _LARGEST - amount:
                code = _OVERFLOW
            else:
                if target_row < 0:
                    target_row = _open(index, keys, balances, rows, target)
                result = balance + amount
                balances[target_row] = result
        else:
            code = _UNKNOWN
        if code == _COMMITTED:
            bits |= 1 << (i & 7)
        else:
            reason_codes_out[aborts] = code
            aborts += 1
            reason_end += _REASON_STARTS[code + 1] - _REASON_STARTS[code]
        result_out[i] = result
        reason_offsets_out[i + 1] = reason_end
        if i & 7 == 7:
            committed_out[i >> 3] = bits
            bits = 0
    if len(amounts) & 7:
        committed_out[len(amounts) >> 3] = bits
    return aborts


@kernel
def _write_reasons(codes: Bytes, texts: Bytes, starts: Integers, text_out: Bytes) -> None:
    end = 0
    for code in codes:
        for i in range(starts[code], starts[code + 1]):
            text_out[end] = texts[i]
            end += 1


@kernel
def _look_up(index: Integers, keys: Integers, rows_out: Integers) -> None:
    for i in range(len(keys)):
        rows_out[i] = index[2 * _find(index, keys[i]) + 1]


@kernel
def _run_resolved(
    is_transfer: npt.NDArray[np.bool_],
    sources: Integers,
    targets: Integers,
    amounts: Integers,
    balances: Integers,
    committed_out: npt.NDArray[np.bool_],
    result_out: Integers,
) -> None:
    for i in range(len(amounts)):
        source, target, amount = sources[i], targets[i], amounts[i]
        if not is_transfer[i]:
            balances[target] += amount
            committed_out[i] = True
            result_out[i] = balances[target]
        elif balances[source] >= amount:
            balances[source] -= amount
            balances[target] += amount
            committed_out[i] = True
            result_out[i] = balances[source]
        else:
            committed_out[i] = False
            result_out[i] = 0
