"""Arrow columns as arrays: every kind, in one chunk or several, sliced, and as words of keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidegate.engine.state.columns import column_values, key_words, one_piece
from tidegate.engine.state.strings import StringPool
from tidegate.operations.layout import Column, Kind, TableLayout


def test_a_column_in_chunks_becomes_one_piece() -> None:
    for chunks in ([[1, 2], [3]], [[1, 2, 3]], [[], [1, 2, 3]]):
        assert one_piece(pa.chunked_array(chunks, pa.int64())).to_pylist() == [1, 2, 3]
    nothing = one_piece(pa.chunked_array([], pa.string()))
    assert nothing.type == pa.string() and len(nothing) == 0


@pytest.mark.parametrize(
    ("column", "kind", "expected"),
    [
        (pa.array([1, -(2**63), 2**63 - 1]), Kind.INT, [1, -(2**63), 2**63 - 1]),
        (pa.array([7, 1, 2], pa.int8()), Kind.INT, [7, 1, 2]),
        (pa.array([1, 2], pa.int64()), Kind.FLOAT, [1.0, 2.0]),
        (pa.array([0.5, -0.0]), Kind.FLOAT, [0.5, -0.0]),
        (pa.array([True, False, True]), Kind.BOOL, [True, False, True]),
        (pa.array([], pa.int64()), Kind.INT, []),
        (pa.array([9, 1, 2, 3]).slice(1, 2), Kind.INT, [1, 2]),
    ],
)
def test_values_are_what_arrow_says(column: pa.Array, kind: Kind, expected: list[Any]) -> None:
    assert column_values(column, kind, StringPool()).tolist() == expected


def test_strings_are_numbers_of_the_pool_plain_or_by_dictionary() -> None:
    pool = StringPool()
    column = pa.array(["a", "b", "a"])
    numbers = column_values(column, Kind.STR, pool)
    assert numbers[0] == numbers[2] != numbers[1]
    assert column_values(column.dictionary_encode(), Kind.STR, pool).tolist() == numbers.tolist()


def test_keys_are_words_and_zero_is_one_key() -> None:
    layout = TableLayout("T", (Column("f", Kind.FLOAT, 0.0), Column("i", Kind.INT, 0)), ("f", "i"))
    words = key_words([pa.array([0.0, -0.0, 1.5]), pa.array([1, 1, -1])], layout, StringPool())
    assert words[0].tolist() == words[1].tolist() == [0, 1]
    assert words[2].tolist() == [int(np.float64(1.5).view(np.int64)), -1]
