"""One transaction now: what `execute` does, without the Arrow tables of a batch.

A batch of one event costs a third of a millisecond, nearly all of it for making Arrow tables and reading them
again. Here, what stays the same from call to call is made once for each transaction: a batch of one event, whose
arrays are written anew each time, and the call of the generated program over it.

    arguments --fill--> words of keys --resolve--> slots --+
                  +---> values ----------------------------+--run--> status, result

An argument that is no plain value of its type (None, a NaN as key, another type, a long list) is `Unusual`. It is
found before anything has happened, and the caller then takes the way of a batch, which refuses or converts it. So
nothing here says what is wrong with an argument: there is one place that does.

One transaction has nothing to schedule: it runs serially, whatever the strategy.

Invariants: between two calls no slot of a table is fresh. The arrays that the program is called with are those of
the tables: when one of them grew, or strings got other numbers, the calls are made anew.
"""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.engine.batch import Batch
from tidegate.engine.execution.serial import SerialRun
from tidegate.engine.expiry import Expiry
from tidegate.engine.intake import Bound, arrow_type, check_type
from tidegate.engine.report import BatchReport
from tidegate.engine.state.columns import canonical_nan, python_value
from tidegate.engine.state.strings import StringPool, read_only
from tidegate.engine.state.table import TableState
from tidegate.foundation.errors import InputError, TransactionFailed
from tidegate.operations.layout import Kind, ValueType
from tidegate.operations.outcomes import OUTCOME_COLUMNS, TRANSACTION_COLUMN, Outcome
from tidegate.operations.plan import Parameter, ProgramPlan, RowParameter, ValueParameter
from tidegate.operations.values import none_word

Array = npt.NDArray[Any]
Convert = Callable[[Any], Any]
Place = tuple[str, Array, Convert]
NoteWritten = Callable[[TableState, list[int]], None]

LIST_ITEMS_MAX = 256
"""Longer lists go the way of a batch: there, an item takes no longer than here, and the rest no longer matters."""

STRINGS_REMEMBERED, STRING_SIZE_REMEMBERED = 1 << 16, 64
"""Strings whose numbers are found without asking the pool: 0.1 us instead of 5."""

REASONS_REMEMBERED = 100
"""Reasons that only plain Python gives (an exception's name, a text made of values), before they are forgotten."""

_ORDER = np.zeros(1, np.int64)
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 63) - 1
_EXACT_MAX = 1 << 53  # up to here every integer is a float


class Unusual(Exception):
    """The arguments need the way of a batch; nothing has happened."""


class SingleRun:
    """Runs single transactions of a program on its tables.

    `note_written` is told the slots of written rows, table by table; None where they are not tracked. `expiry` is None
    where no row expires.
    """

    def __init__(
        self,
        plan: ProgramPlan,
        tables: Mapping[str, TableState],
        note_written: NoteWritten | None = None,
        expiry: Expiry | None = None,
    ) -> None:
        self._plan, self._tables = plan, tables
        self._note_written, self._expiry = note_written, expiry
        self._used = [tables[layout.name] for layout in plan.tables]
        self._running = False

    def use_strings(self, strings: StringPool, serial: SerialRun) -> None:
        """Strings have other numbers from now on."""
        self._strings, self._serial = strings, serial
        self._numbers: dict[str, int] = {}
        self._events: dict[int, _Event | None] = {}
        self._forget_calls()

    def run(self, number: int, arguments: Mapping[str, Any]) -> Outcome:
        """Run one transaction; raises Unusual, before anything has happened, where this is not the way."""
        if self._running:  # a plain function that calls its own engine: the arrays are in use
            raise Unusual
        self._running = True
        try:
            return self._run(number, arguments)
        finally:
            self._running = False

    def let_go(self) -> None:
        """Forget all calls when a table has outgrown its arrays: they would keep the old ones in memory."""
        for table, held in zip(self._used, self._held, strict=True):
            if table.exists is not held:  # all arrays of a table are replaced together
                self._forget_calls()
                return

    def report(self) -> BatchReport:
        """What the last transaction did; made on demand, because making it takes a notable part of a call."""
        outcome, interpreted, (started, bound, executed, done) = self._last
        return BatchReport(
            events=1,
            committed=int(outcome.committed),
            aborted={} if outcome.reason is None else {outcome.reason: 1},
            strategy="serial",
            interpreted=interpreted,
            seconds={"bind": bound - started, "execute": executed - bound, "finish": done - executed},
            why="one transaction alone",
        )

    def _run(self, number: int, arguments: Mapping[str, Any]) -> Outcome:
        started = time.perf_counter()
        event = self._event(number)
        event.take_in(arguments)
        call = self._call(number, event)
        if self._expiry is not None:
            self._expiry.enter_one(event.batch)
        bound = time.perf_counter()
        event.show_counts()
        try:
            interpreted = call(_ORDER, 0, 1)
        except (TransactionFailed, KeyboardInterrupt):  # it has no effect
            event.finish(self._note_written)
            raise
        executed = time.perf_counter()
        event.finish(self._note_written)
        if self._expiry is not None:
            self._expiry.leave(event.batch)
        if event.makes_texts:
            event.batch.make_texts(self._strings)
        outcome = event.outcome(self._strings)
        if len(event.batch.reasons) > len(self._plan.reasons) + REASONS_REMEMBERED:
            self._events.pop(number, None)
            self._calls.pop(number, None)
        self._last = outcome, interpreted, (started, bound, executed, time.perf_counter())
        return outcome

    def _event(self, number: int) -> _Event:
        if number not in self._events:
            converts = {kind: self._string_number if kind is Kind.STR else _CONVERTS[kind] for kind in Kind}
            usual = makes_a_batch(self._plan, number)
            self._events[number] = _Event(self._plan, number, self._tables, converts) if usual else None
        event = self._events[number]
        if event is None:
            raise Unusual
        return event

    def _call(self, number: int, event: _Event) -> Callable[[Array, int, int], int]:
        """The program's call for an event, on the tables as they are now."""
        self.let_go()
        call = self._calls.get(number)
        if call is None:
            event.show_longest()
            call = self._calls[number] = self._serial.prepare(event.batch)
        return call

    def _forget_calls(self) -> None:
        self._calls: dict[int, Callable[[Array, int, int], int]] = {}
        self._held = [table.exists for table in self._used]

    def _string_number(self, value: Any) -> int:
        if type(value) is not str:
            raise Unusual
        found = self._numbers.get(value)
        if found is None:
            try:
                found = self._strings.number(value)
            except ValueError as error:  # half of a surrogate pair
                raise Unusual from error
            if len(value) <= STRING_SIZE_REMEMBERED:
                if len(self._numbers) >= STRINGS_REMEMBERED:
                    self._numbers.clear()
                self._numbers[value] = found
        return found


def makes_a_batch(plan: ProgramPlan, number: int) -> bool:
    """Whether the arguments of a transaction could be columns of an event table; where not, the batch's way says so."""
    if not plan.columns.keys().isdisjoint((TRANSACTION_COLUMN, *OUTCOME_COLUMNS)):
        return False
    own = {parameter.name: parameter for parameter in plan.transactions[number].parameters}
    try:
        for binding in (*plan.rows, *plan.values):
            if binding.parameter.name in own:
                check_type(arrow_type(own[binding.parameter.name]), binding.parameter, "events")
    except InputError:
        return False
    return True


class _Event:
    """A batch of one event of one transaction, to be filled again and again."""

    def __init__(
        self, plan: ProgramPlan, number: int, tables: Mapping[str, TableState], converts: Mapping[Kind, Convert]
    ) -> None:
        self.batch = Batch(plan, 1)
        self.batch.kinds[0] = number
        self._rows: list[_Row] = []
        self._arguments: list[_Argument] = []
        for binding in plan.rows:
            assert isinstance(binding.parameter, RowParameter)
            row = _Row(binding.parameter, number in binding.users, tables[binding.parameter.table.name], converts)
            row.written = number in binding.writers
            self.batch.rows.append(row.bound)
            self.batch.slots.append(row.slots)
            if number in binding.users:
                self._rows.append(row)
        for binding in plan.values:
            assert isinstance(binding.parameter, ValueParameter)
            value = _Value(binding.parameter, number in binding.users, converts)
            self.batch.values.append(value.bound)
            if number in binding.users:
                self._arguments.append(value)
        self._arguments = [*self._rows, *self._arguments]
        self._lists = [argument for argument in self._arguments if argument.many]
        places = [(argument, argument.place()) for argument in self._arguments]
        self._plain = [place for _, place in places if place is not None]
        self._others = [argument for argument, place in places if place is None]
        self._tables = [tables[layout.name] for layout in plan.transactions[number].tables]
        self._may_delete = plan.transactions[number].may_delete
        self.makes_texts = bool(plan.transactions[number].texts)
        result = plan.transactions[number].result
        self._fields = result.fields if result is not None else ()
        self._struct = result is not None and result.struct
        self._results = [self.batch.results[place] for place in plan.result_places[number]]

    def take_in(self, arguments: Mapping[str, Any]) -> None:
        """Write the arguments into the arrays, and give every key a slot."""
        for name, array, convert in self._plain:
            array[0] = convert(arguments[name])
        for argument in self._others:
            argument.fill(arguments[argument.name])
        self.batch.status[0] = 0
        self.batch.valid[0] = False
        for row in self._rows:
            row.resolve()

    def show_longest(self) -> None:
        """Make all lists look as long as can be: the program then gets as much room to undo their rows."""
        for argument in self._lists:
            argument.show_count(LIST_ITEMS_MAX)

    def show_counts(self) -> None:
        """Make all lists as long as they are."""
        for argument in self._lists:
            argument.show_count(argument.count)

    def finish(self, note_written: NoteWritten | None) -> None:
        """Tell which rows were written, and free the slots of those that do not exist."""
        asked = self.batch.status[0] == 0 and (self._may_delete or note_written is not None)
        for table in self._tables:
            absent: list[int] = []
            if asked:
                written = [row.slots[: row.count].tolist() for row in self._rows if row.written and row.table is table]
                touched = list(dict.fromkeys(slot for slots in written for slot in slots))
                absent = [slot for slot in touched if not table.exists[slot]]
                if note_written is not None and touched:
                    note_written(table, touched)
            if absent or len(table.fresh):
                table.sweep(np.array(absent, np.int64))

    def outcome(self, strings: StringPool) -> Outcome:
        """What became of the event."""
        status = int(self.batch.status[0])
        result: Any = None
        if self.batch.valid[0]:
            parts = {
                name: python_value(array.item(0), of, strings)
                for (name, of), array in zip(self._fields, self._results, strict=True)
            }
            result = parts if self._struct else parts[""]
        return Outcome(status == 0, self.batch.reasons[status - 1] if status else None, result)


class _Argument(abc.ABC):
    """The arrays of one event column, for one event; a list has room for `LIST_ITEMS_MAX` items."""

    def __init__(self, parameter: Parameter, used: bool) -> None:
        self.name, self.many = parameter.name, parameter.many
        self.size = LIST_ITEMS_MAX if self.many and used else 1
        self.count = 1
        self._offsets = np.zeros(2, np.int64)
        self._shown_offsets = read_only(self._offsets) if self.many else None

    def fill(self, value: Any) -> None:
        """Write a list."""
        if type(value) not in (list, tuple) or len(value) > self.size:
            raise Unusual
        self.count = len(value)
        if value:
            self._put_all(value)

    def show_count(self, count: int) -> None:
        """Make the list so long for the program."""
        self._offsets[1] = count

    @abc.abstractmethod
    def place(self) -> Place | None:
        """The argument's name, where its value goes, and how it is converted; None where that takes `fill`."""

    @abc.abstractmethod
    def _put_all(self, values: Sequence[Any]) -> None:
        """Write the items of a list."""


class _Value(_Argument):
    """A parameter that is a value, or a list of them."""

    def __init__(self, parameter: ValueParameter, used: bool, converts: Mapping[Kind, Convert]) -> None:
        super().__init__(parameter, used)
        self._convert = _conversion(parameter.type, converts)
        self._array = np.zeros(self.size, parameter.kind.dtype)
        self.bound = Bound(read_only(self._array), self._shown_offsets)

    def place(self) -> Place | None:
        """A plain value has one place."""
        return None if self.many else (self.name, self._array, self._convert)

    def _put_all(self, values: Sequence[Any]) -> None:
        self._array[: len(values)] = list(map(self._convert, values))


class _Row(_Argument):
    """A parameter that is a row, or a list of them: the words of keys, and their slots."""

    def __init__(
        self, parameter: RowParameter, used: bool, table: TableState, converts: Mapping[Kind, Convert]
    ) -> None:
        super().__init__(parameter, used)
        self.table, self.written = table, False
        self._names = parameter.table.key
        self._words = np.zeros((self.size, len(self._names)), np.int64)
        floats = self._words.view(np.float64)
        self._parts = [
            (floats[:, place], _key_float)
            if key.kind is Kind.FLOAT
            else (self._words[:, place], _conversion(key.type, converts))
            for place, key in enumerate(parameter.table.key_columns)
        ]
        self.slots = np.zeros(self.size, np.int64)
        self.bound = Bound(read_only(self._words), self._shown_offsets)

    def place(self) -> Place | None:
        """A key of one field has one place."""
        return None if self.many or len(self._parts) > 1 else (self.name, *self._parts[0])

    def fill(self, value: Any) -> None:
        """Write a list of keys, or one of several fields."""
        if self.many:
            super().fill(value)
            return
        for (words, convert), part in zip(self._parts, self._parts_of(value), strict=True):
            words[0] = convert(part)

    def _put_all(self, values: Sequence[Any]) -> None:
        for (words, convert), parts in zip(self._parts, zip(*map(self._parts_of, values), strict=True), strict=True):
            words[: len(values)] = list(map(convert, parts))

    def _parts_of(self, key: Any) -> tuple[Any, ...]:
        if len(self._names) == 1:
            return (key,)
        if type(key) is tuple and len(key) == len(self._names):
            return key
        if type(key) is dict and key.keys() >= set(self._names):
            return tuple(key[name] for name in self._names)
        raise Unusual

    def resolve(self) -> None:
        """Give every key its slot."""
        if self.many:
            self.table.resolve_into(self.bound.values[: self.count], self.slots)
        else:
            self.table.resolve_into(self.bound.values, self.slots)


# --- plain values -----------------------------------------------------------------------------------------------


def _int(value: Any) -> Any:
    if (type(value) is int and _INT_MIN <= value <= _INT_MAX) or type(value) is np.int64:
        return value
    raise Unusual


def _float(value: Any) -> Any:
    if type(value) in (float, np.float64) or (type(value) is int and -_EXACT_MAX <= value <= _EXACT_MAX):
        return value
    raise Unusual


def _key_float(value: Any) -> Any:
    if _float(value) != value:
        raise Unusual
    return value + 0.0  # -0.0 and 0.0 are one key, as in Python


def _bool(value: Any) -> Any:
    if type(value) in (bool, np.bool_):
        return value
    raise Unusual


def _conversion(value_type: ValueType, converts: Mapping[Kind, Convert]) -> Convert:
    """How a Python value becomes the word of a type."""
    if isinstance(value_type, Kind):
        return converts[value_type]
    word = converts[value_type.kind]

    def convert(value: Any) -> Any:
        try:
            plain = value_type.encode(value_type.fit(value))
        except (TypeError, ValueError, OverflowError) as error:
            raise Unusual from error
        if plain is None:
            return none_word(value_type.kind)
        return canonical_nan(plain) if value_type.kind is Kind.FLOAT else word(plain)

    return convert


_CONVERTS: dict[Kind, Convert] = {Kind.INT: _int, Kind.FLOAT: _float, Kind.BOOL: _bool}
