"""Releases a state when the query that owned it has ended.

A query becomes the owner of a state by running a batch (`durability.ownership`); only the driver can see that a query
ended:

    query ends               a listener, once per session       releases what that query owned
    transact() is called     and the owner is a query of this   releases it
                             process that no longer runs

The second covers what the listener misses: its events are asynchronous, and a session may be stopped before they are
delivered. A process that died needs no release: the lock that it held is gone.

Invariant: a query that is active in any session of this process is never released. A failed release is not an
error: at worst, the next query is told who owns the state.
"""

from __future__ import annotations

import atexit
import logging
import threading
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from tidegate.durability import ownership
from tidegate.foundation.storage import open_storage
from tidegate.spark.batches import log_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

_log = logging.getLogger(__name__)
_lock = threading.Lock()
_paths: set[str] = set()
_sessions: list[SparkSession] = []


def watch(events: DataFrame, path: str) -> None:
    """Release the state at `path` when the query that owns it ends, and at once if that query has already ended."""
    session = events.sparkSession
    with _lock:
        _paths.add(path)
        known = not events.isStreaming or any(session is other for other in _sessions)
        if not known:
            _sessions.append(session)
    if not known:
        try:
            listener = _Release()
            session.streams.addListener(listener)
            atexit.register(_stop_listening, session, listener)
        except Exception:  # a server that takes no listeners: the next transact() releases instead
            _log.warning("no listener for ended queries could be added", exc_info=True)
    _release_ended(path)


class _Release(StreamingQueryListener):
    """Releases what a query owned as soon as Spark says that it ended."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing: its first batch makes it the owner."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Log what the micro-batch did."""
        with _lock:
            paths = sorted(_paths)
        log_batch(paths, event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """An idle query keeps what it owns."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Release every state of this process that the query owned."""
        with _lock:
            paths = sorted(_paths)
        for path in paths:
            _release(path, str(event.id))


def _stop_listening(session: SparkSession, listener: StreamingQueryListener) -> None:
    """Remove the listener before this process ends; otherwise the JVM logs that its calls fail."""
    try:
        session.streams.removeListener(listener)
    except Exception:  # the session was stopped before: nothing is left to remove
        _log.debug("the listener for ended queries was gone", exc_info=True)


def _release_ended(path: str) -> None:
    """Release the state if its owner is a query of this process that has ended."""
    try:
        owner = ownership.current(open_storage(path))
    except Exception:  # unreadable: the next batch will say what is wrong
        return
    if owner is None or owner.token != ownership.process_token():
        return  # no owner, or one of another process
    active = _active()
    if active is not None and owner.query not in active:
        _release(path, owner.query)


def _active() -> set[str] | None:
    """The queries that run in this process's sessions; None if a session does not answer."""
    with _lock:  # a stopped session ended its queries; on Connect it no longer answers
        sessions = [session for session in _sessions if not getattr(session, "is_stopped", False)]
    try:
        return {str(query.id) for session in sessions for query in session.streams.active}
    except Exception:  # py4j and gRPC have no error in common
        _log.debug("a session does not say which queries run", exc_info=True)
        return None


def _release(path: str, query: str) -> None:
    try:
        ownership.release(open_storage(path), query)
    except Exception:
        _log.warning("the state at %s could not be released from query %s", path, query, exc_info=True)
