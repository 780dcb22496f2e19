"""Runs a group of a dataflow graph as the plain Python that its functions are.

For transactions declared with `compiled=False`, and where an integer left 64 bits. The group is as atomic as in machine
code: what it changed is noted before, and undone if anything in it fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tidegate.api.stream import Stream, collecting
from tidegate.api.table import coerce
from tidegate.api.window import WindowRows
from tidegate.engine.batch import Batch
from tidegate.engine.inputs import Input, TupleInput
from tidegate.engine.interpreter import Interpreter, Rows, assigned, reason_of
from tidegate.engine.kernels.window_journal import undo
from tidegate.engine.kernels.windows import window_insert
from tidegate.engine.state.table import TableState
from tidegate.foundation.errors import TidegateError
from tidegate.operations.flow import ACTIVE, ROUNDS, MemberPlan
from tidegate.operations.layout import Kind
from tidegate.operations.outcomes import rolled_back
from tidegate.operations.plan import ProgramPlan, RowParameter

if TYPE_CHECKING:
    from tidegate.engine.graphs.lanes import Lane
    from tidegate.engine.graphs.walk import GraphWalk


class _NoRoom(BaseException):
    """A window is full: the group begins again. Not an `Exception`: those are taken for the users'."""


class _Before(NamedTuple):
    """A row as it was before a step wrote it, and that step's time."""

    table: str
    slot: int
    exists: bool
    values: dict[str, Any]
    time: int


def run_group(
    graphs: GraphWalk,
    interpreter: Interpreter,
    tables: Mapping[str, TableState],
    batch: Batch,
    group: int,
    lane: Lane,
) -> str | None:
    """Run a group of a lane's open round; its outcome goes to the events of the round's border stream.

    Returns why it aborted; None if it committed.
    """
    while True:
        run = _GroupRun(graphs, interpreter, tables, batch, group, lane)
        try:
            reason = reason_of(run.run)
        except _NoRoom:
            run.undo()
            run.windows.make_room()
            continue
        except TidegateError:  # the program is at fault, not this group's events
            run.undo()
            raise
        if reason is None:
            run.commit()
            statuses = dict.fromkeys(run.members, 0)
        else:
            run.undo()
            reason, statuses = run.abort(reason)
        lane.log_steps([(m, statuses[m], run.hits.get(m, 0)) for m in run.members], run.round, group)
        return reason


class _GroupRun:
    """One attempt of a group."""

    def __init__(
        self,
        graphs: GraphWalk,
        interpreter: Interpreter,
        tables: Mapping[str, TableState],
        batch: Batch,
        group: int,
        lane: Lane,
    ) -> None:
        self._graphs, self._interpreter, self._tables = graphs, interpreter, tables
        self._batch, self._lane = batch, lane
        self._plan: ProgramPlan = graphs.plan
        self._flows = graphs.flows
        self.members = self._flows.group(group).members
        self.windows = graphs.windows[self._flows.stage_of(group)]
        self.round = int(lane.control[ROUNDS + self._flows.flow_of(group)])
        self.hits: dict[int, int] = {}
        """By member: how many tuples it took."""
        self._running = -1
        """The member whose step is running, or failed."""
        self._active = int(lane.control[ACTIVE])
        self._counts = {number: int(graphs.streams[number].count[0]) for number in self._flows.group(group).emits}
        self._undo_log: list[_Before] = []

    def run(self) -> None:
        """Run all members, in their order, on all tuples of the round."""
        self._interpreter.faults.events = self._lane.open_batch(self._active).tolist()
        for number in self.members:
            member = self._flows.members[number]
            if member.on_window >= 0:
                continue  # the owner of its window runs it
            if not member.border:
                stream = self._graphs.streams[member.stream]
                first, stop = self._lane.spans.get(member.stream, stream.span).tolist()
                for place in range(first, stop):
                    self._step(number, TupleInput(stream, place, self._tables), place)
            elif member.stream == self._active:
                for event in self._lane.open_batch(self._active).tolist():
                    self._step(number, self._interpreter.event(self._batch, event), event)

    # --- the end ---------------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Note the written rows and their new states, and discard the undo log."""
        self.windows.state[0] = 0
        for before in self._undo_log:
            self._graphs.journal(before.table).touch(before.slot)
        self._remember()
        for number, count in self._counts.items():
            stream = self._graphs.streams[number]
            stream.batches[count : int(stream.count[0])] = self.round

    def _remember(self) -> None:
        """Note the new states of the rows that the group changed, each with the time of its last change."""
        times: dict[tuple[str, int], int] = {}
        unchanged: dict[tuple[str, int], bool] = {}
        for before in reversed(self._undo_log):
            if before.table in self._graphs.histories:
                row, now = (before.table, before.slot), self._tables[before.table]
                unchanged[row] = before.exists == now.exists[before.slot] and all(
                    _equal(value, now.columns[field][before.slot]) for field, value in before.values.items()
                )
                if not unchanged[row]:
                    times.setdefault(row, before.time)
        for (table, slot), time in times.items():
            if not unchanged[table, slot]:  # as it was before the first step of the group
                self._graphs.histories[table].add(slot, time)

    def undo(self) -> None:
        """Undo everything that the group did."""
        for before in reversed(self._undo_log):
            table = self._tables[before.table]
            table.exists[before.slot] = before.exists
            for field, value in before.values.items():
                table.columns[field][before.slot] = value
        for number, count in self._counts.items():
            self._graphs.streams[number].count[0] = count
        undo(self.windows.heap, self.windows.journal, self.windows.state, 0)

    def abort(self, reason: str) -> tuple[str, dict[int, int]]:
        """Tell why the group was undone: the reason that events and traces have, and the status of each member."""
        failed = self._flows.members[self._running]
        blamed = rolled_back(self._plan.names[failed.transaction], reason)
        statuses = dict.fromkeys(self.members, self._batch.reason(blamed)) | {self._running: self._batch.reason(reason)}
        if not failed.is_entry:
            self._lane.aborted_plain[failed.transaction, reason] += 1
            if any(self._flows.members[member].border for member in self.members):
                reason = blamed
        self._refuse_round(reason)
        return reason, statuses

    def _refuse_round(self, reason: str) -> None:
        """Give the round's events the reason, if the group takes them, but for those that have one already."""
        taken = [self._flows.members[member] for member in self.members]
        if any(member.border and member.stream == self._active for member in taken):
            events = self._lane.open_batch(self._active)
            fresh = events[self._batch.status[events] == 0]
            self._batch.status[fresh] = self._batch.reason(reason)
            self._batch.valid[events] = False

    # --- one tuple -------------------------------------------------------------------------------------------

    def _step(self, number: int, given: Input, place: int) -> None:
        member = self._flows.members[number]
        plan = self._plan.transactions[member.transaction]
        self.hits[number] = self.hits.get(number, 0) + 1
        self._running = number
        for parameter in plan.parameters if plan.windows else ():  # a bad key aborts before windows take the tuple in
            if isinstance(parameter, RowParameter):
                given.slot(parameter)
        slid = self._take_in(number, member, given, place)
        self._running = number  # again, after triggers
        rows = Rows(self._batch.limits_at(int(self._lane.moment[0])))
        arguments = self._interpreter.arguments(member.transaction, given, rows)  # triggers may have written the rows
        for window in plan.windows:
            found = self._flows.window(window.identity)
            arguments[window.name] = self._window_rows(found, member.on_window == found or slid.get(found, False))
        emitted: list[tuple[int, dict[str, tuple[Any, ...]]]] = []

        def sink(stream: Stream, fields: dict[str, Any]) -> None:
            found = self._graphs.stream_number(stream.name)
            if found not in member.emits:
                raise TypeError(f"{plan.name} does not declare that it emits into {stream.name!r}")
            emitted.append((found, self._parts(stream, fields)))

        with self._interpreter.faults.caught(member.transaction, arguments):
            with collecting(sink):
                value = self._interpreter.call(member.transaction, arguments, rows)
            if member.gives_results:
                self._interpreter.give_back(self._batch, place, member.transaction, value)
        now = arguments[plan.time] if plan.time else 0
        for name, slot, row in assigned(rows):
            table = self._tables[name]
            values = {field: column[slot] for field, column in table.columns.items()}
            self._undo_log.append(_Before(name, slot, bool(table.exists[slot]), values, now))
            self._interpreter.write(table, slot, row)
        for found, parts in emitted:
            self._graphs.streams[found].append(parts)

    def _parts(self, stream: Stream, fields: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
        """The fields of a tuple that is emitted, as arrays hold them."""
        found: dict[str, tuple[Any, ...]] = {}
        for field in stream.layout.fields:
            value = fields[field.name]
            if field.table is not None and getattr(type(value), "__tidegate_layout__", None) == field.table:
                values = [getattr(value, key) for key in field.table.key]
            else:
                values = list(value) if len(field.kinds) > 1 else [value]
            parts = []
            for part, of in zip(values, field.types, strict=True):
                fitted = coerce(of, part, f"{stream.name}.{field.name}")
                if of is Kind.FLOAT and field.table is not None:
                    fitted = float(fitted) + 0.0  # as a key, -0.0 is 0.0
                parts.append(self._interpreter.word(fitted, of))
            found[field.name] = tuple(parts)
        return found

    # --- windows ---------------------------------------------------------------------------------------------

    def _take_in(self, number: int, member: MemberPlan, given: Input, place: int) -> dict[int, bool]:
        """Let the member's own windows take in a tuple, and run the triggers of those that slide."""
        slid: dict[int, bool] = {}
        windows = self.windows
        for window in self._plan.transactions[member.transaction].windows:
            found = self._flows.window(window.identity)
            if self._flows.owners[found] != number:
                continue
            words = np.zeros(sum(len(field.kinds) for field in window.stream.fields), np.int64)
            column, time = 0, 0
            for field in window.stream.fields:
                for word, kind in zip(given.words(field), field.kinds, strict=True):
                    (words.view(np.float64) if kind is Kind.FLOAT else words)[column] = word
                    column += 1
                if field.name == window.time:
                    time = int(word)
            base = int(windows.bases[self._graphs.window(found)[1]])
            slid[found] = bool(window_insert(windows.heap, windows.journal, windows.state, base, words, time))
            if windows.state[1] != 0:
                raise _NoRoom
            for other, trigger in enumerate(self._flows.members):
                if slid[found] and trigger.on_window == found:
                    self._step(other, given, place)
        return slid

    def _window_rows(self, number: int, slid: bool) -> WindowRows:
        windows, place = self._graphs.window(number)
        columns = windows.rows(place)
        plain = {
            name: [self._interpreter.plain(value, kind) for value in columns[name]]
            for name, kind in windows.layouts[place].columns
        }
        count = len(next(iter(plain.values()))) if plain else 0
        return WindowRows([{name: values[n] for name, values in plain.items()} for n in range(count)], slid)


def _equal(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))
