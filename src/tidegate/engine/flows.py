"""Runs dataflow graphs: holds streams and windows, calls the generated `flow`, and gives it what it asks for.

`flow` takes the events of a batch through the graphs in machine code. It comes back when it is done, or when an
array is full or plain Python must run something; then it is helped and called again, and goes on where it was:

    flow(...) ──> DONE
              ──> PLAIN_EVENT, PLAIN_GROUP     a transaction, or a group, runs as plain Python
              ──> ..._FULL                     an array is made larger

Events whose atomic batch is not complete yet wait: they are not run, and come again before the next batch's.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.engine.batch import Batch
from tidegate.engine.execution.runner import Execution
from tidegate.engine.flow_interpreter import FlowInterpreter
from tidegate.engine.interpreter import Interpreter
from tidegate.engine.state.history import History
from tidegate.engine.state.streams import StreamState, field_array, field_parts, value_array
from tidegate.engine.state.strings import StringPool
from tidegate.engine.state.table import TableState
from tidegate.engine.state.windows import WindowLayout, Windows
from tidegate.foundation.jit import is_uncompiled
from tidegate.operations.flow import (
    DONE,
    GROUP,
    HISTORY_FULL,
    JOURNAL_FULL,
    LOG_FULL,
    LOGGED,
    PLAIN_EVENT,
    PLAIN_GROUP,
    POSITION,
    RECORD,
    ROUNDS,
    STREAM_FULL,
    TABLE_FULL,
    TOP_WORDS,
    TOUCHED_FULL,
    WHICH,
    WINDOW_FULL,
    FlowsPlan,
    WindowParameter,
    column_of,
    structures_of,
)
from tidegate.operations.layout import Kind
from tidegate.operations.outcomes import Step
from tidegate.operations.plan import DTYPES, Program, column_array

Array = npt.NDArray[Any]
SMALLEST = 64


class _Journal:
    """The rows of one table that the group at hand wrote, as they were before, and those written in this batch."""

    def __init__(self, table: TableState) -> None:
        self.table = table
        self.count, self.touched_count = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self.touched = np.empty(SMALLEST, np.int64)
        self.grow(SMALLEST)

    def grow(self, size: int) -> None:
        """Make room for so many rows; what is in it is of no use any more."""
        self.slots, self.times = np.empty(size, np.int64), np.empty(size, np.int64)
        self.exists = np.empty(size, np.bool_)
        kinds = {column.name: DTYPES[column.kind] for column in self.table.layout.value_columns}
        self.columns = {name: np.empty(size, kind) for name, kind in kinds.items()}

    def arrays(self) -> dict[str, Array]:
        """What generated code calls them."""
        name = self.table.layout.name
        found = {f"jn_{name}": self.count, f"jr_{name}": self.slots, f"je_{name}": self.exists}
        found[f"jt_{name}"] = self.times
        found |= {f"j{column_array(name, field)}": column for field, column in self.columns.items()}
        return found | {f"tn_{name}": self.touched_count, f"tt_{name}": self.touched, f"tm_{name}": self.table.marks}

    def take_touched(self) -> Array:
        """The slots that were written since the last call."""
        found = self.touched[: self.touched_count[0]].copy()
        self.table.marks[found] = False
        self.touched_count[0] = 0
        return found


class FlowRun:
    """The dataflow graphs of one engine, with their streams and windows."""

    def __init__(self, program: Program, module: ModuleType, tables: Mapping[str, TableState], record: bool) -> None:
        assert program.plan.flows is not None
        self.plan, self.flows = program.plan, program.plan.flows
        self._plain = is_uncompiled()
        self.history: list[Step] = []
        self.waiting: pa.Table | None = None
        self._program, self._module, self._tables = program, module, tables
        self.streams = [
            StreamState(layout, output) for layout, output in zip(self.flows.streams, self.flows.outputs, strict=True)
        ]
        self.windows = Windows()
        for number, window in enumerate(self.flows.windows):
            self.windows.add(window_layout(self.flows, self.plan.transactions, number, window))
        self._journals = {name: _Journal(tables[name]) for name in self.flows.journalled}
        self.histories = {name: History(tables[name], keep) for name, keep in self.flows.remembered}
        self._control = np.zeros(ROUNDS + len(self.flows.flows), np.int64)
        self._control[GROUP], self._control[RECORD] = -1, record
        self._hits = np.zeros(len(self.flows.members), np.int64)
        self._log = np.zeros((SMALLEST, 5), np.int64)
        widest = max((sum(len(f.kinds) for f in s.fields) for s in self.flows.streams), default=0)
        self._words = np.zeros(widest + 1, np.int64)
        self._scratch = np.zeros(TOP_WORDS, np.int64)
        self._open: dict[str, Array] = {}
        self._order = np.empty(0, np.int64)

    def use_strings(self, strings: StringPool) -> None:
        """Strings have other numbers from now on."""
        self._strings = strings
        self._literals = np.array([strings.number(text) for text in self.plan.literals], np.int64)
        self._interpreter = Interpreter(self._program, dict(self._tables), strings)
        self._groups = FlowInterpreter(self._program, self._interpreter, self._tables, strings, self)

    def string_numbers(self) -> list[Array]:
        """The numbers of all strings that windows and streams hold."""
        return [*self.windows.string_numbers(), *(numbers for s in self.streams for numbers in s.string_numbers())]

    def renumber(self, numbers: Array) -> None:
        """String number n is number `numbers[n]` from now on."""
        self.windows.renumber_strings(numbers)
        for stream in self.streams:
            stream.renumber(numbers)

    # --- batches -------------------------------------------------------------------------------------------

    def with_waiting(
        self, events: pa.Table, order: Array | None, refused: Mapping[str, Array]
    ) -> tuple[pa.Table, Array | None, Mapping[str, Array]]:
        """The events of a batch behind those that wait."""
        if self.waiting is None or self.waiting.num_rows == 0:
            return events, order, refused
        before = self.waiting.num_rows
        place = np.arange(events.num_rows) if order is None else order
        refused = {why: np.concatenate([np.zeros(before, np.bool_), marked]) for why, marked in refused.items()}
        events = pa.concat_tables([self.waiting, plain_strings(events)], promote_options="permissive")
        return events, np.concatenate([np.arange(before), before + place]), refused

    def hold_back(self, events: pa.Table, outcomes: pa.Table) -> pa.Table:
        """The outcomes of the events that were decided; the others wait for the next batch."""
        waiting = self.waiting_events()
        self.waiting = plain_strings(events.take(pa.array(waiting)))
        if len(waiting) == 0:
            return outcomes
        decided = np.ones(events.num_rows, np.bool_)
        decided[waiting] = False
        return outcomes.filter(pa.array(decided))

    def run(self, batch: Batch, order: Array) -> Execution:
        """Take a batch's events through the graphs."""
        began, self._order = time.perf_counter(), order
        for number in (border for flow in self.flows.flows for border in flow.borders):
            self._open[f"open_{number}"] = np.zeros(1, np.int64)
            self._open[f"opened_{number}"] = np.empty(batch.size + 1, np.int64)
        control, interpreted = self._control, 0
        control[POSITION] = 0
        env = self._environment(batch)
        while (code := self._flow(order, batch, env)) != DONE:
            if code == PLAIN_EVENT:
                event = int(order[control[POSITION]])
                self._interpreter.run(batch, event)
                self.log(-1 - int(batch.kinds[event]), 0, -1, batch.status[event] == 0, 1)
                control[POSITION] += 1
                interpreted += 1
            elif code == PLAIN_GROUP:
                self._groups.run(batch, int(control[GROUP]))
                control[GROUP] += 1
                interpreted += 1
            else:
                self._make_room(code)
            env = self._environment(batch)
        self._collect_history()
        rounds = {flow.name: int(control[ROUNDS + n]) for n, flow in enumerate(self.flows.flows)}
        return Execution(
            "serial",
            interpreted=interpreted,
            why="dataflow graphs run in their order, group by group",
            seconds={"execute": time.perf_counter() - began},
            properties={f"rounds of {name}": count for name, count in rounds.items()},
        )

    def _flow(self, order: Array, batch: Batch, env: tuple[tuple[Any, ...], ...]) -> int:
        with np.errstate(all="ignore") if self._plain else contextlib.nullcontext():
            return int(self._module.flow(len(order), order, batch.kinds, env))

    def take_touched(self) -> dict[str, Array]:
        """The slots of rows that graphs wrote since the last call, by table."""
        return {name: journal.take_touched() for name, journal in self._journals.items()}

    def waiting_events(self) -> Array:
        """The events whose atomic batch is not complete, in the order in which they came."""
        found = [
            self._open[f"opened_{number}"][: self._open[f"open_{number}"][0]]
            for flow in self.flows.flows
            for number in flow.borders
        ]
        waiting = np.concatenate(found)
        place = np.empty(len(self._order), np.int64)
        place[self._order] = np.arange(len(self._order))
        return waiting[np.argsort(place[waiting])]

    def opened(self, stream: int) -> Array:
        """The events of the open batch of a border stream."""
        return self._open[f"opened_{stream}"][: self._open[f"open_{stream}"][0]]

    @property
    def recording(self) -> bool:
        """Whether a history is kept: of all that runs, plain transactions too."""
        return bool(self._control[RECORD])

    @property
    def control(self) -> Array:
        """Where the run stands (`operations.flow`)."""
        return self._control

    def journal(self, table: str) -> _Journal:
        """The journal of a table."""
        return self._journals[table]

    def _environment(self, batch: Batch) -> tuple[tuple[Any, ...], ...]:
        arrays: dict[str, Any] = {"literals": self._literals, "status": batch.status, "control": self._control}
        arrays |= {"hits": self._hits, "log": self._log, **self._open}
        for family, bounds, data in (
            ("rows", batch.rows, batch.slots),
            ("values", batch.values, [bound.values for bound in batch.values]),
        ):
            for number, (bound, values) in enumerate(zip(bounds, data, strict=True)):
                arrays[f"{family}_{number}"] = values
                arrays |= {f"{family}_{number}_offsets": bound.offsets, f"{family}_{number}_data": values}
        for table in self._tables.values():
            name = table.layout.name
            fields = [column_array(name, column.name) for column in table.layout.value_columns]
            arrays |= dict(zip((f"e_{name}", f"k_{name}", f"f_{name}", *fields), table.arrays, strict=True))
            wanted = np.zeros((1, len(table.layout.key)), np.int64)
            arrays |= {f"ix_{name}": table.index, f"want_{name}": wanted, f"fwant_{name}": wanted.view(np.float64)}
        for number, kind in enumerate(self.plan.result_arrays):
            arrays |= {f"results_{number}": batch.results[number], f"void_{number}": np.zeros(1, DTYPES[kind])}
        arrays |= {"valid": batch.valid, "void_valid": np.zeros(1, np.bool_)}
        for number, (binding, kind) in enumerate(self.plan.scratch):
            offsets = batch.rows[binding].offsets
            assert offsets is not None
            arrays[f"undo_{number}"] = np.zeros(int(np.max(np.diff(offsets), initial=0)), DTYPES[kind])
        for stream in self.streams:
            arrays |= stream.named_arrays()
        for journal in self._journals.values():
            arrays |= journal.arrays()
        for history in self.histories.values():
            arrays |= history.arrays()
        arrays |= {"wheap": self.windows.heap, "wjournal": self.windows.journal, "wstate": self.windows.state}
        arrays |= {"wbases": self.windows.bases, "wwords": self._words, "wwords_floats": self._words.view(np.float64)}
        arrays["wscratch"] = self._scratch
        return tuple(tuple(arrays[name] for name in names) for _, names in self.flows.environment)

    def _make_room(self, code: int) -> None:
        which = self.plan.tables[int(self._control[WHICH])].name if self.plan.tables else ""
        if code == TABLE_FULL:
            self._tables[which].make_room()
        elif code == STREAM_FULL:
            for number in self.flows.group(int(self._control[GROUP])).emits:
                self.streams[number].grow()
        elif code == WINDOW_FULL:
            self.windows.make_room()
        elif code == JOURNAL_FULL:
            self._journals[which].grow(2 * len(self._journals[which].slots))
        elif code == HISTORY_FULL:
            self.histories[which].grow()
        elif code == TOUCHED_FULL:
            journal = self._journals[which]
            journal.touched = np.concatenate([journal.touched, np.empty_like(journal.touched)])
        else:
            assert code == LOG_FULL, code
            self._collect_history()
            if not self._control[LOGGED]:
                self._log = np.zeros((2 * len(self._log), 5), np.int64)

    # --- history -------------------------------------------------------------------------------------------

    def log(self, member: int, batch: int, group: int, committed: bool, tuples: int) -> None:
        """Note a step that plain Python ran."""
        if self._control[RECORD]:
            self._collect_history()
            self._add(member, batch, group, committed, tuples)

    def _collect_history(self) -> None:
        for member, batch, group, committed, tuples in self._log[: self._control[LOGGED]].tolist():
            self._add(member, batch, group, bool(committed), tuples)
        self._control[LOGGED] = 0

    def _add(self, member: int, batch: int, group: int, committed: bool, tuples: int) -> None:
        graph, place = "", -1
        if member >= 0:
            flow = self.flows.flows[self.flows.flow_of(group)]
            graph, place = flow.name, group - flow.first_group
        if not graph:  # a plain transaction, whether or not it runs as a graph of its own
            batch, place = 0, -1
        number = -1 - member if member < 0 else self.flows.members[member].transaction
        name = self.plan.names[number]
        self.history.append(Step(len(self.history), graph, name, batch, place, bool(committed), tuples))

    # --- what users see -------------------------------------------------------------------------------------

    def stream_number(self, name: str) -> int:
        """The number of a stream; -1 if there is none of that name."""
        return next((n for n, stream in enumerate(self.flows.streams) if stream.name == name), -1)

    def scan(self, number: int) -> pa.Table:
        """The tuples that wait in a stream."""
        border = any(number in flow.borders for flow in self.flows.flows)
        if not border:
            return self.streams[number].table(self._strings)
        names = [field.name for field in self.flows.streams[number].fields]
        if self.waiting is None:
            return StreamState(self.flows.streams[number], False).table(self._strings).select(names)
        mine = self.waiting
        entry = self.plan.event_names[self._entry(number)]
        if len(self.plan.entries) > 1:
            mine = mine.filter(pc.equal(mine["transaction"], entry))
        return mine.select(names)

    def _entry(self, stream: int) -> int:
        names = self.plan.event_names
        return next(n for n in self.plan.entries if names[n] == self.flows.streams[stream].name)

    def take(self, number: int) -> pa.Table:
        """What waits in an output stream; it is forgotten."""
        found = self.streams[number].table(self._strings)
        self.streams[number].clear()
        return found

    def window_rows(self, number: int) -> pa.Table:
        """The visible rows of a window."""
        columns = self.windows.rows(number)
        layout, stream = self.windows.layouts[number], self.flows.windows[number].stream
        values = {name: value_array(columns[name], kind, self._strings) for name, kind in layout.columns}
        found = {}
        for field in stream.fields:
            found[field.name] = field_array(field, [values[name] for name in field_parts(field)])
        return pa.table(found)


def plain_strings(events: pa.Table) -> pa.Table:
    """The events with dictionaries and views written out: those of two tables cannot be joined."""
    for position, field in enumerate(events.schema):
        if pa.types.is_dictionary(field.type) or pa.types.is_string_view(field.type):
            plain = field.type.value_type if pa.types.is_dictionary(field.type) else pa.string()
            column = events.column(position).cast(plain)
            events = events.set_column(position, field.name, column)
    return events


def window_layout(flows: FlowsPlan, plans: Sequence[Any], number: int, window: WindowParameter) -> WindowLayout:
    """How a window lies in memory: the columns of its stream, and what is asked of it."""
    columns: list[tuple[str, Kind]] = []
    for field in window.stream.fields:
        columns += zip(field_parts(field), field.kinds, strict=True)
    asked = structures_of(flows, tuple(plans), number)
    aggregates = tuple((function, column_of(window.stream.fields, field)) for function, field in asked)
    owner = plans[flows.members[flows.owners[number]].transaction].name
    mode: Any = "time" if window.time else "rows"
    return WindowLayout(f"{owner}.{window.name}", tuple(columns), mode, window.size, window.slide, aggregates)
