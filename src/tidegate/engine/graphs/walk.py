"""Runs dataflow graphs: holds streams and windows, calls the generated `flow`, and gives it what it asks for.

`flow` takes the events of a batch through the graphs in machine code. It comes back when it is done, or when an
array is full or plain Python must run something; then Python does that and calls it again, and it continues:

    flow(...) ──> DONE
              ──> PLAIN_EVENT, PLAIN_GROUP     a transaction, or a group, runs as plain Python
              ──> ..._FULL                     an array is made larger
              ──> MISFIT                       a step that is to be run again does not come next, or aborts now

Where the graphs have several stages, these may walk through the batch side by side (`lanes`).

Events whose atomic batch is not complete yet wait: they are not run, and come again before the next batch's.

Where steps are traced or replayed (`steps`), `traced_flow` stands for `flow`, and one lane walks through everything:
the order of commits is that of the walk.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.engine.arrays import ArrayBinder, strings_of, workspace
from tidegate.engine.batch import Batch
from tidegate.engine.execution.executions import Execution, Executor, Job, joined
from tidegate.engine.execution.workers import Workers
from tidegate.engine.faults import Faults
from tidegate.engine.graphs.group_run import run_group
from tidegate.engine.graphs.lanes import Lane, Pipeline, aborts_of, history_of, pieces_of
from tidegate.engine.graphs.steps import StepCodec, StepRecord, misfit
from tidegate.engine.graphs.waiting import Waiting, join
from tidegate.engine.interpreter import Interpreter
from tidegate.engine.state.columns import value_column
from tidegate.engine.state.history import History
from tidegate.engine.state.journal import Journal
from tidegate.engine.state.streams import StreamState, field_array, field_parts
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
    MISFIT,
    MODE,
    PLAIN_EVENT,
    PLAIN_GROUP,
    POSITION,
    REPLAYING,
    STOPPED,
    STREAM_FULL,
    TABLE_FULL,
    TOUCHED_FULL,
    TRACE_FULL,
    TRACING,
    UNTRACED,
    WHICH,
    WINDOW_FULL,
    FlowsPlan,
    WindowParameter,
    column_of,
    structures_of,
)
from tidegate.operations.layout import ValueType
from tidegate.operations.outcomes import Step
from tidegate.operations.plan import Program

Array = npt.NDArray[Any]

PIECES, PIECE_EVENTS = 32, 512
"""Into how many pieces a batch is cut for stages that run side by side, and how small they may be."""

_IN_ORDER = "dataflow graphs run in their order, group by group"
_AROUND = f"{_IN_ORDER}, and the strategies run plain transactions that follow each other"


class GraphWalk:
    """The dataflow graphs of one engine, with their streams and windows."""

    def __init__(
        self,
        program: Program,
        module: ModuleType,
        tables: Mapping[str, TableState],
        workers: Workers,
        record: bool,
        faults: Faults,
    ) -> None:
        self._faults = faults
        self.plan, self.flows = program.plan, program.plan.flows
        self.recording = record and bool(self.flows.members)
        """Whether a history is kept: of all that runs, plain transactions too."""
        self.half_run = False
        """Whether Ctrl-C ended a batch in the middle, and its events cannot be undone."""
        self._plain = is_uncompiled()
        self.history: list[Step] = []
        self.waiting = Waiting()
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
        self._journals = {name: Journal(tables[name]) for name in self.flows.journalled}
        self.histories = {name: History(tables[name], keep) for name, keep in self.flows.remembered}
        self._arrays = ArrayBinder(self.flows.arrays, self._owners())
        self._order = np.empty(0, np.int64)
        self._whole = Lane(self.plan, self.streams, None)
        self._lanes = [Lane(self.plan, self.streams, stage) for stage in range(len(self.flows.stages))]
        self._workers = workers
        self._walked: Lane | None = None
        """Who went through the last batch; None where no event of it came to a graph."""
        self._rooms = 0
        self._python = threading.Lock()
        self._codec = StepCodec(self.plan)
        self._steps: list[bytes] = []
        self._at: StepRecord | None = None

    def _owners(self) -> dict[tuple[str, str | int], object]:
        """Who owns the arrays that generated code works on, but for those that come with a batch."""
        found: dict[tuple[str, str | int], object] = {("table", name): table for name, table in self._tables.items()}
        found |= {("journal", name): journal for name, journal in self._journals.items()}
        found |= {("history", name): history for name, history in self.histories.items()}
        found |= {("stream", number): stream for number, stream in enumerate(self.streams)}
        return found | {("windows", stage): windows for stage, windows in enumerate(self.windows)}

    def window(self, number: int) -> tuple[Windows, int]:
        """Where a window lies: those of its stage, and its number among them."""
        stage, place = self._window_places[number]
        return self.windows[stage], place

    @property
    def rounds(self) -> Array:
        """The number of the last round of each graph."""
        return self._whole.rounds

    def holders(self) -> list[object]:
        """All that has what the graphs remember from batch to batch."""
        own = [self._whole, self.waiting, self.history]
        return [*own, *self.streams, *self.windows, *self._journals.values(), *self.histories.values()]

    def use_strings(self, strings: StringPool) -> None:
        """Strings have other numbers from now on."""
        self._strings = strings
        self._program_strings = strings_of(self.plan, strings)
        self._interpreter = Interpreter(self._program, self._tables, strings, self._faults, self.histories)

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

    def enter(self) -> Waiting:
        """A batch comes: the events that stand before its own."""
        self._walked = None
        return self.waiting

    def hold_back(self, events: pa.Table, outcomes: pa.Table) -> tuple[pa.Table, pa.Table]:
        """The events that were decided, those that had waited first, and their outcomes; the others wait."""
        if not self.flows.may_wait and not len(self.waiting):
            return events, outcomes
        waiting = self.waiting_events()
        events = self.waiting.part(events, waiting, self.plan.event_names[self.plan.entries[0]])
        if len(waiting):
            outcomes = outcomes.take(pa.array(np.delete(np.arange(outcomes.num_rows), waiting)))
        return events, outcomes

    def run(self, job: Job) -> Execution:
        """Take events through the graphs in one walk."""
        began = time.perf_counter()
        self._begin(job.batch, job.order, TRACING if job.trace else UNTRACED)
        interpreted = self._walk_to_the_end(job.batch)
        return self._execution("serial", began, interpreted, _IN_ORDER)

    def run_around(self, job: Job, plain: Sequence[tuple[int, int]], executor: Executor) -> Execution:
        """The same, but another executor runs the events of these parts of the order, all of plain transactions."""
        began, elsewhere, interpreted, executions = time.perf_counter(), 0.0, 0, []
        self._begin(job.batch, job.order, UNTRACED)
        for begin, end in plain:
            interpreted += self._walk(self._whole, job.batch, begin)
            left = time.perf_counter()
            executions.append(executor.run(job.part(job.order[begin:end], begin == 0)))
            self._whole.control[POSITION] = end
            self._rooms += 1  # tables may have grown
            elsewhere += time.perf_counter() - left
        interpreted += self._walk_to_the_end(job.batch)
        walked = self._execution("serial", began + elsewhere, interpreted, _AROUND)
        return joined([*executions, walked])

    def run_side_by_side(self, job: Job) -> Execution:
        """Take events through the graphs, each stage by a worker of its own."""
        began = time.perf_counter()
        interpreted, shares = self._run_side_by_side(job.batch, job.order)
        self.history += history_of(self._lanes, self.plan, job.batch.reasons, len(self.history))
        stages = len(self._lanes)
        found = self._execution("stages", began, interpreted, f"{stages} stages that share no table")
        return replace(found, workers=min(self._workers.count, stages), properties={**found.properties, **shares})

    def _execution(self, strategy: str, began: float, interpreted: int, why: str) -> Execution:
        rounds: dict[str, float] = {
            f"rounds of {flow.name}": int(n) for flow, n in zip(self.flows.flows, self.rounds, strict=True) if flow.name
        }
        seconds = {"execute": time.perf_counter() - began}
        lanes = self._lanes if strategy == "stages" else [self._whole]
        aborts = aborts_of(lanes, self.plan)
        return Execution(
            strategy, interpreted=interpreted, why=why, seconds=seconds, properties=rounds, interior_aborts=aborts
        )

    def _begin(self, batch: Batch, order: Array, mode: int) -> None:
        """Let one lane stand before the first event."""
        self._order, self._walked = order, self._whole
        self._whole.begin(len(order), batch.status, self.rounds.copy(), self.recording, mode)

    def _walk_to_the_end(self, batch: Batch) -> int:
        """Let one lane walk from where it stands; returns how often plain Python ran."""
        lane = self._whole
        interpreted = self._walk(lane, batch, len(self._order))
        self.history += history_of([lane], self.plan, batch.reasons, len(self.history))
        if lane.control[MODE] == TRACING:
            self._steps.append(self._codec.pack(lane.noted, self._strings, batch.reasons))
        return interpreted

    # --- steps one by one ------------------------------------------------------------------------------------

    def take_packed_steps(self) -> bytes:
        """The steps that were traced since the last call, in the order of commit, as `pack_steps` gives them."""
        found, self._steps = b"".join(self._steps), []
        return found

    def begin_replay(self, batch: Batch, order: Array) -> None:
        """Stand before the first event of a batch with triggers off: nothing runs but the steps that `replay` gets."""
        self._begin(batch, order, REPLAYING)

    def replay(self, batch: Batch, records: Iterable[StepRecord]) -> None:
        """Run these steps, each on the input of its record; what they emit starts nothing."""
        for record in records:
            self._at = record
            status = 0 if record.reason is None else batch.reason(record.reason)
            words = self._codec.trace(record, self._strings, batch.size, status)
            for stream, count in self._codec.tuples(record):
                self._rooms += self.streams[stream].reserve(count)
            self._whole.run_only(words)
            self._walk(self._whole, batch, len(self._order))

    def end_replay(self, batch: Batch, trace: bool) -> Execution:
        """Turn triggers on: run what the steps left in streams, and all events after them."""
        began = time.perf_counter()
        self._whole.turn_to(TRACING if trace else UNTRACED)
        interpreted = self._walk_to_the_end(batch)
        return self._execution("serial", began, interpreted, _IN_ORDER)

    def _run_side_by_side(self, batch: Batch, order: Array) -> tuple[int, dict[str, float]]:
        """Let the lanes of all stages walk, each through a piece when those before it have."""
        self._order = order
        refused = batch.status.copy()  # what the first lane decides must not change what the others see
        for number in self.flows.crossing:
            self.streams[number].round_ends = np.zeros(len(order) + 2, np.int64)
        for lane in self._lanes:
            lane.begin(len(order), refused, self.rounds.copy(), self.recording)
        stops = pieces_of(len(order), PIECES, PIECE_EVENTS)
        interpreted = [0] * len(self._lanes)

        def walk(lane: int, piece: int) -> None:
            interpreted[lane] += self._walk(self._lanes[lane], batch, stops[piece])

        pipeline = Pipeline([lane.givers(self._lanes) for lane in self._lanes], len(stops), walk)
        try:
            self._workers.run(pipeline.work, pipeline.stop)
        finally:
            for number in self.flows.crossing:
                self.streams[number].clear()
        self._walked = self._lanes[0]
        self._whole.rounds[:] = self._walked.rounds
        shares = {f"stage {number} seconds": lane.seconds for number, lane in enumerate(self._lanes)}
        return sum(interpreted), {"stages": len(self._lanes), "pieces": len(stops), **shares}

    def _walk(self, lane: Lane, batch: Batch, stop: int) -> int:
        """Go on up to an event, helping where machine code asks for it; returns how often plain Python ran."""
        began, control, interpreted = time.perf_counter(), lane.control, 0
        while (code := self._flow(lane, stop, batch)) != DONE:
            if code == STOPPED:
                raise KeyboardInterrupt
            with self._python:
                if code == PLAIN_EVENT:
                    event = int(self._order[control[POSITION]])
                    self._interpreter.run(batch, event)
                    lane.log_steps([(-1 - int(batch.kinds[event]), int(batch.status[event]), 1)], 0, -1)
                    self._end_step(lane, batch, int(batch.status[event]))
                    control[POSITION] += 1
                    interpreted += 1
                elif code == PLAIN_GROUP:
                    reason = run_group(self, self._interpreter, self._tables, batch, int(control[GROUP]), lane)
                    self._end_step(lane, batch, batch.reason(reason) if reason is not None else 0)
                    control[GROUP] += 1
                    interpreted += 1
                elif code == MISFIT:
                    self._refuse_step(batch, int(control[WHICH]))
                else:
                    self._make_room(code, lane)
                self._rooms += 1
        lane.seconds += time.perf_counter() - began
        return interpreted

    def _flow(self, lane: Lane, stop: int, batch: Batch) -> int:
        arrays = self._bound(lane, batch)
        with np.errstate(all="ignore") if self._plain else contextlib.nullcontext():
            if lane.control[MODE] == UNTRACED:
                return int(self._module.flow(stop, self._order, batch.kinds, arrays))
            floats = lane.trace.view(np.float64)
            return int(self._module.traced_flow(stop, self._order, batch.kinds, lane.trace, floats, arrays))

    def _end_step(self, lane: Lane, batch: Batch, status: int) -> None:
        """Plain Python ran a step."""
        if lane.control[MODE] == REPLAYING and status > 0:
            self._refuse_step(batch, status)
        lane.end_step(status)

    def _refuse_step(self, batch: Batch, status: int) -> None:
        """A step that is to be run again is not the next one, or aborts now."""
        assert self._at is not None
        raise misfit(self._at, self.plan, batch.reasons[status - 1] if status > 0 else None)

    def take_touched(self) -> dict[str, Array]:
        """The slots of rows that graphs wrote since the last call, by table."""
        return {name: journal.take_touched() for name, journal in self._journals.items()}

    def waiting_events(self) -> Array:
        """The events whose atomic batch is not complete, in the order in which they came."""
        if self._walked is None:
            return np.empty(0, np.int64)
        found = [self._walked.open_batch(number) for flow in self.flows.flows for number in flow.borders]
        waiting = np.concatenate(found)
        place = np.empty(int(waiting.max(initial=-1)) + 1, np.int64)
        ordered = self._order[self._order < len(place)]
        place[ordered] = np.arange(len(ordered))
        return waiting[np.argsort(place[waiting])]

    def journal(self, table: str) -> Journal:
        """The journal of a table."""
        return self._journals[table]

    def _bound(self, lane: Lane, batch: Batch) -> tuple[Any, ...]:
        """The arrays that a lane works on; found again when some were replaced."""
        if lane.arrays is None or lane.arrays[0] != self._rooms:
            with self._python:  # the first lane to ask replaces arrays that grow with a table
                worker = workspace(self.plan, batch, self._program_strings)
                lane.arrays = (self._rooms, self._arrays.bind(batch, worker, lane))
        return lane.arrays[1]

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
            self._journals[which].grow_touched()
        elif code == TRACE_FULL:
            lane.make_room_for_trace()
        else:
            assert code == LOG_FULL, code
            lane.make_room_for_steps()

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
        empty = StreamState(self.flows.streams[number], False).table(self._strings).select(names)
        found = self.waiting.of_stream(self.flows.streams[number].name)
        return join([table.select(names) for table in found]) if found else empty

    def take(self, number: int, count: int | None = None) -> pa.Table:
        """Remove and return the tuples of an output stream: all, or the first `count`."""
        found = self.streams[number].table(self._strings, count)
        self.streams[number].drop(found.num_rows)
        return found

    def window_rows(self, number: int) -> pa.Table:
        """The visible rows of a window."""
        windows, place = self.window(number)
        columns = windows.rows(place)
        layout, stream = windows.layouts[place], self.flows.windows[number].stream
        values = {name: value_column(columns[name], of, self._strings) for name, of in layout.columns}
        found = {}
        for field in stream.fields:
            found[field.name] = field_array(field, [values[name] for name in field_parts(field)])
        return pa.table(found)


def window_layout(flows: FlowsPlan, plans: Sequence[Any], number: int, window: WindowParameter) -> WindowLayout:
    """How a window lies in memory: the columns of its stream, and what is asked of it."""
    columns: list[tuple[str, ValueType]] = []
    for field in window.stream.fields:
        columns += zip(field_parts(field), field.types, strict=True)
    asked = structures_of(flows, tuple(plans), number)
    aggregates = tuple((function, column_of(window.stream.fields, field)) for function, field in asked)
    owner = plans[flows.members[flows.owners[number]].transaction].name
    mode: Any = "time" if window.time else "rows"
    return WindowLayout(f"{owner}.{window.name}", tuple(columns), mode, window.size, window.slide, aggregates)
