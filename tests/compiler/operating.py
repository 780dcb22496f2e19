"""Calls `operate` as an engine does: by its address, on arrays that are known by their addresses."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.engine.generated import load
from tidegate.engine.state.strings import StringPool
from tidegate.operations.layout import Kind
from tidegate.operations.plan import ESCAPE, ProgramPlan, RowParameter

Array = npt.NDArray[Any]
Row = dict[str, Any]

_CALL = ctypes.CFUNCTYPE(ctypes.c_int64, *(ctypes.c_int64,) * 4)


class Desk:
    """One event of a program on a desk: its rows in slots, its values in arrays of one, all copied in.

    `rows` gives for each row parameter a row (or a list of rows) as a dict with all fields and `exists`;
    each of them has a slot of its own. Strings are numbers of the pool `strings`.
    """

    def __init__(self, plan: ProgramPlan, transaction: int, rows: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        self.plan, self.transaction = plan, transaction
        self.strings = StringPool()
        self.slots: dict[str, list[int]] = {}
        self.tables: dict[str, list[Row]] = {layout.name: [] for layout in plan.tables}
        for parameter in plan.transactions[transaction].parameters:
            if isinstance(parameter, RowParameter):
                given = rows[parameter.name]
                stored = self.tables[parameter.table.name]
                for row in given if parameter.many else [given]:
                    self.slots.setdefault(parameter.name, []).append(len(stored))
                    stored.append(row)
                self.slots.setdefault(parameter.name, [])
        self.valid = np.zeros(1, np.bool_)
        self.results = [np.zeros(1, kind.dtype) for kind in plan.result_arrays]
        self.arrays: dict[str, dict[str, Array]] = {}
        longest = max((len(slots) for slots in self.slots.values()), default=0)
        found = {**self._value_arrays(values), **self._row_offsets(), **self._table_arrays()}
        found["batch", "", "valid", None] = self.valid
        found |= {("batch", "", "results", number): array for number, array in enumerate(self.results)}
        found["worker", "", "literals", None] = self._array(plan.literals, Kind.STR)
        found["worker", "", "texts", None] = self.strings.places
        found["worker", "", "signals", None] = np.zeros(1, np.int64)
        for number, (_, kind) in enumerate(plan.scratch):
            found["worker", "", "undo", number] = np.zeros(longest, kind.dtype)
        unused = np.zeros(0, np.int64)  # slots of columns: `operate` is told its slots
        self._flat = [found.get((a.owner, a.of, a.role, a.key), unused) for a in plan.arrays]
        self._context = np.array([array.ctypes.data for array in self._flat], np.int64)

    def operate(self, kind: int) -> int:
        """Execute one operation; a plain function that raises raises here."""
        entry = load(self.plan).operate
        places = [slot for name in self.plan.operations[kind].rows for slot in self.slots[name]]
        slots = np.array(places, np.int64)
        status = int(_CALL(entry.address)(self._context.ctypes.data, kind, 0, slots.ctypes.data))
        if entry.error is not None:
            error, entry.error = entry.error, None
            raise error
        return status

    def outcome(self, status: int) -> tuple[str, Any]:
        """What a status says: ("done", result), ("escaped", None) or ("aborted", reason)."""
        if status == ESCAPE:
            return "escaped", None
        if status:
            return "aborted", self.plan.reasons[(status & 0xFFFFFFFF) - 1]
        if not self.valid[0]:
            return "done", None
        kinds = self.plan.result_arrays
        places = self.plan.result_places[self.transaction]
        return "done", tuple(self._text_or(self.results[place][0], kinds[place]) for place in places)

    def row(self, name: str) -> list[Row]:
        """The rows of a parameter as they are now."""
        parameter = next(p for p in self.plan.transactions[self.transaction].parameters if p.name == name)
        assert isinstance(parameter, RowParameter)
        arrays = self.arrays[parameter.table.name]
        kinds = {column.name: column.kind for column in parameter.table.value_columns} | {"exists": Kind.BOOL}
        return [
            {field: self._text_or(arrays[field][slot], kind) for field, kind in kinds.items()}
            for slot in self.slots[name]
        ]

    # --- arrays -----------------------------------------------------------------------------------

    def _word(self, value: Any, kind: Kind) -> Any:
        if kind is not Kind.STR:
            return value
        return self.strings.number(value)

    def _text_or(self, value: Any, kind: Kind) -> Any:
        return self.strings.text(int(value)) if kind is Kind.STR else value.item()

    def _array(self, values: Sequence[Any], kind: Kind) -> Array:
        return np.array([self._word(value, kind) for value in values], kind.dtype)

    def _value_arrays(self, values: Mapping[str, Any]) -> dict[Any, Array]:
        found: dict[Any, Array] = {}
        for number, binding in enumerate(self.plan.values):
            parameter = binding.parameter
            assert not isinstance(parameter, RowParameter)
            given: Any = [] if parameter.many else parameter.kind.zero
            if self.transaction in binding.users:
                given = values.get(parameter.name, given)
            if parameter.many:
                found["value column", number, "offsets", None] = np.array([0, len(given)], np.int64)
            array = self._array(given if parameter.many else [given], parameter.kind)
            found["value column", number, "values", None] = array
        return found

    def _row_offsets(self) -> dict[Any, Array]:
        many = [(number, binding) for number, binding in enumerate(self.plan.rows) if binding.parameter.many]
        counts = {n: len(self.slots[b.parameter.name]) if self.transaction in b.users else 0 for n, b in many}
        return {("row column", n, "offsets", None): np.array([0, count], np.int64) for n, count in counts.items()}

    def _table_arrays(self) -> dict[Any, Array]:
        found: dict[Any, Array] = {}
        for layout in self.plan.tables:
            rows = self.tables[layout.name]
            keys = np.zeros((len(rows), len(layout.key)), np.int64)
            for position, column in enumerate(layout.key_columns):
                words = self._array([row[column.name] for row in rows], column.kind)
                keys[:, position] = words.view(np.int64) if column.kind is Kind.FLOAT else words
            arrays = {"exists": np.array([row["exists"] for row in rows], np.bool_)}
            found["table", layout.name, "exists", None] = arrays["exists"]
            found["table", layout.name, "keys", None] = keys
            found["table", layout.name, "float_keys", None] = keys.view(np.float64)
            for column in layout.value_columns:
                arrays[column.name] = self._array([row[column.name] for row in rows], column.kind)
                found["table", layout.name, "columns", column.name] = arrays[column.name]
            self.arrays[layout.name] = arrays
        return found
