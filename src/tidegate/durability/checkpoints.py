"""The checkpoints of an engine with a log: one at a time, written in the background.

    begin(info, changed rows)  ──>  thread: commit the version; request a snapshot if one is due; remove old files
    join()                     <──  it is there, or it failed, and then its rows are in the next one, too

A checkpoint is a version of the state (versions.py) that says how many commands of the log it covers. The newest
`keep_versions` are kept, and the log behind the oldest of them; segments that it covers are removed.

Invariant: `newest` is committed; a failure after its commit is only logged. Where it is unknown whether a checkpoint
was committed, or another owner committed one, `refusal` is the error, and the engine must stop.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping

import pyarrow as pa

from tidegate.durability import log_segments, ownership
from tidegate.durability.compactor import Compactor
from tidegate.durability.tasks import Background, Task
from tidegate.durability.versions import Changes, VersionInfo, VersionStore
from tidegate.foundation.errors import StorageUncertain
from tidegate.foundation.storage import Storage

CHECKPOINTS_KEPT = 2
"""Checkpoints that are kept unless a user asks for more or fewer: should the newest be damaged, there is one below."""

_log = logging.getLogger(__name__)


class Checkpoints:
    """The newest checkpoint of a state, and the one that is being written; for one thread at a time."""

    def __init__(self, storage: Storage, background: Background, keep_versions: int = CHECKPOINTS_KEPT) -> None:
        self.store = VersionStore(storage, keep_versions)
        self.newest: VersionInfo
        self.refusal: Exception | None = None
        self._storage, self._background = storage, background
        self._compactor = Compactor(storage, keep_versions)
        self._task: Task | None = None
        self._unkept: Changes | None = None

    def begin(self, info: VersionInfo, changes: Changes, records: Mapping[str, pa.Table], size: int) -> None:
        """Start to write a checkpoint; the one before must have been joined. `size` is about that of all rows."""
        self._task = self._background.start(lambda: self._write(info, changes, records, size))

    @property
    def is_running(self) -> bool:
        """Whether one is being written."""
        return self._task is not None and self._task.is_alive()

    def join(self) -> Changes | None:
        """Wait for the checkpoint that is being written; if it failed, the rows that the next one must hold, too."""
        if self._task is not None:
            self._task.join()
            self._task = None
        unkept, self._unkept = self._unkept, None
        return unkept

    def close(self) -> None:
        """End what runs in the background."""
        self._compactor.close()

    def _write(self, info: VersionInfo, changes: Changes, records: Mapping[str, pa.Table], size: int) -> None:
        try:
            self.newest = self.store.commit(info, changes, None, records)
        except FileExistsError:
            self.refusal = ownership.taken_over(self._storage, self.store.newest())
            return
        except StorageUncertain as error:
            self.refusal = error
            return
        except Exception:
            _log.warning("%s: a checkpoint failed; the log keeps growing", self._storage.path, exc_info=True)
            self._unkept = changes
            return
        try:
            self._tidy(size)
        except Exception:
            _log.warning("%s: old files could not be removed", self._storage.path, exc_info=True)

    def _tidy(self, size: int) -> None:
        """Ask for a snapshot of the whole state if it is due, and remove the files that no kept checkpoint needs."""
        finished = self._compactor.take_finished()
        if finished is not None:
            self.store.learn(finished)
        if self.store.wants_snapshot():
            self.store.postpone_snapshot()
            self._compactor.request(self.newest.version, size)
        self.store.collect()
        kept = self.store.infos()[-self.store.keep_versions :]
        firsts = log_segments.numbers(self._storage)
        for first, following in itertools.pairwise(firsts):
            if following <= kept[0].commands + 1:
                self._storage.delete(f"{first:012d}.log")
