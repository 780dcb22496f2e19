"""`tg.Engine`: the engine without Spark, for tests, notebooks and programs that have their own events.

Arrow in, Arrow out. Safe to call from several threads: calls run one after the other, each as a whole.
With a `directory` every run, load and execute is a new version on disk before it returns, and an engine
opened on the same directory goes on from the newest one.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import pyarrow as pa

from tidegate.api.dataflow import Dataflow
from tidegate.api.stream import Stream
from tidegate.api.table import layout_of
from tidegate.api.transaction import Transaction
from tidegate.api.window import Window
from tidegate.compiler.program import build_program
from tidegate.durability.versioned import VersionedEngine
from tidegate.engine.arrival import arrange
from tidegate.engine.core import EngineCore
from tidegate.engine.flows import FlowRun
from tidegate.engine.report import BatchReport
from tidegate.foundation.errors import DefinitionError, InputError
from tidegate.operations.decision import Strategy, check_strategy
from tidegate.operations.outcomes import Outcome, Step


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

    def __init__(
        self,
        transactions: Sequence[Transaction | Dataflow] | Transaction | Dataflow,
        strategy: Strategy = "adaptive",
        workers: int = 1,
        directory: str | None = None,
        punctuation: int | None = None,
        record: bool = False,
    ) -> None:
        """Make an engine.

        Args:
            transactions: the program: functions declared with `@tg.transaction`, and dataflow graphs.
            strategy: how batches are scheduled: "adaptive" chooses, "serial" is one worker, "lock", "mvlk",
                "partitioned" and "chains" are published baselines, `tg.Decision(...)` is one exact way. All give
                the same answers, but for "unsafe-nolock", which shows what no coordination at all would cost.
            workers: how many threads may run transactions.
            directory: where to keep the state; None keeps it in memory only.
            punctuation: events that are scheduled together at most; None takes each `run` as a whole. It changes
                speed and latency, never answers; `best_punctuation` estimates a good one.
            record: True keeps a history of dataflow graphs (`history`): every transaction of every round.
        """
        check_strategy(strategy)
        if workers < 1:
            raise DefinitionError(f"workers: required a number of at least 1, got {workers!r}")
        if punctuation is not None and punctuation < 1:
            raise DefinitionError(f"punctuation: required a number of at least 1, or None, got {punctuation!r}")
        self._program = build_program(transactions)
        plans = self._program.plan.transactions
        self._numbers = {plan.name: number for number, plan in enumerate(plans)}
        self._parameters = [{parameter.name for parameter in plan.parameters} for plan in plans]
        self._lock = threading.RLock()
        self._closed = False
        self._kept = None
        self._memory = None
        if directory is None:
            self._memory = EngineCore(
                self._program, strategy=strategy, workers=workers, punctuation=punctuation, record=record
            )
        else:
            self._kept = VersionedEngine.open_embedded(
                self._program, directory, strategy, workers, punctuation, record=record
            )

    @property
    def _core(self) -> EngineCore:
        """The rows in memory; those of a kept state may be loaded anew after a failure."""
        if self._closed:
            raise InputError("this engine is closed: make another one, tg.Engine(...), to go on with its state")
        if self._memory is not None:
            return self._memory
        assert self._kept is not None
        with self._lock:
            return self._kept.core

    def load(self, table: type, rows: pa.Table) -> None:
        """Write rows into a table, replacing those with the same keys; absent columns take their defaults."""
        name = self._table(table)
        with self._lock:
            core = self._core
            if self._kept is None:
                core.load(name, rows)
            else:
                self._kept.load({name: rows})

    def run(self, events: pa.Table | pa.RecordBatch, order_by: str | None = None) -> pa.Table:
        """Run a batch of events: its columns plus `committed`, `reason` and `result`, in the same row order.

        Where a dataflow takes in several events at once, those of an incomplete atomic batch wait: their outcomes come
        with a later run's, before those of its own events.

        Args:
            events: one row per event; the column `transaction` names its function.
            order_by: the column by which events are run; ties, and all events without it, run in row order.
        """
        if isinstance(events, pa.RecordBatch):
            events = pa.Table.from_batches([events])
        if not isinstance(events, pa.Table):
            raise InputError(f"events: required a pyarrow.Table, got {type(events).__name__}")
        with self._lock:
            core = self._core
            if self._kept is not None:
                return self._kept.run(events, order_by)
            arrival = arrange(events, order_by, None)
            return core.run(events, arrival.order, arrival.refused)

    def execute(self, transaction: Transaction, **arguments: Any) -> Outcome:
        """Run one transaction now; row parameters take keys, composite ones a tuple or a dict."""
        number = self._number(transaction)
        expected = self._parameters[number]
        if arguments.keys() != expected:
            plan = self._program.plan.transactions[number]
            missing, extra = sorted(expected - set(arguments)), sorted(set(arguments) - expected)
            problem = f"missing {', '.join(missing)}" if missing else f"no parameter is called {', '.join(extra)}"
            raise InputError(f"execute {plan.name!r}: {problem}; it takes {', '.join(sorted(expected))}")
        with self._lock:
            core = self._core
            if self._kept is None:
                return core.execute(number, arguments)
            return self._kept.execute(number, arguments)

    def read(self, table: type, key: Any) -> dict[str, Any] | None:
        """One committed row as a dict, or None; a composite key is a tuple or a dict."""
        name = self._table(table)
        fields = self._core.tables[name].layout.key
        if isinstance(key, dict):
            key = tuple(key.get(field) for field in fields)
        words = key if isinstance(key, tuple) else (key,)
        if len(words) != len(fields):
            raise InputError(f"{name}: the key is ({', '.join(fields)}), got {key!r}")
        with self._lock:
            return self._core.read(name, words)

    def scan(self, table: type | Stream | Window) -> pa.Table:
        """All committed rows of a table, sorted by key; the visible rows of a window; the tuples that wait in a stream.

        What waits in a border stream are events of an atomic batch that is not complete.
        """
        with self._lock:
            if isinstance(table, Stream):
                return self._flows().scan(self._stream(table))
            if isinstance(table, Window):
                return self._flows().window_rows(self._window(table))
            return self._core.rows(self._table(table))

    def take(self, stream: Stream) -> pa.Table:
        """What was emitted into a stream that no transaction is on, with the number of its `batch`; forgets it."""
        with self._lock:
            number = self._stream(stream)
            flows = self._flows()
            if not flows.flows.outputs[number]:
                raise InputError(f"stream {stream.name!r} is consumed by transactions; outputs are those that are not")
            return flows.take(number)

    @property
    def history(self) -> list[Step]:
        """Every transaction that ran, in order, for an engine made with record=True."""
        with self._lock:
            return [] if self._core.flows is None else self._core.flows.history

    def _flows(self) -> FlowRun:
        flows = self._core.graphs()
        if flows is None:
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
            known = ", ".join(layout.name for layout in self._flows().flows.streams)
            raise InputError(f"{stream!r} is not a stream of this engine; they are: {known}")
        return number

    @property
    def last_batch(self) -> BatchReport | None:
        """What the last run did; None before the first."""
        return self._core.last_batch

    @property
    def decisions(self) -> list[str]:
        """The last choices of the adaptive strategy, each with the numbers that made it; the newest last."""
        return list(self._core.runner.model.log)

    def best_punctuation(self, latency_ms: float | None = None) -> int | None:
        """Events for each batch: for the most throughput, or to stay within a latency; None before the first run.

        Args:
            latency_ms: what a batch may take; None looks for throughput.
        """
        with self._lock:
            return self._core.runner.punctuation.best(None if latency_ms is None else latency_ms / 1e3)

    def close(self) -> None:
        """End the worker threads, and let go of the directory, so that another engine may open it.

        Whatever is asked of the engine afterwards is refused.
        """
        with self._lock:
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
        layout = layout_of(table)
        if layout is None or layout.name not in self._core.tables:
            known = ", ".join(self._core.tables)
            raise InputError(f"{table!r} is not a table of this program; its tables are: {known}")
        return layout.name

    def _number(self, transaction: Transaction) -> int:
        name = getattr(transaction, "__name__", str(transaction))
        number = self._numbers.get(name)
        if number is not None and getattr(transaction, "on", None) is not None:
            raise InputError(f"{name!r} is started by its stream; feed that with run")
        if number is None:
            raise InputError(f"{name!r} is not a transaction of this engine; they are: {', '.join(self._numbers)}")
        return number
