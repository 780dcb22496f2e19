"""The index of changed keys against plain dictionaries."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as some

from tidegate.durability.changed_keys import ChangedKeys
from tidegate.durability.evolution import change_schema
from tidegate.operations.layout import Column, Kind, TableLayout

SEAT = TableLayout(
    "Seat",
    (Column("row", Kind.STR, ""), Column("taken", Kind.BOOL, False), Column("number", Kind.FLOAT, 0.0)),
    ("number", "row"),
)

keys = some.tuples(some.sampled_from(["", "a", "ab", "\N{SNOWMAN}"]), some.sampled_from([0.0, -0.0, 1.5, -7.0]))
rows = some.lists(some.tuples(keys, some.booleans()), max_size=8)


def table(found: list[tuple[tuple[str, float], bool]]) -> pa.Table:
    columns: list[list[Any]] = [[k[0] for k, _ in found], [True for _ in found], [k[1] for k, _ in found]]
    columns.append([exists for _, exists in found])
    schema = change_schema(SEAT)
    return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


@given(some.lists(rows, max_size=4), rows)
def test_the_last_row_of_each_key_remains_if_it_exists_and_touched_keys_are_found(
    changes: list[list[tuple[tuple[str, float], bool]]], older: list[tuple[tuple[str, float], bool]]
) -> None:
    index = ChangedKeys(SEAT)
    for change in changes:
        index.note(table(change))
    numbered = [(number, row) for number, row in enumerate(row for change in changes for row in change)]
    last = {key: number for number, (key, _) in numbered}  # 0.0 and -0.0 are one key, as in Python
    first = 0
    for change in changes:
        expected = [place for place, (key, exists) in enumerate(change) if not exists or last[key] != first + place]
        assert index.surpassed(table(change), first).tolist() == expected
        first += len(change)
    assert index.touched(table(older)).tolist() == [place for place, (key, _) in enumerate(older) if key in last]


def test_looking_for_many_strings_adds_none() -> None:
    index = ChangedKeys(SEAT)
    index.note(table([(("a", 1.0), True)]))
    before = len(index._strings)
    assert len(index.touched(table([((f"unknown {n}", 1.0), True) for n in range(1000)]))) == 0
    assert len(index._strings) == before
