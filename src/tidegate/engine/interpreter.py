"""Runs transactions as the plain Python functions that they are.

This is the specification, and the way out for what compiled code cannot do: a transaction declared with
`compiled=False`, or one in which an integer left 64 bits on the way. `run` runs an event of a batch; the steps of a
dataflow graph are run with the same parts, all those of a group or none (`graphs.group_run`).

Rows become row objects of the user's own classes, two parameters with one key the same object. What a function assigns
is written back only when it returns, so a transaction that fails has nothing to undo.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from tidegate.api.control import Abort, looking_up, remembering
from tidegate.api.table import coerce
from tidegate.engine.batch import Batch
from tidegate.engine.faults import Faults
from tidegate.engine.inputs import EventInput, Input, slot_of_key
from tidegate.engine.state.columns import python_value, word_of
from tidegate.engine.state.history import History
from tidegate.engine.state.strings import StringPool
from tidegate.engine.state.table import TableState
from tidegate.foundation.errors import DefinitionError, TidegateError
from tidegate.foundation.interrupts import ending_at_once
from tidegate.operations.layout import Kind, ValueType, encodable
from tidegate.operations.plan import Program, RowParameter, TransactionPlan


class Rows(dict[tuple[str, int], Any]):
    """Row objects by table and slot; `limits` has for tables whose rows expire the time below which they are absent."""

    def __init__(self, limits: Mapping[str, Any]) -> None:
        super().__init__()
        self.limits = limits


class Interpreter:
    """Runs single transactions in plain Python, on the tables; `histories` are what `tg.history` reads."""

    def __init__(
        self,
        program: Program,
        tables: Mapping[str, TableState],
        strings: StringPool,
        faults: Faults,
        histories: Mapping[str, History] | None = None,
    ) -> None:
        self._program, self._tables, self._strings = program, tables, strings
        self.faults = faults
        self._histories = histories or {}
        bindings = (program.plan.rows, program.plan.values)
        self._columns = {binding.parameter: place for found in bindings for place, binding in enumerate(found)}

    def run(self, batch: Batch, event: int) -> None:
        """Run one event and note its outcome in the batch."""
        number = int(batch.kinds[event])
        self.faults.events = (event,)
        reason = reason_of(partial(self._run_event, batch, event, number))
        if reason is not None:
            batch.status[event] = batch.reason(reason)
            batch.valid[event] = False

    def _run_event(self, batch: Batch, event: int, number: int) -> None:
        rows = Rows(batch.limits_at(event))
        arguments = self.arguments(number, self.event(batch, event), rows)
        with self.faults.caught(number, arguments):
            self.give_back(batch, event, number, self.call(number, arguments, rows))
        for table, slot, row in assigned(rows):
            self.write(self._tables[table], slot, row)

    def event(self, batch: Batch, event: int) -> EventInput:
        """An event as the input of a transaction."""
        return EventInput(batch, event, self._columns, self._tables)

    # --- one function ----------------------------------------------------------------------------------------

    def call(self, number: int, arguments: dict[str, Any], rows: Rows) -> Any:
        """What a transaction's function returns; it may look up more rows."""
        plan = self._program.plan.transactions[number]
        finding, states = looking_up(self._finder(plan, rows)), partial(self._states, plan, arguments, rows)
        with finding, remembering(states), ending_at_once():
            return self._program.functions[number](**arguments)

    def arguments(self, number: int, given: Input, rows: Rows) -> dict[str, Any]:
        """The arguments of a transaction's function, but for windows; `rows` learns its row objects."""
        arguments: dict[str, Any] = {}
        for parameter in self._program.plan.transactions[number].parameters:
            if isinstance(parameter, RowParameter):
                found = given.slot(parameter)
                slots = found.tolist() if parameter.many else [int(found)]
                objects = [self._row(parameter.table.name, slot, rows) for slot in slots]
                arguments[parameter.name] = objects if parameter.many else objects[0]
            elif parameter.many:
                arguments[parameter.name] = [self.plain(word, parameter.type) for word in given.value(parameter)]
            else:
                arguments[parameter.name] = self.plain(given.value(parameter), parameter.type)
        return arguments

    def _finder(self, plan: TransactionPlan, rows: Rows) -> Callable[[type, Any], Any]:
        """What `tg.lookup` asks: row objects by table and key, beside those that `rows` knows.

        Only in tables that the compiler saw the transaction look up: writes to other tables would not be noted.
        """
        known = {layout.name for layout in plan.lookups}

        def find(table: type, key: Any) -> Any:
            if table.__name__ not in known:
                raise DefinitionError(
                    f"transaction {plan.name!r} looks up a row of {table.__name__} in plain Python (compiled=False, or "
                    "a function that it calls); only a compiled body may use tg.lookup"
                )
            state = self._tables[table.__name__]
            parts = zip(state.layout.key_columns, key if isinstance(key, tuple) else (key,), strict=True)
            words = [self.word(coerce(c.type, part, f"{state.layout.name}.{c.name}"), c.type) for c, part in parts]
            return self._row(state.layout.name, slot_of_key(state, words, f"of {state.layout.name}"), rows)

        return find

    def _states(self, plan: TransactionPlan, arguments: dict[str, Any], rows: Rows, row: Any, last: int) -> list[Any]:
        """What `tg.history` gives."""
        name = type(row).__name__
        history = self._histories.get(name)
        if history is None or last > history.keep or not plan.time:
            raise DefinitionError(
                f"transaction {plan.name!r} asks for the history of a {name} over {last} units in plain Python "
                "(compiled=False, or a function that it calls); only a compiled body may use tg.history"
            )
        types = _types(self._tables[name])
        slot = next(slot for (_, slot), known in rows.items() if known is row)
        found = []
        for place in history.of(slot, arguments[plan.time], last):
            fields = {field: self.plain(history.columns[field][place], kind) for field, kind in types}
            found.append(SimpleNamespace(time=int(history.time[place]), exists=bool(history.exists[place]), **fields))
        return found

    # --- values and rows as Python has them ------------------------------------------------------------------

    def _row(self, table: str, slot: int, rows: Rows) -> Any:
        """The object of a row, one for each slot; `rows` remembers them."""
        found = rows.get((table, slot))
        if found is None:
            state = self._tables[table]
            expired = table in rows.limits and state.times(np.array([slot]))[0] < rows.limits[table]
            fields = _types(state)
            values = {} if expired else {name: self.plain(state.columns[name][slot], kind) for name, kind in fields}
            for position, key in enumerate(state.layout.key_columns):
                word = state.keys[slot, position]
                values[key.name] = self.plain(word.view(np.float64) if key.kind is Kind.FLOAT else word, key.type)
            found = self._program.classes[table](**values, exists=bool(state.exists[slot]) and not expired)
            rows[table, slot] = found
        return found

    def plain(self, word: Any, value_type: ValueType) -> Any:
        """A word as Python has it."""
        return python_value(word, value_type, self._strings)

    def word(self, value: Any, value_type: ValueType) -> Any:
        """A value as arrays hold it."""
        return word_of(value, value_type, self._strings)

    def write(self, state: TableState, slot: int, row: Any) -> None:
        """Write a row object back to its slot."""
        for name, kind in _types(state):
            state.columns[name][slot] = self.word(row.__dict__[name], kind) if row.exists else state.defaults[name]
        state.exists[slot] = row.exists

    def give_back(self, batch: Batch, event: int, number: int, value: Any) -> None:
        """Note what a function returned."""
        plan = self._program.plan.transactions[number]
        if value is None or plan.result is None:
            return
        for place, (name, kind) in zip(self._program.plan.result_places[number], plan.result.fields, strict=True):
            part = getattr(value, name) if plan.result.struct else value
            fitted = coerce(kind, part, f"{plan.name}.{name or 'result'}")
            batch.results[place][event] = self.word(fitted, kind)
        batch.valid[event] = True


def reason_of(work: Callable[[], object]) -> str | None:
    """Run users' functions: why they abort, None if they do not. Where the program is at fault, that is raised."""
    try:
        work()
    except TidegateError:
        raise
    except Abort as aborted:
        reason = str(aborted.reason)
        return reason if encodable(reason) else UnicodeEncodeError.__name__
    except Exception as error:  # not of the function itself, which `Faults.caught` surrounds
        return type(error).__name__
    return None


def assigned(rows: Rows) -> Iterator[tuple[str, int, Any]]:
    """The rows that a function assigned to, or deleted: table, slot, object."""
    for (table, slot), row in rows.items():
        if row.__dict__["_assigned"]:
            yield table, slot, row


def _types(state: TableState) -> list[tuple[str, ValueType]]:
    return [(column.name, column.type) for column in state.layout.value_columns]
