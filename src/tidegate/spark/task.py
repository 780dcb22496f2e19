"""The Spark task: runs one micro-batch, from Arrow record batches to outcomes.

    record batches --> one table --> VersionedEngine.process --> the same rows + committed, reason, result

The task learns from Spark for whom it runs (the applicant) and for which batch, and from the disk what was committed
before. So a task that is repeated, moved or run twice at once returns the same rows and changes the state once.
The applicant (`durability.served`):

    streaming              the query, its micro-batches one after the other, empty ones too
    batch                  a name made when `transact` was called: several actions apply the batch once
    batch in foreachBatch  the query, and the number of this call of `transact` in its function, from 0

In a foreachBatch, tasks learn their micro-batch from Spark only if the action runs in the thread in which Spark called
the function. An action in another thread is recognised by its DataFrame's session, which is a stream's, and refused.

Python workers serve many tasks, so the program and the engine with its rows stay in `_engines`, for speed only. An
engine that is behind the newest version catches up by itself.

Rows reach the task through a shuffle, with partitions in any order; within a partition they keep their order. Without
`order_by`, `PARTITION_COLUMN` holds the partition of each row, so that the source's order can be restored.
"""

from __future__ import annotations

import pickle
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from tidegate.durability import ownership
from tidegate.durability.served import Applicant, call_applicant, once_applicant, stream_applicant
from tidegate.durability.version_info import Owner
from tidegate.durability.version_log import Log
from tidegate.durability.versioned import Late, VersionedEngine
from tidegate.engine.faults import OnError
from tidegate.engine.results import encoded
from tidegate.foundation.errors import InputError, StateOwned, TidegateError
from tidegate.foundation.storage import open_storage
from tidegate.foundation.tracebacks import shortened
from tidegate.operations.decision import Strategy
from tidegate.operations.outcomes import OUTCOME_COLUMNS
from tidegate.spark.columns import PARTITION_COLUMN, needed_columns
from tidegate.spark.cores import task_workers
from tidegate.spark.payload import unpack

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

OWNER_WAIT_SECONDS = 5.0
"""How long a batch waits for the state's owner to release it: the release comes shortly after a query ends."""

OUTPUT_ROWS = 1 << 16
"""Rows per record batch of the output."""

ENGINES_MAX = 4
"""The most engines that one worker keeps in memory; beyond this the least recently used one is dropped."""

_engines: OrderedDict[tuple[str, str, int, Log, Strategy, OnError], VersionedEngine] = OrderedDict()


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """The settings from `transact`, in plain values: the task's only input besides the rows.

    `columns` are those of the rows, needed because an empty batch carries no schema. `batch_name` names a batch
    DataFrame; it is None for a stream, whose batches Spark numbers. `call` is the number of the call in a foreachBatch.
    `in_stream` is True for a DataFrame that Spark made for a stream, in a foreachBatch. `planned_state` and
    `planned_version` are the state and version that `transact` saw. `workers` is None where the task takes its share of
    `executor_cores`.
    """

    payload: bytes
    digest: str
    path: str
    columns: tuple[str, ...]
    order_by: str | None
    late: Late
    keep_versions: int
    owner: Owner
    batch_name: str | None
    call: int
    in_stream: bool
    planned_state: str
    planned_version: int
    requests: str | None = None
    log: Log = "changes"
    strategy: Strategy = "adaptive"
    workers: int | None = None
    executor_cores: int = 1
    on_error: OnError = "abort"


def make_task(settings: TaskSettings) -> Task:
    """The function for `mapInArrow`."""
    return shipped("transact", __name__, pickle.dumps(settings))


def shipped(what: str, module: str, packed: bytes) -> Task:
    """A function for `mapInArrow` that calls `run_packed` of a module. It can be unpickled where no tidegate is.

    So a worker on another Python than the driver's fails with a message, and not while Spark reads the function.
    """

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import importlib

        try:
            run = importlib.import_module(module).run_packed
        except ImportError as error:
            import sys

            raise ImportError(
                f"{what}: Spark's Python worker, {sys.executable}, cannot import tidegate ({error}). Workers need "
                "the packages of the driver: install tidegate for that Python on every machine, or name another Python "
                "in PYSPARK_PYTHON (or spark.pyspark.python) before the session is made"
            ) from None
        yield from run(packed, batches)

    return task


def run_packed(settings: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """`run_task` on packed settings. An error of ours leaves with its message alone: Spark adds lines enough."""
    try:
        yield from run_task(pickle.loads(settings), batches)
    except TidegateError as error:
        raise shortened(error) from users_part(error)


def users_part(error: TidegateError) -> BaseException | None:
    """The error that caused this one, if any line of it is a user's."""
    return error.__cause__ if error.__cause__ is not None and error.__cause__.__traceback__ is not None else None


def run_task(settings: TaskSettings, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run one micro-batch; no row is returned before the whole batch is committed."""
    pieces = [batch for batch in batches if batch.num_rows]
    applicant = _applicant(settings)
    if not pieces and applicant.form == "once":
        return
    rows = pa.Table.from_batches(pieces) if pieces else pa.table({name: pa.nulls(0) for name in settings.columns})
    if PARTITION_COLUMN in rows.column_names:
        rows = in_source_order(rows)
    engine = _engine(settings)
    plan = engine.program.plan
    waits = plan.flows.may_wait  # outcomes may belong to events of earlier batches
    if waits or applicant.form == "call":
        outcomes = _process(engine, settings, applicant, rows)
        if outcomes.num_rows == 0:
            return
        yield from _as_declared(outcomes, rows.schema).to_batches(max_chunksize=OUTPUT_ROWS)
        return
    events = rows.select(needed_columns(plan, settings.order_by, rows.column_names, settings.requests))
    outcomes = _process(engine, settings, applicant, events)
    if not pieces or outcomes.num_rows < rows.num_rows:  # no events, or their outcomes are no longer kept
        return
    for name in OUTCOME_COLUMNS:
        rows = rows.append_column(name, outcomes[name])
    yield from rows.to_batches(max_chunksize=OUTPUT_ROWS)


def _as_declared(outcomes: pa.Table, declared: pa.Schema) -> pa.Table:
    """The columns and types that Spark expects: events that waited may have arrived with different ones."""
    outcomes = outcomes.select([*declared.names, *OUTCOME_COLUMNS])
    for position, field in enumerate(declared):
        column = outcomes.column(position)
        if column.type == field.type or pa.types.is_null(field.type):
            continue
        try:
            outcomes = outcomes.set_column(position, field.name, column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InputError(
                f"events: column {field.name!r} has type {field.type} now, and an event that has waited for its atomic "
                f"batch holds a value in it that does not fit ({error}). The batch is committed; only its outcomes "
                "cannot be given. Start the query with the type that the column had, until the event has left"
            ) from error
    return outcomes


def _engine(settings: TaskSettings) -> VersionedEngine:
    """The warm engine of this worker for this state and program, or a new one."""
    key = (
        settings.path,
        settings.digest,
        settings.keep_versions,
        settings.log,
        settings.strategy,
        settings.on_error,
    )
    engine = _engines.pop(key, None)
    if engine is None:
        for other in [other for other in _engines if other[0] == settings.path]:
            del _engines[other]  # never keep the rows of a state twice, for two programs or settings
        while len(_engines) >= ENGINES_MAX:
            _engines.popitem(last=False)
        engine = VersionedEngine(
            unpack(settings.payload),
            settings.path,
            keep_versions=settings.keep_versions,
            strategy=settings.strategy,
            log=settings.log,
            on_error=settings.on_error,
        )
    _engines[key] = engine
    return engine


def _applicant(settings: TaskSettings) -> Applicant:
    """The applicant that this task runs for, and the number of its batch."""
    context = TaskContext.get()
    query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
    batch = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    known = query is not None and batch is not None
    planned = (settings.planned_state, settings.planned_version)
    if settings.batch_name is None or (settings.in_stream and not known):
        if query is None or batch is None:
            raise InputError(
                "transact: this task of a stream does not know its micro-batch, so that a repetition of it could not "
                "be told from a new one. In foreachBatch, run actions in the thread in which Spark calls your "
                "function, or in a pyspark.InheritableThread. Over Spark Connect, foreachBatch never knows: apply "
                "transact to the stream itself, before writeStream."
            )
        return stream_applicant(query, int(batch), *planned)
    if query is None or batch is None:
        return once_applicant(settings.batch_name, *planned)
    if not settings.in_stream:
        raise InputError(
            "transact: inside foreachBatch it must be applied to the DataFrame that Spark hands to your function, or "
            "to one made from it; this one belongs to another session, and a repetition of the micro-batch could not "
            "be told from a new one. To join it with another DataFrame, start from Spark's: df.join(other)."
        )
    return call_applicant(query, int(batch), settings.call, *planned)


def in_source_order(rows: pa.Table) -> pa.Table:
    """Rows in the source's order, partition after partition, without copying."""
    partitions = rows[PARTITION_COLUMN].to_numpy()
    rows = rows.drop_columns([PARTITION_COLUMN])
    changes = np.flatnonzero(np.diff(partitions)) + 1
    starts, ends = np.append(0, changes), np.append(changes, len(partitions))
    order = np.argsort(partitions[starts], kind="stable")
    if np.array_equal(order, np.arange(len(order))):
        return rows
    return pa.concat_tables(rows.slice(starts[run], ends[run] - starts[run]) for run in order)


def _process(engine: VersionedEngine, settings: TaskSettings, applicant: Applicant, events: pa.Table) -> pa.Table:
    """Run the batch as soon as this query owns the state."""
    with task_workers(settings.workers, settings.executor_cores) as workers:
        engine.use_workers(workers)
        return _process_when_owned(engine, settings, applicant, events)


def _process_when_owned(
    engine: VersionedEngine, settings: TaskSettings, applicant: Applicant, events: pa.Table
) -> pa.Table:
    owner = None if applicant.form == "once" else replace(settings.owner, query=applicant.query)
    if owner is not None:
        ownership.stay_alive(open_storage(settings.path), owner.token)
    deadline = time.monotonic() + OWNER_WAIT_SECONDS
    while True:
        try:
            outcomes = engine.process(
                applicant,
                events,
                order_by=settings.order_by if events.num_rows else None,
                late=settings.late,
                owner=owner,
                requests=settings.requests,
            )
            return encoded(engine.program.plan, outcomes)
        except StateOwned:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
