"""Compactions and collections in the background, one at a time, which no batch waits for.

    request(7) ──> thread: compact version 7, collect
    request(9)             (7 is still running)
    request(12)            (9 is given up: a newer one came before it was begun)
                   thread: compact version 12, collect, end
    take_finished() gives the snapshot of version 12

The thread lives only while there is work. Large states are compacted in a child process (compaction_process.py says
why); small ones, and those in a storage that a child cannot open, by the thread itself, in some tenths of a second.

Invariant: nothing raises into a batch. A failure is logged, and tried again at the next request; the old snapshot and
all changes are there. A compactor shares nothing with the engine's store but the files.
"""

from __future__ import annotations

import atexit
import logging
import subprocess
import threading
import weakref

from tidegate.durability import compaction_process, ownership
from tidegate.durability.compaction import Stopped, compact
from tidegate.durability.version_info import VersionInfo
from tidegate.durability.versions import VersionStore
from tidegate.foundation.errors import StorageFailed
from tidegate.foundation.storage import Storage

CHILD_BYTES = 32 << 20
"""From this size of the rows on a child process compacts: below, starting it costs more than it saves."""

CLOSING_SECONDS = 10.0
REPORT_SIZE = 2000

_log = logging.getLogger(__name__)
_running: weakref.WeakSet[Compactor] = weakref.WeakSet()


class Compactor:
    """Compacts and collects in the background; its methods return at once and may be called by any thread."""

    def __init__(self, storage: Storage, keep_versions: int = 100) -> None:
        self._storage, self._keep_versions = storage, keep_versions
        self._turn = threading.Lock()
        self._stop = threading.Event()
        self._wanted: tuple[int, int] | None = None
        self._epoch: int | None = None
        self._finished: VersionInfo | None = None
        self._thread: threading.Thread | None = None
        self._child: subprocess.Popen[str] | None = None

    def request(self, version: int, size: int = 0) -> None:
        """Asks for a snapshot of a committed version, of about `size` bytes; one not yet begun is given up for it."""
        with self._turn:
            self._wanted = version, size
            self._wake()

    def sweep(self, epoch: int) -> None:
        """Asks that old versions and whatever others left behind be removed; `epoch` is the owner's."""
        with self._turn:
            self._epoch = epoch
            self._wake()

    def take_finished(self) -> VersionInfo | None:
        """The newest snapshot that was finished since the last call; what it replaces is removed by then."""
        with self._turn:
            finished, self._finished = self._finished, None
            return finished

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until nothing is left to do; False when that takes longer."""
        thread = self._thread
        if thread is not None:
            thread.join(seconds)
        return thread is None or not thread.is_alive()

    def close(self, seconds: float = CLOSING_SECONDS) -> None:
        """Stops between two sections and waits for that; nothing that is asked for afterwards happens."""
        with self._turn:
            self._stop.set()
            if self._child is not None:
                self._child.terminate()
        if not self.wait(seconds):
            _log.warning("%s: a snapshot is still being written after %g seconds", self._storage.path, seconds)

    def _wake(self) -> None:
        if self._stop.is_set() or (self._thread is not None and self._thread.is_alive()):
            return
        self._thread = threading.Thread(target=self._work, name="tidegate-compaction", daemon=True)
        _running.add(self)
        self._thread.start()

    def _next(self) -> tuple[tuple[int, int] | None, int | None]:
        with self._turn:
            wanted = self._wanted, self._epoch
            self._wanted = self._epoch = None
            if wanted == (None, None):
                self._thread = None  # under the lock: the next request starts another one
            return wanted

    def _work(self) -> None:
        while (wanted := self._next()) != (None, None) and not self._stop.is_set():
            request, epoch = wanted
            try:
                if epoch is not None:
                    ownership.tidy(self._storage, epoch)
                    VersionStore(self._storage, self._keep_versions).collect()
                if request is not None:
                    self._compact(*request)
            except Stopped:
                return
            except Exception:  # no batch waits for this
                what = "sweeping" if request is None else f"the snapshot of version {request[0]}"
                _log.warning("%s: %s failed; it will be tried again", self._storage.path, what, exc_info=True)

    def _compact(self, version: int, size: int) -> None:
        store = VersionStore(self._storage, self._keep_versions)
        address = self._storage.address
        if size >= CHILD_BYTES and address is not None:
            self._compact_in_child(address, version)
            self._publish(store.open_file(version, "snapshot")[0])
            return
        written = compact(store, version, self._pause)
        try:
            store.collect()
        finally:
            self._publish(written)

    def _compact_in_child(self, address: str, version: int) -> None:
        child = compaction_process.start(address, version, self._keep_versions)
        with self._turn:
            self._child = child
            if self._stop.is_set():
                child.terminate()
        try:
            _, told = child.communicate()
        finally:
            with self._turn:
                self._child = None
        self._pause()
        if child.returncode != 0:
            raise StorageFailed(f"the process that compacts ended with {child.returncode}: {told[-REPORT_SIZE:]}")

    def _publish(self, written: VersionInfo) -> None:
        with self._turn:
            self._finished = written

    def _pause(self) -> None:
        if self._stop.is_set():
            raise Stopped


def _close_all() -> None:
    """A thread inside Arrow when the interpreter takes itself apart may crash the process."""
    for compactor in list(_running):
        compactor.close()


atexit.register(_close_all)
