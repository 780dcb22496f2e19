"""`tg.Engine`: the engine without Spark, for tests, notebooks and programs that have their own events.

Arrow in, Arrow out. Safe to call from several threads: calls run one after the other, each as a whole.
With a state folder (`directory=`) every run, load and execute is in a log on disk before it returns, and an engine
opened on the same folder continues after the last of them (`durability.logged`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, TypeVar, get_args

import pyarrow as pa

from tidegate.api.outside import require_unchanged
from tidegate.api.stream import Stream
from tidegate.api.table import layout_of
from tidegate.api.transaction import ProgramPart, Transaction
from tidegate.api.window import Window
from tidegate.compiler.program import build_program, members_of
from tidegate.durability.checkpoints import CHECKPOINTS_KEPT
from tidegate.durability.command_log import Sync
from tidegate.durability.commands import Codec
from tidegate.durability.logged import LoggedEngine, Recovery, Scheduling
from tidegate.durability.once_keys import OnceKeys
from tidegate.durability.versions import check_keep_versions
from tidegate.engine.arguments import key_values
from tidegate.engine.core import EngineCore
from tidegate.engine.faults import OnError
from tidegate.engine.graphs.walk import GraphWalk
from tidegate.engine.report import BatchReport
from tidegate.engine.results import encoded
from tidegate.foundation.arguments import flag, one_of, path, refusal, shown, whole
from tidegate.foundation.arguments import name as text
from tidegate.foundation.arrow_tables import RowData, as_table
from tidegate.foundation.errors import DefinitionError, InputError, TidegateError
from tidegate.foundation.tracebacks import briefly, shortened
from tidegate.operations.decision import Strategy, check_strategy
from tidegate.operations.layout import TableLayout
from tidegate.operations.outcomes import Outcome, Step
from tidegate.operations.plan import ResultForm

T = TypeVar("T")


class Engine:
    """Runs transactions over tables in memory, in order, as if one by one.

    >>> import tidegate as tg, pyarrow as pa
    >>> @tg.table(key="id")
    ... class Account:
    ...     id: int
    ...     balance: int = 0
    >>> engine = Engine([deposit])  # doctest: +SKIP
    >>> engine.run(pa.table({"dst": [1, 1], "amount": [5, 7]}))  # doctest: +SKIP
    """

    @briefly
    def __init__(
        self,
        transactions: Sequence[ProgramPart] | ProgramPart,
        strategy: Strategy = "adaptive",
        workers: int = 1,
        directory: str | os.PathLike[str] | None = None,
        punctuation: int | None = None,
        record: bool = False,
        recovery: Recovery = "weak",
        sync: Sync = "group",
        keep_versions: int | None = None,
        on_error: OnError = "abort",
        result: ResultForm = "auto",
    ) -> None:
        """Make an engine.

        Args:
            transactions: the program: functions declared with `@tg.transaction`, and dataflow graphs.
            strategy: how batches are scheduled: "adaptive" chooses, "serial" is one worker, "lock", "mvlk",
                "partitioned" and "chains" are published baselines, `tg.Decision(...)` is one exact way. All give
                the same answers except "unsafe-nolock", which runs without any coordination, as a bound on what
                coordination costs, and is refused with a state folder.
            workers: how many threads may run transactions.
            directory: the state folder: a folder, or any URL that fsspec reaches. None keeps the state in memory only.
            punctuation: the most events that are scheduled together; None schedules each `run` as a whole. It changes
                speed and latency, never answers; `best_punctuation` estimates a good value.
            record: True keeps a history of dataflow graphs (`history`): every transaction of every round.
            recovery: what is logged of dataflow graphs. "weak": the events that enter them; replaying the log triggers
                the rest again. "strong": every transaction with its input, replayed one by one.
            sync: what is guaranteed when a call returns. "group": it is on the disk; calls of several threads may share
                an fsync (group commit). "always": it is on the disk, with its own fsync. "never": it was handed to the
                operating system; it survives the end of the process, but not a loss of power.
            keep_versions: with a state folder, how many of the newest checkpoints `read_state` and `tidegate state` can
                go back to; the log after the oldest of them is kept too. None keeps 2. A checkpoint is a version of
                the state: one is written after 64 MB of log, and when the engine is closed.
            on_error: what an exception in a transaction declared `compiled=False` does, other than `tg.abort` and
                `tg.require`. "abort": the transaction aborts, with the exception and its message as the reason; the
                first traceback of each kind is logged. "raise": the call raises `TransactionFailed`, with the event and
                the line, and nothing of its batch is committed. In memory, such an engine copies its rows before each
                run.
            result: the form of the column `result` of `run`. "auto": the type that the transactions return, or if they
                return several, a struct with a field for each transaction. "struct": always that struct. "json": text.
        """
        check_strategy(strategy, lasting=directory is not None)
        workers = whole("workers", workers)
        punctuation = None if punctuation is None else whole("punctuation", punctuation)
        folder = None if directory is None else path("directory", directory)
        flag("record", record)
        one_of("recovery", recovery, get_args(Recovery))
        one_of("sync", sync, get_args(Sync))
        one_of("on_error", on_error, get_args(OnError))
        _check_keep_versions(keep_versions, folder)
        self._program = build_program(transactions, result)
        outside = [name for member in members_of(transactions) for name in member.outside]
        self._constants = [name for name in outside if name.is_constant]
        plans = self._program.plan.transactions
        self._numbers = {plan.name: number for number, plan in enumerate(plans)}
        self._parameters = [{parameter.name for parameter in plan.parameters} for plan in plans]
        self._lock = threading.RLock()
        self._closed = False
        self._kept: LoggedEngine | None = None
        self._memory: EngineCore | None = None
        if folder is not None:
            scheduling = Scheduling(strategy, workers, punctuation, record)
            kept = CHECKPOINTS_KEPT if keep_versions is None else keep_versions
            options: dict[str, Any] = {"keep_versions": kept, "on_error": on_error}
            self._kept = LoggedEngine(self._program, folder, recovery, sync, scheduling, **options)
        else:
            self._memory = EngineCore(
                self._program,
                strategy=strategy,
                workers=workers,
                punctuation=punctuation,
                record=record,
                on_error=on_error,
                undoing=True,
            )
            self._codec, self._keys = Codec(plans), OnceKeys()

    @property
    def _core(self) -> EngineCore:
        """The rows in memory, for callers that hold the lock."""
        if self._memory is not None and not self._closed:
            return self._memory
        if self._kept is not None and not self._closed:
            return self._kept.core
        raise InputError("this engine is closed: make another one, tg.Engine(...), to go on with its state")

    def _turn(self) -> AbstractContextManager[Any]:
        """Exclusive access to the engine."""
        return self._lock if self._kept is None else self._kept.turn()

    def _look(self, look: Callable[[EngineCore], T]) -> T:
        """The result of a function of the rows; with a state folder, returned once all that it read is durable."""
        if self._kept is not None and not self._closed:
            return self._kept.read(look)
        with self._turn():
            return look(self._core)

    @briefly
    def load(self, table: type, rows: RowData) -> None:
        """Write rows into a table, replacing those with the same keys; absent columns take their defaults.

        Rows are an Arrow table, a record batch, a pandas DataFrame or a list of dicts.
        """
        name = self._table(table)
        rows = as_table(f"rows of {name}", rows)
        if self._kept is not None and not self._closed:
            self._kept.load(name, rows)
            return
        with self._turn():
            self._core.load(name, rows)

    @briefly
    def run(self, events: RowData, order_by: str | None = None) -> pa.Table:
        """Run a batch of events; returns its columns plus `committed`, `reason` and `result`, in the same row order.

        If a dataflow takes in several events at once, the events of an incomplete atomic batch wait. A later run
        returns their outcomes, before those of its own events, in one table. That table has the columns of both runs,
        with nulls for events that lacked a column. If a column that is only passed through has changed its type, it
        gets the common type, or becomes text.

        Args:
            events: one row per event; the column `transaction` names its function. An Arrow table, a record batch, a
                pandas DataFrame or a list of dicts.
            order_by: the column that orders the events; ties run in row order, as do all events if it is None.
        """
        events = as_table("events", events)
        if order_by is not None:
            text("order_by", order_by, "the name of a column, or None", InputError)
        require_unchanged(self._constants)
        if self._kept is not None and not self._closed:
            return encoded(self._program.plan, self._kept.run(events, order_by))
        with self._turn():
            core = self._core
            arrival = core.arrange(events, order_by)
            found = core.run(events, arrival.order, arrival.refused, arrival.times).outcomes
        return encoded(self._program.plan, found)

    def execute(self, transaction: Transaction, idempotency_key: int | str | None = None, **arguments: Any) -> Outcome:
        """Run one transaction now; row parameters take keys, composite ones a tuple or a dict.

        While another thread is inside `run`, the call waits until that has ended. If this takes too long, give `run`
        the events in smaller parts: how they are divided does not change the answers.

        Args:
            transaction: the transaction to run.
            idempotency_key: a name for this call, such as the id of a request. A repeated call with the same key runs
                nothing and returns the outcome of the first call, also after a restart.
            arguments: a value for each parameter.
        """
        try:
            number = self._number(transaction)
            expected = self._parameters[number]
            if arguments.keys() != expected:
                plan = self._program.plan.transactions[number]
                missing, extra = sorted(expected - set(arguments)), sorted(set(arguments) - expected)
                problem = f"missing {', '.join(missing)}" if missing else f"no parameter is called {', '.join(extra)}"
                raise InputError(f"execute {plan.name!r}: {problem}; it takes {', '.join(sorted(expected))}")
            if self._kept is not None and not self._closed:
                return self._kept.execute(number, arguments, idempotency_key)
            with self._turn():
                core = self._core
                if idempotency_key is None:
                    return core.execute(number, arguments)
                return self._execute_once(core, number, arguments, idempotency_key)
        except TidegateError as error:  # `briefly` would cost each call a function more
            raise shortened(error)  # noqa: B904 - it is the same error

    def _execute_once(self, core: EngineCore, number: int, arguments: Mapping[str, Any], key: int | str) -> Outcome:
        call, arguments = self._codec.execute(number, arguments, key)
        returned = self._program.plan.transactions[number].result
        outcome = self._keys.find(key, call, returned)
        if outcome is None:
            outcome = core.execute(number, arguments)
            self._keys.add(key, call, outcome, returned)
        return outcome

    def read(self, table: type, key: Any) -> dict[str, Any] | None:
        """One committed row as a dict, or None; a composite key is a tuple or a dict."""
        try:
            layout = self._layout(table)
            values = key_values(layout, key)
            return self._look(lambda core: core.read(layout.name, values))
        except TidegateError as error:
            raise shortened(error)  # noqa: B904 - it is the same error

    @briefly
    def scan(self, table: type | Stream | Window) -> pa.Table:
        """All committed rows of a table, sorted by key; the visible rows of a window; the waiting tuples of a stream.

        In a border stream, the events of an incomplete atomic batch wait.
        """
        if isinstance(table, Stream):
            return self._look(lambda core: self._flows().scan(self._stream(table)))
        if isinstance(table, Window):
            return self._look(lambda core: self._flows().window_rows(self._window(table)))
        name = self._table(table)
        return self._look(lambda core: core.rows(name))

    @briefly
    def take(self, stream: Stream) -> pa.Table:
        """Remove and return the tuples of an output stream (no transaction is on it), with the number of their `batch`.

        With a state folder, tuples are kept there until they are taken, also across restarts.
        """
        if not isinstance(stream, Stream):
            raise refusal("take", "a stream that tg.stream(...) declared", stream, InputError)
        with self._turn():
            number = self._stream(stream)
            flows = self._flows()
            if not flows.flows.outputs[number]:
                raise InputError(f"stream {stream.name!r} is consumed by transactions; outputs are those that are not")
            if self._kept is None:
                return flows.take(number)
        return self._kept.take(stream.name)

    @property
    def history(self) -> list[Step]:
        """Every transaction that ran, in order, for an engine made with record=True."""
        with self._turn():
            return self._core.flows.history

    def _flows(self) -> GraphWalk:
        flows = self._core.graphs()
        if not flows.flows.members:
            raise InputError("this engine runs no dataflow; give it one: tg.Engine([tg.dataflow([...])])")
        return flows

    def _window(self, window: Window) -> int:
        flows = self._flows()
        number = flows.flows.window(window.identity)
        if number < 0:
            known = ", ".join(layout.name for layout in flows.window_layouts) or "none"
            raise InputError(f"{window!r} is not a window of this engine; they are: {known}")
        return number

    def _stream(self, stream: Stream) -> int:
        number = self._flows().stream_number(stream.name)
        if number < 0:
            known = ", ".join(name for layout in self._flows().flows.streams if (name := layout.name).isidentifier())
            raise InputError(f"{stream!r} is not a stream of this engine; they are: {known}")
        return number

    @property
    def last_batch(self) -> BatchReport | None:
        """What the last run did; None before the first."""
        with self._turn():
            return self._core.last_batch

    @property
    def decisions(self) -> list[str]:
        """The last choices of the adaptive strategy, each with the numbers behind it; the newest last."""
        with self._turn():
            return list(self._core.runner.model.log)

    @briefly
    def best_punctuation(self, latency_ms: float | None = None) -> int | None:
        """The best number of events per batch, for throughput or within a latency; None before the first run.

        Args:
            latency_ms: how long a batch may take; None maximises throughput.
        """
        positive = isinstance(latency_ms, int | float) and not isinstance(latency_ms, bool) and latency_ms > 0
        if latency_ms is not None and not positive:
            raise refusal("latency_ms", "a number of milliseconds above 0, or None", latency_ms, InputError)
        with self._turn():
            return self._core.runner.punctuation.best(None if latency_ms is None else latency_ms / 1e3)

    @briefly
    def close(self) -> None:
        """End the worker threads, and release the state folder, so that another engine may open it.

        Later calls are refused. Raises StorageUncertain if a sync failed, so that answered calls may not be on disk,
        and no call has reported it yet.
        """
        with self._turn():
            if self._closed:
                return
            self._closed = True
            if self._kept is not None:
                self._kept.close()
            if self._memory is not None:
                self._memory.runner.workers.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _table(self, table: type) -> str:
        return self._layout(table).name

    def _layout(self, table: type) -> TableLayout:
        declared = layout_of(table)
        with self._turn():
            tables = self._core.tables
        if declared is None or declared.name not in tables:
            known = ", ".join(tables)
            raise InputError(f"{shown(table)} is not a table of this program; its tables are: {known}")
        return tables[declared.name].layout

    def _number(self, transaction: Transaction) -> int:
        name = getattr(transaction, "__name__", None)
        number = self._numbers.get(name) if isinstance(name, str) else None
        if number is not None and getattr(transaction, "on", None) is not None:
            raise InputError(f"{name!r} is started by its stream; feed that with run")
        if number is None:
            raise InputError(
                f"execute: {shown(transaction)} is not a transaction of this engine; they are: "
                f"{', '.join(self._numbers)}"
            )
        return number


def _check_keep_versions(keep_versions: int | None, folder: str | None) -> None:
    if keep_versions is None:
        return
    check_keep_versions(keep_versions)
    if folder is None:
        raise DefinitionError(
            f"keep_versions={keep_versions}: an engine without a state folder has its newest rows in memory, "
            "and no versions; say where to keep them, directory=..., or leave keep_versions out"
        )
