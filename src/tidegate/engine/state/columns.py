"""Arrow columns as the arrays that tables and streams are made of.

int, float, bool    their values, without a copy where there is one chunk
str                 numbers of a pool
keys                64-bit words, one row per key: floats by their bits
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.engine.state.strings import Numbering
from tidegate.operations.layout import Kind, TableLayout

Array = npt.NDArray[Any]


def one_piece(column: pa.ChunkedArray) -> pa.Array:
    """A chunked column as one array, without a copy where it has one chunk."""
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.nulls(0, column.type)])


def column_values(column: pa.Array, kind: Kind, strings: Numbering) -> Array:
    """A column as an array; what stands where it is null means nothing."""
    if kind is Kind.STR:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        return strings.numbers(column)
    if column.type != kind.arrow:
        column = column.cast(kind.arrow, safe=kind is not Kind.FLOAT)
    if kind is Kind.BOOL:
        return np.ascontiguousarray(column.fill_null(False).to_numpy(zero_copy_only=False))
    if len(column) == 0:
        return np.empty(0, kind.dtype)
    # The values under nulls are whatever Arrow left there: an event that needs them is refused.
    return np.frombuffer(column.buffers()[1], kind.dtype, len(column), 8 * column.offset)


def key_words(columns: list[pa.Array], layout: TableLayout, strings: Numbering) -> Array:
    """Key columns as 64-bit words, one row per key."""
    words = [
        _words(column_values(array, key.kind, strings)) for array, key in zip(columns, layout.key_columns, strict=True)
    ]
    if len(words) == 1:
        return words[0].reshape(-1, 1)
    return np.ascontiguousarray(np.column_stack(words))


def _words(values: Array) -> Array:
    if values.dtype == np.float64:
        return (values + 0.0).view(np.int64)  # -0.0 and 0.0 are one key, as in Python
    return values.astype(np.int64, copy=False)
