"""Runs the workers of lock-free code one step at a time, in an order that a schedule decides.

Each worker is a thread, and one of them at a time has the baton. Before it touches what others see (by an atomic
operation; if asked for, by any access of a shared array) it takes a step: the schedule says who has the baton next. So
a run is a function of its schedule, and a seed repeats it.

    worker 0    load(parent, 3)            │ compare_exchange(parent, 3, -1, 1)  false
    worker 1         │  compare_exchange(parent, 3, -1, 0)  true

A worker that waits (`relax`) comes again when memory has changed. Where all wait and look again twice without any
change, nothing will ever happen: a deadlock. Where steps do not come to an end, it is a livelock. Both fail, with the
last steps.

It does not know of weak memory: see `races` for what a processor may do besides.
"""

from __future__ import annotations

import _thread
import collections
import contextvars
import functools
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NamedTuple

from .races import RaceDetector
from .schedules import Schedule

STEPS_MAX = 50_000
LOOKS = 2  # a worker that looks again this often, and sees no change, counts as waiting for ever
STEPS_SHOWN = 40


class Stuck(AssertionError):
    """A deadlock or a livelock: workers wait for each other, or repeat the same steps, for ever."""


class _Abandoned(BaseException):
    """Ends a worker whose run has failed already."""


def _taken_lock() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


class _Worker:
    def __init__(self, number: int) -> None:
        self.number = number
        self.baton = _taken_lock()
        self.waits_since = -1  # the change after which it began to wait; -1 when it works
        self.looked_at = -1  # the change before its last look
        self.looks = 0  # looks without a change in between
        self.result: Any = None


class Element(NamedTuple):
    """One element of an array."""

    array: Any
    index: int

    @property
    def value(self) -> int:
        """What it holds, read without a step."""
        return int(self.array.item(self.index))

    @property
    def address(self) -> int:
        """Where it lies."""
        return int(self.array.ctypes.data) + int(self.index) * int(self.array.itemsize)


class Interleaver:
    """One run of some workers."""

    def __init__(self, schedule: Schedule, finds_races: bool = False, steps_max: int = STEPS_MAX) -> None:
        self.steps = 0
        self._schedule, self._steps_max, self._finds_races = schedule, steps_max, finds_races
        self._races: RaceDetector | None = None
        self._changes = 0
        self._working: list[_Worker] = []
        self._current = _Worker(-1)
        self._over = _taken_lock()
        self._failure: BaseException | None = None
        self._history: collections.deque[tuple[int, str, Any, int]] = collections.deque(maxlen=STEPS_SHOWN)

    def run(self, tasks: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run tasks to their end, each by a worker; returns what they return."""
        global _running
        assert _running is None, "runs cannot be nested"
        workers = [_Worker(number) for number in range(len(tasks))]
        self._working = workers.copy()
        self._races = RaceDetector(len(tasks)) if self._finds_races else None
        for worker, task in zip(workers, tasks, strict=True):  # `threading.Thread` takes ten times as long to start
            _thread.start_new_thread(contextvars.copy_context().run, (self._work, worker, task))
        _running = self
        try:
            self._give_to(self._choose(0))
            self._over.acquire()
        finally:
            _running = None
        if self._failure is not None:
            self._failure.add_note(self._told())
            raise self._failure
        return [worker.result for worker in workers]

    # --- what workers call -----------------------------------------------------------------------------------

    def step(self, what: str, frame: FrameType) -> None:
        """The worker that has the baton is about to touch what others see."""
        worker = self._current
        self._history.append((worker.number, what, frame.f_code, frame.f_lineno))
        self.steps += 1
        if self.steps > self._steps_max:
            raise Stuck(f"livelock: not done after {self._steps_max} steps")
        self._hand_over(worker)

    def wait(self, frame: FrameType) -> None:
        """The worker that has the baton can do nothing until another does something."""
        worker = self._current
        worker.looks = worker.looks + 1 if worker.looked_at == self._changes else 0
        worker.waits_since = worker.looked_at = self._changes
        self.step("wait", frame)
        worker.waits_since = -1

    def atomic(self, what: str, element: Element, frame: FrameType, operation: Callable[[], Any]) -> Any:
        """One atomic operation on an element, as one step."""
        self.step(what, frame)
        before = element.value
        found = operation()
        self._changes += element.value != before
        if self._races is not None:
            writes = what in ("fetch_add", "exchange", "store") or (what == "compare_exchange" and found)
            address, worker = element.address, self._current.number
            self._races.access(worker, address, writes, True, _place(frame.f_code, frame.f_lineno))
            if what != "store":
                self._races.acquire(worker, address)
            if writes:
                self._races.release(worker, address)
        return found

    def plain(self, address: int, write: bool, frame: FrameType) -> None:
        """One plain access; a write counts as a change."""
        self.step("write" if write else "read", frame)
        self._changes += write
        if self._races is not None and address:
            self._races.access(self._current.number, address, write, False, _place(frame.f_code, frame.f_lineno))

    # --- the baton -------------------------------------------------------------------------------------------

    def _work(self, worker: _Worker, task: Callable[[], Any]) -> None:
        worker.baton.acquire()
        try:
            if self._failure is None:
                worker.result = task()
        except _Abandoned:
            pass
        except BaseException as error:
            self._failure = self._failure or error
        self._leave(worker)

    def _leave(self, worker: _Worker) -> None:
        self._working.remove(worker)
        self._changes += 1
        if not self._working:
            self._over.release()
            return
        try:
            following = self._choose(worker.number)
        except Stuck as error:
            self._failure = error
            following = self._working[0]
        self._give_to(following)

    def _hand_over(self, worker: _Worker) -> None:
        chosen = self._choose(worker.number)
        if chosen is not worker:
            self._give_to(chosen)
            worker.baton.acquire()
        if self._failure is not None:
            raise _Abandoned

    def _give_to(self, worker: _Worker) -> None:
        self._current = worker
        worker.baton.release()

    def _choose(self, current: int) -> _Worker:
        if self._failure is not None:
            return self._working[0]
        ready = [worker for worker in self._working if worker.waits_since != self._changes]
        if not ready:
            fewest = min(worker.looks for worker in self._working)
            if fewest >= LOOKS:
                waiting = ", ".join(str(worker.number) for worker in self._working)
                raise Stuck(f"deadlock: workers {waiting} wait, and nobody else is left")
            ready = [worker for worker in self._working if worker.looks == fewest]
        chosen = self._schedule.pick([worker.number for worker in ready], current)
        return next(worker for worker in ready if worker.number == chosen)

    def _told(self) -> str:
        lines = [f"worker {number}  {what:17} {_place(code, line)}" for number, what, code, line in self._history]
        return "\n".join([f"the last of {self.steps} steps:", *lines])


_running: Interleaver | None = None


def running() -> Interleaver | None:
    """The run whose worker calls this; None outside of any."""
    return _running


def _place(code: Any, line: int) -> str:
    return f"{code.co_filename.rpartition('/')[2]}:{line} {code.co_name}"


class InterleavedWorkers:
    """Stands in for the engine's threads: every task that they run together is interleaved.

    With `interrupts`, somebody asks them to stop at a moment that the schedule decides.
    """

    def __init__(self, count: int, schedule: Schedule, finds_races: bool = False, interrupts: bool = False) -> None:
        self.count = count
        self.steps = 0
        self._schedule, self._finds_races, self._interrupts = schedule, finds_races, interrupts

    def start(self) -> None:
        """Nothing to do: threads live as long as a run."""

    def run(self, task: Callable[[int], object], stop: Callable[[], None] | None = None) -> None:
        """Run `task(0)`, `task(1)`, ...; one that raises ends the run."""
        tasks: list[Callable[[], object]] = [functools.partial(task, worker) for worker in range(self.count)]
        interleaver = Interleaver(self._schedule, self._finds_races)

        def interrupt() -> None:
            assert stop is not None
            interleaver.step("interrupt", sys._getframe())
            stop()

        interleaver.run([*tasks, interrupt] if self._interrupts and stop is not None else tasks)
        self.steps += interleaver.steps

    def close(self) -> None:
        """Nothing to do."""
