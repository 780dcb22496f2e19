"""Follows the outcomes of requests in a state, version after version, while a query writes it.

    versions   5  6  7 | 8            `look`: is there a file of version 8? Only its record of outcomes is read,
               read    | new          and nothing of 1 to 7 again

So a look costs one file system call while nothing happens, whatever the size of the state. In memory are the records of
the versions that the state still keeps.

Files are never altered, but a state may be deleted and begun again at the same path. So the header of the newest
version that was read is compared: if it is another one, everything is read again.

Safe for several threads; all threads of a process that wait on one state share one log.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict

import pyarrow as pa

from tidegate.durability import files
from tidegate.durability.records import OUTCOMES, fits, outcome_in, row_of
from tidegate.durability.version_reader import VersionReader
from tidegate.foundation.errors import RecoveryImpossible
from tidegate.foundation.storage import Storage, open_storage
from tidegate.operations.outcomes import Outcome

LIST_SECONDS = 1.0
"""How often a look lists the state's files, though the next version's file is not there."""

LOGS_MAX = 8
"""States that one process follows; beyond it the one not asked for longest is forgotten."""

_logs: OrderedDict[str, OutcomeLog] = OrderedDict()
_logs_lock = threading.Lock()


class OutcomeLog:
    """The outcomes of requests in the versions of one state."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._lock = threading.Lock()
        self._listed_at = float("-inf")
        self._count = 0
        self._start_again()

    def _start_again(self) -> None:
        self._store = VersionReader(self.storage)
        self._records: dict[int, tuple[int, pa.Table]] = {}
        """By version: its record, and a serial number given when it was read. Serial numbers are never used again."""
        self.newest = 0
        """The newest version that was seen; 0 when there is none."""
        self._hash: str | None = None
        self.keeps_outcomes = False
        """Whether any version keeps outcomes, even if none of its events was a request."""

    def look(self, at_all: bool) -> None:
        """Read what is new; with `at_all`, all files are listed even if the next version is not there."""
        with self._lock:
            due = at_all or self.newest == 0 or time.monotonic() - self._listed_at > LIST_SECONDS
            if due or self.storage.exists(f"{self.newest + 1:012d}.change"):
                self._read()

    def find(self, request_id: int | str, after: int = 0) -> tuple[Outcome | None, int]:
        """The newest outcome of a request among the records read since `after`, and how many were read until now."""
        with self._lock:
            for version in sorted(self._records, reverse=True):
                number, record = self._records[version]
                if number > after and (row := row_of(record, request_id)) >= 0:
                    return outcome_in(record, row), self._count
            return None, self._count

    def takes(self, request_id: int | str) -> bool:
        """Whether an id has the type of the newest ids; True while there are none."""
        with self._lock:
            return not self._records or fits(self._records[max(self._records)][1], request_id)

    def _read(self) -> None:
        if self.newest and self._hash_of(self.newest) != self._hash:
            self._start_again()
        versions = self._store.refresh()
        self._listed_at = time.monotonic()
        kept = set(versions)
        self._records = {version: record for version, record in self._records.items() if version in kept}
        for version in versions:
            if version > self.newest:
                self._read_version(version)
        self._hash = self._hash_of(self.newest)

    def _read_version(self, version: int) -> None:
        try:
            info = self._store.info(version)
            if OUTCOMES in info.records:
                self.keeps_outcomes = True
                record = self._store.read_record(version, OUTCOMES)
                if record is not None:
                    self._count += 1
                    self._records[version] = (self._count, record)
        except RecoveryImpossible:
            return  # collected meanwhile
        self.newest = version

    def _hash_of(self, version: int) -> str | None:
        """What tells the file of a version from another one of that name; None if there is none."""
        for kind in ("change", "snapshot"):
            with contextlib.suppress(FileNotFoundError):
                return files.read_header(self.storage, f"{version:012d}.{kind}").hash
        return None


def log_of(path: str) -> OutcomeLog:
    """The log of a state, the same for all that ask in this process."""
    storage = open_storage(path)
    with _logs_lock:
        log = _logs.pop(storage.path, None) or OutcomeLog(storage)
        while len(_logs) >= LOGS_MAX:
            _logs.popitem(last=False)
        _logs[storage.path] = log
        return log
