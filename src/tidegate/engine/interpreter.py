"""Runs one transaction as the plain Python function that it is.

This is the specification, and the way out for what compiled code cannot do: a transaction declared
with `compiled=False`, or one in which an integer left 64 bits on the way. Rows become row objects of
the user's own classes, two parameters with one key the same object; what they assign is written back
only when the function returns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.api.control import Abort
from tidegate.api.table import coerce
from tidegate.engine.batch import Batch
from tidegate.engine.state.strings import StringPool
from tidegate.engine.state.table import TableState
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
            value = self._program.functions[number](**arguments)
            self._give_back(batch, event, number, plan, value)
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
                self._write(self._tables[table], slot, row)

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
                    arguments[parameter.name] = self._row(parameter.table.name, int(slots[event]), rows)
                else:
                    span = slots[offsets[event] : offsets[event + 1]]
                    arguments[parameter.name] = [self._row(parameter.table.name, int(s), rows) for s in span]
        for position, binding in enumerate(self._program.plan.values):
            if number in binding.users:
                bound, kind = batch.values[position], binding.parameter.kind  # type: ignore[union-attr]
                if bound.offsets is None:
                    arguments[binding.parameter.name] = self._plain(bound.values[event], kind)
                else:
                    span = bound.values[bound.offsets[event] : bound.offsets[event + 1]]
                    arguments[binding.parameter.name] = [self._plain(value, kind) for value in span]
        return {parameter.name: arguments[parameter.name] for parameter in plan.parameters}

    def _row(self, table: str, slot: int, rows: dict[tuple[str, int], Any]) -> Any:
        found = rows.get((table, slot))
        if found is None:
            state = self._tables[table]
            values = {name: self._plain(state.columns[name][slot], kind) for name, kind in _kinds(state)}
            for position, key in enumerate(state.layout.key_columns):
                word = state.keys[slot, position]
                values[key.name] = self._plain(word.view(np.float64) if key.kind is Kind.FLOAT else word, key.kind)
            found = self._program.classes[table](**values, exists=bool(state.exists[slot]))
            rows[table, slot] = found
        return found

    def _plain(self, value: Any, kind: Kind) -> Any:
        if kind is Kind.STR:
            return self._strings.text(int(value))
        return {Kind.INT: int, Kind.FLOAT: float, Kind.BOOL: bool}[kind](value)

    def _write(self, state: TableState, slot: int, row: Any) -> None:
        for name, kind in _kinds(state):
            value = row.__dict__[name]
            state.columns[name][slot] = self._strings.number(value) if kind is Kind.STR else value
            if not row.exists:
                state.columns[name][slot] = state.defaults[name]
        state.exists[slot] = row.exists

    def _give_back(self, batch: Batch, event: int, number: int, plan: TransactionPlan, value: Any) -> None:
        if value is None or plan.result is None:
            return
        for place, (name, kind) in zip(self._program.plan.result_places[number], plan.result.fields, strict=True):
            part = getattr(value, name) if plan.result.struct else value
            fitted = coerce(Column(name or "result", kind, kind.zero), part, plan.name)
            batch.results[place][event] = self._strings.number(str(fitted)) if kind is Kind.STR else fitted
        batch.valid[event] = True


def _kinds(state: TableState) -> list[tuple[str, Kind]]:
    return [(column.name, column.kind) for column in state.layout.value_columns]
