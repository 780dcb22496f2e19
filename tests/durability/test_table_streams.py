"""Tables as bytes of a size that is known before."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidegate.durability.table_streams import read_stream, stream_size, write_stream


@pytest.mark.parametrize(
    "table",
    [
        pa.table({}),
        pa.table({"a": pa.array([], pa.int64())}),
        pa.table({"a": [1, None, 3], "b": ["x", "", None]}),
        pa.table({"a": pa.chunked_array([[1, 2], [3]])}),
        pa.table({"a": [[1], [], None]}).slice(1),
    ],
    ids=["no column", "no row", "nulls", "chunks", "slice"],
)
def test_a_table_takes_what_was_said_and_comes_back(table: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    write_stream(table, sink)
    data = sink.getvalue()
    assert len(data) == stream_size(table)
    assert read_stream(data).equals(table)
