"""What a Spark task does: one micro-batch, from Arrow record batches to outcomes.

    record batches --> one table --> VersionedEngine.process --> the same rows + committed, reason, result

The task has no memory of its own that matters. Which batch it runs it learns from Spark, what was
done before it finds on disk, so a task that is repeated, moved or run twice at once gives the same rows
and changes the state once:

    streaming              (query id, batch id) of the micro-batch
    batch                  a name made when `transact` was called: several actions are one application
    batch in foreachBatch  the micro-batch around it, and what the rows are: a micro-batch may hold several

What is kept between batches is speed only: Python workers serve many tasks, so the opened program and
the engine with its warm rows stay in `_engines`. An engine that fell behind catches up by itself.

Rows reach the task through a shuffle, partition after partition, in no fixed order of partitions; within
one they keep their order. Where no `order_by` says more, `PARTITION_COLUMN` tells where a row came from, so
that the partitions can be put back into the source's order.

Not here: checking columns and planning (`transact`), what a batch does to the state (`durability`).
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from tidegate.durability import ownership
from tidegate.durability.ownership import Owner
from tidegate.durability.versioned import Late, VersionedEngine
from tidegate.engine.arrival import content_hashes
from tidegate.foundation.errors import InputError, StateOwned
from tidegate.foundation.storage import open_storage
from tidegate.operations.outcomes import OUTCOME_COLUMNS
from tidegate.spark.columns import PARTITION_COLUMN, needed_columns
from tidegate.spark.payload import unpack

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

OWNER_WAIT_SECONDS = 5.0
"""How long a batch waits for the state's owner to go: an ended query is released a moment later."""

OUTPUT_ROWS = 1 << 16
"""Rows per record batch of the output."""

ENGINES_MAX = 4
"""States that one worker keeps warm; beyond it the one not used for longest is dropped."""

_engines: OrderedDict[tuple[str, str, int], VersionedEngine] = OrderedDict()


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """What `transact` decided, in plain values: the task's only input besides the rows.

    `batch_name` names a batch DataFrame; None is a stream, whose batches Spark names.
    """

    payload: bytes
    digest: str
    path: str
    order_by: str | None
    late: Late
    keep_versions: int
    owner: Owner
    batch_name: str | None
    requests: str | None = None


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """Under which name the batch is applied once, and who owns the state meanwhile."""

    query: str
    batch: int
    owner: Owner


def make_task(settings: TaskSettings) -> Task:
    """The function for `mapInArrow`. It carries the settings; all else it imports where it runs."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_task(settings, batches)

    return task


def run_task(settings: TaskSettings, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run one micro-batch; nothing is given out before all of it is committed."""
    pieces = [batch for batch in batches if batch.num_rows]
    if not pieces:
        return
    rows = pa.Table.from_batches(pieces)
    if PARTITION_COLUMN in rows.column_names:
        rows = in_source_order(rows)
    engine = _engine(settings)
    plan = engine.program.plan
    events = rows.select(needed_columns(plan, settings.order_by, rows.column_names, settings.requests))
    identity = _identity(settings, events, plan.names)
    if plan.flows is not None and plan.flows.may_wait:  # outcomes may be those of events of earlier batches
        outcomes = _process(engine, settings, identity, rows)
        yield from outcomes.select([*rows.column_names, *OUTCOME_COLUMNS]).to_batches(max_chunksize=OUTPUT_ROWS)
        return
    outcomes = _process(engine, settings, identity, events)
    for name in OUTCOME_COLUMNS:
        rows = rows.append_column(name, outcomes[name])
    yield from rows.to_batches(max_chunksize=OUTPUT_ROWS)


def _engine(settings: TaskSettings) -> VersionedEngine:
    """The warm engine of this worker for this state and program, or a new one."""
    key = (settings.path, settings.digest, settings.keep_versions)
    engine = _engines.pop(key, None)
    if engine is None:
        for other in [other for other in _engines if other[0] == settings.path]:
            del _engines[other]  # another program's rows of this state: never both at once
        while len(_engines) >= ENGINES_MAX:
            _engines.popitem(last=False)
        engine = VersionedEngine(
            unpack(settings.payload), settings.path, keep_versions=settings.keep_versions, workers=_processors()
        )
    _engines[key] = engine
    return engine


def _processors() -> int:
    """How many processors Spark gives to a task: `spark.task.cpus`, 1 unless the user raised it."""
    context = TaskContext.get()
    return max(1, context.cpus()) if context is not None else 1


def _identity(settings: TaskSettings, events: pa.Table, names: tuple[str, ...]) -> BatchIdentity:
    context = TaskContext.get()
    query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
    batch = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    if settings.batch_name is None:
        if query is None or batch is None:
            raise InputError(
                "transact: this task of a stream does not know its micro-batch. In foreachBatch, run actions "
                "in the thread that Spark calls, not in threads of your own."
            )
        return BatchIdentity(query, int(batch), replace(settings.owner, query=query))
    owner = replace(settings.owner, query=settings.batch_name)
    if query is None or batch is None:
        return BatchIdentity(settings.batch_name, 0, owner)
    # The sum does not depend on the rows' order, which may differ when the micro-batch is repeated.
    total = content_hashes(events).sum()
    content = f"{total} {events.num_rows} {' '.join(names)}"
    mark = hashlib.blake2b(content.encode(), digest_size=8).hexdigest()
    return BatchIdentity(f"{query}/{mark}", int(batch), owner)


def in_source_order(rows: pa.Table) -> pa.Table:
    """Rows as the source has them, partition after partition; nothing is copied."""
    partitions = rows[PARTITION_COLUMN].to_numpy()
    rows = rows.drop_columns([PARTITION_COLUMN])
    changes = np.flatnonzero(np.diff(partitions)) + 1
    starts, ends = np.append(0, changes), np.append(changes, len(partitions))
    order = np.argsort(partitions[starts], kind="stable")
    if np.array_equal(order, np.arange(len(order))):
        return rows
    return pa.concat_tables(rows.slice(starts[run], ends[run] - starts[run]) for run in order)


def _process(engine: VersionedEngine, settings: TaskSettings, identity: BatchIdentity, events: pa.Table) -> pa.Table:
    """Run the batch as soon as the state is ours; a batch DataFrame lets go of it afterwards."""
    deadline = time.monotonic() + OWNER_WAIT_SECONDS
    while True:
        try:
            return engine.process(
                identity.query,
                identity.batch,
                events,
                order_by=settings.order_by,
                position=None,
                late=settings.late,
                owner=identity.owner,
                requests=settings.requests,
            )
        except StateOwned:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        finally:
            if settings.batch_name is not None:
                ownership.release(open_storage(settings.path), identity.owner.query)
