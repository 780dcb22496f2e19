"""Whether a session is the one that Spark made for a streaming query: that of the DataFrame in a foreachBatch.

Spark runs the batches of a stream in a session of their own, a copy of the user's with two settings that a stream
needs. Users have no reason to set these, so they mark the copy; a task sees the settings of the session that it was
planned in.
"""

from __future__ import annotations

from collections.abc import Callable

MARKS = ("spark.sql.cbo.enabled", "spark.sql.requireAllClusterKeysForDistribution")


def is_stream_session(setting: Callable[[str], str | None]) -> bool:
    """Whether the settings, looked up by name, are those of a stream's session."""
    return all(setting(name) == "false" for name in MARKS)
