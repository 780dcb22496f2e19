"""Runs one transaction as the plain Python function that it is.

This is the specification, and the way out for what compiled code cannot do: a transaction declared
with `compiled=False`, or one in which an integer left 64 bits on the way. Rows become row objects of
the user's own classes, two parameters with one key the same object; what they assign is written back
only when the function returns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tidegate.api.control import Abort, looking_up, remembering
from tidegate.api.table import coerce
from tidegate.engine.batch import Batch
from tidegate.engine.state.strings import StringPool
from tidegate.engine.state.table import TableState
from tidegate.foundation.errors import DefinitionError, TidegateError
from tidegate.operations.layout import Column, Kind
from tidegate.operations.plan import Program, RowParameter, TransactionPlan


class Interpreter:
    """Runs single events of a batch on the tables, in plain Python."""

    def __init__(self, program: Program, tables: dict[str, TableState], strings: StringPool) -> None:
        self._program = program
        self._tables = tables
        self._strings = strings

    def run(self, batch: Batch, event: int) -> None:
        """Run one event and note its outcome in the batch."""
        number = int(batch.kinds[event])
        plan = self._program.plan.transactions[number]
        rows: dict[tuple[str, int], Any] = {}
        arguments = self._arguments(batch, event, number, plan, rows)
        try:
            with looking_up(self.finder(plan, rows)), remembering(partial(refuse_history, plan)):
                value = self._program.functions[number](**arguments)
            self.give_back(batch, event, number, plan, value)
        except TidegateError:  # the program is at fault, not this event
            raise
        except Abort as aborted:
            batch.status[event] = batch.reason(str(aborted.reason))
            batch.valid[event] = False
            return
        except Exception as error:
            batch.status[event] = batch.reason(type(error).__name__)
            batch.valid[event] = False
            return
        for (table, slot), row in rows.items():
            if row.__dict__["_assigned"]:
                self.write(self._tables[table], slot, row)

    def finder(self, plan: TransactionPlan, rows: dict[tuple[str, int], Any]) -> Callable[[type, Any], Any]:
        """What `tg.lookup` asks: row objects by table and key, beside those that `rows` knows.

        Only tables that the compiler saw the transaction look up: of others nobody would note what it writes.
        """
        known = {layout.name for layout in plan.lookups}

        def find(table: type, key: Any) -> Any:
            if table.__name__ not in known:
                raise DefinitionError(
                    f"transaction {plan.name!r} looks up a row of {table.__name__} in plain Python (compiled=False, or "
                    "a function that it calls); only a compiled body may use tg.lookup"
                )
            state = self._tables[table.__name__]
            parts = key if isinstance(key, tuple) else (key,)
            wanted = np.zeros((1, len(state.layout.key)), np.int64)
            for position, (column, part) in enumerate(zip(state.layout.key_columns, parts, strict=True)):
                fitted = coerce(column, part, state.layout.name)
                if column.kind is Kind.FLOAT:
                    if fitted != fitted:
                        raise Abort(f"NaN key of {state.layout.name}")
                    wanted.view(np.float64)[0, position] = float(fitted) + 0.0
                else:
                    wanted[0, position] = self._strings.number(str(fitted)) if column.kind is Kind.STR else int(fitted)
            return self.row(state.layout.name, int(state.resolve(wanted)[0]), rows)

        return find

    def _arguments(
        self, batch: Batch, event: int, number: int, plan: TransactionPlan, rows: dict[tuple[str, int], Any]
    ) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        for position, binding in enumerate(self._program.plan.rows):
            if number in binding.users:
                parameter = binding.parameter
                assert isinstance(parameter, RowParameter)
                slots, offsets = batch.slots[position], batch.rows[position].offsets
                if offsets is None:
                    arguments[parameter.name] = self.row(parameter.table.name, int(slots[event]), rows)
                else:
                    span = slots[offsets[event] : offsets[event + 1]]
                    arguments[parameter.name] = [self.row(parameter.table.name, int(s), rows) for s in span]
        for position, binding in enumerate(self._program.plan.values):
            if number in binding.users:
                bound, kind = batch.values[position], binding.parameter.kind  # type: ignore[union-attr]
                if bound.offsets is None:
                    arguments[binding.parameter.name] = self.plain(bound.values[event], kind)
                else:
                    span = bound.values[bound.offsets[event] : bound.offsets[event + 1]]
                    arguments[binding.parameter.name] = [self.plain(value, kind) for value in span]
        return {parameter.name: arguments[parameter.name] for parameter in plan.parameters}

    def row(self, table: str, slot: int, rows: dict[tuple[str, int], Any]) -> Any:
        """The object of a row, one for each slot; `rows` remembers them."""
        found = rows.get((table, slot))
        if found is None:
            state = self._tables[table]
            values = {name: self.plain(state.columns[name][slot], kind) for name, kind in _kinds(state)}
            for position, key in enumerate(state.layout.key_columns):
                word = state.keys[slot, position]
                values[key.name] = self.plain(word.view(np.float64) if key.kind is Kind.FLOAT else word, key.kind)
            found = self._program.classes[table](**values, exists=bool(state.exists[slot]))
            rows[table, slot] = found
        return found

    def plain(self, value: Any, kind: Kind) -> Any:
        """A value as plain Python has it."""
        if kind is Kind.STR:
            return self._strings.text(int(value))
        return {Kind.INT: int, Kind.FLOAT: float, Kind.BOOL: bool}[kind](value)

    def write(self, state: TableState, slot: int, row: Any) -> None:
        """Write a row object back to its slot."""
        for name, kind in _kinds(state):
            value = row.__dict__[name]
            state.columns[name][slot] = self._strings.number(value) if kind is Kind.STR else value
            if not row.exists:
                state.columns[name][slot] = state.defaults[name]
        state.exists[slot] = row.exists

    def give_back(self, batch: Batch, event: int, number: int, plan: TransactionPlan, value: Any) -> None:
        """Note what a function returned."""
        if value is None or plan.result is None:
            return
        for place, (name, kind) in zip(self._program.plan.result_places[number], plan.result.fields, strict=True):
            part = getattr(value, name) if plan.result.struct else value
            fitted = coerce(Column(name or "result", kind, kind.zero), part, plan.name)
            batch.results[place][event] = self._strings.number(str(fitted)) if kind is Kind.STR else fitted
        batch.valid[event] = True


def refuse_history(plan: TransactionPlan, row: Any, last: int) -> Any:
    """What `tg.history` gives where nobody keeps any."""
    raise DefinitionError(
        f"transaction {plan.name!r} asks for the history of a {type(row).__name__} over {last} units in plain Python "
        "(compiled=False, or a function that it calls); only a compiled body may use tg.history"
    )


def _kinds(state: TableState) -> list[tuple[str, Kind]]:
    return [(column.name, column.kind) for column in state.layout.value_columns]
