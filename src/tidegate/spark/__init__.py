"""Tidegate on Spark: a session, `transact` and `ordered` in streaming or batch plans, reading state and outcomes back.

The only package that imports pyspark. `transact` is one DataFrame transformation: the driver checks
the columns and plans it (`transact`), a Python worker runs it (`task`), and nothing in between needs
the JVM or a SparkContext, so the same code serves classic sessions and Spark Connect.
"""

from tidegate.spark.awaiting import await_outcome
from tidegate.spark.batches import read_batches
from tidegate.spark.ordered import ordered
from tidegate.spark.session import session
from tidegate.spark.state_reader import read_state
from tidegate.spark.transact import transact

__all__ = ["await_outcome", "ordered", "read_batches", "read_state", "session", "transact"]
