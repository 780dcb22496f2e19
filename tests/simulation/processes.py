"""Several processes on one simulated disk: they take turns at its calls, and each can die alone.

A process stands between a storage and the disk. It counts its own calls and can be told to die at one of
them; then its locks end and the machine goes on, while every further call of its code raises:

    first    open_new  write  sync  link           sync_folder
    second                               open  lock            read  (dies)

Activities that run at once are threads, of which exactly one runs at any time. At each call of the disk the
one that has the turn keeps it, or gives it to another: the seed decides, so that the same seed gives the same
interleaving. Real processes have no other points at which one can notice the other.

Not here: what the processes do (world.py).
"""

from __future__ import annotations

import contextvars
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

from .disk import SimulatedCrash, SimulatedDisk

CALLS_AFTER_A_PAUSE = 12
"""How long whoever gets the turn from one that waits keeps it: to ask for a lock takes half as many calls."""


class Turns:
    """Runs activities at once, one step of one of them at a time."""

    def __init__(self, chooser: random.Random, share: float = 0.25) -> None:
        self._chooser, self.share = chooser, share
        self._waiting: list[threading.Semaphore] = []  # of all activities that have not ended
        self._own: threading.Semaphore | None = None
        self._calm = 0

    def run(self, activities: Sequence[Callable[[], None]]) -> None:
        """Returns when all have ended; they must not raise."""
        if len(activities) == 1:
            activities[0]()
            return
        done = threading.Semaphore(0)
        turns = [threading.Semaphore(0) for _ in activities]

        def live(activity: Callable[[], None], turn: threading.Semaphore) -> None:
            turn.acquire()
            self._own = turn
            try:
                activity()
            finally:
                self._waiting.remove(turn)
                (self._chooser.choice(self._waiting) if self._waiting else done).release()

        self._waiting, self._calm = list(turns), 0
        threads = [
            threading.Thread(target=contextvars.copy_context().run, args=(live, activity, turn))
            for activity, turn in zip(activities, turns, strict=True)
        ]
        for thread in threads:
            thread.start()
        self._chooser.choice(turns).release()
        done.acquire()
        for thread in threads:
            thread.join()
        self._own = None

    def may_change(self) -> None:
        """The turn may go to another activity; returns when it is back."""
        if self._own is None or len(self._waiting) < 2:
            return
        if self._calm:
            self._calm -= 1
        elif self._chooser.random() < self.share:
            self._give_away(self._chooser.choice([turn for turn in self._waiting if turn is not self._own]))

    def wait(self) -> None:
        """The activity sleeps: another one gets the turn for a while, all of them one after the other."""
        if self._own is not None and len(self._waiting) > 1:
            self._calm = CALLS_AFTER_A_PAUSE
            self._give_away(self._waiting[(self._waiting.index(self._own) + 1) % len(self._waiting)])

    def _give_away(self, other: threading.Semaphore) -> None:
        own = self._own
        assert own is not None
        other.release()
        own.acquire()
        self._own = own


class Process:
    """The disk as one process has it: implements `tidegate.foundation.disk.Disk`.

    `on_call` is told of every call before it is made, `on_link` of every name that was given.
    """

    def __init__(
        self,
        disk: SimulatedDisk,
        pid: int,
        on_call: Callable[[Process], None],
        on_link: Callable[[Process, str], None],
    ) -> None:
        self.disk, self.pid = disk, pid
        self.name = f"process {pid}"
        self.dead = False
        self.dies_in: int | None = None  # how many calls from now
        self.dies_at = ""  # the name of the call, or empty: any
        self.dies_late = False  # after the call's effect, not before
        self._on_call, self._on_link = on_call, on_link
        self._descriptors: set[int] = set()

    def die(self) -> None:
        """The process is gone, with its locks and its memory."""
        if not self.dead:
            self.dead = True
            self.disk.note(f"{self.name} dies")
            self.disk.end_program(self._descriptors)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(SimulatedDisk, name)

        def call(*arguments: Any, **named: Any) -> Any:
            self._on_call(self)
            dies = self._counts_down(name)
            if dies and not self.dies_late:
                self.die()
            if self.dead:
                raise SimulatedCrash
            self.disk.caller = f"{self.pid} "
            source = self.disk.inode(arguments[0]) if name == "link" else None
            try:
                result = method(self.disk, *arguments, **named)
            finally:
                if source is not None and self.disk.inode(arguments[1]) == source:
                    self._on_link(self, arguments[1])
                if dies:
                    self.die()
            if name in ("open_new", "open_existing"):
                self._descriptors.add(result)
            if dies:
                self.disk.end_program(self._descriptors)
                raise SimulatedCrash
            return result

        return call

    def _counts_down(self, name: str) -> bool:
        if self.dies_in is None or self.dies_at not in ("", name):
            return False
        self.dies_in -= 1
        return self.dies_in < 0
