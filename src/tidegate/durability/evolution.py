"""What happens to stored rows when the program declares its tables differently than before.

    stored                          declared now
    Account(id, balance)            Account(id, balance, limit = 10)
    1, 250                    ->    1, 250, 10              a new field reads as its default
    Vote(phone, choice)       ->    Vote(phone, choice)     not declared any more: kept as stored

Fields may be added and reordered, defaults may change, and a type may become wider (`T` to `T | None`, more digits,
more members). A removed field, a field of another type and a key of other fields are refused, all of them in one
message, before a row is read: only the user knows what the rows should then hold. So is a table that seems to
have been renamed: its rows would be kept, but the program would not see them. And so is a field that a person dropped
from the state (reshaping.py): the program that declares it is probably older than that.

Invariant: `upgrade` gives a change table in the target layout's order and types, null only where None is a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from tidegate.foundation.errors import DefinitionError
from tidegate.operations.layout import TableLayout, ValueType
from tidegate.operations.values import described, holds_all_of

EXISTS = pa.field("exists", pa.bool_(), nullable=False)


def change_schema(layout: TableLayout) -> pa.Schema:
    """The schema of a table's changes: its columns in declared order, then `exists`."""
    return layout.arrow_schema.append(EXISTS)


def difference(old: Iterable[TableLayout], new: Iterable[TableLayout]) -> list[str]:
    """Why rows stored with the layouts `old` do not fit `new`, one line each; none when they do."""
    declared = {layout.name: layout for layout in new}
    lines = []
    for stored in old:
        target = declared.get(stored.name)
        if target is None:
            continue
        if set(stored.key) != set(target.key):
            lines.append(f"{stored.name}: the key was ({', '.join(stored.key)}), is ({', '.join(target.key)})")
        types = {column.name: column.type for column in target.columns}
        for column in stored.columns:
            found = types.get(column.name)
            if found is None:
                lines.append(f"{stored.name}.{column.name}: was {column.type.label}, is removed")
            elif not holds_all_of(found, column.type):
                lines.append(f"{stored.name}.{column.name}: was {described(column.type)}, is {described(found)}")
    return lines


def require_fit(
    where: str, stored: Iterable[TableLayout], declared: Iterable[TableLayout], path: str | None = None
) -> None:
    """Raises DefinitionError, with the whole difference, when stored rows do not fit the program.

    `path` is that of the state, where its newest version is what does not fit: fields can be renamed and dropped there.
    """
    stored, declared = list(stored), list(declared)
    lines = difference(stored, declared)
    if lines:
        ways = [] if path is None else [f"  {way}\n" for way in _ways(path, stored, declared)]
        raise DefinitionError(
            f"{where}: the program's tables do not fit the state stored there:\n"
            + "".join(f"  {line}\n" for line in lines)
            + "Declare these fields and keys as they were (new fields are fine, a field may stay unused), "
            + ("or change them in the state, while no query runs:\n" if ways else "")
            + "".join(ways)
            + ("Or" if ways else "or")
            + " choose a new state path and fill it from the old one: read_state(...) the old tables, "
            "reshape them, and pass them as transact(..., initial={...})."
        )


def _ways(path: str, stored: list[TableLayout], declared: list[TableLayout]) -> list[str]:
    """The commands that rename or drop the fields that are declared no more."""
    ways = []
    for old in stored:
        new = next((table for table in declared if table.name == old.name), old)
        came = _kinds(new).items() - _kinds(old).items()
        for column in old.columns:
            if column.name in _kinds(new):
                continue
            renamed = [name for name, kind in came if kind is column.kind and name not in _kinds(old)]
            name = renamed[0] if len(renamed) == 1 else "NEW"
            ways.append(f"tidegate state rename-field {path} {old.name} {column.name} {name}")
            if column.name not in old.key:
                ways.append(f"tidegate state drop-field {path} {old.name} {column.name}")
    return ways


def require_no_renaming(where: str, stored: Iterable[TableLayout], declared: Iterable[TableLayout]) -> None:
    """Raises DefinitionError when a table that went and a table that came look like one that was renamed.

    Its rows would stay where they are, under the old name, and the program would see none of them.
    """
    before, now = list(stored), list(declared)
    gone = [table for table in before if table.name not in {table.name for table in now}]
    came = [table for table in now if table.name not in {table.name for table in before}]
    for new in came:
        for old in gone:
            if set(old.key) == set(new.key) and _kinds(old).items() <= _kinds(new).items():
                raise DefinitionError(
                    f"{where}: the state has a table {old.name} and none called {new.name}; the program has a table "
                    f"{new.name} with the fields of {old.name}, and none called {old.name}. If the table was renamed, "
                    f"call the class {old.name} as before, or rename it in the state: tidegate state rename-table "
                    f"{where} {old.name} {new.name}. If {new.name} is another table: tidegate state adopt {where} "
                    f"--new-table {new.name}={old.name}"
                )


def require_none_dropped(
    where: str, dropped: Mapping[str, Sequence[str]] | None, declared: Iterable[TableLayout]
) -> None:
    """Raises DefinitionError when a program has a field that was dropped from the state: all rows lack it."""
    for table in declared:
        for name in (dropped or {}).get(table.name, ()):
            if any(column.name == name for column in table.columns):
                raise DefinitionError(
                    f"{where}: the program declares {table.name}.{name}, which was dropped from this state (tidegate "
                    "state drop-field), so all rows would have its default. If this is an older program, start the one "
                    "that does without the field. To have the values again: tidegate state rollback. For a new field: "
                    "give it another name; once it is stored, it can have this one: tidegate state rename-field "
                    f"{where} {table.name} OTHER {name}"
                )


def _kinds(table: TableLayout) -> dict[str, ValueType]:
    return {column.name: column.type for column in table.columns}


def upgrade(rows: pa.Table, layout: TableLayout) -> pa.Table:
    """Stored rows (with or without `exists`) as a change table of `layout`, which they must fit."""
    present = set(rows.column_names)
    columns = [
        _as_type(rows.column(column.name), column.type.arrow)
        if column.name in present
        else pa.repeat(column.default_scalar, rows.num_rows)
        for column in layout.columns
    ]
    exists = rows.column(EXISTS.name) if EXISTS.name in present else pa.repeat(pa.scalar(True), rows.num_rows)
    return pa.Table.from_arrays([*columns, exists], schema=change_schema(layout))


def _as_type(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """A stored column in the type that is declared now, which is the same or wider."""
    return column if column.type == wanted else column.cast(wanted)


def empty_changes(layout: TableLayout) -> pa.Table:
    """The change table of a table that nothing happened to."""
    return change_schema(layout).empty_table()
