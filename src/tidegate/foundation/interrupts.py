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

The block surrounds every single transaction, so it calls the C functions under the module `signal`: without the
conversion to enums they take 0.6 us, the module's take 12.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import contextlib
import threading
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any

SIGINT = _signal.SIGINT


class Interrupts:
    """Notes SIGINT while the block runs."""

    def __init__(self) -> None:
        self.requested = False
        self._stop: Callable[[], None] | None = None
        self._before: Any = None
        self._frame: FrameType | None = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            before = _signal.getsignal(SIGINT)
            if callable(before):
                self._before = before
                _signal.signal(SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is None:
            return
        _signal.signal(SIGINT, self._before)
        if self.requested:
            self._before(SIGINT, self._frame)

    @contextlib.contextmanager
    def stop_with(self, stop: Callable[[], None]) -> Iterator[None]:
        """An interrupt in this block, or noted before it, calls `stop` at once."""
        self._stop = stop
        try:
            if self.requested:
                stop()
            yield
        finally:
            self._stop = None

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.requested, self._frame = True, frame
        if self._stop is not None:
            self._stop()
