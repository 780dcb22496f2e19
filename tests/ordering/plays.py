"""Small pipelines on interleaved workers: whatever the schedule, the output is that of the plain functions in order.

A `Stage` is a pipeline with its records and options, ready to begin. Each `play` begins it anew, runs its workers under
a schedule, and compares what has arrived at the sink. In a real run a thread empties the sink; a stage whose sink holds
everything needs none, so that all its schedules can be tried.

Workers of a real run look again and again, so a record that is forgotten by one is found by another. With
`looks_again=False` each works for its operator once, until there is nothing to claim, and leaves. Still nothing may be
missing at the end, where nobody had to wait for room: that is what the two algorithms promise. Where there was none, a
last worker does what is left.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tidegate.foundation import atomics
from tidegate.foundation.jit import uncompiled
from tidegate.operations.pipeline import FRAME_OUT, FRAME_SLOT, HEADER
from tidegate.ordering import Pipeline, runtime, states
from tidegate.ordering.graph import lay_out
from tidegate.ordering.kernels import layout as at
from tidegate.ordering.kernels import working
from tidegate.ordering.records import Rows
from tidegate.ordering.running import Settings

from ..interleaving import interleaver, kernels
from ..interleaving.interleaver import Interleaver
from ..interleaving.schedules import Schedule, Seeded
from .programs import Item, rows, table

STEPS_MAX = 30_000


class SteppingCondition:
    """Stands in for `threading.Condition`: a worker that waits for it takes steps."""

    def __init__(self) -> None:
        self._held = np.zeros(1, np.int64)

    def __enter__(self) -> None:
        while not kernels.compare_exchange(self._held, 0, 0, 1):
            kernels.relax(0)

    def __exit__(self, *_: object) -> None:
        kernels.store(self._held, 0, 0)

    def wait(self, _seconds: float) -> None:
        self.__exit__()
        kernels.relax(0)
        self.__enter__()

    def notify_all(self) -> None:
        """Nothing to do: who waits looks again when memory has changed."""


@contextmanager
def stepping(accesses: bool = False) -> Iterator[None]:
    """Inside this block workers of pipelines take steps; one without work waits at once."""
    with kernels.plain_kernels(accesses), uncompiled(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "atomics", kernels)
        patch.setattr(working, "LOOKS", 0)
        yield


class Stage:
    """A pipeline, ready to begin; made and played inside `stepping`."""

    def __init__(
        self,
        made: Pipeline,
        step: Callable[[Item], list[Item]],
        records: Sequence[Item],
        workers: int,
        capacity: int,
        sink: int | None = None,
        states_at_first: int = 64,
        queue: int | None = None,
        **options: Any,
    ) -> None:
        part = made._part
        self._expected = rows([out for record in records for out in step(record)])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(states, "SMALLEST", states_at_first)
            nodes = lay_out(part)
            settings = Settings(workers, capacity=max(capacity, sink or 0), **options)
            self._runtime = runtime.Runtime(nodes, settings.options(nodes), 0)
        self._workers = self._runtime.flow.options.workers
        self._runtime._rest = SteppingCondition()  # type: ignore[assignment]
        self._runtime.give(Rows(part.source.gives, self._runtime.strings).from_arrow("records", table(records)))
        self._flow = self._runtime.flow
        self._read = Rows(part.gives, self._runtime.strings).to_arrow
        self._empties, self._has_room = sink is None, capacity >= len(records)
        if sink is not None:
            for node in range(1, len(nodes) - 1):
                for word, size in ((at.MASK, capacity), (at.QUEUE_MASK, queue or capacity)):
                    self._flow.memory[self._flow.node_at(node) + word] = size - 1
        self._begin = self._flow.memory.copy()
        self._played = False
        self._right: bytes | None = None

    def only(self, node: int) -> Stage:
        """All workers work for one operator, without asking a heuristic."""
        for worker in range(self._workers):
            self._begin[self._flow.worker_at(worker) + at.FIXED] = node
        return self

    def play(
        self,
        schedule: Schedule,
        finds_races: bool = False,
        stops: bool = False,
        looks_again: bool = True,
        empties: bool = True,
    ) -> None:
        """Run all of it under a schedule.

        With `stops`, somebody ends the run at a moment that the schedule decides. Without `empties`, nobody empties the
        sink.
        """
        self._begin_anew()
        ended: list[int] = []
        found = [self._runtime.take()]

        def work(worker: int) -> None:
            if looks_again:
                self._runtime._drive(worker)
            else:
                self._work_once(worker)
            ended.append(worker)

        def empty_the_sink() -> None:
            while len(ended) < self._workers:
                found.append(self._runtime.take())
                if len(found[-1]) == 0:
                    kernels.relax(0)

        def stop() -> None:
            kernels.store(self._flow.memory, at.STOP, runtime.QUITS)

        tasks: list[Callable[[], None]] = [empty_the_sink] * (self._empties and empties) + [stop] * stops
        tasks += [functools.partial(work, worker) for worker in range(self._workers)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(working, "call", self._call)
            Interleaver(schedule, finds_races, STEPS_MAX).run(tasks)
            if not looks_again and not self._has_room:
                Interleaver(Seeded(0), steps_max=STEPS_MAX).run([lambda: self._runtime._drive(0)])
        found.append(self._runtime.take())
        self._runtime.raise_failure()
        words = np.concatenate(found)[:, HEADER:]
        if words.tobytes() == self._right:
            return
        output = rows(self._read(np.concatenate(found)))
        assert output == (self._expected[: len(output)] if stops else self._expected)
        self._right = words.tobytes()

    def _work_once(self, worker: int) -> None:
        memory, mine = self._flow.memory, self._flow.worker_at(worker)
        memory[mine + at.AT_NODE], memory[mine + at.LEFT] = 1, 100
        assert working._slice(memory, worker, mine) == 0
        memory[mine + at.AT_NODE] = -1

    def _call(self, entry: int, context: int, operator: int, record: int, frame: int) -> int:
        """Run a record; who looks for races sees it read its row, and write its output and its state."""
        count = kernels.call(entry, context, operator, record, frame)
        run = interleaver.running()
        if run is not None and kernels.accesses_are_steps():
            here = sys._getframe(1)
            run.plain(record + 8 * HEADER, False, here)
            run.plain(atomics.peek(frame, FRAME_OUT) + 8 * HEADER, True, here)
            if int(operator) in self._flow.states:
                column = self._flow.states[int(operator)].exists
                run.plain(int(column.ctypes.data) + atomics.peek(frame, FRAME_SLOT), True, here)
        return int(count)

    def _begin_anew(self) -> None:
        if self._played:
            self._runtime._working = self._workers
            for each in self._flow.states.values():
                each.index[:] = -1
                each.exists[:] = False
                for name, column in each.columns.items():
                    column[:] = each._defaults[name]
        self._flow.memory[:] = self._begin
        self._played = True


def mutant(module: ModuleType, name: str, text: str, instead: str) -> Callable[..., Any]:
    """A function of a module of kernels in which a piece of its text is replaced."""
    function = getattr(module, name)
    source = inspect.getsource(getattr(function, "py_func", function))
    assert source.count(text) == 1, f"{name} does not contain {text!r} once: {source}"
    made: dict[str, Any] = {}
    exec(source[source.index("def ") :].replace(text, instead), vars(module), made)
    found: Callable[..., Any] = made[name]
    return found


def replace_everywhere(patch: pytest.MonkeyPatch, module: ModuleType, name: str, broken: Any) -> None:
    """Replace a function of a module of kernels, also where others have imported it."""
    function = getattr(module, name)
    for each in kernels.ORDERING:
        if getattr(each, name, None) is function:
            patch.setattr(each, name, broken)
