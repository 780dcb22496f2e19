"""Whether a session is the one that Spark made for a streaming query: that of the DataFrame in a foreachBatch.

Spark runs the batches of a stream in a session of their own, a copy of the user's with two settings that a stream
needs. Users have no reason to set these, so they mark the copy. Tasks cannot tell: the settings that a task sees are
those of its session on top of those of the thread that started it, which in a foreachBatch is the stream's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARKS = ("spark.sql.cbo.enabled", "spark.sql.requireAllClusterKeysForDistribution")


def is_stream_session(session: SparkSession) -> bool:
    """Whether a session has the settings of a stream's."""
    return all(session.conf.get(name, None) == "false" for name in MARKS)
