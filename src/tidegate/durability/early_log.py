"""Logs a batch while it runs, so that the disk works beside the processors.

    caller's thread   arrange │ check │ run ──────────────────── outcomes │ wait (the record is there already)
    the log's thread                  └ encode │ frame │ write │ sync

Invariant: the memory that a record is encoded into is free again when the next one is encoded: one thread does all of
this, in order, and continues only when the log has been written behind a record.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import Future

from tidegate.durability.command_log import CommandLog
from tidegate.durability.commands import LaterRecord
from tidegate.durability.scratch import Scratch
from tidegate.durability.tasks import Background
from tidegate.foundation.errors import StorageFailed


class EarlyLog:
    """Appends records to a log, and writes them, in the background."""

    def __init__(self, log: CommandLog, background: Background) -> None:
        self._log, self._background = log, background
        self._scratch = Scratch()

    def append(self, record: LaterRecord) -> Future[None]:
        """Log a record; what is returned says when it was appended, from where on the log can be waited for."""
        appended = self._background.submit(lambda: self._append(record))
        self._background.submit(self._write)
        return appended

    def _append(self, record: LaterRecord) -> None:
        self._log.append(record.encode(self._scratch))

    def _write(self) -> None:
        with contextlib.suppress(StorageFailed):  # threads that wait for it get the error
            self._log.flush()
