"""What `tidegate state` needs to find rows: which table, which key, and what differs between versions.

Two versions of a table are compared row by row, as Arrow tables: a row that is in only one of them
belongs to a key that was added, removed or changed. Only those keys become Python objects, so the cost
is that of reading the versions, plus what differs.

No engine is built and no program is needed; how rows are rebuilt is in `durability.stored_rows`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.durability.versions import VersionStore
from tidegate.foundation.errors import InputError
from tidegate.operations.layout import TableLayout

_NUMBER = "number of the row"  # blanks: no field of a table can have this name


@dataclass(frozen=True, slots=True)
class Difference:
    """One key whose row is not the same in two versions; None where it does not exist."""

    table: str
    key: dict[str, Any]
    before: dict[str, Any] | None
    after: dict[str, Any] | None

    @property
    def what(self) -> str:
        """In one word, what happened to the row."""
        return "added" if self.before is None else "removed" if self.after is None else "changed"


def layouts_at(store: VersionStore, version: int | None) -> dict[str, TableLayout]:
    """The tables that a version (None: the newest) holds, by name."""
    info, _ = store.load(version)
    return {layout.name: layout for layout in info.layouts}


def choose_table(layouts: dict[str, TableLayout], name: str | None) -> TableLayout:
    """The table of that name; without a name the only one there is."""
    own = [layout for layout in layouts.values() if not layout.name.startswith("tidegate_")]
    if name is None and len(own) == 1:  # Tidegate's own tables are shown when they are asked for
        return own[0]
    if name not in layouts:
        asked = "which of the tables is meant?" if name is None else f"there is no table {name!r}."
        raise InputError(f"{asked} This state has: {', '.join(sorted(layouts)) or 'no tables'}")
    return layouts[name]


def key_from(layout: TableLayout, texts: list[str]) -> tuple[Any, ...]:
    """A key that is given as text: one for each of its fields, or all of them as one JSON array or object."""
    if len(layout.key) > 1 and len(texts) == 1:
        return _key_from_json(layout, texts[0])
    if len(texts) != len(layout.key):
        raise InputError(_key_required(layout, f"required {len(layout.key)} values, got {texts}"))
    found = []
    for column, text in zip(layout.key_columns, texts, strict=True):
        try:
            found.append(pa.scalar(text).cast(column.type.arrow).as_py())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InputError(f"key field {column.name!r} holds {column.type.label}, got {text!r}") from error
    return tuple(found)


def _key_from_json(layout: TableLayout, text: str) -> tuple[Any, ...]:
    required = f"required {len(layout.key)} values, or one JSON array or object of them, got {text!r}"
    try:
        given = json.loads(text)
    except ValueError:
        raise InputError(_key_required(layout, required)) from None
    if isinstance(given, dict) and given.keys() == set(layout.key):
        given = [given[name] for name in layout.key]
    if not isinstance(given, list) or len(given) != len(layout.key):
        raise InputError(_key_required(layout, required))
    return key_from(layout, [each if isinstance(each, str) else json.dumps(each) for each in given])


def _key_required(layout: TableLayout, what: str) -> str:
    fields = ", ".join(f"{column.name}: {column.type.label}" for column in layout.key_columns)
    return f"the key of {layout.name} is ({fields}): {what}"


def with_key(layout: TableLayout, rows: pa.Table, texts: list[str]) -> pa.Table:
    """The rows whose key is given as text, one text for each field of the key."""
    for column, value in zip(layout.key_columns, key_from(layout, texts), strict=True):
        rows = rows.filter(pc.equal(rows[column.name], pa.scalar(value, column.type.arrow)))
    return rows


def difference(layout: TableLayout, before: pa.Table, after: pa.Table) -> Iterator[Difference]:
    """The keys whose rows differ, in the order of the keys; tables are compared as they are stored."""
    changed = _keys_that_differ(layout, before, after)
    rows = [_by_key(layout, table, changed) for table in (before, after)]
    for key in sorted(rows[0].keys() | rows[1].keys()):
        named = dict(zip(layout.key, key, strict=True))
        yield Difference(layout.name, named, rows[0].get(key), rows[1].get(key))


def _keys_that_differ(layout: TableLayout, before: pa.Table, after: pa.Table) -> pa.Table:
    """The keys of all rows that are in only one of the two tables; whole rows are compared."""
    columns = [column.name for column in layout.columns]
    both = pa.concat_tables([before.select(columns), after.select(columns)])
    counts = both.append_column(_NUMBER, pa.array(np.ones(both.num_rows, np.int64)))
    counted = counts.group_by(columns).aggregate([(_NUMBER, "sum")])
    single = counted.filter(pc.equal(counted[f"{_NUMBER}_sum"], 1))
    keys = single.select(list(layout.key))
    return keys.group_by(list(layout.key)).aggregate([])


def _by_key(layout: TableLayout, rows: pa.Table, keys: pa.Table) -> dict[tuple[Any, ...], dict[str, Any]]:
    found = rows.join(keys, list(layout.key), join_type="inner")
    return {tuple(row[name] for name in layout.key): row for row in found.to_pylist()}
