"""Decodes plain calls of transactions from logged payloads into columns.

A record's number says which transaction it calls; that transaction's steps say what to read, value by value:

    steps of transfer      INT -> word column 0     INT -> word column 1     INT -> word column 2
    record                 00    02    04    f4 03
    words                  1     2     250          in the row of the call

    words     one row of numbers for each column of a table of events: an int, the bits of a float, a bool as 0 or 1;
              a string takes two: where it starts among the payloads, and its size
    items     the same for the elements of lists, all lists of a column back to back
    ends      for each list column: where the list of each row ends among its items

Columns that do not belong to the called transaction hold zeros.

Everything else ends the loop: a call with a key or with nulls, another kind of record, a transaction that has no
steps, a record that does not end where it must, or is too long. The Python decoder (commands.py) handles it.

Invariant: a record is decoded here as commands.py decodes it, except that strings are not checked to be UTF-8.
"""

from __future__ import annotations

import numpy as np

from tidegate.foundation.jit import kernel

INT, FLOAT, BOOL, STR, LIST = range(5)
"""What a step reads."""

CODE, COLUMN, PARTS = 0, 1, 2
"""A step: what it reads, the column that it fills, and for a list how many steps read one item."""

PAYLOAD, AT, NUMBER, UNUSUAL = 0, 1, 2, 3
"""The position of decoding: the payload's number, the next byte, how many of its records were read, and at the end
whether the next record must be left to the Python decoder."""

_FORM_BITS = 3
_MORE, _LOW = 0x80, 0x7F
_SHIFT_LAST = 63


@kernel
def read_word(data, at, stop):  # type: ignore[no-untyped-def]
    """The bits of a variable-length number, and the offset after it; -1 if there is no 64-bit number."""
    word, shift = np.int64(0), 0
    while at < stop:
        byte = np.int64(data[at])
        at += 1
        if shift == _SHIFT_LAST and byte > 1:
            break
        word |= (byte & _LOW) << shift
        if byte < _MORE:
            return word, np.int64(at)
        shift += 7
    return word, np.int64(-1)


@kernel
def read_value(code, data, at, stop, column, row, words_out):  # type: ignore[no-untyped-def]
    """Decode one value into a column; returns the offset after it, -1 if there is none."""
    if code == INT:
        word, at = read_word(data, at, stop)
        words_out[column, row] = (word >> 1 & np.int64(0x7FFFFFFFFFFFFFFF)) ^ -(word & 1)
        return at
    if code == STR:
        size, at = read_word(data, at, stop)
        if at < 0 or size < 0 or size > stop - at:
            return np.int64(-1)
        words_out[column, row] = at
        words_out[column + 1, row] = size
        return np.int64(at + size)
    if code == BOOL:
        if at >= stop or data[at] > 1:
            return np.int64(-1)
        words_out[column, row] = data[at]
        return np.int64(at + 1)
    if stop - at < 8:
        return np.int64(-1)
    word = np.int64(0)
    for byte in range(8):
        word |= np.int64(data[at + byte]) << (8 * byte)
    words_out[column, row] = word
    return np.int64(at + 8)


@kernel
def read_list(data, at, stop, steps, step, row, items_out, ends_out):  # type: ignore[no-untyped-def]
    """Append one list to those of its column; returns the offset after it, -1 if there is none."""
    column, parts = steps[step, COLUMN], steps[step, PARTS]
    count, at = read_word(data, at, stop)
    if at < 0 or count < 0 or count > stop - at:
        return np.int64(-1)
    item = ends_out[column, row]
    for _ in range(count):
        for part in range(step + 1, step + 1 + parts):
            at = read_value(steps[part, CODE], data, at, stop, steps[part, COLUMN], item, items_out)
            if at < 0:
                return at
        item += 1
    ends_out[column, row + 1] = item
    return at


@kernel
def read_call(data, at, stop, program, row, columns_out):  # type: ignore[no-untyped-def]
    """Decode one call into a row; returns the offset after it, -1 if the Python decoder must read it."""
    first_steps, steps = program
    kinds_out, words_out, items_out, ends_out = columns_out
    word, at = read_word(data, at, stop)
    number = word >> _FORM_BITS
    if at < 0 or word < 0 or word & 7 or number >= first_steps.shape[0] or first_steps[number] < 0:
        return np.int64(-1)
    for column in range(ends_out.shape[0]):
        ends_out[column, row + 1] = ends_out[column, row]
    step = first_steps[number]
    while steps[step, CODE] >= 0:
        if steps[step, CODE] == LIST:
            at = read_list(data, at, stop, steps, step, row, items_out, ends_out)
            step += steps[step, PARTS]
        else:
            at = read_value(steps[step, CODE], data, at, stop, steps[step, COLUMN], row, words_out)
        if at < 0:
            return at
        step += 1
    kinds_out[row] = number
    return at


@kernel
def read_calls(data, bounds, size_limits, program, standing, columns_out):  # type: ignore[no-untyped-def]
    """Decode calls until rows or bytes run out, or another kind of record follows; returns how many rows were filled.

    Args:
        data: payloads back to back.
        bounds: where each payload starts, and the last one ends.
        size_limits: after how many bytes of payloads decoding ends, and the most bytes of one record.
        program: the first step of each transaction, or -1; and all steps, where one with a negative code ends those of
            each transaction.
        standing: the position where decoding starts; on return, where it ended (`PAYLOAD`, `AT`, `NUMBER`, `UNUSUAL`).
        columns_out: the numbers of transactions, `words`, `items` and `ends`, all zero.
    """
    payload, at, number = standing[PAYLOAD], standing[AT], standing[NUMBER]
    rows_max, row, limit = columns_out[0].shape[0], 0, at + size_limits[0]
    unusual = False
    while payload < bounds.shape[0] - 1:
        if at >= bounds[payload + 1]:
            payload += 1
            number = 0
            continue
        if row == rows_max or at >= limit:
            break
        found = read_call(data, at, min(bounds[payload + 1], at + size_limits[1]), program, row, columns_out)
        if found < 0:
            unusual = True
            for column in range(columns_out[1].shape[0]):
                columns_out[1][column, row] = 0
            break
        at = found
        number += 1
        row += 1
    standing[PAYLOAD], standing[AT], standing[NUMBER], standing[UNUSUAL] = payload, at, number, unusual
    return row


@kernel
def place_spans(sizes, offsets_out):  # type: ignore[no-untyped-def]
    """The offsets of texts of these sizes when stored back to back; returns their total size."""
    end = np.int64(0)
    offsets_out[0] = 0
    for row in range(sizes.shape[0]):
        end += sizes[row]
        offsets_out[row + 1] = end
    return end


@kernel
def copy_spans(data, starts, offsets, texts_out):  # type: ignore[no-untyped-def]
    """Copy each text to its place."""
    for row in range(starts.shape[0]):
        start, to = starts[row], offsets[row]
        for position in range(offsets[row + 1] - to):
            texts_out[to + position] = data[start + position]
