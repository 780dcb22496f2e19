"""The arrays that generated code works on, as data: the compiler names them, the engine binds them.

    ArraySpec(name="table__Account__balance", owner="table", of="Account", role="columns", key="balance", ...)

Generated code takes its arrays as one tuple, in the order of a list of specs; the engine finds each array as
`owner.role[key]` (`engine.arrays`). So only this module knows what an array is called, and only the owner knows
what it holds.

Every name in generated code that comes from a user's name begins with a word that says what it is. `name_in_code`
makes sure that such names never collide, whatever names users choose:

    row__src, value__amount, list__items__start    a transaction's parameters: a slot, a value, a list
    var__total, set__total                         a variable, and whether it has been assigned
    table__Account__balance                        a column; every table also has exists__... and keys__...
    stream__orders__price__0                       a field of a stream; a field that is a key may have several parts
    journal__Account__balance                      undo log: what a column held before the current group wrote it
    history__Account__balance                      earlier states of rows
    limit__Session, limits__Session                rows whose time is below it have expired: now, and by event
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tidegate.operations.layout import Kind, TableLayout, ValueType

if TYPE_CHECKING:
    from tidegate.operations.flow import FlowsPlan, StreamLayout
    from tidegate.operations.plan import Binding


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """An array that generated code works on, or a tuple of arrays if `dtype` is None.

    `owner` and `of` say which object holds it ("table", "Account"; "lane", ""), `role` names the owner's attribute, and
    `key` the element of that attribute if it has several. An array of two dimensions has `width` columns.
    """

    name: str
    owner: str
    of: str | int
    role: str
    key: str | int | tuple[str, int] | None = None
    dtype: type[np.generic] | None = np.int64
    width: int = 0


def name_in_code(what: str, *names: str | int) -> str:
    """A name in generated code; different arguments give different names.

    Parts are joined by two underscores. A user's name gets its length as a prefix if it could be mistaken for two
    parts, if it begins or ends with an underscore, or if it looks as if it had such a prefix already.
    """
    return "__".join([what, *(_part(str(name)) for name in names)])


def _part(name: str) -> str:
    clear = "__" not in name and name[:1] != "_" and name[-1:] != "_" and not re.match(r"n\d+_", name)
    return name if clear else f"n{len(name)}_{name}"


def column_array(table: str, field: str) -> str:
    """The array that holds a column of a table."""
    return name_in_code("table", table, field)


def exists_array(table: str) -> str:
    """The array that says which rows of a table exist."""
    return name_in_code("exists", table)


def key_array(table: str, kind: Kind) -> str:
    """The array that holds the keys of a table, as words or as floats."""
    return name_in_code("float_keys" if kind is Kind.FLOAT else "keys", table)


def time_code(table: TableLayout, row: str) -> str:
    """Code for the time by which a row expires."""
    if table.by not in table.key:
        return f"{column_array(table.name, table.by)}[{row}]"
    return f"{key_array(table.name, table.by_kind)}[{row}, {table.key.index(table.by)}]"


def time_array(table: TableLayout) -> str:
    """The array that holds the times by which rows expire."""
    return time_code(table, "").partition("[")[0]


def limit_code(table: str) -> str:
    """The time below which rows of a table have expired for the current transaction."""
    return name_in_code("limit", table)


def limits_array(table: str) -> str:
    """The array that says for each event below which time rows of a table have expired."""
    return name_in_code("limits", table)


def wanted_array(table: str, kind: Kind) -> str:
    """The array that holds the one key being looked up, as words or as floats."""
    return name_in_code("float_wanted" if kind is Kind.FLOAT else "wanted", table)


def stream_array(stream: str, field: str, part: int) -> str:
    """The array that carries a part of a stream's field."""
    return name_in_code("stream", stream, field, part)


def stream_count(stream: str) -> str:
    """The array whose first word says how many tuples a stream holds."""
    return name_in_code("stream_count", stream)


def round_ends(stream: str) -> str:
    """The array that says where each round of a batch ends in a stream that leads to another stage."""
    return name_in_code("round_ends", stream)


def round_span(stream: str) -> str:
    """The array that says where the current round begins and ends in a stream that leads to another stage."""
    return name_in_code("round_span", stream)


# --- lists of arrays ----------------------------------------------------------------------------------------------


def program_arrays(
    rows: Sequence[Binding],
    values: Sequence[Binding],
    tables: Sequence[TableLayout],
    results: Sequence[ValueType],
    scratch: Sequence[tuple[int, Kind]],
    used: frozenset[str],
) -> tuple[ArraySpec, ...]:
    """The arrays of transactions: the columns and results of a batch, tables, and each worker's own arrays.

    An array that few programs need is there only if its name is in `used`: a call costs more with every array.
    """
    found: list[ArraySpec] = []
    for number, binding in enumerate(rows):
        if binding.parameter.many:
            found.append(ArraySpec(f"rows_{number}_offsets", "row column", number, "offsets"))
        found.append(ArraySpec(slots_array(number, binding), "batch", "", "slots", number))
    for number, binding in enumerate(values):
        dtype = binding.parameter.kind.dtype  # type: ignore[union-attr]
        if binding.parameter.many:
            found.append(ArraySpec(f"values_{number}_offsets", "value column", number, "offsets"))
        found.append(ArraySpec(values_array(number, binding), "value column", number, "values", dtype=dtype))
    found += [spec for table in tables for spec in _table_arrays(table)]
    found += [
        ArraySpec(limits_array(table.name), "batch", "", "limits", table.name, table.by_kind.dtype)
        for table in tables
        if table.expires
    ]
    found.append(ArraySpec("valid", "batch", "", "valid", dtype=np.bool_))
    found += [ArraySpec(f"results_{n}", "batch", "", "results", n, kind.dtype) for n, kind in enumerate(results)]
    found.append(ArraySpec("literals", "worker", "", "literals"))
    found += [ArraySpec(name, "worker", "", name) for name in ("signals", "texts") if name in used]
    found += [ArraySpec(f"undo_{n}", "worker", "", "undo", n, kind.dtype) for n, (_, kind) in enumerate(scratch)]
    return tuple(found)


def slots_array(number: int, binding: Binding) -> str:
    """The array with the slots of a row column's keys: one per event, or the elements of all lists."""
    return f"rows_{number}_data" if binding.parameter.many else f"rows_{number}"


def values_array(number: int, binding: Binding) -> str:
    """The array with the values of a value column: one per event, or the elements of all lists."""
    return f"values_{number}_data" if binding.parameter.many else f"values_{number}"


def _table_arrays(table: TableLayout) -> list[ArraySpec]:
    name, width = table.name, len(table.key)
    return [
        ArraySpec(exists_array(name), "table", name, "exists", dtype=np.bool_),
        ArraySpec(key_array(name, Kind.INT), "table", name, "keys", width=width),
        ArraySpec(key_array(name, Kind.FLOAT), "table", name, "float_keys", dtype=np.float64, width=width),
        *_columns("table", table),
    ]


def graph_arrays(
    flows: FlowsPlan,
    journalled: Sequence[TableLayout],
    remembered: Sequence[TableLayout],
    indexed: Sequence[TableLayout],
    results: Sequence[ValueType],
    clocked: bool,
) -> tuple[ArraySpec, ...]:
    """The further arrays of dataflow graphs: the position of a walk, streams, journals, histories, windows.

    Groups may write rows of the tables in `journalled`, ask for earlier states of rows of those in `remembered`, and
    look up keys of those in `indexed`. The walk of a `clocked` program, in which rows expire, notes its current event.
    """
    found = [ArraySpec("status", "batch", "", "status", dtype=np.int32)]
    found += [ArraySpec("moment", "lane", "", "moment")] if clocked else []
    found += _lane_arrays(flows, indexed, results)
    found += [
        ArraySpec(name_in_code("index", table.name), "table", table.name, "index", dtype=None) for table in indexed
    ]
    for number, stream in enumerate(flows.streams):
        found += _stream_arrays(stream, number, flows.outputs[number], number in flows.crossing)
    for table in journalled:
        found += _owned("journal", table.name, count=_I, slots=_I, times=_I, begins=_I, exists=_B)
        found += _owned("journal", table.name, touched=_I, touched_count=_I)
        found.append(ArraySpec(name_in_code("marks", table.name), "table", table.name, "marks", dtype=np.bool_))
        found += _columns("journal", table)
    for table in remembered:
        found += _owned("history", table.name, state=_I, heads=_I, last_entry=_I, before=_I, time=_I, slots=_I)
        found += [*_owned("history", table.name, exists=_B), *_columns("history", table)]
    for stage in range(len(flows.stages)):
        found += [
            ArraySpec(f"{name}_{stage}", "windows", stage, role, dtype=dtype, width=width)
            for name, (role, dtype, width) in WINDOWS.items()
        ]
    return tuple(found)


WINDOWS: dict[str, tuple[str, Any, int]] = {
    "window_heap": ("heap", np.int64, 0),
    "window_journal": ("journal", np.int64, 2),
    "window_state": ("state", np.int64, 0),
    "window_bases": ("bases", np.int64, 0),
    "window_words": ("words", np.int64, 0),
    "window_floats": ("float_words", np.float64, 0),
    "window_tops": ("tops", np.int64, 0),
    "window_float_tops": ("float_tops", np.float64, 0),
}
"""The arrays that hold windows, by their names in transaction bodies; each stage appends its number for its own."""

_I, _B = np.int64, np.bool_


def _owned(owner: str, table: str, **roles: type[np.generic]) -> list[ArraySpec]:
    return [
        ArraySpec(name_in_code(f"{owner}_{role}", table), owner, table, role, dtype=dtype)
        for role, dtype in roles.items()
    ]


def _columns(owner: str, table: TableLayout) -> list[ArraySpec]:
    return [
        ArraySpec(
            name_in_code(owner, table.name, column.name), owner, table.name, "columns", column.name, column.kind.dtype
        )
        for column in table.value_columns
    ]


def _lane_arrays(flows: FlowsPlan, indexed: Sequence[TableLayout], results: Sequence[ValueType]) -> list[ArraySpec]:
    found = [ArraySpec(role, "lane", "", role) for role in ("control", "hits", "aborted", "rounds_before", "roles")]
    found.append(ArraySpec("refused", "lane", "", "refused", dtype=np.int32))
    found.append(ArraySpec("log", "lane", "", "log", width=6))
    found += [ArraySpec(role, "lane", "", role, dtype=np.bool_) for role in ("mine", "void_valid")]
    found += [ArraySpec(f"void_{n}", "lane", "", "void_results", n, kind.dtype) for n, kind in enumerate(results)]
    for border in (number for flow in flows.flows for number in flow.borders):
        found += [ArraySpec(f"{role}_{border}", "lane", "", role, border) for role in ("open", "opened")]
    for table in indexed:
        for kind, role in ((Kind.INT, "wanted"), (Kind.FLOAT, "float_wanted")):
            name = wanted_array(table.name, kind)
            found.append(ArraySpec(name, "lane", "", role, table.name, kind.dtype, len(table.key)))
    return found


def _stream_arrays(stream: StreamLayout, number: int, output: bool, crosses: bool) -> list[ArraySpec]:
    name = stream.name
    found = [
        ArraySpec(stream_array(name, field.name, part), "stream", number, "columns", (field.name, part), kind.dtype)
        for field in stream.fields
        for part, kind in enumerate(field.kinds)
    ]
    found.append(ArraySpec(stream_count(name), "stream", number, "count"))
    if output:
        found.append(ArraySpec(name_in_code("stream_rounds", name), "stream", number, "batches"))
    if crosses:
        found.append(ArraySpec(round_ends(name), "stream", number, "round_ends"))
        found.append(ArraySpec(round_span(name), "lane", "", "spans", number))
    return found
