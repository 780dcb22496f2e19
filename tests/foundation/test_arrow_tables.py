"""Rows in every form that people have them in become the same Arrow table."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.foundation.arrow_tables import as_table
from tidegate.foundation.errors import InputError

ROWS = st.lists(
    st.fixed_dictionaries({"id": st.integers(-(2**63), 2**63 - 1), "name": st.text(max_size=3)}), min_size=1
)


@given(ROWS)
def test_all_forms_are_one_table(rows: list[dict[str, object]]) -> None:
    table = pa.table({"id": pa.array([r["id"] for r in rows], pa.int64()), "name": [r["name"] for r in rows]})
    columns = {name: table[name].to_pylist() for name in table.column_names}
    for form in (table, pa.RecordBatch.from_pylist(rows), rows, tuple(rows), columns, pd.DataFrame(rows)):
        assert as_table("rows", form).to_pylist() == rows


def test_rows_that_lack_a_key_have_a_null() -> None:
    assert as_table("rows", [{"a": 1}, {"b": 2}]).to_pydict() == {"a": [1, None], "b": [None, 2]}


class Stream:
    """What polars, DuckDB and others offer."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pa.table({"a": [1]}).__arrow_c_stream__(requested_schema)


def test_whatever_arrow_can_read_is_taken() -> None:
    assert as_table("rows", Stream()).to_pydict() == {"a": [1]}


@pytest.mark.parametrize("wrong", [[{1: 2}], {1: [2]}, {"a": 1}, {"a": "text"}, [1], "text", 5, None])
def test_what_is_no_table_is_refused(wrong: object) -> None:
    with pytest.raises(
        InputError, match=r"rows: required a pyarrow\.Table, a RecordBatch, a pandas\.DataFrame or a list"
    ):
        as_table("rows", wrong)
    with pytest.raises(InputError, match=r"rows: dict cannot become an Arrow table"):
        as_table("rows", {"a": [1], "b": [1, 2]})


@pytest.mark.parametrize(
    "given",
    [
        pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]),
        pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]),
        pd.DataFrame([[1, 2]], columns=["a", "a"]),
    ],
    ids=["table", "record batch", "pandas"],
)
def test_two_columns_of_one_name_are_refused(given: object) -> None:
    with pytest.raises(InputError, match=r"[Cc]olumn.*'?a'?"):
        as_table("events", given)
