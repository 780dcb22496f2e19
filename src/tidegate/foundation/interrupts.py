"""Delays Ctrl-C to a safe moment: a batch happens as a whole or not at all.

Python raises KeyboardInterrupt between any two instructions, even in the middle of changing rows. Inside this block an
interrupt is only noted, and raised when the block is left. Code that can still stop without effects passes a function
that does so (`stop_with`).

    with Interrupts() as interrupts:
        with interrupts.stop_with(stop):     # nothing has happened yet: stop() undoes the rest
            ...
        ...                                  # from here on it runs to the end
    # KeyboardInterrupt is raised here

In Python only the main thread receives signals, so in other threads the block does nothing. If the user has installed
a handler, that is called instead of Python's.

A transaction that never ends never leaves the block. Compiled loops look at `signals()`, and stop if Ctrl-C was
pressed. Python runs handlers only between two instructions of its own, so it is told to write the number of a signal
into a file at once, by `signal.set_wakeup_fd`, as for event loops. The file is in memory, and `signals` is that memory:
a loop pays one load each round, and no thread waits for anything. This is for Python's own handler, which raises
KeyboardInterrupt; what another one wants is not known. Around a user's own function, which has nothing to undo,
`ending_at_once` lets an interrupt end that function.

The block surrounds every single transaction, so it calls the C functions under the module `signal`: without the
conversion to enums they take 0.6 us, the module's take 12.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import contextlib
import mmap
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

SIGINT = _signal.SIGINT
SIGNALS = 4096
"""How many signals of all kinds are noted in one block; a Ctrl-C behind them does not end a loop."""


class _Board:
    """A file in memory into which signals are written, of one process."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.file: int | None = None
        self.words = np.zeros(1, np.int64)
        with contextlib.suppress(OSError):  # no more files, or none in memory: then loops are not interrupted
            file = os.memfd_create("tidegate-signals") if hasattr(os, "memfd_create") else _file()
            os.truncate(file, SIGNALS)
            os.set_blocking(file, False)
            self.words, self.file = np.frombuffer(mmap.mmap(file, SIGNALS), np.int64), file


def _file() -> int:
    descriptor, name = tempfile.mkstemp(prefix="tidegate-signals-")
    os.unlink(name)
    return descriptor


_boards: list[_Board] = []


def _board() -> _Board:
    if not _boards or _boards[0].process != os.getpid():  # a fork shares the memory
        _boards[:] = [_Board()]
    return _boards[0]


def signals() -> npt.NDArray[np.int64]:
    """Memory that holds the numbers of the signals that came in the current block that watches, one byte each."""
    return _board().words


@contextlib.contextmanager
def ending_at_once() -> Iterator[None]:
    """An interrupt in this block raises KeyboardInterrupt, if it is in the thread of a block that watches."""
    watching = _watching[-1] if _watching and threading.current_thread() is threading.main_thread() else None
    if watching is None:
        yield
        return
    with watching.stop_with(_raise):
        yield


def _raise() -> None:
    raise KeyboardInterrupt


_watching: list[Interrupts] = []


class Interrupts:
    """Notes SIGINT while the block runs; with `watch`, also in `signals`."""

    def __init__(self, watch: bool = False) -> None:
        self.requested = False
        self._watch = watch
        self._descriptor: int | None = None
        self._stop: Callable[[], None] | None = None
        self._before: Any = None
        self._frame: FrameType | None = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            before = _signal.getsignal(SIGINT)
            if callable(before):
                self._before = before
                _signal.signal(SIGINT, self._note)
                if self._watch and before is _signal.default_int_handler:
                    self._begin_watching()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is None:
            return
        if self._descriptor is not None:
            self._end_watching(self._descriptor)
        _signal.signal(SIGINT, self._before)
        if self.requested:
            self._before(SIGINT, self._frame)

    @contextlib.contextmanager
    def stop_with(self, stop: Callable[[], None]) -> Iterator[None]:
        """An interrupt in this block, or noted before it, calls `stop` at once."""
        outer, self._stop = self._stop, stop
        try:
            if self.requested:
                stop()
            yield
        finally:
            self._stop = outer

    def _begin_watching(self) -> None:
        board = _board()
        if board.file is None:
            return
        os.lseek(board.file, 0, os.SEEK_SET)
        board.words[:] = 0
        self._descriptor = _signal.set_wakeup_fd(board.file, warn_on_full_buffer=False)
        _watching.append(self)

    def _end_watching(self, before: int) -> None:
        """Whoever wanted to be woken by signals is, by those that came meanwhile."""
        _watching.pop()
        _signal.set_wakeup_fd(before)
        board = _board()
        assert board.file is not None
        came = os.lseek(board.file, 0, os.SEEK_CUR)
        if came and before >= 0:
            with contextlib.suppress(OSError):
                os.write(before, board.words.tobytes()[:came])
        board.words[:] = 0

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.requested, self._frame = True, frame
        if self._stop is not None:
            self._stop()
