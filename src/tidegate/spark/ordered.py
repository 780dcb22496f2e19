"""`ordered`: an ordered pipeline as one DataFrame transformation, each partition by itself.

    rows ── the columns of the record ── mapInArrow(task) ── the pipeline's output
    parallel, any source                 one task for each partition, several threads in it

A task reads its partition in record batches, feeds them to the pipeline's workers, and gives the output in batches as
it comes, so it never holds more than a few batches. Only `order_by` makes it read the whole partition first, to sort
it. The states of operators live as long as the task: for one partition of one job, or of one micro-batch. What must
last longer belongs into transactions (`transact`), or into Spark's own stateful operators.

The driver compiles the pipeline when it is declared, and warns there of functions that run as plain Python. Workers get
the generated text, with the user's functions and classes by value (`payload`), and keep what they unpacked.
"""

from __future__ import annotations

import itertools
import pickle
import traceback
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidegate.engine.arrival import arrange
from tidegate.foundation.arguments import shown
from tidegate.foundation.errors import InputError, TidegateError
from tidegate.foundation.tracebacks import briefly, shortened
from tidegate.ordering.flow import Mode, Partitioning, Reorder
from tidegate.ordering.graph import Node
from tidegate.ordering.heuristics import Heuristic
from tidegate.ordering.pipeline import Pipeline, nodes_of
from tidegate.ordering.running import Settings, run_batches
from tidegate.spark.columns import check_records, spark_type
from tidegate.spark.cores import executor_cores, task_workers
from tidegate.spark.payload import digest, pack_by_value, unpack
from tidegate.spark.task import shipped, users_part
from tidegate.spark.worker_python import require_worker_python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PIPELINES_MAX = 8
"""The most pipelines that one worker keeps unpacked; beyond this the least recently used one is dropped."""

SORTED_ROWS = 1 << 14
"""Rows of the pieces in which a sorted partition goes into the pipeline."""

_pipelines: OrderedDict[str, tuple[list[Node], Settings]] = OrderedDict()


@dataclass(frozen=True, slots=True)
class _Stage:
    """What the task needs to know: the pipeline and its settings, packed, and how partitions are run."""

    payload: bytes
    digest: str
    order_by: str | None
    executor_cores: int


@briefly
def ordered(
    dataframe: DataFrame,
    pipeline: Pipeline,
    order_by: str | None = None,
    workers: int | None = None,
    heuristic: Heuristic = "current-throughput",
    *,
    reorder: Reorder = "non-blocking",
    partitioning: Partitioning = "hybrid",
    mode: Mode = "workers",
    capacity: int = 1024,
) -> DataFrame:
    """Run an ordered pipeline over each partition of a DataFrame, with several threads in each task.

    The output of a partition is what `pipeline.run` gives for its rows. States begin anew in every partition of every
    job, and in a stream in every partition of every micro-batch: nothing is kept from one to the next. To have all
    rows of a key in one state, bring them into one partition first: `dataframe.repartition("user")`.

    Args:
        dataframe: a streaming or batch DataFrame with a column for each field of the pipeline's records. Other columns
            are left out.
        pipeline: made with `tidegate.ordering.pipeline`.
        order_by: a column by which the rows of a partition are sorted first, rows with equal values as they came. The
            task then holds its whole partition in memory. None: rows run in the order of their partition, in pieces.
        workers: threads of each task. By default the cores of the executor (`local[N]`, `spark.executor.cores`),
            divided by its tasks of this kind that run at the same time.
        heuristic: as for `pipeline.run`, like all other options.
        reorder: as for `pipeline.run`.
        partitioning: as for `pipeline.run`.
        mode: as for `pipeline.run`.
        capacity: as for `pipeline.run`.

    Returns:
        The output of the pipeline, with the columns of `pipeline.schema`. A record whose function raises ends the job
        with `OperatorFailed`.

    >>> sessions = ordered(clicks.repartition("user"), pipeline, order_by="ts")  # doctest: +SKIP
    """
    if not hasattr(dataframe, "sparkSession") or not hasattr(dataframe, "mapInArrow"):
        raise InputError(
            f"ordered: required a Spark DataFrame, got {shown(dataframe)}; make one with spark.createDataFrame(...), "
            "or run the records without Spark: pipeline.run(records)"
        )
    if not isinstance(pipeline, Pipeline):
        raise InputError(
            f"ordered: required a pipeline, got {shown(pipeline)}; make one with tidegate.ordering.pipeline(...)"
        )
    if order_by is not None and not isinstance(order_by, str):
        raise InputError(f"ordered: order_by must be the name of a column, got {shown(order_by)}")
    nodes = nodes_of(pipeline)
    settings = Settings(workers, heuristic, reorder, partitioning, mode, capacity)
    settings.options(nodes)
    record = nodes[0].takes
    check_records(dataframe.schema, record, order_by)
    session = dataframe.sparkSession
    require_worker_python(session, "ordered")
    payload = _packed(nodes, settings)
    stage = _Stage(payload, digest(payload), order_by, executor_cores(session))
    names = dict.fromkeys([column.name for column in record.fields] + ([] if order_by is None else [order_by]))
    needed = dataframe.select(*(F.col(f"`{name.replace('`', '``')}`") for name in names))
    gives = [T.StructField(each.name, spark_type(each.type), each.nullable) for each in pipeline.schema]
    return needed.mapInArrow(shipped("ordered", __name__, pickle.dumps(stage)), T.StructType(gives))


def _packed(nodes: list[Node], settings: Settings) -> bytes:
    """The pipeline for workers: without what its code took over from outside, which was compared here and now."""
    operators = [node.operator for node in nodes if node.operator is not None]
    users = [(found.function, found.key, found.state, found.gives.python) for found in operators]
    named = f"the pipeline ({', '.join(found.name for found in operators)})"
    value = ([_portable(node) for node in nodes], settings)
    return pack_by_value(value, (users, nodes[0].takes.python, settings.heuristic), named, "An operator")


def _portable(node: Node) -> Node:
    operator = node.operator
    if operator is None:
        return node
    plan = None if operator.plan is None else replace(operator.plan, outside=())
    return replace(node, operator=replace(operator, plan=plan, selector=None))


# --- in a worker ------------------------------------------------------------------------------------------------------


def run_packed(packed: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run one partition. An error of ours leaves with its message, and the lines of the user that raised.

    Those are a note of it: Spark leaves out the error that caused an error.
    """
    try:
        yield from _run(pickle.loads(packed), batches)
    except TidegateError as error:
        told = shortened(error)
        if (cause := users_part(told)) is not None:
            told.add_note("".join(traceback.format_exception(cause)))
        raise told from None


def _run(stage: _Stage, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if stage.order_by is not None:
        batches = _sorted(stage.order_by, batches)
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return
    nodes, settings = _pipeline(stage)
    with task_workers(settings.workers, stage.executor_cores) as workers:
        for table in run_batches(nodes, itertools.chain([first], batches), replace(settings, workers=workers)):
            yield from table.to_batches()


def _sorted(order_by: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of a partition by a column, equal ones as they came."""
    pieces = [batch for batch in batches if batch.num_rows]
    if not pieces:
        return
    rows = pa.Table.from_batches(pieces)
    arrival = arrange(rows, order_by)
    for reason, refused in arrival.refused.items():
        if refused.any():
            raise InputError(f"ordered: {reason}: such a row has no place in the order; fill the column, or drop it")
    yield from rows.take(pa.array(arrival.order)).to_batches(max_chunksize=SORTED_ROWS)


def _pipeline(stage: _Stage) -> tuple[list[Node], Settings]:
    """The pipeline, as this worker unpacked it at first."""
    found: Any = _pipelines.pop(stage.digest, None)
    if found is None:
        found = unpack(stage.payload)
        while len(_pipelines) >= PIPELINES_MAX:
            _pipelines.popitem(last=False)
    _pipelines[stage.digest] = found
    return found  # type: ignore[no-any-return]
