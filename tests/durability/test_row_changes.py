from __future__ import annotations

import math
import struct
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as some

from tidegate.durability.row_changes import changes_between
from tidegate.durability.stored_rows import fold
from tidegate.operations.layout import Column, Kind, TableLayout

PRICE = TableLayout(
    "Price",
    (
        Column("amount", Kind.FLOAT, 1.5),
        Column("id", Kind.INT, 0),
        Column("name", Kind.STR, ""),
        Column("on", Kind.BOOL, True),
    ),
    ("id", "name"),
)
SINGLE = TableLayout("Single", (Column("price", Kind.FLOAT, 0.0),), ("price",))

Rows = dict[tuple[int, str], tuple[float, bool]]
some_rows: some.SearchStrategy[Rows] = some.dictionaries(
    some.tuples(some.integers(-2, 2), some.sampled_from(["", "a", "\N{SNOWMAN}"])),
    some.tuples(some.sampled_from([0.0, -0.0, math.nan, math.inf, 0.1]), some.booleans()),
)


def table(rows: Rows) -> pa.Table:
    listed = [{"amount": a, "id": i, "name": n, "on": on} for (i, n), (a, on) in rows.items()]
    return pa.Table.from_pylist(listed, schema=PRICE.arrow_schema)


def bits(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Rows as Python values in which a number that is none equals itself."""
    return [
        tuple(struct.pack("d", value) if isinstance(value, float) else value for value in row.values())
        for row in rows.to_pylist()
    ]


@given(some_rows, some_rows)
def test_the_changes_make_the_later_rows_of_the_earlier_and_are_as_few_as_can_be(before: Rows, after: Rows) -> None:
    changes = changes_between(PRICE, table(before), table(after))
    start = table(before).append_column("exists", pa.repeat(pa.scalar(True), len(before)))
    assert bits(fold(PRICE, [start.cast(changes.schema), changes])) == bits(
        fold(PRICE, [changes_between(PRICE, table({}), table(after))])
    )
    packed = [{key: (struct.pack("d", a), on) for key, (a, on) in rows.items()} for rows in (before, after)]
    different = sum(packed[0].get(key) != packed[1].get(key) for key in before.keys() | after.keys())
    assert changes.num_rows == different


def test_a_table_that_is_nothing_but_a_key_of_floats() -> None:
    rows = [pa.table({"price": values}, schema=SINGLE.arrow_schema) for values in ([0.5, math.nan], [-0.0, math.nan])]
    found = changes_between(SINGLE, *rows).to_pylist()
    assert sorted((str(row["price"]), row["exists"]) for row in found) == [("-0.0", True), ("0.5", False)]
