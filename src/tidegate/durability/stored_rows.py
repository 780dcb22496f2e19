"""The rows of one stored table, without the program that wrote them.

A version is a snapshot and the changes after it, each a table of rows with a column `exists`. The
last row of every key wins, and is part of the result only if it exists:

    snapshot   (A, 100, true)   (B, 50, true)
    change                      (B, 80, true)   (C, 5, true)
    change     (A, 0, false)
    rows                        (B, 80)         (C, 5)

Only Arrow is used, and no engine is built, so a state can be read while a query runs on it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from tidegate.durability.evolution import change_schema
from tidegate.durability.versions import VersionStore
from tidegate.operations.layout import TableLayout

_NUMBER = "number of the row"  # blanks: no field of a table can have this name


def rows_at(store: VersionStore, layout: TableLayout, version: int | None = None) -> pa.Table:
    """All rows of a table at a version (None: the newest), sorted by key, in this layout."""
    _, steps = store.load(version, layouts=[layout])
    return fold(layout, (tables[layout.name] for tables in steps if layout.name in tables))


def fold(layout: TableLayout, changes: Iterable[pa.Table]) -> pa.Table:
    """The rows that exist after all changes, sorted by key."""
    rows = pa.concat_tables([change_schema(layout).empty_table(), *changes])
    if rows.num_rows == 0:
        return layout.arrow_schema.empty_table()
    numbered = rows.select(list(layout.key)).append_column(_NUMBER, pa.array(np.arange(rows.num_rows)))
    last = numbered.group_by(list(layout.key)).aggregate([(_NUMBER, "max")])[f"{_NUMBER}_max"]
    kept = rows.take(last)
    kept = kept.filter(kept["exists"]).drop_columns(["exists"])
    return kept.sort_by([(name, "ascending") for name in layout.key])
