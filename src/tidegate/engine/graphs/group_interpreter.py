"""Runs one group of a dataflow graph as the plain Python that its functions are.

For transactions declared with `compiled=False`, and where an integer left 64 bits. The group is as atomic as in machine
code: what it changed is noted before, and taken back if anything in it fails.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tidegate.api.control import Abort, looking_up, remembering
from tidegate.api.stream import Stream, collecting
from tidegate.api.table import coerce
from tidegate.api.window import WindowRows
from tidegate.engine.batch import Batch
from tidegate.engine.interpreter import Interpreter, refuse_history
from tidegate.engine.kernels.windows import undo, window_insert
from tidegate.engine.state.strings import StringPool
from tidegate.engine.state.table import TableState
from tidegate.foundation.errors import TidegateError
from tidegate.operations.flow import ACTIVE, ROUNDS, MemberPlan, StreamField
from tidegate.operations.layout import Column, Kind
from tidegate.operations.plan import Program, RowParameter, TransactionPlan, ValueParameter

if TYPE_CHECKING:
    from tidegate.engine.graphs.lanes import Lane
    from tidegate.engine.graphs.walk import GraphWalk
    from tidegate.engine.state.windows import Windows

Array = npt.NDArray[Any]


def _equal(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))


class _NoRoom(Exception):
    """A window is full: the group begins again."""


class GroupInterpreter:
    """Runs groups in plain Python on the tables, streams and windows of a `GraphWalk`."""

    def __init__(
        self,
        program: Program,
        interpreter: Interpreter,
        tables: Mapping[str, TableState],
        strings: StringPool,
        run: GraphWalk,
    ) -> None:
        self._program, self._flows = program, program.plan.flows
        self._interpreter, self._tables, self._strings, self._run = interpreter, tables, strings, run
        self._undo: list[tuple[str, int, bool, dict[str, Any]]] = []
        self._times: list[int] = []
        self._hits: dict[int, int] = {}
        self._lane: Lane
        self._windows: Windows

    def run(self, batch: Batch, group: int, lane: Lane) -> str | None:
        """Run a group of a lane's open round; its outcome goes to the events of the round's border stream.

        Returns why it aborted; None if it committed.
        """
        number, plan = self._flows.flow_of(group), self._flows.group(group)
        self._lane, self._windows = lane, self._run.windows[self._flows.stage_of(group)]
        active = int(lane.control[ACTIVE])
        counts = {stream: int(self._run.streams[stream].count[0]) for stream in plan.emits}
        while True:
            self._undo, self._times, self._hits, reason = [], [], {}, None
            try:
                for member in plan.members:
                    self._run_member(batch, member, active)
            except _NoRoom:
                self._take_back(counts)
                self._windows.make_room()
                continue
            except TidegateError:  # the program is at fault, not this group's events
                self._take_back(counts)
                raise
            except Abort as aborted:
                reason = str(aborted.reason)
            except Exception as error:
                reason = type(error).__name__
            break
        round_number = int(lane.control[ROUNDS + number])
        if reason is None:
            self._windows.state[0] = 0
            for table, slot, _, _ in self._undo:
                self._note(table, slot)
            self._remember()
            for stream, before in counts.items():
                found = self._run.streams[stream]
                found.batches[before : int(found.count[0])] = round_number
        else:
            self._take_back(counts)
            self._fail(batch, plan.members, active, reason)
        hits = {member: self._hits.get(member, 0) for member in plan.members}
        lane.log_steps(hits, round_number, group, reason is None)
        return reason

    def _remember(self) -> None:
        """Note the states of the rows that the group changed: from when they were changed last."""
        times: dict[tuple[str, int], int] = {}
        oldest: dict[tuple[str, int], bool] = {}
        for (name, slot, exists, values), time in zip(reversed(self._undo), reversed(self._times), strict=True):
            if name in self._run.histories:
                now = self._tables[name]
                same = exists == now.exists[slot] and all(_equal(values[f], now.columns[f][slot]) for f in values)
                oldest[name, slot] = same
                if not same:
                    times.setdefault((name, slot), time)
        for (name, slot), time in times.items():
            if not oldest[name, slot]:
                self._run.histories[name].add(slot, time)

    def _states(
        self, plan: TransactionPlan, rows: dict[tuple[str, int], Any], now: int, row: Any, last: int
    ) -> list[Any]:
        """What `tg.history` gives in plain Python."""
        name, slot = next(key for key, known in rows.items() if known is row)
        history = self._run.histories.get(name)
        if history is None or last > history.keep:
            refuse_history(plan, row, last)
        assert history is not None
        kinds = {column.name: column.kind for column in self._tables[name].layout.value_columns}
        found = []
        for place in history.of(slot, now, last):
            fields = {f: self._interpreter.plain(history.columns[f][place], kind) for f, kind in kinds.items()}
            found.append(SimpleNamespace(time=int(history.time[place]), exists=bool(history.exists[place]), **fields))
        return found

    def _note(self, table: str, slot: int) -> None:
        journal = self._run.journal(table)
        if not journal.table.marks[slot]:
            journal.table.marks[slot] = True
            if journal.touched_count[0] >= len(journal.touched):
                journal.touched = np.concatenate([journal.touched, np.empty_like(journal.touched)])
            journal.touched[journal.touched_count[0]] = slot
            journal.touched_count[0] += 1

    def _take_back(self, counts: dict[int, int]) -> None:
        for name, slot, exists, values in reversed(self._undo):
            table = self._tables[name]
            table.exists[slot] = exists
            for field, value in values.items():
                table.columns[field][slot] = value
        for stream, count in counts.items():
            self._run.streams[stream].count[0] = count
        undo(self._windows.heap, self._windows.journal, self._windows.state, 0)

    def _fail(self, batch: Batch, members: tuple[int, ...], active: int, reason: str) -> None:
        for member in members:
            plan = self._flows.members[member]
            if plan.border and plan.stream == active:
                events = self._lane.open_batch(active)
                fresh = events[batch.status[events] == 0]
                batch.status[fresh] = batch.reason(reason)
                batch.valid[events] = False

    # --- one member ------------------------------------------------------------------------------------------

    def _run_member(self, batch: Batch, number: int, active: int) -> None:
        member = self._flows.members[number]
        if member.on_window >= 0:
            return  # its window's owner runs it
        if member.border:
            if member.stream == active:
                for event in self._lane.open_batch(active).tolist():
                    self._step(batch, number, event)
        else:
            span = self._lane.spans.get(member.stream, self._run.streams[member.stream].span)
            for place in range(int(span[0]), int(span[1])):
                self._step(batch, number, place)

    def _step(self, batch: Batch, number: int, place: int) -> None:
        member = self._flows.members[number]
        plan = self._program.plan.transactions[member.transaction]
        self._hits[number] = self._hits.get(number, 0) + 1
        rows: dict[tuple[str, int], Any] = {}
        arguments: dict[str, Any] = {}
        slots: dict[str, tuple[str, int]] = {}
        for parameter in plan.parameters:
            if isinstance(parameter, RowParameter):
                slots[parameter.name] = (parameter.table.name, self._slot(batch, member, parameter, place))
            else:
                arguments[parameter.name] = self._value(batch, member, parameter.name, place)
        slid = self._take_in(batch, number, member, place)
        for window in plan.windows:
            found = self._flows.window(window.identity)
            arguments[window.name] = self._window_rows(found, member.on_window == found or slid.get(found, False))
        for name, (table_name, slot) in slots.items():  # only now: a trigger may have written the rows
            arguments[name] = self._interpreter.row(table_name, slot, rows)
        emitted: list[tuple[int, dict[str, tuple[Any, ...]]]] = []

        def sink(stream: Stream, fields: dict[str, Any]) -> None:
            found = self._run.stream_number(stream.name)
            if found not in member.emits:
                raise TypeError(f"{plan.name} does not declare that it emits into {stream.name!r}")
            emitted.append((found, self._parts(stream, fields)))

        now = arguments[plan.time] if plan.time else 0
        with (
            collecting(sink),
            looking_up(self._interpreter.finder(plan, rows)),
            remembering(functools.partial(self._states, plan, rows, now)),
        ):
            value = self._program.functions[member.transaction](**arguments)
        if member.gives_results:
            self._interpreter.give_back(batch, place, member.transaction, plan, value)
        for (name, slot), row in rows.items():
            if row.__dict__["_assigned"]:
                table = self._tables[name]
                before = {field: table.columns[field][slot] for field in table.columns}
                self._undo.append((name, slot, bool(table.exists[slot]), before))
                self._times.append(now)
                self._interpreter.write(table, slot, row)
        for found, parts in emitted:
            self._run.streams[found].append(parts)

    # --- tuples ------------------------------------------------------------------------------------------------

    def _words(self, batch: Batch, member: MemberPlan, field: StreamField, place: int) -> list[Any]:
        """The parts of a field as arrays hold them: typed numbers, strings by their number."""
        if not member.border:
            stream = self._run.streams[member.stream]
            return [stream.columns[field.name, part][place] for part in range(len(field.kinds))]
        if field.table is None:
            wanted = ValueParameter(field.name, field.kinds[0], many=False)
            for position, binding in enumerate(self._program.plan.values):
                if binding.parameter == wanted:
                    return [batch.values[position].values[place]]
        for position, binding in enumerate(self._program.plan.rows):
            parameter = binding.parameter
            if parameter.name == field.name and isinstance(parameter, RowParameter) and parameter.table == field.table:
                table = self._tables[parameter.table.name]
                keys = table.keys[batch.slots[position][place]]
                return [
                    word.view(np.float64) if kind is Kind.FLOAT else word
                    for word, kind in zip(keys, field.kinds, strict=True)
                ]
        raise AssertionError(f"no column is bound for {field.name!r}")

    def _value(self, batch: Batch, member: MemberPlan, name: str, place: int) -> Any:
        field = self._flows.streams[member.stream].field(name)
        assert field is not None
        return self._interpreter.plain(self._words(batch, member, field, place)[0], field.kinds[0])

    def _slot(self, batch: Batch, member: MemberPlan, parameter: RowParameter, place: int) -> int:
        if member.border:
            for position, binding in enumerate(self._program.plan.rows):
                if binding.parameter == parameter:
                    return int(batch.slots[position][place])
        field = self._flows.streams[member.stream].field(parameter.name)
        assert field is not None
        words = self._words(batch, member, field, place)
        wanted = np.zeros((1, len(words)), np.int64)
        for part, (word, kind) in enumerate(zip(words, field.kinds, strict=True)):
            if kind is Kind.FLOAT:
                if word != word:
                    raise Abort(f"NaN key in column {parameter.name!r}")
                wanted.view(np.float64)[0, part] = word + 0.0
            else:
                wanted[0, part] = word
        return int(self._tables[parameter.table.name].resolve(wanted)[0])

    def _parts(self, stream: Stream, fields: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
        found: dict[str, tuple[Any, ...]] = {}
        for field in stream.layout.fields:
            value = fields[field.name]
            if field.table is not None and getattr(type(value), "__tidegate_layout__", None) == field.table:
                values = [getattr(value, key) for key in field.table.key]
            else:
                values = list(value) if len(field.kinds) > 1 else [value]
            parts = []
            for part, kind in zip(values, field.kinds, strict=True):
                fitted = coerce(Column(field.name, kind, kind.zero), part, stream.name)
                if kind is Kind.FLOAT and field.table is not None:
                    fitted = float(fitted) + 0.0  # as a key, -0.0 is 0.0
                parts.append(self._strings.number(str(fitted)) if kind is Kind.STR else fitted)
            found[field.name] = tuple(parts)
        return found

    # --- windows -----------------------------------------------------------------------------------------------

    def _take_in(self, batch: Batch, number: int, member: MemberPlan, place: int) -> dict[int, bool]:
        """Let the member's own windows take in a tuple, and run the triggers of those that slide."""
        slid: dict[int, bool] = {}
        windows = self._windows
        for window in self._program.plan.transactions[member.transaction].windows:
            found = self._flows.window(window.identity)
            if self._flows.owners[found] != number:
                continue
            words = np.zeros(sum(len(field.kinds) for field in window.stream.fields), np.int64)
            column, time = 0, 0
            for field in window.stream.fields:
                for word, kind in zip(self._words(batch, member, field, place), field.kinds, strict=True):
                    (words.view(np.float64) if kind is Kind.FLOAT else words)[column] = word
                    column += 1
                if field.name == window.time:
                    time = int(word)
            base = int(windows.bases[self._run.window(found)[1]])
            slid[found] = bool(window_insert(windows.heap, windows.journal, windows.state, base, words, time))
            if windows.state[1] != 0:
                raise _NoRoom
            if slid[found]:
                for other, trigger in enumerate(self._flows.members):
                    if trigger.on_window == found:
                        self._step(batch, other, place)
        return slid

    def _window_rows(self, number: int, slid: bool) -> WindowRows:
        windows, place = self._run.window(number)
        columns, layout = windows.rows(place), windows.layouts[place]
        plain = {
            name: [self._interpreter.plain(value, kind) for value in columns[name]] for name, kind in layout.columns
        }
        count = len(next(iter(plain.values()))) if plain else 0
        return WindowRows([{name: values[n] for name, values in plain.items()} for n in range(count)], slid)
