"""The engine: tables in memory, and batches of events run over them in order.

The life of a batch: its columns are bound to arrays, its transactions' names to numbers, its keys to
slots; events that cannot run are refused; the generated program runs the others one by one, in order;
outcomes leave as Arrow. `take_changes` then says which rows are different, for whoever keeps state.

This class is not thread-safe and knows no files; `tidegate.Engine` and the Spark task wrap it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.engine.arguments import argument_columns, key_columns
from tidegate.engine.batch import Batch
from tidegate.engine.execution.runner import Runner
from tidegate.engine.flow_store import FlowStore, layouts_of, require_same_memory
from tidegate.engine.flows import FlowRun
from tidegate.engine.intake import (
    Bound,
    bind,
    column_values,
    key_words,
    kind_accepts,
    one_piece,
    require_column,
)
from tidegate.engine.kernels.events import touched_list_rows, touched_rows
from tidegate.engine.kernels.strings import first_word, match_names
from tidegate.engine.report import BatchReport
from tidegate.engine.single import SingleRun, Unusual
from tidegate.engine.state.strings import StringPool, string_buffers, words_of
from tidegate.engine.state.table import TableState
from tidegate.foundation.errors import InputError
from tidegate.foundation.interrupts import Interrupts
from tidegate.foundation.jit import load_program
from tidegate.operations.decision import Strategy
from tidegate.operations.layout import Kind, TableLayout, Value
from tidegate.operations.outcomes import OUTCOME_COLUMNS, TRANSACTION_COLUMN, Outcome
from tidegate.operations.plan import Program, RowParameter, TransactionPlan

Array = npt.NDArray[Any]
_NONE = np.empty(0, np.int64)
LOAD_ROWS = 1 << 20  # rows are loaded in pieces of this size: a piece's slots need memory, too
STRINGS_KEPT = 1 << 16  # strings that no row holds are kept up to here, and up to as many as rows hold


class EngineCore:
    """A program and its tables.

    `extra` are tables that the state holds and the program does not use; with `track_changes` the
    engine remembers which rows were written until `take_changes` asks.
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
    ) -> None:
        self.program = program
        self.plan = program.plan
        self.strings = StringPool()
        known = {layout.name for layout in self.plan.tables}
        layouts = (*self.plan.tables, *(layout for layout in extra if layout.name not in known))
        self.tables = {layout.name: TableState(layout, self.strings) for layout in layouts}
        self.last_batch: BatchReport | None = None
        self._track = track_changes
        self._deleting = any(_may_delete(plan) for plan in self.plan.transactions)
        self._touched: dict[str, list[Array]] = {}
        self._strings_limit = STRINGS_KEPT
        self._order = _NONE
        module = load_program(self.plan.source)
        self.runner = Runner(program, module, self.tables, strategy, workers, punctuation)
        self.flows: FlowRun | None = None
        members = self.plan.flows.members if self.plan.flows is not None else ()
        self._in_graphs = {member.transaction for member in members}
        self._flow_store: FlowStore | None = None
        if self.plan.flows is not None:
            self.flows = FlowRun(program, module, dict(self.tables), strategy, self.runner.workers, record)
            if track_changes:
                hidden = layouts_of(self.flows)
                require_same_memory(extra, hidden)
                self.tables |= {layout.name: TableState(layout, self.strings) for layout in hidden}
                self._flow_store = FlowStore(self.flows, self.tables)
        self._single = SingleRun(self.plan, self.tables, self._note_written if track_changes else None)
        self._use_strings(self.strings)
        offsets, data = string_buffers(pa.array(self.plan.event_names, pa.large_string()))
        words = [first_word(data, words_of(data), *span) for span in zip(offsets[:-1], np.diff(offsets), strict=True)]
        self._names = (offsets, data, np.array(words, np.uint64))

    def _use_strings(self, strings: StringPool) -> None:
        self.strings = strings
        self.runner.use_strings(strings)
        if self.flows is not None:
            self.flows.use_strings(strings)
        self._single.use_strings(strings, self.runner.serial)

    def _collect_strings_if_due(self) -> None:
        if len(self.strings) > self._strings_limit and not self._touched:
            self._collect_strings()

    def _collect_strings(self) -> None:
        """Start a new pool with the strings that rows still hold; due when the pool has doubled."""
        held = [numbers for table in self.tables.values() for numbers in table.string_numbers()]
        held += self.flows.string_numbers() if self.flows is not None else []
        used = np.unique(np.concatenate([*held, _NONE]))
        pool = StringPool()
        numbers = np.zeros(len(self.strings), np.int64)
        numbers[used] = pool.numbers(self.strings.texts(used))
        for table in self.tables.values():
            table.renumber(pool, numbers)
        if self.flows is not None:
            self.flows.renumber(numbers)
        self._use_strings(pool)
        self._strings_limit = 2 * len(pool) + STRINGS_KEPT

    # --- batches --------------------------------------------------------------------------------------

    def run(self, events: pa.Table, order: Array | None = None, refused: Mapping[str, Array] | None = None) -> pa.Table:
        """Run a batch: the events with committed, reason and result, in the order in which they came.

        Args:
            events: one row per event.
            order: the positions of the events in the order in which to run them.
            refused: reasons with the events that they refuse before anything runs.
        """
        with Interrupts() as interrupts:
            return self._run(events, order, refused or {}, interrupts)

    def _run(
        self, events: pa.Table, order: Array | None, refused: Mapping[str, Array], interrupts: Interrupts
    ) -> pa.Table:
        started = time.perf_counter()
        self._collect_strings_if_due()
        if self.flows is not None:
            self._wake_flows()
            events, order, refused = self.flows.with_waiting(events, order, refused)
        batch = self._take_in(events, refused)
        if order is None:
            order = np.arange(batch.size)
        self._order = order
        bound = time.perf_counter()
        flows = self.flows
        execution = self.runner.run(batch, order, interrupts) if flows is None else flows.run(batch, order)
        executed = time.perf_counter()
        self._finish(batch)
        self._single.let_go()
        outcomes = batch.outcomes(events, self.strings)
        if self.flows is not None:
            outcomes = self.flows.hold_back(events, outcomes)
            if self._flow_store is not None:
                self._flow_store.save(self._note_written)
        done = time.perf_counter()
        self.last_batch = BatchReport(
            events=batch.size,
            committed=batch.committed,
            aborted=batch.aborts(),
            strategy=execution.strategy,
            interpreted=execution.interpreted,
            seconds={"bind": bound - started, **execution.seconds, "finish": done - executed},
            workers=execution.workers,
            decision=execution.decision,
            properties=execution.properties,
            why=execution.why,
        )
        return outcomes

    def execute(self, number: int, arguments: Mapping[str, Any]) -> Outcome:
        """Run one transaction now."""
        if number in self._in_graphs or (self.flows is not None and self.flows.recording):
            return self._execute_as_batch(number, arguments)
        with Interrupts(), contextlib.suppress(Unusual):
            self._collect_strings_if_due()
            outcome, self.last_batch = self._single.run(number, arguments)
            return outcome
        return self._execute_as_batch(number, arguments)

    def _execute_as_batch(self, number: int, arguments: Mapping[str, Any]) -> Outcome:
        plan = self.plan.transactions[number]
        columns = argument_columns(plan, arguments)
        columns[TRANSACTION_COLUMN] = pa.array([plan.name])
        outcome = self.run(self._complete(pa.table(columns))).slice(0, 1).select(list(OUTCOME_COLUMNS)).to_pylist()[0]
        result = outcome["result"]
        if self.plan.result_by_transaction and result is not None:
            result = result.get(plan.name)
        return Outcome(outcome["committed"], outcome["reason"], result)

    def _complete(self, events: pa.Table) -> pa.Table:
        """Null columns for what the other transactions need."""
        for name in self.plan.columns:
            if name not in events.column_names:
                events = events.append_column(name, pa.nulls(events.num_rows))
        return events

    def _take_in(self, events: pa.Table, refused: Mapping[str, Array]) -> Batch:
        what = "events"
        columns = [require_column(events, b.parameter, what) for b in (*self.plan.rows, *self.plan.values)]
        names = self._name_column(events, what)
        taken = [name for name in OUTCOME_COLUMNS if name in events.column_names]
        if taken:
            raise InputError(
                f"{what}: column {taken[0]!r} is what the outcome is called; rename the event's column of that name"
            )
        batch = Batch(self.plan, events.num_rows)
        self._number_names(batch, names)
        for reason, rows in refused.items():
            batch.refuse(rows, reason)
        row_count = len(self.plan.rows)
        for binding, column in zip(self.plan.rows, columns[:row_count], strict=True):
            batch.rows.append(self._bind(batch, binding.parameter, binding.users, column))
        for binding, column in zip(self.plan.values, columns[row_count:], strict=True):
            batch.values.append(self._bind(batch, binding.parameter, binding.users, column))
        for binding, bound in zip(self.plan.rows, batch.rows, strict=True):
            assert isinstance(binding.parameter, RowParameter)
            table = self.tables[binding.parameter.table.name]
            chosen = batch.events(binding.users)
            if bound.offsets is None:
                batch.slots.append(table.resolve_events(bound.values, chosen))
            else:
                batch.slots.append(table.resolve_lists(bound.values, chosen, bound.offsets))
        return batch

    def _bind(self, batch: Batch, parameter: Any, users: tuple[int, ...], column: pa.Array) -> Bound:
        try:
            bound = bind(column, parameter, self.strings)
        except pa.ArrowInvalid as error:
            raise InputError(
                f"events: column {parameter.name!r} of type {column.type} holds a value that does not fit: {error}"
            ) from error
        key = isinstance(parameter, RowParameter)
        if bound.valid is not None:
            batch.refuse_users(~bound.valid, users, f"null {'key ' if key else ''}in column {parameter.name!r}")
        if bound.nan is not None:
            batch.refuse_users(bound.nan, users, f"NaN key in column {parameter.name!r}")
        return bound

    def _name_column(self, events: pa.Table, what: str) -> pa.Array | None:
        if TRANSACTION_COLUMN not in events.column_names:
            if len(self.plan.entries) == 1:
                return None
            known = ", ".join(self.plan.event_names[number] for number in self.plan.entries)
            raise InputError(
                f"{what}: column {TRANSACTION_COLUMN!r} is missing; a program of several transactions needs it to name "
                f"one of: {known}; the columns are: {', '.join(events.column_names)}"
            )
        column = events.column(TRANSACTION_COLUMN)
        if not kind_accepts(column.type, Kind.STR):
            if len(self.plan.entries) == 1 and TRANSACTION_COLUMN in self.plan.columns:
                return None
            raise InputError(
                f"{what}: column {TRANSACTION_COLUMN!r} has type {column.type}, required: str (string), the name of a "
                "transaction"
            )
        found = one_piece(column)
        return found.dictionary_decode() if pa.types.is_dictionary(found.type) else found

    def _number_names(self, batch: Batch, names: pa.Array | None) -> None:
        if names is None:
            batch.kinds[:] = self.plan.entries[0]
            return
        if pa.types.is_null(names.type):
            names = pa.nulls(len(names), pa.string())
        offsets, data = string_buffers(names)
        match_names(offsets, data, words_of(data), self._names, batch.kinds)
        if names.null_count:
            null = np.asarray(names.is_null().to_numpy(zero_copy_only=False))
            batch.kinds[null] = -1
            batch.refuse(null, "null transaction")
        unknown = np.flatnonzero((batch.kinds < 0) & (batch.status == 0))
        for row in unknown:
            batch.status[row] = batch.reason(f"unknown transaction {names[int(row)].as_py()!r}")

    # --- changes --------------------------------------------------------------------------------------

    def _finish(self, batch: Batch) -> None:
        """Note which rows were written, and free what does not exist."""
        by_graphs = self.flows.take_touched() if self.flows is not None else {}
        bound = {binding.parameter.table.name for binding in self.plan.rows}  # type: ignore[union-attr]
        for name in bound if self.flows is None else [layout.name for layout in self.plan.tables]:
            table = self.tables[name]
            touched = self._written(batch, name) if self._track or self._deleting else _NONE
            if len(by_graphs.get(name, _NONE)):
                touched = np.union1d(touched, by_graphs[name])
            if self._track and len(touched):
                self._note_written(name, table.keys[touched])
            table.sweep(touched[~table.exists[touched]])
            if self.flows is not None and name in self.flows.histories:
                self.flows.histories[name].sweep(touched)

    def _note_written(self, name: str, keys: Array) -> None:
        self._touched.setdefault(name, []).append(keys)

    def _written(self, batch: Batch, name: str) -> Array:
        table = self.tables[name]
        bindings = [
            (position, binding)
            for position, binding in enumerate(self.plan.rows)
            if binding.parameter.table.name == name and binding.writers  # type: ignore[union-attr]
        ]
        touched = np.empty(sum(len(batch.slots[position]) for position, _ in bindings), np.int64)
        count = 0
        for position, binding in bindings:
            chosen, slots = batch.events(binding.writers), batch.slots[position]
            offsets = batch.rows[position].offsets
            if offsets is None:
                count = touched_rows(chosen, slots, table.marks, touched, count)
            else:
                count = touched_list_rows(chosen, offsets, slots, table.marks, touched, count)
        found = touched[:count]
        table.marks[found] = False
        return found

    def take_changes(self) -> dict[str, pa.Table]:
        """The rows written since the last call, by table: their columns and whether they exist now."""
        changes = {}
        for name, parts in self._touched.items():
            table = self.tables[name]
            keys = np.concatenate(parts)
            if len(parts) > 1:
                keys = np.unique(keys, axis=0)
            slots = table.find(keys)
            there = slots >= 0
            changes[name] = self._change_table(table, keys, slots, there)
        self._touched = {}
        return changes

    def _change_table(self, table: TableState, keys: Array, slots: Array, there: Array) -> pa.Table:
        present = table.rows(slots[there])
        exists = pa.field("exists", pa.bool_(), nullable=False)
        kept = present.append_column(exists, pa.array(table.exists[slots[there]]))
        if there.all():
            return kept
        gone = TableState(table.layout, self.strings)
        absent = gone.rows(gone.resolve(np.ascontiguousarray(keys[~there])))
        return pa.concat_tables([kept, absent.append_column(exists, pa.array(np.zeros(absent.num_rows, np.bool_)))])

    def _wake_flows(self) -> None:
        """Dataflow graphs remember in tables; where those were written from outside, they read them again."""
        if self._flow_store is not None and self._flow_store.stale:
            self._flow_store.load()

    def ranks(self) -> Array:
        """The place in the order of running of each event that the last batch decided, as its outcomes stand."""
        found = np.empty_like(self._order)
        found[self._order] = np.arange(len(found))
        return found if self.flows is None else np.delete(found, self.flows.waiting_events())

    def take_outputs(self) -> dict[str, pa.Table]:
        """What was emitted into the streams that nobody consumes, by stream; it is forgotten."""
        if self.flows is None:
            return {}
        outputs = [number for number, output in enumerate(self.flows.flows.outputs) if output]
        return {self.flows.flows.streams[number].name: self.flows.take(number) for number in outputs}

    def graphs(self) -> FlowRun | None:
        """The dataflow graphs, as they are after the last batch."""
        self._wake_flows()
        return self.flows

    def apply(self, changes: Mapping[str, pa.Table]) -> None:
        """Write rows as they were recorded: the opposite of `take_changes`."""
        if self._flow_store is not None:
            self._flow_store.stale = True
        for name, rows in changes.items():
            table = self.tables[name]
            keys, columns = self._columns_in(table, rows)
            exists = np.asarray(one_piece(rows.column("exists")).to_numpy(zero_copy_only=False))
            table.reserve(len(keys))
            slots = table.resolve(keys)
            table.store(slots, columns, exists)
            table.sweep(slots[~exists])

    def reserve(self, rows: Mapping[str, int]) -> None:
        """Make room at once for so many more rows of each table: growing on the way would copy them again and again."""
        for name, count in rows.items():
            self.tables[name].reserve(count)

    def load(self, name: str, rows: pa.Table) -> None:
        """Write rows that a user gives: missing fields take their defaults, existing rows are replaced."""
        table = self.tables[name]
        self._check_rows(table, rows)
        keys, columns = self._columns_in(table, rows)
        known = table.find(keys[:LOAD_ROWS]).max(initial=-1) >= 0  # else most keys are new: make room at once
        table.reserve(0 if known else len(keys))
        pieces = [slice(start, start + LOAD_ROWS) for start in range(0, len(keys), LOAD_ROWS)]
        again = _mark_all(table, keys, pieces)
        for piece in pieces:
            slots = table.find(keys[piece])
            slots = slots[slots >= 0]
            table.marks[slots] = False
            if again is None:
                table.store(slots, {column: values[piece] for column, values in columns.items()}, True)
            else:
                table.sweep(slots)
        if again is not None:
            raise InputError(_duplicate_message(table.layout, rows, again))
        if self._track:
            self._touched.setdefault(name, []).append(keys)

    def _columns_in(self, table: TableState, rows: pa.Table) -> tuple[Array, dict[str, Array]]:
        parts = [one_piece(rows.column(key)) for key in table.layout.key]
        columns = {
            column.name: column_values(one_piece(rows.column(column.name)), column.kind, self.strings)
            for column in table.layout.value_columns
            if column.name in rows.column_names
        }
        return key_words(parts, table.layout, self.strings), columns

    def _check_rows(self, table: TableState, rows: pa.Table) -> None:
        layout = table.layout
        for name in rows.column_names:
            if name not in layout.arrow_schema.names:
                raise InputError(
                    f"rows of {layout.name}: column {name!r} is not a field; fields are: "
                    f"{', '.join(layout.arrow_schema.names)}; drop or rename it"
                )
        for column in layout.columns:
            if column.name not in rows.column_names:
                if column.name in layout.key:
                    raise InputError(f"rows of {layout.name}: the key column {column.name!r} is missing; add it")
                continue
            found = rows.column(column.name)
            if not kind_accepts(found.type, column.kind):
                raise InputError(
                    f"rows of {layout.name}: column {column.name!r} has type {found.type}, "
                    f"required: {column.kind.value}; cast it"
                )
            if found.null_count:
                row = one_piece(found).is_null().index(True).as_py()
                raise InputError(f"rows of {layout.name}: column {column.name!r} is null in row {row}; fill it")
            if column.name in layout.key and pa.types.is_floating(found.type):
                bad = np.flatnonzero(np.isnan(found.to_numpy()))
                if len(bad):
                    raise InputError(f"rows of {layout.name}: the key {column.name!r} is NaN in row {bad[0]}")

    # --- reading ----------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Forget all rows."""
        for table in self.tables.values():
            table.clear()
        self._touched = {}

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
        found: dict[str, Value] = table.rows(slots).to_pylist()[0]
        return found


def _may_delete(plan: TransactionPlan) -> bool:
    return not plan.compiled or any(access.action == "delete" for access in plan.accesses)


def _mark_all(table: TableState, keys: Array, pieces: list[slice]) -> int | None:
    """Give every key a slot and a mark; stops at, and returns, the row of a key that stands there again."""
    for piece in pieces:
        slots = table.resolve(keys[piece])
        table.keep_fresh()
        repeated = np.ones(len(slots), np.bool_)
        repeated[np.unique(slots, return_index=True)[1]] = False
        repeated |= table.marks[slots]
        table.marks[slots] = True
        if repeated.any():
            return int(piece.start + np.argmax(repeated))
    return None


def _duplicate_message(layout: TableLayout, rows: pa.Table, again: int) -> str:
    keys = {name: rows.column(name) for name in layout.key}
    key = {name: column[again].as_py() for name, column in keys.items()}
    before = next(row for row in range(again) if all(keys[name][row].as_py() == key[name] for name in keys))
    return f"rows of {layout.name}: the key {key} is in row {before} and again in row {again}; load each key once"
