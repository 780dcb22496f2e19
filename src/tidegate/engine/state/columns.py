"""Arrow columns as the arrays that tables and streams are made of, and back.

int, float, bool    their values, without a copy where there is one chunk
str                 numbers of a pool
other types         the words that carry them; None is a word of its own (`operations.kinds`)
keys                64-bit words, one row per key: floats by their bits
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.engine.state.strings import Numbering, StringPool
from tidegate.operations.kinds import STR_NONE, Mask
from tidegate.operations.layout import Kind, TableLayout, ValueType
from tidegate.operations.values import none_mask, none_word

Array = npt.NDArray[Any]


def one_piece(column: pa.ChunkedArray) -> pa.Array:
    """A chunked column as one array, without a copy where it has one chunk."""
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.nulls(0, column.type)])


def column_values(column: pa.Array, value_type: ValueType, strings: Numbering) -> Array:
    """A column as an array; what stands where it is null means nothing, unless None is a value of the type."""
    return checked_values(column, value_type, strings)[0]


def checked_values(column: pa.Array, value_type: ValueType, strings: Numbering) -> tuple[Array, Mask | None]:
    """The same, and which values are none of the type; None where all are."""
    values, unfit = value_type.unpack(column)
    words: Array = strings.numbers(values) if value_type.kind is Kind.STR else values
    if value_type.optional:
        if value_type.kind is Kind.FLOAT:
            words = np.where(np.isnan(words), np.nan, words)  # no NaN of a user's may have the bits of None
        if column.null_count:
            absent = column.is_null().to_numpy(zero_copy_only=False)
            words = np.where(absent, none_word(value_type.kind), words)
            unfit = None if unfit is None else unfit & ~absent
    return words, unfit


def value_column(words: Array, value_type: ValueType, strings: StringPool, valid: Mask | None = None) -> pa.Array:
    """Words as a column of their type, null where they are None and where `valid` is false."""
    if value_type.optional:
        there = words != STR_NONE if value_type.kind is Kind.STR else ~none_mask(words)
        if not there.all():
            valid = there if valid is None else valid & there
    if value_type.kind is not Kind.STR:
        return value_type.pack(words, valid)
    return value_type.pack(strings.texts(words if valid is None else np.where(valid, words, 0)), valid)


def python_value(word: Any, value_type: ValueType, strings: StringPool) -> Any:
    """A word as Python has its value."""
    kind = value_type.kind
    if value_type.optional and (int(word) == STR_NONE if kind is Kind.STR else none_mask(np.array([word]))[0]):
        return None
    plain = strings.text(int(word)) if kind is Kind.STR else _PYTHON[kind](word)
    return value_type.decode(plain)


def word_of(value: Any, value_type: ValueType, strings: StringPool) -> Any:
    """A fitted Python value as arrays hold it."""
    plain = value_type.encode(value)
    if plain is None:
        return none_word(value_type.kind)
    if value_type.kind is Kind.STR:
        return strings.number(str(plain))
    return canonical_nan(plain) if value_type.optional and value_type.kind is Kind.FLOAT else plain


def canonical_nan(value: float) -> float:
    """A float that does not have the bits of None."""
    return value if value == value else np.nan


_PYTHON: dict[Kind, Any] = {Kind.INT: int, Kind.FLOAT: float, Kind.BOOL: bool}


def key_words(columns: list[pa.Array], layout: TableLayout, strings: Numbering) -> Array:
    """Key columns as 64-bit words, one row per key."""
    return checked_words(columns, layout, strings)[0]


def checked_words(columns: list[pa.Array], layout: TableLayout, strings: Numbering) -> tuple[Array, Mask | None]:
    """The same, and which keys have a part that is none of its type; None where none has."""
    found = [checked_values(array, key.type, strings) for array, key in zip(columns, layout.key_columns, strict=True)]
    words = [_words(values) for values, _ in found]
    unfit: Mask | None = None
    for _, marks in found:
        unfit = marks if unfit is None else unfit if marks is None else unfit | marks
    if len(words) == 1:
        return words[0].reshape(-1, 1), unfit
    return np.ascontiguousarray(np.column_stack(words)), unfit


def _words(values: Array) -> Array:
    if values.dtype == np.float64:
        return (values + 0.0).view(np.int64)  # -0.0 and 0.0 are one key, as in Python
    return values.astype(np.int64, copy=False)
