"""Rows that expire: the clock of a state, what it says at each event of a batch, and which rows are gone at its end.

    events (in order)     a      b      c      d
    time                  10     14     12     20        of its column, or order_by; none for an event that was refused
    clock                 10     14     14     20        the highest so far: it never goes back
    limit (ttl = 5)       5      9      9      15        rows whose time is below it are absent for the event

Limits are computed once, when a batch is taken in, so every strategy finds the same. A transaction resets a row that it
finds expired, before its body runs; if it aborts, the row is as before, and expired for the next one, too. When all
events have run, the rows below the last limit are removed (`purge`), whoever looked at them.

The clock is stored as a row of a table, `tidegate_clock`, so it lasts as rows do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.engine.batch import Batch
from tidegate.engine.state.deadlines import LOWEST
from tidegate.engine.state.table import TableState
from tidegate.foundation.errors import InputError
from tidegate.operations.layout import Column, Kind, TableLayout
from tidegate.operations.plan import ClockPlan

Array = npt.NDArray[Any]
Note = Callable[[TableState, Array], None]

CLOCK = TableLayout(
    "tidegate_clock",
    (Column("kind", Kind.STR, ""), Column("whole", Kind.INT, 0), Column("real", Kind.FLOAT, 0.0)),
    ("kind",),
)
_FIELDS = {Kind.INT: "whole", Kind.FLOAT: "real"}
"""The field of the clock's table that holds a clock of this kind."""


class Expiry:
    """The clock of an engine, and its tables whose rows expire; `note` is told which rows change."""

    def __init__(self, plan: ClockPlan, tables: Mapping[str, TableState], note: Note) -> None:
        self._plan, self._note = plan, note
        self._tables = [tables[layout.name] for layout in plan.tables]
        self._stored = tables[CLOCK.name]
        self._lowest = LOWEST[plan.kind]
        self._clock = self._lowest

    # --- events ---------------------------------------------------------------------------------------------

    def enter(self, batch: Batch, order: Array, times: Array | None) -> None:
        """Compute which rows are absent for each event; `times` are those of `order_by`, for the last events."""
        own = np.full(batch.size, self._lowest, self._plan.kind.dtype)
        if times is not None and self._plan.untimed:
            own[batch.size - len(times) :] = times  # events that waited come first: they have moved the clock before
        for number, place in enumerate(self._plan.times):
            if place >= 0:
                rows = batch.kinds == number
                own[rows] = batch.values[place].values[rows]
        own[batch.status != 0] = self._lowest
        clocks = np.empty_like(own)
        clocks[order] = np.maximum.accumulate(np.maximum(own[order], self._clock))
        batch.clock = clocks[order[-1]] if len(order) else self._clock
        for table in self._tables:
            batch.limits[table.layout.name][:] = self._limits(clocks, table)

    def enter_one(self, batch: Batch) -> None:
        """The same for a batch of one event, without a column `order_by`."""
        place = self._plan.times[batch.kinds[0]]
        batch.clock = self._clock if place < 0 else max(self._clock, batch.values[place].values[0])
        for table in self._tables:
            batch.limits[table.layout.name][0] = self._limits(np.array([batch.clock]), table)[0]

    def _limits(self, clocks: Array, table: TableState) -> Array:
        ttl = table.layout.ttl
        limits: Array = clocks - ttl if self._plan.kind is Kind.FLOAT else np.maximum(clocks, self._lowest + ttl) - ttl
        return limits  # an integer does not wrap

    # --- the end of a batch ----------------------------------------------------------------------------------

    def leave(self, batch: Batch) -> None:
        """Let the clock be that of the last event, and remove the rows that are gone."""
        if batch.clock > self._clock:
            self._clock = batch.clock
            self._store()
        self.purge()

    def purge(self) -> None:
        """Remove all rows that have expired."""
        if self._clock == self._lowest:
            return
        for table in self._tables:
            assert table.deadlines is not None
            limit = self._limits(np.array([self._clock]), table)[0]
            slots = table.deadlines.take_below(limit)
            if not len(slots):
                continue
            exists, late = table.exists[slots], table.times(slots) < limit
            table.add_deadlines(slots[exists & ~late])
            # A row that a transaction found expired has been reset, and has its slot still.
            reset = slots[~exists]
            gone = np.concatenate([slots[exists & late], reset[table.find(table.keys[reset]) == reset]])
            table.store(gone, {}, False)
            self._note(table, gone)
            table.sweep(gone)

    # --- the clock lasts -------------------------------------------------------------------------------------

    def restore(self) -> None:
        """Let the clock be what its table says."""
        row = self._stored.find(self._key())
        known = row[0] >= 0 and self._stored.exists[row[0]]
        self._clock = self._stored.columns[_FIELDS[self._plan.kind]][row[0]] if known else self._lowest

    def _store(self) -> None:
        self._stored.reserve(1)
        row = self._stored.resolve(self._key())
        self._stored.store(row, {_FIELDS[self._plan.kind]: np.array([self._clock])}, True)
        self._stored.keep_fresh()
        self._note(self._stored, row)

    def _key(self) -> Array:
        return np.array([[self._stored.strings.number(self._plan.type.label)]], np.int64)


def require_times(clock: ClockPlan | None, order_by: str | None, found: pa.DataType | None) -> None:
    """Raise InputError if events of a run would have no time; `found` is the type of the column `order_by`."""
    if clock is None or not clock.untimed:
        return
    table, name = clock.tables[0], clock.untimed[0]
    what = (
        f"rows of {table.name} expire by {table.by!r} ({clock.type.label}), and transaction {name!r} declares no time"
    )
    if order_by is None:
        got = "; nor does the run have order_by"
    elif found is None or not clock.type.accepts(found):
        got = f", so that is order_by={order_by!r}, a column of type {found}, which is no time of that kind"
    else:
        return
    raise InputError(
        f'events: {what}{got}; declare the parameter that carries it, @tg.transaction(time="..."), or give '
        f"order_by= a column of type {clock.type.label}"
    )
