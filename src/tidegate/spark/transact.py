"""`transact`: a program of transactions as one DataFrame transformation.

    events ── observe ── (its partition, if nothing orders it) ── repartition(1) ── mapInArrow(task) ── outcomes
    parallel, any source                                          one task          one micro-batch

Everything before the shuffle and after the outcomes runs in parallel: `repartition(1)` moves rows, and does not pull
the work before it into one task as `coalesce(1)` would. The task itself is in `task`; nothing here runs an event.

The call links the program and checks the columns and the stored tables against it. If the state holds events instead
of rows, it checks that this program can run them. Then it fills an empty state from `initial`, and packs the program
for the workers. All structural mistakes are raised here. No JVM object is used, so a Spark Connect session works as
well. The calling process and the workers must be able to reach the state's path.

A stream's events are counted by `observe` for two reasons. An observed plan is not optimised away when a micro-batch
has no rows, so the task runs for every micro-batch, and the state records each of them. And Spark refuses two
observations of one name in one plan, so a plan that would use a state twice is refused: it would be undefined which
of the two uses applies its events first.
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
from tidegate.durability.evolution import require_fit, require_no_renaming, require_none_dropped
from tidegate.durability.fingerprint import fingerprint, require_repeatable
from tidegate.durability.result_types import warn_of_change
from tidegate.durability.version_info import Owner, VersionInfo
from tidegate.durability.version_log import Log
from tidegate.durability.versioned import Late, VersionedEngine
from tidegate.durability.versions import VersionStore, check_keep_versions
from tidegate.engine.faults import OnError
from tidegate.foundation.arguments import one_of, path, shown, whole
from tidegate.foundation.arrow_tables import RowData, as_table
from tidegate.foundation.errors import InputError
from tidegate.foundation.storage import open_storage
from tidegate.foundation.tracebacks import briefly
from tidegate.operations.decision import Strategy, check_strategy
from tidegate.operations.plan import Program, ResultForm
from tidegate.spark.batches import observation
from tidegate.spark.columns import PARTITION_COLUMN, check_events, output_schema
from tidegate.spark.cores import executor_cores
from tidegate.spark.known_programs import remember
from tidegate.spark.payload import digest, pack
from tidegate.spark.release import watch
from tidegate.spark.task import TaskSettings, make_task
from tidegate.spark.worker_python import require_worker_python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STREAM_SETTINGS = ("spark.sql.cbo.enabled", "spark.sql.requireAllClusterKeysForDistribution")
"""Settings that Spark turns off in the session of a stream, and that users have no reason to turn off."""

_CALLS = "_tidegate_calls"
"""The attribute of a session that counts its calls of `transact`, by state."""


@briefly
def transact(
    events: DataFrame,
    transactions: Sequence[ProgramPart] | ProgramPart,
    *,
    state: str | os.PathLike[str],
    order_by: str | None = None,
    late: Late = "run",
    initial: Mapping[type, DataFrame | RowData] | None = None,
    keep_versions: int = 100,
    requests: str | None = None,
    log: Log = "changes",
    strategy: Strategy = "adaptive",
    workers: int | None = None,
    on_error: OnError = "abort",
    result: ResultForm = "auto",
) -> DataFrame:
    """Run transactions over events, in order, exactly once, on state that lasts.

    Args:
        events: a streaming or batch DataFrame; it needs the columns that the transactions' signatures
            name, and `transaction` (which one to run) when there are several.
        transactions: functions declared with `@tg.transaction`, and dataflow graphs (`tg.dataflow`): the column
            `transaction` of an event names a border stream or a plain transaction.
        state: the state folder: a folder, or any URL that fsspec reaches. Only one running query at a time may use
            it, and only once in its plan. A state records which queries it has served, and up to which batch: a query
            that cannot continue on it, because the state was deleted or replaced, is refused (`StateDiverged`).
        order_by: the column that orders the events of a batch. Ties keep the order that they have in their
            partition of the source; without `order_by`, events run in the source's order, partition by partition.
        late: what to do with an event whose `order_by` is smaller than one of an earlier batch: "run" it in
            the batch in which it arrives, or "refuse" it with the reason "late event".
        initial: rows that fill tables before the first batch: {Account: rows}, a DataFrame of Spark or pandas, an
            Arrow table or a list of dicts. Used once, when there is no state at the path yet.
        keep_versions: how many of the newest batches `read_state` can go back to; the tuples of output streams and the
            outcomes of requests are kept for at least as many.
        requests: the column that holds the id (a string or a whole number) of an event that is a request; it is null
            for all other events. Outcomes of requests are kept with the state, and `await_outcome` finds them by id.
        log: what a version stores of its batch. "changes": the rows that it changed; any program whose tables fit, and
            every tool, can read them. "commands": the events that it ran, which are run again when the state is opened.
            That writes less if an event is smaller than the rows that it changes, but only this program can read
            them (`read_state(..., transactions=...)`), and tools cannot. Transactions declared `compiled=False` are
            refused. The setting may change when a query is restarted. Before you change the program, run one batch with
            the old one and "changes", which stores the whole state.
        strategy: how a batch is scheduled on the task's workers, as for `tg.Engine`. No strategy changes answers but
            "unsafe-nolock", which is refused here.
        workers: threads for the transactions of a batch. By default the cores of the executor (`local[N]`,
            `spark.executor.cores`): Spark leaves them idle while the one task of this stage runs. Queries on one
            executor share them. Give 1 if other jobs of your application need the cores.
        on_error: what an exception in a transaction declared `compiled=False` does, as for `tg.Engine`. "abort": its
            event aborts; the worker logs the first of each kind. "raise": the query fails, nothing of the micro-batch
            is committed, and the query goes on with it when it is started again with a corrected function.
        result: the form of the column `result`, as for `tg.Engine`. With "auto", a new transaction may change its type,
            which is warned of; "struct" and "json" keep earlier output readable.

    Returns:
        The events' columns with `committed`, `reason` (null when committed) and `result`. In batch use
        the DataFrame is one batch, applied once however many actions run on it. In a foreachBatch, each call of
        `transact` is applied once per micro-batch: make the calls in the thread in which Spark calls your function,
        in the same order each time.
    """
    program = build_program(transactions, result)
    check_strategy(strategy, lasting=True)
    one_of("on_error", on_error, get_args(OnError))
    folder = _check_arguments(state, late, keep_versions, log, workers, order_by=order_by, requests=requests)
    if log == "commands":
        require_repeatable(program, "transact")
    _require_spark_frame(events)
    check_events(events.schema, program.plan, order_by, requests)
    require_worker_python(events.sparkSession)
    newest = _prepared(program, folder, initial, keep_versions)
    remember(folder, program)
    watch(events, folder)
    reading = {"order_by": order_by, "late": late, "requests": requests}
    keeping = {"log": log, "keep_versions": keep_versions}
    running = {"strategy": strategy, "workers": workers, "on_error": on_error}
    settings = _task_settings(events, program, folder, newest, **reading, **keeping, **running)
    marked = _marked(events, folder, order_by)
    return marked.repartition(1).mapInArrow(make_task(settings), output_schema(events.schema, program.plan))


def _task_settings(
    events: DataFrame, program: Program, path: str, newest: VersionInfo | None, **options: Any
) -> TaskSettings:
    """What the task needs to know: the program, packed; whose events it runs; and `options`, as `transact` got them."""
    session = events.sparkSession
    in_stream = not events.isStreaming and _is_of_stream(session)
    payload = pack(program)
    return TaskSettings(
        payload=payload,
        digest=digest(payload),
        path=path,
        columns=tuple(events.columns),
        owner=Owner("", _app_name(session), ownership.process_token()),
        batch_name=None if events.isStreaming else str(uuid.uuid4()),
        call=_count_call(session, path) if in_stream else 0,
        in_stream=in_stream,
        planned_state="" if newest is None else newest.state,
        planned_version=0 if newest is None else newest.version,
        executor_cores=executor_cores(session),
        **options,
    )


def _require_spark_frame(events: Any) -> None:
    if not hasattr(events, "sparkSession") or not hasattr(events, "isStreaming"):
        raise InputError(
            f"transact: required a Spark DataFrame of events, got {shown(events)}; make one with "
            "spark.createDataFrame(...), or run the events without Spark: tg.Engine(...).run(events)"
        )


def _prepared(program: Program, path: str, initial: Any, keep_versions: int) -> VersionInfo | None:
    """The newest version of the state, checked against the program; an empty state is first filled from `initial`."""
    store = VersionStore(open_storage(path))
    newest = store.newest()
    if newest is not None:
        require_fit(path, newest.layouts, program.plan.tables, path)
        require_no_renaming(path, newest.layouts, program.plan.tables)
        require_none_dropped(path, newest.dropped, program.plan.tables)
        store.require_program(newest, fingerprint(program))
        warn_of_change(path, newest, program.plan)
    first_rows = _first_rows(program, initial)
    if newest is not None or not first_rows:
        return newest
    loaded = {name: _collected(name, rows) for name, rows in first_rows.items()}
    VersionedEngine(program, path, keep_versions=keep_versions).initialise(loaded)
    store.refresh()
    return store.newest()


def _marked(events: DataFrame, path: str, order_by: str | None) -> DataFrame:
    """The events, with their partition if the task needs it; the events of a stream are observed."""
    # With `order_by` the task needs no partition numbers: a source has no order between its partitions.
    marked = events.withColumn(PARTITION_COLUMN, F.spark_partition_id()) if order_by is None else events
    if not events.isStreaming:
        return marked
    ownership.stay_alive(open_storage(path), ownership.process_token())
    return _observed(marked, path)


def _observed(events: DataFrame, path: str) -> DataFrame:
    """The events, counted under a name that can occur only once in a plan."""
    count = F.count(F.lit(1)).alias("events")
    try:
        # The select makes a new DataFrame: Spark merges equal observations of the same DataFrame into one.
        observed = events.select("*").observe(observation(path), count)
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
    """Whether Spark made a session for a streaming query, as for the DataFrame in a foreachBatch.

    Tasks cannot find out: a task sees the settings of its session on top of those of the thread that started it, and
    in a foreachBatch that thread is the stream's.
    """
    return all(session.conf.get(name, None) == "false" for name in _STREAM_SETTINGS)


def _count_call(session: SparkSession, path: str) -> int:
    """The number of this call of `transact` on a state within one call of the foreachBatch function, from 0.

    Spark makes a new session object for each call of the function, so the counter is kept there.
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
    state: str | os.PathLike[str],
    late: object,
    keep_versions: object,
    log: object,
    workers: object,
    **columns: object,
) -> str:
    """The state's path as workers understand it; raises InputError for an invalid argument."""
    check_keep_versions(keep_versions)
    if workers is not None:
        whole("workers", workers)
    if not isinstance(late, str) or late not in get_args(Late):
        raise InputError(f'transact: late must be "run" or "refuse", got {shown(late)}')
    if late == "refuse" and columns.get("order_by") is None:
        raise InputError(
            'transact: late="refuse" needs order_by="column": without it no event is late, because events run in the '
            "order of their source; give order_by, or leave late out"
        )
    if not isinstance(log, str) or log not in get_args(Log):
        raise InputError(f'transact: log must be "changes" or "commands", got {shown(log)}')
    for argument, column in columns.items():
        if column is not None and not isinstance(column, str):
            raise InputError(f"transact: {argument} must be the name of a column, got {shown(column)}")
    given = path("transact: state", state, InputError)
    if given.startswith("memory:"):
        raise InputError(
            f"transact: state={given!r} lives in the memory of one process, and Spark's workers are others. "
            "Use a folder or a shared file system; for an engine in this process use tg.Engine."
        )
    return open_storage(given).path


def _first_rows(program: Program, initial: Any) -> dict[str, Any]:
    """The rows of `initial`, by table name."""
    if initial is None:
        return {}
    if not isinstance(initial, Mapping):
        raise InputError(f"transact: initial: required rows by table, {{Account: rows}}, got {shown(initial)}")
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
    if not hasattr(rows, "isStreaming"):
        return as_table(f"transact: initial rows of {name}", rows)
    if rows.isStreaming:
        raise InputError(f"transact: initial rows of {name} must be a batch DataFrame, got a stream")
    return rows.toArrow()
