"""`await_outcome`: the outcome of one request, for the client that put it into the stream.

    client ── event with an id ──> source ── transact(..., requests="id") ──> version n of the state
       │                                                                            │
       └──────────────── await_outcome(state, id) <── outcome by id ────────────────┘

The outcome is committed with the state, in one file. So it does not matter which sink the query has, whether it is
restarted in between, and in which process the client runs: the client needs the state's path and no Spark.
`durability.outcome_log` follows the versions.
"""

from __future__ import annotations

import math
import os
import time

from tidegate.durability.outcome_log import OutcomeLog, log_of
from tidegate.foundation.arguments import path, shown
from tidegate.foundation.errors import InputError, OutcomeOverdue
from tidegate.foundation.tracebacks import briefly
from tidegate.operations.outcomes import Outcome

PAUSE_SECONDS_FIRST, PAUSE_SECONDS_MAX = 0.005, 0.1
"""The pause between two looks at the state: exponential back-off from the first to the second."""


@briefly
def await_outcome(state: str | os.PathLike[str], request_id: int | str, *, timeout: float = 60.0) -> Outcome:
    """Wait until a request is decided, and return its outcome as `tg.Engine.execute` does.

    The outcomes of at least the newest `keep_versions` batches can be found. If an id was used more than once, the
    newest outcome present is returned, and within a batch that of the last event in order. So give every request a
    unique id (`uuid.uuid4()`), or an earlier request's outcome may be mistaken for that of the one just sent.

    Args:
        state: the path that was passed to `transact` as `state`.
        request_id: the id that the event carries in the column that `transact(..., requests=...)` names.
        timeout: how many seconds to wait; 0 looks once.

    Raises:
        OutcomeOverdue: there is no outcome yet; it may still come. It is also a TimeoutError.
    """
    folder = _check_arguments(state, request_id, timeout)
    log = log_of(folder)
    deadline, pause, seen = time.monotonic() + timeout, PAUSE_SECONDS_FIRST, 0
    log.look(at_all=True)
    while True:
        outcome, seen = log.find(request_id, after=seen)
        if outcome is not None:
            return outcome
        if not log.takes(request_id):
            raise InputError(
                f"await_outcome: the ids of requests in the state at {folder} are "
                f"{'strings' if isinstance(request_id, int) else 'whole numbers'}, got {request_id!r}: give the id as "
                "it stands in the events' column"
            )
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise OutcomeOverdue(_overdue(log, request_id, timeout))
        time.sleep(min(pause, remaining))
        pause = min(1.5 * pause, PAUSE_SECONDS_MAX)
        log.look(at_all=False)


def _check_arguments(state: str | os.PathLike[str], request_id: object, timeout: object) -> str:
    if not isinstance(request_id, int | str) or isinstance(request_id, bool):
        raise InputError(f"await_outcome: request_id must be a string or a whole number, got {shown(request_id)}")
    if isinstance(request_id, int) and not -(1 << 63) <= request_id < 1 << 63:
        raise InputError(f"await_outcome: request_id must fit into 64 bits, got {request_id}")
    if not isinstance(timeout, int | float) or isinstance(timeout, bool) or math.isnan(timeout) or timeout < 0:
        raise InputError(f"await_outcome: timeout must be a number of seconds, 0 or more, got {shown(timeout)}")
    return path("await_outcome: state", state, InputError)


def _overdue(log: OutcomeLog, request_id: int | str, timeout: float) -> str:
    where = f"in the state at {log.storage.path}"
    what = f"await_outcome: request {request_id!r} has no outcome {where} after {timeout:g} s"
    if log.newest == 0:
        return (
            f"{what}: there is no state. Check that the path is the one that transact(..., state=...) got, and that "
            "the query was started and is running"
        )
    if not log.keeps_outcomes:
        return (
            f"{what}: it is at version {log.newest}, and none of its versions keeps outcomes. Name the column of the "
            "ids when the query is made: transact(..., requests=...)"
        )
    return (
        f"{what}: it is at version {log.newest}, whose batches keep the outcomes of other requests. Check that the "
        "query is running (query.status, query.exception()), that an event with this id reached its source, that the "
        "event's atomic batch is complete if it starts a dataflow that takes in several, and that the outcome is not "
        "older than what is kept (transact(..., keep_versions=...))"
    )
