"""`transact`: a program of transactions as one DataFrame transformation.

    events ── observe ── (its partition, if nothing orders it) ── repartition(1) ── mapInArrow(task) ── outcomes
    parallel, any source                                          one task          one micro-batch

Everything before the shuffle and after the outcomes runs in parallel: `repartition(1)` moves rows, and does not pull
the work before it into one task as `coalesce(1)` would. The task itself is in `task`; nothing here runs an event.

The call links the program, checks columns and stored tables against it, and that it can run events that the state may
hold instead of rows; fills an empty state from `initial`; and packs the program for the workers. All structural
mistakes are raised here. No JVM object is touched, so a Spark Connect session works as well. The calling process must
reach the state's path, as the workers must.

A stream's events are counted by `observe` for two reasons. An observed plan is not optimised away when a micro-batch
has no rows, so the task runs for every micro-batch, and the state knows each of them. And Spark refuses two
observations of one name in one plan, so a plan that would use a state twice is refused: the order in which its two
places apply their events would be undefined.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from tidegate.api.table import layout_of
from tidegate.api.transaction import ProgramPart
from tidegate.compiler.program import build_program
from tidegate.durability import ownership
from tidegate.durability.evolution import require_fit, require_no_renaming
from tidegate.durability.fingerprint import fingerprint, require_repeatable
from tidegate.durability.version_info import Owner, VersionInfo
from tidegate.durability.version_log import Log
from tidegate.durability.versioned import Late, VersionedEngine
from tidegate.durability.versions import VersionStore, check_keep_versions
from tidegate.foundation.errors import InputError
from tidegate.foundation.storage import open_storage
from tidegate.operations.decision import Strategy, check_strategy
from tidegate.operations.plan import Program
from tidegate.spark.columns import PARTITION_COLUMN, check_events, output_schema
from tidegate.spark.known_programs import remember
from tidegate.spark.payload import digest, pack
from tidegate.spark.release import watch
from tidegate.spark.task import TaskSettings, make_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STREAM_SETTINGS = ("spark.sql.cbo.enabled", "spark.sql.requireAllClusterKeysForDistribution")
"""What Spark turns off in the session of a stream, and users have no reason to."""

_CALLS = "_tidegate_calls"
"""The attribute of a session that counts its calls of `transact`, by state."""


def transact(
    events: DataFrame,
    transactions: Sequence[ProgramPart] | ProgramPart,
    *,
    state: str | os.PathLike[str],
    order_by: str | None = None,
    late: Late = "run",
    initial: Mapping[type, DataFrame | pa.Table] | None = None,
    keep_versions: int = 100,
    requests: str | None = None,
    log: Log = "changes",
    strategy: Strategy = "adaptive",
) -> DataFrame:
    """Run transactions over events, in order, exactly once, on state that lasts.

    Args:
        events: a streaming or batch DataFrame; it needs the columns that the transactions' signatures
            name, and `transaction` (which one to run) when there are several.
        transactions: functions declared with `@tg.transaction`, and dataflow graphs (`tg.dataflow`): the column
            `transaction` of an event names a border stream or a plain transaction.
        state: the state folder: a folder, or any URL that fsspec reaches. One running query at
            a time may use it, and once in its plan. A state knows the queries that it has served and up to which batch:
            one that it cannot go on with, because the state was deleted or exchanged, is refused (`StateDiverged`).
        order_by: the column that orders the events of a batch. Ties keep the order that they have in their
            partition of the source; without it the source's order is the order, partition by partition.
        late: what becomes of an event with a smaller `order_by` than one of an earlier batch: "run" it in
            the batch in which it arrives, or "refuse" it with the reason "late event".
        initial: rows that fill tables before the first batch: {Account: dataframe}, or an Arrow table. Used
            once, when there is no state at the path yet.
        keep_versions: how many of the newest batches `read_state` can go back to; as long at least, the tuples of
            output streams and the outcomes of requests are kept.
        requests: the column of events that are somebody's request, with an id (a string or a whole number) that is
            null for all others. Their outcomes are kept with the state, and `await_outcome` finds them by id.
        log: what a version keeps of its batch. "changes": the rows that it changed; any program whose tables fit, and
            every tool, can read them. "commands": the events that it ran, which are run again when the state is opened;
            less is written where an event is smaller than the rows that it changes, but only this program can read
            them (`read_state(..., transactions=...)`), and tools cannot. Transactions declared `compiled=False` are
            refused. It may differ from one start of a query to the next. To change the program, run one batch with the
            old one and "changes" first, which keeps the whole state.
        strategy: how a batch is scheduled on the task's processors (`spark.task.cpus`), as for `tg.Engine`. No strategy
            changes answers but "unsafe-nolock", which is refused here.

    Returns:
        The events' columns with `committed`, `reason` (null when committed) and `result`. In batch use
        the DataFrame is one batch, applied once however many actions run on it. In a foreachBatch, each call of
        `transact` is applied once for each micro-batch: call it in the thread in which Spark calls your function, in
        the same order each time.
    """
    program = build_program(transactions)
    check_strategy(strategy, lasting=True)
    path = _check_arguments(state, late, keep_versions, log, order_by=order_by, requests=requests)
    if log == "commands":
        require_repeatable(program, "transact")
    check_events(events.schema, program.plan, order_by, requests)
    in_stream = not events.isStreaming and _is_of_stream(events.sparkSession)
    call = _count_call(events.sparkSession, path) if in_stream else 0
    newest = _prepared(program, path, initial or {}, keep_versions)
    remember(path, program)
    watch(events, path)
    payload = pack(program)
    settings = TaskSettings(
        payload=payload,
        digest=digest(payload),
        path=path,
        columns=tuple(events.columns),
        order_by=order_by,
        late=late,
        keep_versions=keep_versions,
        owner=Owner("", _app_name(events.sparkSession), ownership.process_token()),
        batch_name=None if events.isStreaming else str(uuid.uuid4()),
        call=call,
        in_stream=in_stream,
        planned_state="" if newest is None else newest.state,
        planned_version=0 if newest is None else newest.version,
        requests=requests,
        log=log,
        strategy=strategy,
    )
    marked = _marked(events, path, order_by)
    return marked.repartition(1).mapInArrow(make_task(settings), output_schema(events.schema, program.plan))


def _prepared(program: Program, path: str, initial: Mapping[type, Any], keep_versions: int) -> VersionInfo | None:
    """The newest version of the state, which fits the program; an empty one is filled from `initial` first."""
    store = VersionStore(open_storage(path))
    newest = store.newest()
    if newest is not None:
        require_fit(path, newest.layouts, program.plan.tables)
        require_no_renaming(path, newest.layouts, program.plan.tables)
        store.require_program(newest, fingerprint(program))
    first_rows = _first_rows(program, initial)
    if newest is not None or not first_rows:
        return newest
    loaded = {name: _collected(name, rows) for name, rows in first_rows.items()}
    VersionedEngine(program, path, keep_versions=keep_versions).initialise(loaded)
    store.refresh()
    return store.newest()


def _marked(events: DataFrame, path: str, order_by: str | None) -> DataFrame:
    """The events, with what the task must know of where they come from; those of a stream are observed."""
    # With `order_by` the partitions need not be told apart: between them a source has no order of its own.
    marked = events.withColumn(PARTITION_COLUMN, F.spark_partition_id()) if order_by is None else events
    if not events.isStreaming:
        return marked
    ownership.stay_alive(open_storage(path), ownership.process_token())
    return _observed(marked, path)


def _observed(events: DataFrame, path: str) -> DataFrame:
    """The events, counted under a name that a plan can hold once."""
    count = F.count(F.lit(1)).alias("events")
    try:
        # A select makes another DataFrame of it: Spark takes observations of one and the same for one observation.
        observed = events.select("*").observe(f"transact(state={path!r}): a plan can use a state once", count)
        _ = observed.schema
    except AnalysisException as error:
        if error.getCondition() != "DUPLICATED_METRICS_NAME":
            raise
        raise InputError(
            f"transact: the events come from a plan that uses the state at {path} already, and a state is used once in "
            "a plan. Let one transaction do both steps, connect two by a stream (tg.dataflow), or use another state."
        ) from error
    return observed


def _is_of_stream(session: SparkSession) -> bool:
    """Whether Spark made a session for a streaming query: that of the DataFrame in a foreachBatch.

    Tasks cannot tell: the settings that a task sees are those of its session on top of those of the thread that started
    it, which in a foreachBatch is the stream's.
    """
    return all(session.conf.get(name, None) == "false" for name in _STREAM_SETTINGS)


def _count_call(session: SparkSession, path: str) -> int:
    """The number of this call of `transact` on a state by the user's function in a foreachBatch, from 0.

    Spark makes a session object for each call of the function, so they are counted there.
    """
    calls: dict[str, tuple[int, int]] = session.__dict__.setdefault(_CALLS, {})
    thread = threading.get_ident()
    first, count = calls.get(path, (thread, 0))
    if first != thread:
        raise InputError(
            f"transact: a foreachBatch called it from two threads on the state at {path}. Should the micro-batch be "
            "repeated, nothing would say which of the calls is which: call transact in one thread, the one in which "
            "Spark calls your function. Actions on what it returns may run in a pyspark.InheritableThread."
        )
    calls[path] = (first, count + 1)
    return count


def _app_name(session: SparkSession) -> str:
    return session.conf.get("spark.app.name", "") or "Spark"


def _check_arguments(
    state: str | os.PathLike[str], late: object, keep_versions: object, log: object, **columns: object
) -> str:
    """The state's path as workers understand it; raises InputError for an argument that cannot be."""
    check_keep_versions(keep_versions)
    if late not in get_args(Late):
        raise InputError(f'transact: late must be "run" or "refuse", got {late!r}')
    if log not in get_args(Log):
        raise InputError(f'transact: log must be "changes" or "commands", got {log!r}')
    for argument, column in columns.items():
        if column is not None and not isinstance(column, str):
            raise InputError(f"transact: {argument} must be the name of a column, got {column!r}")
    given = os.fspath(state)
    if not given or not isinstance(given, str):
        raise InputError(f'transact: state must be a path such as "state/ledger", got {given!r}')
    if given.startswith("memory:"):
        raise InputError(
            f"transact: state={given!r} lives in the memory of one process, and Spark's workers are others. "
            "Use a folder or a shared file system; for an engine in this process use tg.Engine."
        )
    return open_storage(given).path


def _first_rows(program: Program, initial: Mapping[type, Any]) -> dict[str, Any]:
    """What `initial` has for each table, by the table's name."""
    names = {layout.name for layout in program.plan.tables}
    tables: dict[str, Any] = {}
    for table, rows in initial.items():
        layout = layout_of(table)
        if layout is None or layout.name not in names:
            raise InputError(
                f"transact: initial has rows for {getattr(table, '__name__', table)!r}, which is no table of "
                f"the program; its tables are {', '.join(sorted(names))}"
            )
        tables[layout.name] = rows
    return tables


def _collected(name: str, rows: Any) -> pa.Table:
    if isinstance(rows, pa.Table):
        return rows
    if getattr(rows, "isStreaming", True):
        raise InputError(
            f"transact: initial rows of {name} must be a batch DataFrame, got "
            f"{'a stream' if hasattr(rows, 'isStreaming') else type(rows).__name__}"
        )
    return rows.toArrow()
