"""What every micro-batch did, where Spark users look: as a DataFrame, and in the driver's log.

A worker runs the batch; its facts are in the header of the version that it made (`durability.batch_facts`), so the
driver reads them there, also after a restart and from another process. Rejected: observed metrics on the outcomes,
which stand in the query's progress, because an observation costs each row as much as the rest of the way to Python.

`transact` listens to the progress of its queries, and logs one line for each micro-batch at INFO:

    import logging
    logging.basicConfig(level=logging.INFO)
    ...
    INFO:tidegate.spark.batches:state/ledger: version 8, batch 5 of 7c0e...: 1000 events, 990 committed, aborted: ...

And it warns where a query that is new to a state goes on behind another one: where a checkpoint was deleted and the
state kept, the source is read from the beginning, and its events are applied again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidegate.durability.batch_facts import batches_of, describe
from tidegate.durability.version_info import VersionInfo
from tidegate.durability.versions import VersionStore
from tidegate.foundation.arguments import path as folder
from tidegate.foundation.errors import InputError
from tidegate.foundation.storage import open_storage
from tidegate.foundation.tracebacks import briefly
from tidegate.spark.state_reader import require_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress

_SCHEMA = """version long, query string, batch long, committed_at timestamp, events long, committed long,
    aborted map<string, long>, aborted_inside map<string, long>, strategy string, why string, workers int,
    interpreted long, seconds map<string, double>, bytes long"""

_log = logging.getLogger(__name__)


@briefly
def read_batches(spark: SparkSession, path: str | os.PathLike[str]) -> DataFrame:
    """The batches of a state, one row for each version that is kept, oldest first.

    The columns: `version`, `query` and `batch` that made it, `committed_at`, `events`, `committed`, `aborted` (events
    by reason), `aborted_inside` (steps inside dataflow graphs, by transaction and reason), `strategy` and `why` it was
    chosen, `workers`, `interpreted` (events that plain Python ran), `seconds` by phase, and the `bytes` of its file.
    Of many reasons the ten most frequent are kept. Versions that no batch made have no strategy.

    Args:
        spark: the session that makes the DataFrame.
        path: the state folder: the `state` of `transact`, or the `directory` of a `tg.Engine`.

    >>> slow = read_batches(spark, "state/ledger").where("seconds['execute'] > 1")  # doctest: +SKIP
    """
    require_session(spark, "read_batches")
    place = folder("read_batches: path", path, InputError)
    rows = batches_of(place)
    if not rows:
        raise InputError(
            f"read_batches: there is no state at {open_storage(place).path}: no batch was committed there yet, or the "
            "path is another one than transact(..., state=...) got."
        )
    return spark.createDataFrame([tuple(row.values()) for row in rows], _SCHEMA)


def observation(path: str) -> str:
    """The name under which a plan observes the events of a state: Spark refuses two of one name in a plan."""
    return f"transact(state={path!r}): a plan can use a state once"


def log_batch(paths: Iterable[str], progress: StreamingQueryProgress) -> None:
    """Log what a micro-batch did to the states that its query uses; never an error."""
    first = int(progress.batchId) == 0
    if not first and not _log.isEnabledFor(logging.INFO):
        return
    try:
        for path in paths:
            if observation(path) in progress.observedMetrics:
                store = VersionStore(open_storage(path))
                found = store.find(str(progress.id), int(progress.batchId))
                if found is not None:
                    _log.info("%s: %s", path, describe(found))
                    if first and found.base:
                        _warn_of_new_query(path, found, store.info(found.base))
    except Exception:  # the batch is committed, whatever can be said of it
        _log.debug("a batch could not be described", exc_info=True)


def _warn_of_new_query(path: str, first: VersionInfo, below: VersionInfo) -> None:
    """Warn where the first batch of a query follows one of another stream: perhaps a checkpoint was deleted."""
    if below.owner is None or below.query == first.query:
        return
    _log.warning(
        "%s: query %s is new to this state, which has served query %s until now. It starts at the beginning of its "
        "source: if that is what the other one had read, because its checkpoint was deleted or has another path, the "
        "events are applied a second time. Then stop the query, put the rows back with `tidegate state rollback %s "
        "--to %d`, and start it with the checkpoint that it had.",
        path,
        first.query,
        below.query,
        path,
        below.version,
    )
