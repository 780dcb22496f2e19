"""Runs a pipeline: threads that work, a source that is fed, a sink that is emptied, and what kernels cannot do.

A worker is a thread that calls `kernels.working.work` again and again. It comes back to plain Python for a record whose
operator is not compiled, for more memory, for a user's heuristic, and to rest when all must stand still. Kernels run
without the GIL; plain Python functions have it in turn.

A record that fails: the worker notes what was raised, and the record never counts as done, so nothing that comes behind
it leaves the pipeline. What comes before it still does, as if the functions had been called one by one; then the error
is raised. Where dead letters are wanted instead, the record counts as done, without outputs.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np

from tidegate.api.table import coerce
from tidegate.engine.state.columns import word_of
from tidegate.foundation import atomics
from tidegate.foundation.arguments import shown
from tidegate.foundation.errors import InputError, LimitExceeded, OperatorFailed, TidegateError
from tidegate.foundation.words import bits_of_float
from tidegate.operations.kinds import Kind
from tidegate.ordering.flow import Flow, Options
from tidegate.ordering.graph import Node
from tidegate.ordering.heuristics import Observed
from tidegate.ordering.kernels import layout as at
from tidegate.ordering.kernels.choosing import (
    BEHIND,
    BUSY_NOW,
    COST_OF,
    FIGURES,
    LIMIT_OF,
    SELECTIVITY_OF,
    SLICE_OF,
    SPENT_ON,
    WAITING,
)
from tidegate.ordering.kernels.working import work
from tidegate.ordering.records import Rows, Words
from tidegate.ordering.steps import Operator
from tidegate.ordering.strings import SharedStrings

GOES_ON, QUITS = 0, 2
MOMENT = 1e-4
"""How long a worker rests for which a user's heuristic has no operator, in seconds."""
INTERRUPT_BYTE = 2  # what a loop in generated code looks for in `signals`


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that an operator could not process, with what its function raised."""

    operator: str
    record: Any
    error: BaseException
    traceback: str


class Runtime:
    """One run of a pipeline. `dead_letters` is called for records that fail; without it, the first one ends the run."""

    def __init__(
        self,
        nodes: Sequence[Node],
        options: Options,
        source_places: int,
        heuristic: Callable[[Sequence[Observed]], int | None] | None = None,
        dead_letters: Callable[[DeadLetter], object] | None = None,
        strings: SharedStrings | None = None,
    ) -> None:
        self.strings = strings or SharedStrings()
        self.flow = Flow(nodes, options, source_places, self.strings)
        self._heuristic, self._dead_letters = heuristic, dead_letters
        self._in = {n: Rows(node.takes, self.strings) for n, node in enumerate(nodes)}
        self._out = {n: Rows(node.operator.gives, self.strings) for n, node in enumerate(nodes) if node.operator}
        self._keys: dict[int, dict[Any, int]] = {}
        self._failures: dict[int, tuple[int, OperatorFailed]] = {}
        self._broken: BaseException | None = None
        self._process = os.getpid()
        self._resting = 0
        self._working = options.workers
        self._rest = threading.Condition()
        self._threads: list[threading.Thread] = []
        self.thread_ids = [0] * options.workers

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the workers."""
        for worker in range(self.flow.options.workers):
            thread = threading.Thread(target=self._drive, args=(worker,), name=f"tidegate-{worker}", daemon=True)
            try:
                thread.start()
            except RuntimeError as refusal:
                self.stop()
                raise LimitExceeded(
                    f"workers: required {self.flow.options.workers} threads, got {worker}: {refusal}. Ask for fewer "
                    "workers, or raise the limit: see `ulimit -u`, or pids.max in a container"
                ) from refusal
            self._threads.append(thread)

    def stop(self) -> None:
        """End all workers, wherever they are, and wait for them; a second call does nothing."""
        if self._process != os.getpid():  # a fork has none of them
            return
        self.flow.signals[0] = INTERRUPT_BYTE
        atomics.store(self.flow.memory, at.STOP, QUITS)
        with self._rest:
            self._rest.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():  # one of them may collect a stream that was dropped
                thread.join()
        if self._threads:
            self.flow.free_blocks()
        self._threads = []

    @property
    def is_over(self) -> bool:
        """Whether all workers have ended."""
        return not any(thread.is_alive() for thread in self._threads)

    def raise_failure(self) -> None:
        """Raise what ended the run early, if anything did.

        Of several failed records it is the one that the plain functions would have met first. Everything before a
        failed record goes on, so of two operators with failures the one further down the flow has the earlier record.
        """
        if self._process != os.getpid():
            raise TidegateError(
                "stream: required the process that began it, got a fork, which has none of its workers; begin a stream "
                "of its own there"
            )
        if self._broken is not None:
            raise self._broken
        if self._failures:
            raise self._failures[max(self._failures)][1]

    # --- the source and the sink --------------------------------------------------------------------------------------

    @property
    def _sink(self) -> int:
        return len(self.flow.nodes) - 1

    def give(self, rows: Words) -> None:
        """All rows that there will be."""
        self.flow.source_rows = rows
        base = self.flow.node_at(0)
        self.flow.memory[base + at.ROWS], self.flow.memory[base + at.MASK] = rows.ctypes.data, -1
        self.feed(len(rows))
        self.close()

    def feed_room(self) -> int:
        """How many rows the source can take."""
        return len(self.flow.source_rows) - (self.flow.word(0, at.TAIL) - self.flow.word(0, at.NEXT))

    def feed(self, count: int) -> None:
        """So many more rows are in `flow.source_rows`."""
        atomics.fetch_add(self.flow.memory, self.flow.node_at(0) + at.TAIL, count)

    def close(self) -> None:
        """No more rows come."""
        atomics.store(self.flow.memory, at.CLOSED, 1)

    def take(self) -> Words:
        """The rows that have arrived at the sink since the last call, in order."""
        memory, base = self.flow.memory, self.flow.node_at(self._sink)
        first, last = int(memory[base + at.NEXT]), atomics.load(memory, base + at.TAIL)
        stride, mask, begin = (int(memory[base + word]) for word in (at.STRIDE, at.MASK, at.ROWS))
        ring = memory[begin : begin + (mask + 1) * stride].reshape(-1, stride)
        found: Words = ring[np.arange(first, last) & mask]
        atomics.store(memory, base + at.NEXT, last)
        return found

    # --- workers ------------------------------------------------------------------------------------------------------

    def _drive(self, worker: int) -> None:
        """What the thread of a worker does."""
        self.thread_ids[worker] = threading.get_native_id()
        figures = np.zeros((len(self.flow.nodes), FIGURES))
        try:
            while (code := work(self.flow.memory, worker, figures)) != at.DONE:
                if code == at.PYTHON:
                    self._run_python(worker)
                elif code == at.SPACE:
                    self.flow.use_scratch(worker, np.zeros(2 * len(self.flow.scratch[worker]), np.int64))
                elif code == at.NO_MEMORY:
                    raise MemoryError("no memory for the outputs of a record: have fewer, or a smaller capacity")
                elif code == at.ASK:
                    self._ask(worker, figures)
                elif not self._pause():
                    return
        except BaseException as error:  # of a user's heuristic, or out of memory
            self._break(error)
        finally:
            with self._rest:
                self._working -= 1
                self._rest.notify_all()

    def _break(self, error: BaseException) -> None:
        """End the run because of an error outside of any record."""
        self._broken = self._broken or error
        atomics.store(self.flow.memory, at.STOP, QUITS)

    def _pause(self) -> bool:
        """Rest until all workers rest; the last one makes room, and all go on. False when the run ends."""
        memory = self.flow.memory
        with self._rest:
            if atomics.load(memory, at.STOP) == QUITS:
                self._rest.notify_all()
                return False
            self._resting += 1
            while atomics.load(memory, at.STOP) == 1:
                if self._resting == self._working:
                    self.flow.make_room()
                    atomics.compare_exchange(memory, at.STOP, 1, GOES_ON)
                    self._rest.notify_all()
                else:
                    self._rest.wait(0.1)
            self._resting -= 1
            return atomics.load(memory, at.STOP) != QUITS

    def _ask(self, worker: int, figures: Any) -> None:
        """Ask the user's heuristic."""
        assert self._heuristic is not None
        observed = []
        for number, node in enumerate(self.flow.nodes):
            row = figures[number]
            if node.operator is not None and row[WAITING] > 0 and row[BUSY_NOW] < row[LIMIT_OF]:
                whole = {"waiting": WAITING, "workers": BUSY_NOW, "limit": LIMIT_OF, "behind": BEHIND}
                whole |= {"spent": SPENT_ON, "slice": SLICE_OF}
                counts = {name: int(row[place]) for name, place in whole.items()}
                cost, selectivity = float(row[COST_OF]), float(row[SELECTIVITY_OF])
                observed.append(Observed(number, node.operator.name, cost=cost, selectivity=selectivity, **counts))
        chosen = self._heuristic(observed) if observed else None
        if chosen is not None and chosen not in [each.number for each in observed]:
            known = ", ".join(f"{each.number} ({each.name})" for each in observed)
            raise InputError(
                f"heuristic: required the number of an operator or None, got {shown(chosen)}; they are: {known}"
            )
        if chosen is None:
            time.sleep(MOMENT)
        self.flow.memory[self.flow.worker_at(worker) + at.CHOSEN] = -1 if chosen is None else chosen

    # --- records in plain Python --------------------------------------------------------------------------------------

    def _run_python(self, worker: int) -> None:
        """Run the record that a worker has claimed as plain Python."""
        memory, mine = self.flow.memory, self.flow.worker_at(worker)
        number, node = int(memory[mine + at.SERIAL]), int(memory[mine + at.AT_NODE])
        operator = self.flow.nodes[node].operator
        assert operator is not None
        record: Any = None
        try:
            record = self._in[node].read(self.flow.row(node, number))
            count = self._outputs(worker, node, operator, number, record)
        except BaseException as error:
            count = self._failed(node, operator, number, record, error)
        memory[mine + at.OUTPUTS] = count

    def _outputs(self, worker: int, node: int, operator: Operator, number: int, record: Any) -> int:
        """Call the function of an operator, and write what it returns to the worker's scratch space."""
        if operator.role == "key":
            scratch = self._scratch(worker, operator.gives.stride)
            scratch[: operator.takes.stride] = self.flow.row(node, number)
            scratch[operator.takes.stride] = self._key_word(node, operator, operator.function(record))
            return 1
        if operator.state is None:
            outputs = self._listed(operator, operator.function(record), record)
        else:
            states = self.flow.states[node]
            base = self.flow.node_at(node)
            mask = int(self.flow.memory[base + at.MASK])
            slot = int(self.flow.memory[int(self.flow.memory[base + at.SLOTS]) + (number & mask)])
            state = states.load(slot)
            try:
                outputs = self._listed(operator, operator.function(state, record), record)
            finally:
                states.save(slot, state)
        what = f"operator {operator.name!r}"
        stride = operator.gives.stride
        scratch = self._scratch(worker, len(outputs) * stride)
        for place, output in enumerate(outputs):
            self._out[node].write(output, scratch[place * stride : (place + 1) * stride], what)
        return len(outputs)

    def _listed(self, operator: Operator, result: Any, record: Any) -> list[Any]:
        """What a function returned, as a list of records."""
        if operator.role == "filter":
            return [record] if result else []
        if operator.many == "list":
            if result is None or isinstance(result, operator.gives.python):
                raise InputError(
                    f"operator {operator.name!r}: required a list of {operator.gives.name}, got {shown(result)}"
                )
            return list(result)
        if result is None and operator.many == "optional":
            return []
        return [result]

    def _key_word(self, node: int, operator: Operator, key: Any) -> int:
        """The word of a key: as generated code has it; of a function that always runs as plain Python, a number."""
        if operator.plan is not None and operator.plan.key is not None:
            found = word_of(
                coerce(operator.plan.key, key, f"the key of operator {operator.name!r}"),
                operator.plan.key,
                self.strings,
            )
            return bits_of_float(found + 0.0) if operator.plan.key.kind is Kind.FLOAT else int(found)
        with self._rest:
            keys = self._keys.setdefault(node, {})
            return keys.setdefault(key, len(keys))

    def _scratch(self, worker: int, words: int) -> Words:
        if words > len(self.flow.scratch[worker]):
            self.flow.use_scratch(worker, np.zeros(2 * words, np.int64))
        return self.flow.scratch[worker]

    def _failed(self, node: int, operator: Operator, number: int, record: Any, error: BaseException) -> int:
        """Note a record that failed: returns what its worker is told."""
        if self._dead_letters is not None and isinstance(error, Exception):
            told = "".join(traceback.format_exception(error))
            self._dead_letters(DeadLetter(operator.name, record, error, told))
            return 0
        code = getattr(operator.function, "__code__", None)
        where = f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""
        failure = OperatorFailed(
            f"operator {operator.name!r}{where} raised {type(error).__name__}: {error}, on {shown(record)}. Mend the "
            "function or filter such records in front of it; in run and stream, dead_letters=... collects them"
        )
        failure.__cause__ = error
        with self._rest:
            self._failures[node] = min(
                self._failures.get(node, (number, failure)), (number, failure), key=itemgetter(0)
            )
        atomics.store(self.flow.memory, at.FAILED, 1)
        return at.FAILURE


@contextlib.contextmanager
def running(runtime: Runtime) -> Iterator[Runtime]:
    """Start a runtime, and end it however the block is left."""
    runtime.start()
    try:
        yield runtime
    finally:
        runtime.stop()
