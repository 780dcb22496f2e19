"""What dataflow graphs must remember between batches, as rows of tables, so that it is stored as tables are.

    tidegate_flow              name -> value      the number of the last round of each graph, where each window stands
    tidegate_window_<name>     row number -> row  the rows of a window, staged ones too
    tidegate_waiting           0 -> events        events whose atomic batch is not complete
    tidegate_history_<table>   number -> state    earlier states of rows that may still be asked for

A batch writes the rows that entered a window and deletes those that left it: what keeping costs follows the batch,
not the window. Aggregates are not kept; they are computed anew when a state is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.engine.graphs.waiting import Waiting
from tidegate.engine.graphs.walk import GraphWalk
from tidegate.engine.state.history import LONG_AGO
from tidegate.engine.state.table import TableState
from tidegate.engine.state.windows import HEADER, SEQUENCE, TIME, WindowLayout
from tidegate.foundation.errors import DefinitionError
from tidegate.operations.layout import Column, Kind, TableLayout

Array = npt.NDArray[Any]
Note = Callable[[str, Array], None]

NUMBERS = TableLayout("tidegate_flow", (Column("name", Kind.STR, ""), Column("value", Kind.INT, 0)), ("name",))
WAITING = TableLayout("tidegate_waiting", (Column("id", Kind.INT, 0), Column("events", Kind.STR, "")), ("id",))
_PLACES = ("first", "staged", "next", "boundary", "latest")


def layouts_of(flows: GraphWalk) -> list[TableLayout]:
    """The tables that hold a program's graphs."""
    found = [NUMBERS, WAITING]
    for window in flows.window_layouts:
        columns = [Column(_field(name), of, of.zero) for name, of in window.columns]
        times = [Column("at_time", Kind.INT, 0)]
        found.append(TableLayout(_table_of(window), (Column("number", Kind.INT, 0), *times, *columns), ("number",)))
    for name, history in flows.histories.items():
        keys = [
            Column(f"key_{column.name}", column.type, column.type.zero) for column in history.table.layout.key_columns
        ]
        columns = [Column(f"of_{c.name}", c.type, c.type.zero) for c in history.table.layout.value_columns]
        fixed = (Column("number", Kind.INT, 0), Column("at_time", Kind.INT, 0), Column("existed", Kind.BOOL, False))
        found.append(TableLayout(f"tidegate_history_{name}", (*fixed, *keys, *columns), ("number",)))
    return found


def require_same_memory(stored: Sequence[TableLayout], now: Sequence[TableLayout]) -> None:
    """Raise if what a state remembers has other fields than the program's windows and histories."""
    there = {layout.name: layout for layout in stored}
    for layout in now:
        found = there.get(layout.name, layout)
        if found != layout:
            fields = (", ".join(f"{c.name} {c.type.label}" for c in table.columns) for table in (found, layout))
            raise DefinitionError(
                f"{layout.name}: the state remembers {next(fields)}, the program's graph {next(fields)}; "
                "declare streams and tables as they were, or choose a new state path"
            )


def _table_of(window: WindowLayout) -> str:
    return f"tidegate_window_{window.name.replace('.', '_')}"


def _field(name: str) -> str:
    return f"of_{name.replace('.', '__')}"


class GraphStore:
    """Writes what graphs remember into their tables, and reads it back."""

    def __init__(self, flows: GraphWalk, tables: Mapping[str, TableState]) -> None:
        self._flows, self._tables = flows, tables
        self._saved = [np.zeros(len(_PLACES), np.int64) for _ in flows.window_layouts]
        self._saved_states = {name: (0, 0) for name in flows.histories}
        self._had_waiting = False
        self.stale = False

    def save(self, note: Note) -> None:
        """Write what is different since the last time; `note` learns which rows were written."""
        numbers: dict[str, int] = {}
        for number, flow in enumerate(self._flows.flows.flows):
            if flow.name:
                numbers[f"rounds of {flow.name}"] = int(self._flows.rounds[number])
        for number, window in enumerate(self._flows.window_layouts):
            windows, place = self._flows.window(number)
            header = windows.header(place)
            if not np.array_equal(header, self._saved[number]):
                numbers |= {f"{window.name} {place}": int(v) for place, v in zip(_PLACES, header, strict=True)}
                self._save_window(number, header, note)
        for name in self._flows.histories:
            numbers |= self._save_history(name, note)
        self._save_numbers(numbers, note)
        self._save_waiting(note)

    def _save_window(self, number: int, header: Array, note: Note) -> None:
        layout, (windows, place) = self._flows.window_layouts[number], self._flows.window(number)
        table, before = self._tables[_table_of(layout)], self._saved[number]
        gone = np.arange(before[0], min(header[0], before[2]))
        come = np.arange(max(header[0], before[2]), header[2])
        contents = windows.between(place, int(come[0]) if len(come) else 0, len(come))
        columns = {_field(name): contents[name] for name, _ in layout.columns}
        table.reserve(len(come))
        slots = table.resolve(come[:, None])
        table.store(slots, {**columns, "at_time": contents[TIME]}, True)
        table.keep_fresh()
        left = table.find(gone[:, None])
        table.store(left, {}, False)
        table.sweep(left)
        note(table.layout.name, np.concatenate([come, gone])[:, None])
        self._saved[number] = header

    def _save_history(self, name: str, note: Note) -> dict[str, int]:
        history, table = self._flows.histories[name], self._tables[f"tidegate_history_{name}"]
        first, stop, latest = (int(word) for word in history.state)
        old_first, old_stop = self._saved_states[name]
        gone, come = np.arange(old_first, min(first, old_stop)), np.arange(max(first, old_stop), stop)
        places = come & (len(history.time) - 1)
        keys = history.table.keys[history.slots[places]]
        columns: dict[str, Array] = {"at_time": history.time[places], "existed": history.exists[places]}
        for position, column in enumerate(history.table.layout.key_columns):
            words = np.ascontiguousarray(keys[:, position])
            columns[f"key_{column.name}"] = words.view(np.float64) if column.kind is Kind.FLOAT else words
        columns |= {f"of_{field}": values[places] for field, values in history.columns.items()}
        table.reserve(len(come))
        table.store(table.resolve(come[:, None]), columns, True)
        table.keep_fresh()
        left = table.find(gone[:, None])
        table.store(left, {}, False)
        table.sweep(left)
        note(table.layout.name, np.concatenate([come, gone])[:, None])
        self._saved_states[name] = (first, stop)
        return {f"history of {name} {place}": v for place, v in (("first", first), ("next", stop), ("latest", latest))}

    def _load_history(self, name: str, numbers: Mapping[str, int]) -> None:
        history, table = self._flows.histories[name], self._tables[f"tidegate_history_{name}"]
        first, stop = (numbers.get(f"history of {name} {place}", 0) for place in ("first", "next"))
        slots = table.find(np.arange(first, stop)[:, None])
        words = np.zeros((len(slots), len(history.table.layout.key)), np.int64)
        for position, column in enumerate(history.table.layout.key_columns):
            values = table.columns[f"key_{column.name}"][slots]
            words[:, position] = values.view(np.int64) if column.kind is Kind.FLOAT else values
        rows = history.table.resolve(words)
        history.restore(
            first,
            rows,
            table.columns["at_time"][slots],
            table.columns["existed"][slots],
            {field: table.columns[f"of_{field}"][slots] for field in history.columns},
            numbers.get(f"history of {name} latest", LONG_AGO),
        )
        history.table.sweep(rows[:0])
        self._saved_states[name] = (first, stop)

    def _save_numbers(self, numbers: Mapping[str, int], note: Note) -> None:
        table = self._tables[NUMBERS.name]
        keys = np.array([[table.strings.number(name)] for name in numbers], np.int64).reshape(-1, 1)
        slots = table.resolve(keys)
        table.store(slots, {"value": np.array(list(numbers.values()), np.int64)}, True)
        table.keep_fresh()
        note(NUMBERS.name, keys)

    def _save_waiting(self, note: Note) -> None:
        waiting = self._flows.waiting
        some = len(waiting) > 0
        if not some and not self._had_waiting:
            return
        table, key = self._tables[WAITING.name], np.zeros((1, 1), np.int64)
        slots = table.resolve(key)
        text = table.strings.number(waiting.packed()) if some else table.defaults["events"]
        table.store(slots, {"events": np.array([text])}, some)
        table.keep_fresh()
        table.sweep(slots if not some else slots[:0])
        note(WAITING.name, key)
        self._had_waiting = some

    def load(self) -> None:
        """Make the graphs what their tables say."""
        table = self._tables[NUMBERS.name]
        found = table.rows(table.slots())
        numbers = dict(zip(found["name"].to_pylist(), found["value"].to_pylist(), strict=True))
        for number, flow in enumerate(self._flows.flows.flows):
            self._flows.rounds[number] = numbers.get(f"rounds of {flow.name}", 0)
        for number, window in enumerate(self._flows.window_layouts):
            header = np.array([numbers.get(f"{window.name} {place}", 0) for place in _PLACES], np.int64)
            rows = self._tables[_table_of(window)]
            kept = np.arange(header[0], header[2])
            slots = rows.find(kept[:, None])
            contents = {name: rows.columns[_field(name)][slots] for name, _ in window.columns}
            windows, place = self._flows.window(number)
            windows.restore(place, {SEQUENCE: kept, TIME: rows.columns["at_time"][slots], HEADER: header, **contents})
            self._saved[number] = header
        for name in self._flows.histories:
            self._load_history(name, numbers)
        waiting = self._tables[WAITING.name]
        kept_rows = waiting.rows(waiting.slots()).to_pylist()
        plan = self._flows.plan
        only = plan.event_names[plan.entries[0]]
        self._flows.waiting = Waiting.unpacked(kept_rows[0]["events"], only) if kept_rows else Waiting()
        self._had_waiting = bool(kept_rows)
        self.stale = False
