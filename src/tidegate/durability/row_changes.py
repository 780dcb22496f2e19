"""Computes the change table that turns the rows of a table at one version into those at another.

    before      A 100    B 50     C 5
    after       A 100    B 80              D 7
    changes              B 80 +   C -      D 7 +          + exists, - does not

Rows are compared bit for bit, as they are stored: a NaN equals itself, and -0.0 is not 0.0.

Cost: both tables in memory, and a hash table of their rows.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.durability.evolution import change_schema
from tidegate.operations.layout import Kind, TableLayout

_SIDE = "side of the comparison"  # blanks: no field of a table can have this name
_BEFORE, _AFTER = 1, 2


def changes_between(layout: TableLayout, before: pa.Table, after: pa.Table) -> pa.Table:
    """The change table that turns `before` into `after`: tables of whole rows in this layout, each key once."""
    names = [column.name for column in layout.columns]
    both = pa.concat_tables([_sided(layout, before, _BEFORE), _sided(layout, after, _AFTER)])
    rows = both.group_by(names).aggregate([(_SIDE, "sum")])
    new = rows.filter(pc.equal(rows[f"{_SIDE}_sum"], _AFTER)).select(names)
    keys = both.group_by(list(layout.key)).aggregate([(_SIDE, "sum")])
    gone = keys.filter(pc.equal(keys[f"{_SIDE}_sum"], _BEFORE)).select(list(layout.key))
    schema = change_schema(layout)
    defaults = {column.name: column.default_scalar for column in layout.columns}
    columns = [
        pa.chunked_array(
            [
                *_values(new, column.name, column.kind),
                *(
                    _values(gone, column.name, column.kind)
                    if column.name in layout.key
                    else [pa.repeat(defaults[column.name], gone.num_rows)]
                ),
            ],
            column.type.arrow,
        )
        for column in layout.columns
    ]
    exists = pa.array(np.repeat([True, False], [new.num_rows, gone.num_rows]))
    return pa.Table.from_arrays([*columns, exists], schema=schema).combine_chunks()


def _sided(layout: TableLayout, rows: pa.Table, side: int) -> pa.Table:
    """The rows with floats as their bits, and a column that says which side of the comparison they belong to."""
    columns = []
    for column in layout.columns:
        values = rows[column.name]
        if column.kind is Kind.FLOAT:
            values = pa.chunked_array([chunk.view(pa.int64()) for chunk in values.chunks], pa.int64())
        columns.append(values)
    sides = pa.array(np.full(rows.num_rows, side, np.int64))
    return pa.table([*columns, sides], names=[*(column.name for column in layout.columns), _SIDE])


def _values(rows: pa.Table, name: str, kind: Kind) -> list[pa.Array]:
    chunks: list[pa.Array] = rows[name].chunks
    return [chunk.view(pa.float64()) for chunk in chunks] if kind is Kind.FLOAT else chunks
