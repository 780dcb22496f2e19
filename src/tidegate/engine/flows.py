"""Runs dataflow graphs: holds streams and windows, calls the generated `flow`, and gives it what it asks for.

`flow` takes the events of a batch through the graphs in machine code. It comes back when it is done, or when an
array is full or plain Python must run something; then it is helped and called again, and goes on where it was:

    flow(...) ──> DONE
              ──> PLAIN_EVENT, PLAIN_GROUP     a transaction, or a group, runs as plain Python
              ──> ..._FULL                     an array is made larger

Where the graphs have several stages, these may walk through the batch side by side (`lanes`).

Events whose atomic batch is not complete yet wait: they are not run, and come again before the next batch's.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.engine.batch import Batch
from tidegate.engine.execution.executions import Execution
from tidegate.engine.execution.workers import Workers
from tidegate.engine.flow_interpreter import FlowInterpreter
from tidegate.engine.interpreter import Interpreter
from tidegate.engine.lanes import Lane, Pipeline, StageChoice, pieces_of
from tidegate.engine.state.history import History
from tidegate.engine.state.streams import StreamState, field_array, field_parts, value_array
from tidegate.engine.state.strings import StringPool
from tidegate.engine.state.table import TableState
from tidegate.engine.state.windows import WindowLayout, Windows
from tidegate.foundation.jit import is_uncompiled
from tidegate.operations.decision import Strategy
from tidegate.operations.flow import (
    DONE,
    GROUP,
    HISTORY_FULL,
    JOURNAL_FULL,
    LOG_FULL,
    PLAIN_EVENT,
    PLAIN_GROUP,
    POSITION,
    STREAM_FULL,
    TABLE_FULL,
    TOP_WORDS,
    TOUCHED_FULL,
    WHICH,
    WINDOW_FULL,
    FlowsPlan,
    WindowParameter,
    column_of,
    round_ends,
    round_span,
    structures_of,
)
from tidegate.operations.layout import Kind
from tidegate.operations.outcomes import Step
from tidegate.operations.plan import DTYPES, Program, column_array

Array = npt.NDArray[Any]
SMALLEST = 64

PIECES, PIECE_EVENTS = 32, 512
"""Into how many pieces a batch is cut for stages that run side by side, and how small they may be."""

STAGED_EVENTS_MIN = 2048
"""Smaller batches are walked through by one lane: handing out pieces takes longer."""


class _Journal:
    """The rows of one table that the group at hand wrote, as they were before, and those written in this batch."""

    def __init__(self, table: TableState) -> None:
        self.table = table
        self.count, self.touched_count = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self.touched = np.empty(SMALLEST, np.int64)
        self.grow(SMALLEST)

    def grow(self, size: int) -> None:
        """Make room for so many rows; what is in it is of no use any more."""
        self.slots, self.times, self.begins = (np.empty(size, np.int64) for _ in range(3))
        self.exists = np.empty(size, np.bool_)
        kinds = {column.name: DTYPES[column.kind] for column in self.table.layout.value_columns}
        self.columns = {name: np.empty(size, kind) for name, kind in kinds.items()}

    def arrays(self) -> dict[str, Array]:
        """What generated code calls them."""
        name = self.table.layout.name
        found = {f"jn_{name}": self.count, f"jr_{name}": self.slots, f"je_{name}": self.exists}
        found |= {f"jt_{name}": self.times, f"jb_{name}": self.begins}
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

    def __init__(
        self,
        program: Program,
        module: ModuleType,
        tables: Mapping[str, TableState],
        strategy: Strategy,
        workers: Workers,
        record: bool,
    ) -> None:
        assert program.plan.flows is not None
        self.plan, self.flows = program.plan, program.plan.flows
        self.recording = record
        """Whether a history is kept: of all that runs, plain transactions too."""
        self._plain = is_uncompiled()
        self.history: list[Step] = []
        self.waiting: pa.Table | None = None
        self._program, self._module, self._tables = program, module, tables
        self.streams = [
            StreamState(layout, output) for layout, output in zip(self.flows.streams, self.flows.outputs, strict=True)
        ]
        self.windows = [Windows() for _ in self.flows.stages]
        """Those of each stage."""
        self.window_layouts = [
            window_layout(self.flows, self.plan.transactions, number, window)
            for number, window in enumerate(self.flows.windows)
        ]
        self._window_places = [self.flows.place_of_window(number) for number in range(len(self.flows.windows))]
        for (stage, _), layout in zip(self._window_places, self.window_layouts, strict=True):
            self.windows[stage].add(layout)
        self._journals = {name: _Journal(tables[name]) for name in self.flows.journalled}
        self.histories = {name: History(tables[name], keep) for name, keep in self.flows.remembered}
        self._hits = np.zeros(len(self.flows.members), np.int64)
        widest = max((sum(len(f.kinds) for f in s.fields) for s in self.flows.streams), default=0)
        self._words = [np.zeros(widest + 1, np.int64) for _ in self.flows.stages]
        self._scratch = [np.zeros(TOP_WORDS, np.int64) for _ in self.flows.stages]
        self._order = np.empty(0, np.int64)
        self._whole = Lane(self.flows, len(self.plan.transactions), None)
        self._lanes = [Lane(self.flows, len(self.plan.transactions), n) for n in range(len(self.flows.stages))]
        self._workers, self._strategy, self._choice = workers, strategy, StageChoice()
        self._walked = self._whole
        self._rooms = 0
        self._python = threading.Lock()
        self._ends: dict[str, Array] = {}

    def window(self, number: int) -> tuple[Windows, int]:
        """Where a window lies: those of its stage, and its number among them."""
        stage, place = self._window_places[number]
        return self.windows[stage], place

    @property
    def rounds(self) -> Array:
        """The number of the last round of each graph."""
        return self._whole.rounds

    def use_strings(self, strings: StringPool) -> None:
        """Strings have other numbers from now on."""
        self._strings = strings
        self._literals = np.array([strings.number(text) for text in self.plan.literals], np.int64)
        self._interpreter = Interpreter(self._program, dict(self._tables), strings)
        self._groups = FlowInterpreter(self._program, self._interpreter, self._tables, strings, self)

    def string_numbers(self) -> list[Array]:
        """The numbers of all strings that windows, streams and earlier states hold."""
        return [numbers for holder in self._string_holders() for numbers in holder.string_numbers()]

    def renumber(self, numbers: Array) -> None:
        """String number n is number `numbers[n]` from now on."""
        for holder in self._string_holders():
            holder.renumber(numbers)

    def _string_holders(self) -> list[Windows | StreamState | History]:
        return [*self.windows, *self.streams, *self.histories.values()]

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
        adaptive, several = self._strategy == "adaptive", self._can_be_staged(len(order))
        staged = several and (not adaptive or self._choice.staged())
        if staged:
            interpreted, properties = self._run_side_by_side(batch, order)
        else:
            self._whole.begin(len(order), self.rounds.copy(), self.recording)
            self._walked, properties = self._whole, {}
            interpreted = self._walk(self._whole, batch, order, len(order), batch.status)
        self._keep_history([self._whole] if not staged else self._lanes)
        rounds = {f"rounds of {flow.name}": int(n) for flow, n in zip(self.flows.flows, self.rounds, strict=True)}
        seconds, stages = time.perf_counter() - began, len(self.flows.stages)
        why = "dataflow graphs run in their order, group by group"
        if several:
            why = f"{stages} stages that share no table"
        if several and adaptive:
            self._choice.learn(staged, len(order), seconds)
            why += f": {self._choice.why}"
        return Execution(
            "stages" if staged else "serial",
            workers=min(self._workers.count, stages) if staged else 1,
            interpreted=interpreted,
            why=why,
            seconds={"execute": seconds},
            properties={**rounds, **properties},
        )

    def _can_be_staged(self, events: int) -> bool:
        several = len(self.flows.stages) > 1 and self._workers.count > 1
        return several and self._strategy != "serial" and events >= STAGED_EVENTS_MIN

    def _run_side_by_side(self, batch: Batch, order: Array) -> tuple[int, dict[str, float]]:
        """Let the lanes of all stages walk, each through a piece when those before it have."""
        refused = batch.status.copy()  # what the first lane decides must not change what the others see
        self._ends = {
            round_ends(self.flows.streams[number].name): np.zeros(len(order) + 2, np.int64)
            for number in self.flows.crossing
        }
        for lane in self._lanes:
            lane.begin(len(order), self.rounds.copy(), self.recording)
        stops = pieces_of(len(order), PIECES, PIECE_EVENTS)
        interpreted = [0] * len(self._lanes)

        def walk(stage: int, piece: int) -> None:
            interpreted[stage] += self._walk(self._lanes[stage], batch, order, stops[piece], refused)

        pipeline = Pipeline(self.flows, len(stops), walk)
        try:
            self._workers.run(pipeline.work, pipeline.stop)
        finally:
            for number in self.flows.crossing:
                self.streams[number].clear()
        self._walked = self._lanes[0]
        self._whole.rounds[:] = self._walked.rounds
        shares = {f"stage {number} seconds": lane.seconds for number, lane in enumerate(self._lanes)}
        return sum(interpreted), {"stages": len(self._lanes), "pieces": len(stops), **shares}

    def _walk(self, lane: Lane, batch: Batch, order: Array, stop: int, refused: Array) -> int:
        """Go on up to an event, helping where machine code asks for it; returns how often plain Python ran."""
        began, control, interpreted = time.perf_counter(), lane.control, 0
        while (code := self._flow(stop, order, batch, self._environment(lane, batch, refused))) != DONE:
            with self._python:
                if code == PLAIN_EVENT:
                    event = int(order[control[POSITION]])
                    self._interpreter.run(batch, event)
                    lane.log_steps({-1 - int(batch.kinds[event]): 1}, 0, -1, batch.status[event] == 0)
                    control[POSITION] += 1
                    interpreted += 1
                elif code == PLAIN_GROUP:
                    self._groups.run(batch, int(control[GROUP]), lane)
                    control[GROUP] += 1
                    interpreted += 1
                else:
                    self._make_room(code, lane)
                self._rooms += 1
        lane.seconds += time.perf_counter() - began
        return interpreted

    def _flow(self, stop: int, order: Array, batch: Batch, env: tuple[tuple[Any, ...], ...]) -> int:
        with np.errstate(all="ignore") if self._plain else contextlib.nullcontext():
            return int(self._module.flow(stop, order, batch.kinds, env))

    def take_touched(self) -> dict[str, Array]:
        """The slots of rows that graphs wrote since the last call, by table."""
        return {name: journal.take_touched() for name, journal in self._journals.items()}

    def waiting_events(self) -> Array:
        """The events whose atomic batch is not complete, in the order in which they came."""
        found = [self._walked.opened(number) for flow in self.flows.flows for number in flow.borders]
        waiting = np.concatenate(found)
        place = np.empty(len(self._order), np.int64)
        place[self._order] = np.arange(len(self._order))
        return waiting[np.argsort(place[waiting])]

    def journal(self, table: str) -> _Journal:
        """The journal of a table."""
        return self._journals[table]

    def _environment(self, lane: Lane, batch: Batch, refused: Array) -> tuple[tuple[Any, ...], ...]:
        """The arrays that a lane works on; made anew when some were replaced."""
        if lane.environment is None or lane.environment[0] != self._rooms:
            with self._python:  # arrays that follow a table's growth are replaced by whoever asks first
                arrays = self._arrays(lane, batch, refused)
                found = tuple(tuple(arrays[name] for name in names) for _, names in self.flows.environment)
                lane.environment = (self._rooms, found)
        return lane.environment[1]

    def _arrays(self, lane: Lane, batch: Batch, refused: Array) -> dict[str, Any]:
        arrays: dict[str, Any] = {"literals": self._literals, "status": batch.status, "refused": refused}
        arrays |= {"control": lane.control, "hits": self._hits, "log": lane.log, **lane.open}
        arrays |= {"mine": lane.mine, "roles": lane.roles, "rounds_before": lane.rounds_before}
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
        for number, stream in enumerate(self.streams):
            arrays |= stream.named_arrays()
            arrays[round_span(stream.layout.name)] = lane.spans.get(number, stream.span)
            arrays[round_ends(stream.layout.name)] = self._ends.get(round_ends(stream.layout.name), stream.span)
        for journal in self._journals.values():
            arrays |= journal.arrays()
        for history in self.histories.values():
            arrays |= history.arrays()
        for stage, (windows, words) in enumerate(zip(self.windows, self._words, strict=True)):
            arrays |= {f"wheap_{stage}": windows.heap, f"wjournal_{stage}": windows.journal}
            arrays |= {f"wstate_{stage}": windows.state, f"wbases_{stage}": windows.bases, f"wwords_{stage}": words}
            arrays |= {f"wwords_floats_{stage}": words.view(np.float64), f"wscratch_{stage}": self._scratch[stage]}
        return arrays

    def _make_room(self, code: int, lane: Lane) -> None:
        which = self.plan.tables[int(lane.control[WHICH])].name if self.plan.tables else ""
        if code == TABLE_FULL:
            self._tables[which].make_room()
        elif code == STREAM_FULL:
            for number in self.flows.group(int(lane.control[GROUP])).emits:
                self.streams[number].grow()
        elif code == WINDOW_FULL:
            self.windows[self.flows.stage_of(int(lane.control[GROUP]))].make_room()
        elif code == JOURNAL_FULL:
            self._journals[which].grow(2 * len(self._journals[which].slots))
        elif code == HISTORY_FULL:
            self.histories[which].grow()
        elif code == TOUCHED_FULL:
            journal = self._journals[which]
            journal.touched = np.concatenate([journal.touched, np.empty_like(journal.touched)])
        else:
            assert code == LOG_FULL, code
            lane.make_room_for_steps()

    # --- history -------------------------------------------------------------------------------------------

    def _keep_history(self, lanes: list[Lane]) -> None:
        """Add what the lanes ran, in the order in which it happened."""
        found = []
        for lane in lanes:
            lane.collect()
            found += lane.steps
            lane.steps = []
        if len(lanes) > 1:
            found.sort(key=lambda step: step[-1])
        for member, batch, group, committed, tuples, _ in found:
            self._add(member, batch, group, bool(committed), tuples)

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
        windows, place = self.window(number)
        columns = windows.rows(place)
        layout, stream = windows.layouts[place], self.flows.windows[number].stream
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
