"""Every error that Tidegate raises on purpose, as one tree.

    TidegateError
      DefinitionError       the program is wrong; raised before any event runs, with the line
      TransactionFailed     a function in plain Python raised, and on_error="raise"; names event and line
      OperatorFailed        a function of an ordered pipeline raised; names the operator and the record
      InputError            this batch is wrong; names the column and the row
      LimitExceeded         names what was requested and what there is room for
      StorageFailed         the file system refused; names the file, nothing was committed
        StorageUncertain    a write may or may not have happened, or may not last; names the file
      StorageCorrupted      names file, offset, expected and found checksum
      RecoveryImpossible    no snapshot and changes cover the requested version
      StateDiverged         the state is not the one that its query, or its own history, says it must be
      StateOwned            another running query owns this state; names it
      OutcomeOverdue        no outcome of a request in the time given; names the request and the state
      PackageMissing        an optional dependency is not installed; names it and what to type

A message says where it happened, what was required, what was found and what to do next. The
errors hold only that text, so they can be pickled and pass through Spark unchanged.

`TidegateWarning` is the category of warnings: what is allowed, and probably not meant.

An aborted transaction is not an error: it is an outcome (`committed = false` and a reason),
never an exception that stops a stream.
"""


class TidegateError(Exception):
    """The root of all errors that Tidegate raises on purpose."""


class DefinitionError(TidegateError):
    """A table, a transaction or a program is declared wrongly."""


class TransactionFailed(TidegateError):
    """A transaction declared `compiled=False` raised, where on_error="raise"; nothing of its batch is committed."""


class OperatorFailed(TidegateError):
    """A function of an ordered pipeline raised; nothing behind its record left the pipeline."""


class InputError(TidegateError):
    """A batch of events, or rows to load, do not fit the program."""


class LimitExceeded(TidegateError):
    """A request exceeds what Tidegate is built for, or what the system has room for."""


class StorageFailed(TidegateError):
    """The file system refused to read or write; what was committed before stands."""


class StorageUncertain(StorageFailed):
    """A write may or may not have happened, or may not last; what was committed before stands."""


class StorageCorrupted(TidegateError):
    """A state file does not hold what was written to it."""


class RecoveryImpossible(TidegateError):
    """The requested version cannot be rebuilt from what is stored."""


class StateDiverged(TidegateError):
    """The state is not the one that its query, or its own history, expects: it was lost, replaced, or is older."""


class StateOwned(TidegateError):
    """Another running query owns this state."""


class OutcomeOverdue(TidegateError, TimeoutError):
    """A request has no outcome yet; it may get one later."""


class PackageMissing(TidegateError, ImportError):
    """The requested feature needs an optional dependency that is not installed."""


class TidegateWarning(UserWarning):
    """Something that is allowed, but probably not meant."""
