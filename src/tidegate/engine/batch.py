"""A batch on its way through the engine: its events as arrays, and what became of them so far.

`status` starts at 0 for every event and is the whole story at the end: 0 committed, n > 0 aborted
for reason number n - 1. Reasons that the program can give come first; those that only this batch has
(an unknown name, an exception's name) follow as they appear.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.engine.intake import Bound, unfit_reason
from tidegate.engine.kernels.events import refuse_marked, touched_list_rows, touched_rows
from tidegate.engine.kernels.strings import copy_reasons, first_word, match_names, place_names, place_reasons
from tidegate.engine.made_texts import put_together
from tidegate.engine.state.columns import value_column
from tidegate.engine.state.deadlines import LOWEST
from tidegate.engine.state.strings import StringPool, string_buffers, words_of
from tidegate.engine.state.table import TableState
from tidegate.operations.layout import Kind
from tidegate.operations.outcomes import OUTCOME_COLUMNS
from tidegate.operations.plan import Parameter, ProgramPlan, RowParameter

Array = npt.NDArray[Any]


class Batch:
    """The events of one batch."""

    def __init__(self, plan: ProgramPlan, size: int) -> None:
        self.plan = plan
        self.size = size
        self.kinds = np.zeros(size, np.int16)
        self.status = np.zeros(size, np.int32)
        self.reasons: list[str] = list(plan.reasons)
        self._reason_numbers: dict[str, int] = {}
        self.rows: list[Bound] = []
        self.slots: list[Array] = []
        self.values: list[Bound] = []
        self.valid = np.zeros(size, np.bool_)
        self.results = [np.zeros(size, kind.dtype) for kind in plan.result_arrays]
        expiring = plan.clock.tables if plan.clock is not None else ()
        self.limits = {t.name: np.full(size, LOWEST[t.by_kind], t.by_kind.dtype) for t in expiring}
        """By table whose rows expire: the time below which rows are absent, for each event."""
        self.clock: Any = None
        """The highest event time, those of this batch included; None where no row expires."""
        self.keep: object = None  # arrays whose addresses kernels hold while the batch lives

    def name(self, names: pa.Array | None, known: tuple[Array, ...]) -> None:
        """Find the transactions of all events by their names; without names, all are of the only one.

        `known` are those of the program (`table_of_names`).
        """
        if names is None:
            self.kinds[:] = self.plan.entries[0]
            return
        if pa.types.is_null(names.type):
            names = pa.nulls(len(names), pa.string())
        offsets, data = string_buffers(names, wide=False)
        others = match_names(offsets, data, words_of(data), known, self.kinds)
        if names.null_count:
            null = np.asarray(names.is_null().to_numpy(zero_copy_only=False))
            self.kinds[null] = -1
            self.refuse(null, "null transaction")
        unknown = np.flatnonzero((self.kinds < 0) & (self.status == 0)) if others else ()
        for row in unknown:
            self.status[row] = self.reason(f"unknown transaction {names[int(row)].as_py()!r}")

    def reason(self, text: str) -> int:
        """The status that stands for a reason."""
        found = self._reason_numbers.get(text)
        if found is None:
            self.reasons.append(text)
            found = self._reason_numbers[text] = len(self.reasons)
        return found

    def refuse(self, rows: Array, text: str) -> None:
        """Give the marked events that were not refused yet a reason."""
        self.refuse_users(rows, tuple(range(len(self.plan.transactions) + 1)), text)

    def refuse_users(self, rows: Array, transactions: tuple[int, ...], text: str) -> None:
        """The same for the marked events of some transactions only."""
        found = refuse_marked(self.events(transactions), rows, self._reason_numbers.get(text, len(self.reasons) + 1))
        if found:
            self.reason(text)

    def refuse_missing(self, parameter: Parameter, transactions: tuple[int, ...], bound: Bound) -> None:
        """Refuse the events of some transactions whose value for a parameter is null, or a key that is NaN."""
        key = "key " if isinstance(parameter, RowParameter) else ""
        if bound.valid is not None:
            self.refuse_users(~bound.valid, transactions, f"null {key}in column {parameter.name!r}")
        if bound.nan is not None:
            self.refuse_users(bound.nan, transactions, f"NaN key in column {parameter.name!r}")
        if bound.unfit is not None:
            self.refuse_users(bound.unfit, transactions, unfit_reason(parameter))

    def needs(self, transactions: tuple[int, ...]) -> Array:
        """Per transaction number: whether it is among these. The last entry is for unknown names."""
        found = np.zeros(len(self.plan.transactions) + 1, np.bool_)
        found[list(transactions)] = True
        return found

    def events(self, transactions: tuple[int, ...]) -> tuple[Array, Array, Array]:
        """What kernels need to pick the events of some transactions."""
        return self.kinds, self.status, self.needs(transactions)

    def limits_at(self, event: int) -> dict[str, Any]:
        """By table whose rows expire: the time below which rows are absent for an event."""
        return {name: limits[event] for name, limits in self.limits.items()}

    def written(self, table: TableState, marks: Array) -> Array:
        """The slots of a table's rows that transactions without a graph may have written and that have no mark yet.

        They have one afterwards, so each is given once.
        """
        bindings = [
            (position, binding)
            for position, binding in enumerate(self.plan.rows)
            if binding.parameter.table.name == table.layout.name and binding.writers  # type: ignore[union-attr]
        ]
        touched = np.empty(sum(len(self.slots[position]) for position, _ in bindings), np.int64)
        count = 0
        for position, binding in bindings:
            chosen, slots = self.events(binding.writers), self.slots[position]
            offsets = self.rows[position].offsets
            if offsets is None:
                count = touched_rows(chosen, slots, marks, touched, count)
            else:
                count = touched_list_rows(chosen, offsets, slots, marks, touched, count)
        return touched[:count]

    def touchable(self, table: TableState) -> Array:
        """The slots of a table's rows that transactions without a graph may write, or reset because they expired."""
        bindings = enumerate(self.plan.rows)
        found = [self.slots[place] for place, b in bindings if b.parameter.table.name == table.layout.name]  # type: ignore[union-attr]
        return np.unique(np.concatenate([np.empty(0, np.int64), *found]))

    @property
    def committed(self) -> int:
        """How many transactions committed."""
        return int(self.size - np.count_nonzero(self.status))

    def aborts(self) -> dict[str, int]:
        """How many transactions aborted, by reason."""
        numbers, counts = np.unique(self.status[self.status > 0], return_counts=True)
        found: dict[str, int] = {}
        for number, count in zip(numbers, counts, strict=True):
            text = self.reasons[number - 1]
            found[text] = found.get(text, 0) + int(count)
        return found

    # --- outcomes as Arrow ---------------------------------------------------------------------------

    def outcomes(self, strings: StringPool) -> pa.Table:
        """What became of the events: `committed`, `reason` and `result`."""
        self.make_texts(strings)
        columns = [*self._committed_and_reason(), self._result_column(strings)]
        types = [pa.bool_(), pa.string(), self.plan.result]
        return pa.Table.from_arrays(columns, schema=pa.schema(list(zip(OUTCOME_COLUMNS, types, strict=True))))

    def make_texts(self, strings: StringPool) -> None:
        """Give the new strings in results their numbers."""
        put_together(self.plan, self.kinds, self.valid, self.results, strings)

    def _committed_and_reason(self) -> tuple[pa.Array, pa.Array]:
        starts, texts = string_buffers(pa.array(self.reasons, pa.large_string()))
        offsets = np.empty(self.size + 1, np.int32)
        bits = np.empty((self.size + 7) // 8, np.uint8)
        data = np.empty(place_reasons(self.status, np.diff(starts, prepend=0), bits, offsets), np.uint8)
        committed = pa.Array.from_buffers(pa.bool_(), self.size, [None, pa.py_buffer(bits)], null_count=0)
        if not self.status.any():
            return committed, pa.nulls(self.size, pa.string())
        copy_reasons(self.status, bits, starts, texts, offsets, data)
        buffers = [pa.py_buffer(~bits), pa.py_buffer(offsets), pa.py_buffer(data)]
        return committed, pa.Array.from_buffers(pa.string(), self.size, buffers)

    def _result_column(self, strings: StringPool) -> pa.Array:
        if not self.plan.result_arrays:
            return pa.nulls(self.size, self.plan.result)
        if not self.plan.result_by_transaction:
            places = next(places for places in self.plan.result_places if places)
            return self._struct_or_value(self.plan.result, places, self.valid, strings)
        children = []
        for number, places in enumerate(self.plan.result_places):
            result = self.plan.transactions[number].result
            if result is not None:
                own = self.valid & (self.kinds == number)
                children.append(self._struct_or_value(result.arrow, places, own, strings))
        return pa.StructArray.from_arrays(children, fields=list(self.plan.result), mask=pa.array(~self.valid))

    def _struct_or_value(
        self, result: pa.DataType, places: tuple[int, ...], valid: Array, strings: StringPool
    ) -> pa.Array:
        if not pa.types.is_struct(result):
            return self._value_column(places[0], valid, strings)
        children = [self._value_column(place, valid, strings) for place in places]
        return pa.StructArray.from_arrays(children, fields=list(result), mask=pa.array(~valid))

    def _value_column(self, place: int, valid: Array, strings: StringPool) -> pa.Array:
        kind, values = self.plan.result_arrays[place], self.results[place]
        if kind not in (Kind.INT, Kind.FLOAT):
            return value_column(values, kind, strings, None if valid.all() else valid)
        bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
        return pa.Array.from_buffers(kind.arrow, self.size, [bitmap, pa.py_buffer(values)])


def table_of_names(names: Sequence[str]) -> tuple[Array, ...]:
    """Names of transactions, as `match_names` takes them."""
    offsets, data = string_buffers(pa.array(names, pa.large_string()))
    words = [first_word(data, words_of(data), *span) for span in zip(offsets[:-1], np.diff(offsets), strict=True)]
    places = np.full(1 << (4 * len(names)).bit_length(), -1, np.int16)
    table = (offsets, data, np.array(words, np.uint64), places)
    place_names(table)
    return table
