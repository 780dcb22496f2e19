"""Tidegate: ACID transactions over shared mutable state, for PySpark streams and plain Python.

import tidegate as tg

@tg.table(key="id")                 a class is a table
@tg.transaction                     a function is a transaction; its signature is what it touches
tg.require, tg.abort, tg.delete     the verbs inside
tg.stream, tg.window, tg.dataflow   transactions that start each other; tg.emit and tg.trigger connect them
tg.Engine                           runs it on Arrow; `tidegate.spark.transact` on Spark
tg.Decision                         one exact way to schedule a batch, where "adaptive" should not choose
"""

from typing import TYPE_CHECKING, Any

from tidegate.api.control import Abort, abort, delete, history, looking_up, lookup, remembering, require
from tidegate.api.dataflow import Dataflow, dataflow
from tidegate.api.stream import Stream, collecting, emit, stream
from tidegate.api.table import table
from tidegate.api.window import Window, WindowRows, window
from tidegate.compiler.declaration import transaction, trigger
from tidegate.foundation.errors import (
    DefinitionError,
    InputError,
    LimitExceeded,
    OutcomeOverdue,
    RecoveryImpossible,
    StateDiverged,
    StateOwned,
    StorageCorrupted,
    StorageFailed,
    StorageUncertain,
    TidegateError,
)
from tidegate.operations.decision import Chains, Decision, Families, Partitioned, Published
from tidegate.operations.outcomes import Outcome, Step

if TYPE_CHECKING:
    from tidegate.embedding import Engine

__version__ = "0.1.0"

__all__ = [
    "Abort",
    "Chains",
    "Dataflow",
    "Decision",
    "DefinitionError",
    "Engine",
    "Families",
    "InputError",
    "LimitExceeded",
    "Outcome",
    "OutcomeOverdue",
    "Partitioned",
    "Published",
    "RecoveryImpossible",
    "StateDiverged",
    "StateOwned",
    "Step",
    "StorageCorrupted",
    "StorageFailed",
    "StorageUncertain",
    "Stream",
    "TidegateError",
    "Window",
    "WindowRows",
    "abort",
    "collecting",
    "dataflow",
    "delete",
    "emit",
    "history",
    "looking_up",
    "lookup",
    "remembering",
    "require",
    "stream",
    "table",
    "transaction",
    "trigger",
    "window",
]


def __getattr__(name: str) -> Any:
    """`tg.Engine` on first use: the compiler behind it takes a second to import, declarations do not need it."""
    if name == "Engine":
        from tidegate.embedding import Engine

        return Engine
    raise AttributeError(f"module 'tidegate' has no attribute {name!r}")
