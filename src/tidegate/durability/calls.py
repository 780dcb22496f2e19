"""Calls of many threads on one engine: the thread that has the engine runs the calls of all that wait.

    thread 1   make a ── gets the lock, runs a b c ── writes the log ── a's outcome
    thread 2   make b ───────────────────────────────────────────────── b's outcome
    thread 3   make c ───────────────────────────────────────────────── c's outcome
    thread 4                        make d ──────────────────────────── gets the lock, runs d ── writes the log ── ...

One transaction runs at a time, and in Python handing a lock to a sleeping thread takes longer than a transaction. So a
thread puts its call into a queue and, if the engine is free, runs everything in the queue. The others wake up once,
when their outcome is there and durable. While the log is written calls only queue: none of them could be answered
before the next sync.

Invariant: calls run in the order of the queue, one at a time, and no thread sleeps while its call is in the queue, the
engine is free and the log is not being written: a thread that releases the engine, has written the log, or leaves the
queue because it was interrupted, wakes the first of them.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from tidegate.durability.command_log import CommandLog


class Call:
    """One call: what to run, and what came of it."""

    __slots__ = ("action", "done", "error", "gate", "outcome")

    def __init__(self, action: Callable[[], Any]) -> None:
        self.action = action
        self.outcome: Any = None
        self.error: BaseException | None = None
        self.done = False
        self.gate = threading.Lock()
        self.gate.acquire()

    def run(self) -> None:
        """Run it; an error is its outcome, an interrupt is not."""
        try:
            self.outcome = self.action()
        except Exception as error:
            self.error = error

    def wake(self) -> None:
        """Let its thread look again."""
        with contextlib.suppress(RuntimeError):  # it is awake already
            self.gate.release()


class Calls:
    """The queue in front of an engine; `lock` is the engine's, and `log` says when an outcome is certain to stay."""

    def __init__(self, lock: Any, log: CommandLog) -> None:
        self._lock = lock
        self._log = log
        self._queue: deque[Call] = deque()
        log.after_write = self._wake_next

    def run(self, action: Callable[[], Any]) -> Any:
        """The outcome of a call, when it has run and is certain to stay; raises what it raised.

        Where nobody else calls there is nothing to hand over: no queue, and no call that others could wake.
        """
        if self._queue or self._log.is_writing or not self._lock.acquire(blocking=False):
            return self.result(self.make(action))
        outcome, failure = None, None
        try:
            try:
                outcome = action()
            except Exception as error:  # it may tell of what another call did: that must be certain to stay
                failure = error
            group = self._log.last()
        finally:
            self._lock.release()
            self._wake_next()
        self._log.wait(group)
        if failure is not None:
            raise failure
        return outcome

    def make(self, action: Callable[[], Any]) -> Call:
        """Put a call into the queue."""
        call = Call(action)
        self._queue.append(call)
        return call

    def result(self, call: Call) -> Any:
        """The outcome of a call, when it has run and is certain to stay; raises what it raised."""
        while not call.done:
            if not self._log.is_writing and self._lock.acquire(blocking=False):
                self._serve(call)
                continue
            try:
                call.gate.acquire()
            except BaseException:  # an interrupt: a call that nobody waits for must not be the one that is woken
                with contextlib.suppress(ValueError):  # it is being run
                    self._queue.remove(call)
                self._wake_next()
                raise
        if call.error is not None:
            raise call.error
        return call.outcome

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Have the engine for anything else than a call."""
        try:
            with self._lock:
                yield
        finally:
            self._wake_next()

    def _serve(self, own: Call) -> None:
        """Run all calls in the queue; this thread has the engine, and releases it before it waits for the log."""
        served: list[Call] = []
        try:
            try:
                while self._queue:
                    served.append(self._queue.popleft())
                    served[-1].run()
                group = self._log.last()
            finally:
                self._lock.release()
                self._wake_next()
            self._log.wait(group)
        except Exception as error:  # the log cannot say what became of them
            for call in served:
                call.error = type(error)(str(error))
        except BaseException:  # an interrupt concerns this thread alone
            for call in served:
                call.error = call.error or InterruptedError(
                    "the thread that ran this call was interrupted; whether the call was applied is not certain"
                )
            raise
        finally:
            for call in served:
                call.done = True
                if call is not own:
                    call.wake()

    def _wake_next(self) -> None:
        if self._queue:
            with contextlib.suppress(IndexError):
                self._queue[0].wake()
