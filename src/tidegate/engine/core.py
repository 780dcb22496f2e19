"""The engine: tables in memory, and batches of events run over them in order.

The life of a batch: its columns are bound to arrays, its transactions' names to numbers, its keys to
slots; events that cannot run are refused; the others run, with the results of running them one by one, in order.
`run` returns all that came of it as one value: outcomes as Arrow, a report, and what else was asked for.

Changed rows and emitted tuples either leave with the run that made them (`collect`) or accumulate, over any
number of runs and single calls, until a checkpoint asks for them (`take_changes`, `outputs_waiting`).

This class is not thread-safe and knows no files; `tidegate.Engine` and the Spark task wrap it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.engine.arguments import argument_columns, completed, key_columns
from tidegate.engine.arrival import Arrival, arrange
from tidegate.engine.batch import Batch, table_of_names
from tidegate.engine.execution.executions import Execution, Executor, Job
from tidegate.engine.execution.runner import Runner
from tidegate.engine.expiry import CLOCK, Expiry, require_times
from tidegate.engine.faults import Faults, OnError
from tidegate.engine.generated import load
from tidegate.engine.graphs.outputs import output_number, outputs_of, restore_outputs
from tidegate.engine.graphs.steps import StepRecord
from tidegate.engine.graphs.store import GraphStore, layouts_of, require_same_memory
from tidegate.engine.graphs.waiting import NOTHING_WAITS, Waiting
from tidegate.engine.graphs.walk import GraphWalk
from tidegate.engine.intake import bind_events, join_bounds, name_column, require_column, require_free_names
from tidegate.engine.loading import change_table, check_rows, columns_in, duplicate_message, store_rows
from tidegate.engine.report import BatchReport, BatchResult
from tidegate.engine.single import SingleRun, Unusual
from tidegate.engine.stages import Stages
from tidegate.engine.state.columns import key_words, one_piece
from tidegate.engine.state.strings import StringPool
from tidegate.engine.state.table import TableState
from tidegate.engine.undoing import Interruptible, undone
from tidegate.foundation.errors import InputError, RecoveryImpossible
from tidegate.foundation.interrupts import Interrupts
from tidegate.operations.decision import Strategy
from tidegate.operations.layout import TableLayout, Value
from tidegate.operations.outcomes import OUTCOME_COLUMNS, TRANSACTION_COLUMN, Outcome
from tidegate.operations.plan import Program, RowParameter

Array = npt.NDArray[Any]
_NONE = np.empty(0, np.int64)
LOAD_ROWS = 1 << 20  # rows are loaded in pieces of this size: a piece's slots need memory, too
STRINGS_KEPT = 1 << 16  # strings that no row holds are kept up to here, and up to as many as rows hold


@dataclass(frozen=True, slots=True)
class _Entered:
    """A batch that was taken in and has not left: the events that came, all of them as arrays; since when."""

    events: pa.Table
    batch: Batch
    order: Array
    started: float
    bound: float


def _nothing() -> None:
    pass


class EngineCore:
    """A program and its tables.

    `extra` are tables that the state holds and the program does not use; with `track_changes` the
    engine remembers which rows were written until they are collected, except while `tracking` is off. With `undoing`,
    a run that ends with TransactionFailed (`on_error="raise"`) changed nothing; without, the rows must be dropped.
    """

    def __init__(
        self,
        program: Program,
        extra: tuple[TableLayout, ...] = (),
        track_changes: bool = False,
        strategy: Strategy = "serial",
        workers: int = 1,
        punctuation: int | None = None,
        record: bool = False,
        on_error: OnError = "abort",
        undoing: bool = False,
    ) -> None:
        self.program, self.plan = program, program.plan
        self.faults = Faults(program, on_error)
        self._undoing = undoing and self.faults.may_end_a_run
        self.strings = StringPool()
        known = {layout.name for layout in self.plan.tables}
        layouts = (*self.plan.tables, *(layout for layout in extra if layout.name not in known))
        self.tables = {layout.name: TableState(layout, self.strings) for layout in layouts}
        self._last_batch: BatchReport | None = None
        self._last_was_single = False
        self.tracking = track_changes
        """Whether written rows are noted; may be changed where `take_changes` would give nothing."""
        deletes = any(plan.may_delete for plan in self.plan.transactions)
        self._looks, self._only_notes = track_changes or deletes, not (self.plan.flows.members or deletes)
        self._strings_limit, self._may_loop = STRINGS_KEPT, self.plan.may_loop
        self._replayed: _Entered | None = None
        module = load(self.plan)
        self.runner = Runner(program, module, self.tables, strategy, workers, punctuation, self.faults)
        self.flows = GraphWalk(program, module, dict(self.tables), self.runner.workers, record, self.faults)
        self._executor: Executor = Stages(self.plan, self.runner, self.flows, strategy, self.runner.workers)
        self._in_graphs = {member.transaction for member in self.plan.flows.members}
        if self._may_loop and not self._undoing:
            self._executor = Interruptible(self._executor, self.tables, self.flows)
        self._flow_store: GraphStore | None = None
        if track_changes and self._in_graphs:
            hidden = layouts_of(self.flows)
            require_same_memory(extra, hidden)
            self.tables |= {layout.name: TableState(layout, self.strings) for layout in hidden}
            self._flow_store = GraphStore(self.flows, self.tables)
        self._expiry: Expiry | None = None
        if self.plan.clock is not None:
            self.tables.setdefault(CLOCK.name, TableState(CLOCK, self.strings))
            self._expiry = Expiry(self.plan.clock, self.tables, self._note)
        noted = track_changes or self._expiry is not None
        self._single = SingleRun(self.plan, self.tables, self._note_slots if noted else None, self._expiry)
        self._use_strings(self.strings)
        self._names = table_of_names(self.plan.event_names)

    def _use_strings(self, strings: StringPool) -> None:
        self.strings = strings
        self.runner.use_strings(strings)
        self.flows.use_strings(strings)
        self._single.use_strings(strings, self.runner.serial)

    def _collect_strings_if_due(self) -> None:
        if len(self.strings) > self._strings_limit and not any(table.touched for table in self.tables.values()):
            self._collect_strings()

    def _collect_strings(self) -> None:
        """Start a new pool with the strings that rows, windows, streams and histories still hold."""
        held = [numbers for table in self.tables.values() for numbers in table.string_numbers()]
        held += self.flows.string_numbers()
        used = np.unique(np.concatenate([*held, _NONE]))
        pool = StringPool()
        numbers = np.zeros(len(self.strings), np.int64)
        numbers[used] = pool.numbers(self.strings.texts(used))
        for table in self.tables.values():
            table.renumber(pool, numbers)
        self.flows.renumber(numbers)
        self._use_strings(pool)
        self._strings_limit = 2 * len(pool) + STRINGS_KEPT

    # --- batches --------------------------------------------------------------------------------------

    def run(
        self,
        events: pa.Table,
        order: Array | None = None,
        refused: Mapping[str, Array] | None = None,
        times: Array | None = None,
        trace: bool = False,
        begins: Callable[[], None] = _nothing,
        collect: bool = False,
    ) -> BatchResult:
        """Run a batch; its outcomes are in the order in which the events came.

        Args:
            events: one row per event.
            order: the positions of the events in the order in which to run them.
            refused: reasons with the events that they refuse before anything runs.
            times: what `order_by` says, for events whose transaction declares no time; rows expire by it.
            trace: whether the result shall have the steps of dataflow graphs; one worker runs them then.
            begins: called when bad input would have been found: from here on the batch runs.
            collect: whether the result shall have the changed rows and the tuples in output streams, this run's and
                those that accumulated before it; otherwise they go on accumulating.
        """
        with Interrupts(self._may_loop) as interrupts, self._undone():
            entered = self._enter(events, order, refused or {}, times, begins)
            job = Job(entered.batch, entered.order, interrupts, trace=trace)
            return self._leave(entered, self._executor.run(job), collect)

    def _undone(self) -> AbstractContextManager[None]:
        """A block that leaves everything as it was, if it ends with TransactionFailed."""
        if not self._undoing:
            return contextlib.nullcontext()
        self._collect_strings_if_due()  # not inside the block: other numbers could not be undone
        tables = list(self.tables.values())
        return undone([*tables, *(table.touched for table in tables), *self.flows.holders(), self._expiry])

    def arrange(self, events: pa.Table, order_by: str | None, late_below: Any = None) -> Arrival:
        """The order of a batch that a user gives, and what `run` needs besides."""
        arrival = arrange(events, order_by, late_below)
        require_times(self.plan.clock, order_by, None if order_by is None else events.schema.field(order_by).type)
        return arrival

    def _enter(
        self,
        events: pa.Table,
        order: Array | None,
        refused: Mapping[str, Array],
        times: Array | None,
        begins: Callable[[], None] = _nothing,
    ) -> _Entered:
        """Bind a batch's events; nothing runs."""
        assert self._replayed is None, "a batch is replayed: end that first"
        started = time.perf_counter()
        self.strings.let_go()
        self._collect_strings_if_due()
        self._wake_flows()
        waiting = self.flows.enter()
        batch = self._take_in(events, refused, begins, waiting)
        if order is None:
            order = np.arange(batch.size)
        elif len(waiting):
            order = np.concatenate([np.arange(len(waiting)), len(waiting) + order])
        if self._expiry is not None:
            self._expiry.enter(batch, order, times)
        return _Entered(events, batch, order, started, time.perf_counter())

    def _leave(self, entered: _Entered, execution: Execution, collect: bool = False) -> BatchResult:
        """What a batch that ran gives to its caller."""
        executed, batch = time.perf_counter(), entered.batch
        steps = self.flows.take_packed_steps()
        written_bytes = self._finish(batch)
        if self._expiry is not None:
            self._expiry.leave(batch)
        self._single.let_go()
        events, outcomes = self.flows.hold_back(entered.events, batch.outcomes(self.strings))
        undecided = self.flows.waiting_events() if outcomes.num_rows < batch.size else _NONE
        written_bytes += self._save_graphs()
        schema = pa.schema([*events.schema, *outcomes.schema])
        outcomes = pa.Table.from_arrays([*events.columns, *outcomes.columns], schema=schema)
        done = time.perf_counter()
        report = BatchReport(
            events=batch.size,
            committed=batch.committed,
            aborted=batch.aborts(),
            strategy=execution.strategy,
            interpreted=execution.interpreted,
            seconds={"bind": entered.bound - entered.started, **execution.seconds, "finish": done - executed},
            workers=execution.workers,
            decision=execution.decision,
            properties=execution.properties,
            why=execution.why,
            interior_aborts=execution.interior_aborts,
        )
        self._last_batch, self._last_was_single = report, False
        changes, outputs = (self.take_changes(), self._take_outputs()) if collect else ({}, {})
        return BatchResult(outcomes, report, entered.order, undecided, written_bytes, steps, changes, outputs)

    # --- steps of dataflow graphs, and outputs that wait (`steps`) ----------------------------------------

    def begin_replay(
        self,
        events: pa.Table,
        order: Array | None = None,
        refused: Mapping[str, Array] | None = None,
        times: Array | None = None,
    ) -> None:
        """Take the events of a run in again, as `run` does, with triggers off: nothing runs."""
        if not self._in_graphs:
            raise RecoveryImpossible(
                "steps are to be replayed, but this program has no dataflow graph, and only programs with graphs have "
                "steps; replay the log with the program that wrote it"
            )
        with Interrupts():
            self._replayed = self._enter(events, order, refused or {}, times)
            self.flows.begin_replay(self._replayed.batch, self._replayed.order)

    def replay_steps(self, records: Iterable[StepRecord]) -> None:
        """Run steps of that run on the input in their records; what they emit starts nothing."""
        assert self._replayed is not None, "nothing is replayed"
        with Interrupts():
            self.flows.replay(self._replayed.batch, records)

    def end_replay(self, trace: bool = False) -> BatchResult:
        """Turn triggers on and run what no step was given of; the result is that of the whole batch.

        Its steps, where traced, are those that ran from here on.
        """
        entered, self._replayed = self._replayed, None
        assert entered is not None, "nothing is replayed"
        with Interrupts():
            return self._leave(entered, self.flows.end_replay(entered.batch, trace))

    def outputs_waiting(self) -> dict[str, pa.Table]:
        """The tuples in output streams, by stream, for a checkpoint; they stay there."""
        return outputs_of(self.flows, self.strings)

    def restore_outputs(self, tuples: Mapping[str, pa.Table]) -> None:
        """Let exactly these tuples wait in output streams: the opposite of `outputs_waiting`."""
        restore_outputs(self.flows, tuples, self.strings)

    def take(self, stream: str, count: int | None = None) -> pa.Table:
        """The first tuples that wait in an output stream, or all; they are forgotten."""
        return self.flows.take(output_number(self.flows, stream), count)

    def moves_clock(self, number: int) -> bool:
        """Whether a transaction, even one that aborts, may change the clock by which rows expire."""
        return self.plan.clock is not None and self.plan.clock.times[number] >= 0

    def execute(self, number: int, arguments: Mapping[str, Any]) -> Outcome:
        """Run one transaction now."""
        if number in self._in_graphs or self.flows.recording or self.flows.half_run:
            return self._execute_as_batch(number, arguments)
        with Interrupts(self._may_loop):
            self._collect_strings_if_due()
            try:
                outcome, self._last_was_single = self._single.run(number, arguments), True
                return outcome
            except Unusual:
                pass
        return self._execute_as_batch(number, arguments)

    @property
    def last_batch(self) -> BatchReport | None:
        """What the last batch, or the last single transaction, did; None before the first.

        For monitoring; the caller of a run has the report in its result.
        """
        return self._single.report() if self._last_was_single else self._last_batch

    def _execute_as_batch(self, number: int, arguments: Mapping[str, Any]) -> Outcome:
        plan = self.plan.transactions[number]
        columns = argument_columns(plan, arguments)
        columns[TRANSACTION_COLUMN] = pa.array([plan.name])
        outcomes = self.run(completed(self.plan, pa.table(columns))).outcomes
        outcome = outcomes.slice(0, 1).select(list(OUTCOME_COLUMNS)).to_pylist()[0]
        result = outcome["result"]
        if self.plan.result_by_transaction and result is not None:
            result = result.get(plan.name)
        result = None if plan.result is None else plan.result.take(result)
        return Outcome(outcome["committed"], outcome["reason"], result)

    def _take_in(
        self,
        events: pa.Table,
        refused: Mapping[str, Array],
        begins: Callable[[], None] = _nothing,
        waiting: Waiting = NOTHING_WAITS,
    ) -> Batch:
        """The events as arrays, behind those that wait; each table of them is checked and bound by itself."""
        bindings = (*self.plan.rows, *self.plan.values)
        columns = [require_column(events, binding.parameter, "events") for binding in bindings]
        names = name_column(events, self.plan, "events")
        require_free_names(events)
        tables = [[waiting.column(table, b.parameter) for b in bindings] for table in waiting.tables]
        parts = [
            [bind_events(c, b.parameter, self.strings) for b, c in zip(bindings, t, strict=True)]
            for t in (*tables, columns)
        ]
        bound_columns = [join_bounds(found) for found in zip(*parts, strict=True)]
        batch = Batch(self.plan, len(waiting) + events.num_rows)
        batch.rows, batch.values = bound_columns[: len(self.plan.rows)], bound_columns[len(self.plan.rows) :]
        begins()
        batch.name(waiting.names_before(names, events, self.plan.event_names[self.plan.entries[0]]), self._names)
        for reason, rows in refused.items():
            batch.refuse(np.concatenate([np.zeros(len(waiting), np.bool_), rows]), reason)
        for binding, bound in zip(bindings, bound_columns, strict=True):
            batch.refuse_missing(binding.parameter, binding.users, bound)
        for binding, bound in zip(self.plan.rows, batch.rows, strict=True):
            assert isinstance(binding.parameter, RowParameter)
            table = self.tables[binding.parameter.table.name]
            chosen = batch.events(binding.users)
            if bound.offsets is None:
                batch.slots.append(table.resolve_events(bound.values, chosen))
            else:
                batch.slots.append(table.resolve_lists(bound.values, chosen, bound.offsets))
        return batch

    # --- changes --------------------------------------------------------------------------------------

    def _finish(self, batch: Batch) -> int:
        """Note which rows were written, and free what does not exist; returns `written_bytes` of these rows."""
        written_bytes, by_graphs = 0, self.flows.take_touched()
        for name in (layout.name for layout in self.plan.tables):
            table = self.tables[name]
            if self._only_notes and self.tracking:  # rows that were noted before are passed over: on a busy table, most
                table.touched.add(batch.written(table, table.noted))
                table.sweep(_NONE)
                continue
            touched = batch.written(table, table.marks) if self._looks else _NONE
            table.marks[touched] = False
            if len(by_graphs.get(name, _NONE)):
                touched = np.union1d(touched, by_graphs[name])
            written_bytes += 8 * len(touched) * len(table.layout.columns)
            self._note(table, touched)
            if table.deadlines is not None:
                table.add_deadlines(touched)
            table.sweep(touched[~table.exists[touched]])
            if name in self.flows.histories:
                self.flows.histories[name].sweep(touched)
        return written_bytes

    def _save_graphs(self) -> int:
        """Write what graphs remember into their tables; returns `written_bytes` of these rows."""
        sizes = [0]

        def note(name: str, keys: Array) -> None:
            sizes.append(8 * len(keys) * len(self.tables[name].layout.columns))
            if self.tracking:
                self.tables[name].note_keys(keys)

        if self._flow_store is not None:
            self._flow_store.save(note)
        return sum(sizes)

    def _note(self, table: TableState, slots: Array) -> None:
        """Rows were written; no slot stands there twice."""
        if self.tracking:
            table.note(slots)

    def _note_slots(self, table: TableState, slots: list[int]) -> None:
        """A few rows were written."""
        if table.deadlines is not None:
            table.add_deadlines(np.array(slots))
        new = [slot for slot in slots if not table.noted[slot]] if self.tracking else []
        if new:
            table.note(np.array(new))

    def touch_again(self, changes: Mapping[str, pa.Table]) -> None:
        """Let `take_changes` give these rows once more: the checkpoint that took them failed."""
        for name, rows in changes.items():
            if name in self.tables:
                self.tables[name].note_keys(columns_in(self.tables[name], rows)[0])

    def take_changes(self) -> dict[str, pa.Table]:
        """The rows written since they were last collected, by table: their columns and whether they exist now."""
        written = {name: table for name, table in self.tables.items() if table.touched}
        return {name: change_table(table, *table.take_noted()) for name, table in written.items()}

    def _wake_flows(self) -> None:
        """Dataflow graphs remember in tables; where those were written from outside, they read them again."""
        if self._flow_store is not None and self._flow_store.stale:
            self._flow_store.load()

    def _take_outputs(self) -> dict[str, pa.Table]:
        found = self.outputs_waiting()
        self.restore_outputs({})
        return found

    def graphs(self) -> GraphWalk:
        """The dataflow graphs, as they are after the last batch."""
        self._wake_flows()
        return self.flows

    def apply(self, changes: Mapping[str, pa.Table]) -> None:
        """Write rows as they were recorded: the opposite of `take_changes`."""
        if self._flow_store is not None:
            self._flow_store.stale = True
        for name, rows in changes.items():
            table = self.tables[name]
            keys, columns = columns_in(table, rows)
            exists = np.asarray(one_piece(rows.column("exists")).to_numpy(zero_copy_only=False))
            table.reserve(len(keys))
            slots = table.resolve(keys)
            table.store(slots, columns, exists)
            table.sweep(slots[~exists])
        if self._expiry is not None and CLOCK.name in changes:
            self._expiry.restore()

    def reserve(self, rows: Mapping[str, int]) -> None:
        """Reserve space for this many more rows of each table at once: growing step by step copies them every time."""
        for name, count in rows.items():
            self.tables[name].reserve(count)

    def load(self, name: str, rows: pa.Table) -> None:
        """Write rows that a user gives: missing fields take their defaults, existing rows are replaced."""
        table = self.tables[name]
        check_rows(table.layout, rows)
        keys, columns = columns_in(table, rows)
        again = store_rows(table, keys, columns, LOAD_ROWS, self._note)
        if again is not None:
            raise InputError(duplicate_message(table.layout, rows, again))
        if self._expiry is not None:
            self._expiry.purge()

    # --- reading ----------------------------------------------------------------------------------------

    def rows(self, name: str) -> pa.Table:
        """All rows of a table, sorted by key."""
        table = self.tables[name]
        found = table.rows(table.slots())
        return found.sort_by([(key, "ascending") for key in table.layout.key])

    def read(self, name: str, key: tuple[Value, ...]) -> dict[str, Value] | None:
        """One row, or None."""
        table = self.tables[name]
        slots = table.find(key_words(key_columns(table.layout, key), table.layout, self.strings))
        if slots[0] < 0 or not table.exists[slots[0]]:
            return None
        found = table.rows(slots).to_pylist()[0]
        return {column.name: column.type.take(found[column.name]) for column in table.layout.columns}
