"""What a version keeps of its batch: the rows that the batch changed, or the events that it ran.

                  changes                                   commands
    in the file   each row that is different, once          each event that ran, in order, the columns that matter
    opening       apply the rows, whatever wrote them       run the events again, with the same program
    small if      many events change few rows               an event is smaller than the rows that it changes
    a program     any that fits the tables                  the one with the same fingerprint

A state may hold both kinds, in any order: `play` applies the one and runs the other. Events give the same rows again
because they run on the same rows, by the same program, in the same order; an event that is refused before it runs (a
late one) is not kept.

A batch that is requested again runs on its base once more. Kept rows are compared afterwards; kept events are compared
before, and the rest follows (`order_again`). Either way the order of the first execution is restored.

Invariant: after `play` an engine holds, bit for bit, the rows that it held when the version was committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.durability.evolution import EXISTS, require_fit, upgrade
from tidegate.durability.fingerprint import fingerprint
from tidegate.durability.version_reader import Contents, VersionReader
from tidegate.engine.arrival import Arrival, content_hashes, reorder
from tidegate.engine.core import EngineCore
from tidegate.engine.state.columns import one_piece
from tidegate.operations.layout import TableLayout
from tidegate.operations.outcomes import TRANSACTION_COLUMN
from tidegate.operations.plan import Program, ProgramPlan

Log = Literal["changes", "commands"]
TIMES = "tidegate_time"
"""The column of kept events that holds what `order_by` said, where rows expire by it."""
Array = npt.NDArray[Any]


def executed_events(plan: ProgramPlan, events: pa.Table, arrival: Arrival, whole: bool) -> pa.Table:
    """The events that ran, in the order in which they did; with all of their columns, or those that the program needs.

    `whole` is for a batch whose order must be found again, event by event. Events that may wait for others are whole as
    well: they come back later, with their outcomes.
    """
    if not whole and not plan.flows.may_wait:
        wanted = {TRANSACTION_COLUMN, *plan.columns}
        events = events.select([name for name in events.column_names if name in wanted])
    if plan.clock is not None and plan.clock.untimed:  # rows expire by `order_by`
        events = events.append_column(TIMES, pa.array(arrival.times))
    executed, _ = _parted(arrival)
    if np.array_equal(executed, np.arange(events.num_rows)):
        return events
    return events.take(pa.array(executed))


def order_again(stored: Contents, events: pa.Table, arrival: Arrival) -> Array | None:
    """The order of the first time for a batch that is asked for again; None when these are other events."""
    if stored.events is None:
        return arrival.order if stored.order is None else reorder(content_hashes(events), np.asarray(stored.order))
    if TIMES in stored.events.column_names:
        events = events.append_column(TIMES, pa.array(arrival.times))
    if not set(stored.events.column_names) <= set(events.column_names):
        return None
    executed, refused = _parted(arrival)
    # In the order of now: of events that are equal in all that matters, the first then is the first now.
    hashes = content_hashes(events.select(stored.events.column_names))[executed]
    places = reorder(hashes, content_hashes(stored.events))
    return None if places is None else np.concatenate([executed[places], refused])


def play(core: EngineCore, contents: Contents) -> None:
    """Let an engine that holds a version hold the one above it."""
    if contents.events is None:
        core.apply(contents.changes)
        return
    events, times = contents.events, None
    if TIMES in events.column_names:
        times, events = one_piece(events.column(TIMES)).to_numpy(), events.drop_columns([TIMES])
    with tracking(core, False):
        core.run(events, times=times, collect=True)  # nothing accumulates: the version has what came of it


def rows_by_running(store: VersionReader, program: Program, layout: TableLayout, version: int | None) -> pa.Table:
    """All rows of a table at a version, sorted by key, in this layout; events are run by the program."""
    info, steps = store.load_contents(version, program.plan.tables, fingerprint(program))
    core = EngineCore(program, info.layouts, track_changes=True)
    for step in steps:
        play(core, step)
    held = core.tables[layout.name].layout
    require_fit(store.storage.path, [held], [layout])
    return upgrade(core.rows(layout.name), layout).drop_columns([EXISTS.name])


@contextmanager
def tracking(core: EngineCore, wanted: bool) -> Iterator[None]:
    """Inside, the engine notes which rows are written, or does not."""
    before, core.tracking = core.tracking, wanted
    try:
        yield
    finally:
        core.tracking = before


def _parted(arrival: Arrival) -> tuple[Array, Array]:
    """The positions of the events that run, in their order, and of those that are refused before."""
    refused = np.zeros(len(arrival.order), np.bool_)
    for marked in arrival.refused.values():
        refused |= marked
    return arrival.order[~refused[arrival.order]], arrival.order[refused[arrival.order]]
