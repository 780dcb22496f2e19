"""Tidegate: ACID transactions over shared mutable state, for PySpark streams and plain Python.

import tidegate as tg

@tg.table(key="id")                 a class is a table
@tg.transaction                     a function is a transaction; its signature is what it touches
tg.require, tg.abort, tg.exists,    the verbs inside
tg.delete, tg.lookup, tg.history
tg.stream, tg.window, tg.dataflow   transactions that start each other; tg.emit and tg.trigger connect them
tg.Engine                           runs it on Arrow; `tidegate.spark.transact` on Spark
tg.read                             one committed row of a state, from its files
tg.Decision                         one exact way to schedule a batch, instead of "adaptive"
tidegate.ordering                   ordered pipelines: parallel operators, with the output of a sequential run
tidegate.testing                    what only tests need
"""

from typing import TYPE_CHECKING

from tidegate.api.annotations import digits
from tidegate.api.control import Abort, abort, delete, exists, history, lookup, require
from tidegate.api.dataflow import Dataflow, dataflow
from tidegate.api.stream import Stream, emit, stream
from tidegate.api.table import table
from tidegate.api.transaction import Transaction
from tidegate.api.window import Window, WindowRows, window
from tidegate.compiler.declaration import transaction, trigger
from tidegate.engine.report import BatchReport
from tidegate.foundation.errors import (
    DefinitionError,
    InputError,
    LimitExceeded,
    OperatorFailed,
    OutcomeOverdue,
    RecoveryImpossible,
    StateDiverged,
    StateOwned,
    StorageCorrupted,
    StorageFailed,
    StorageUncertain,
    TidegateError,
    TidegateWarning,
    TransactionFailed,
)
from tidegate.operations.decision import Chains, Decision, Families, Partitioned, Published
from tidegate.operations.outcomes import Outcome, Step

__version__ = "0.1.0"

__all__ = [
    "Abort",
    "BatchReport",
    "Chains",
    "Dataflow",
    "Decision",
    "DefinitionError",
    "Engine",
    "Families",
    "InputError",
    "LimitExceeded",
    "OperatorFailed",
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
    "TidegateWarning",
    "Transaction",
    "TransactionFailed",
    "Window",
    "WindowRows",
    "abort",
    "dataflow",
    "delete",
    "digits",
    "emit",
    "exists",
    "history",
    "lookup",
    "read",
    "require",
    "stream",
    "table",
    "transaction",
    "trigger",
    "window",
]

if TYPE_CHECKING:
    from tidegate.embedding import Engine
    from tidegate.reading import read
else:  # hidden from type checkers, which take a module with `__getattr__` to have every name
    _LATE = {"Engine": "tidegate.embedding", "read": "tidegate.reading"}

    def __getattr__(name: str) -> object:
        """Import `tg.Engine` and `tg.read` on first use: that takes a second, and declarations do not need them."""
        if name in _LATE:
            import importlib

            return getattr(importlib.import_module(_LATE[name]), name)
        raise AttributeError(f"module 'tidegate' has no attribute {name!r}")
