"""An append-only file for a log: a record is durable once it has been written and synced.

    0            end            allocated
    | record | record | zeros ...   |       reserve(size) moves `allocated`, write(data) moves `end`

Space is allocated ahead, in steps of `STEP_SIZE`. So `reserve` notices a full disk before a byte of the record is
written, and a sync need not store a new file size each time. The price: the file ends in zeros, and readers must find
the end of the records by their content.

Invariant: after `sync` returned, all bytes below `end` are on the disk. After a failed write or sync, it is unknown
what is on the disk beyond the last successful sync: a system may drop what it could not write and report success the
next time. So the appender refuses every further call, and the file must be reopened at the end of what was synced.
Opening truncates the rest, so that a piece of an old record can never follow a new one, and syncs what remains: a
killed process may have written it and never synced it.

This module does not know what a record is. It cannot repair a failed sync either: until the machine is restarted,
what is read back may exist in memory only.
"""

from __future__ import annotations

import contextlib

import pyarrow as pa

from tidegate.foundation import refusals
from tidegate.foundation.disk import Disk
from tidegate.foundation.errors import StorageFailed, StorageUncertain

STEP_SIZE = 4 << 20


class Appender:
    """One open file; the next write goes to `end`. Made by `Storage.append_to`, used by one thread at a time."""

    def __init__(self, disk: Disk, file: str, descriptor: int, end: int) -> None:
        self._disk, self._file, self._descriptor = disk, file, descriptor
        self.end = self._allocated = end
        self._dead = ""

    @classmethod
    def create(cls, disk: Disk, file: str) -> Appender:
        """Creates a new file; the caller syncs its folder. Errors of the disk are passed on."""
        return cls(disk, file, disk.open_new(file), 0)

    @classmethod
    def go_on(cls, disk: Disk, file: str, at: int) -> Appender:
        """Opens a file to append at an offset, truncates what lies after it and syncs the rest."""
        with refusals.refusing(file, "open"):
            descriptor = disk.open_existing(file, writable=True)
        try:
            size = disk.status(descriptor).size
            if size < at:
                raise StorageFailed(
                    f"{file}: required at least {at} bytes to go on behind them, got {size}: its end is lost. "
                    "Restore the file, or go back to a version that does not need it."
                )
            if size > at:
                disk.truncate(descriptor, at)
            disk.sync(descriptor)
        except OSError as error:
            disk.close(descriptor)
            raise refusals.in_doubt(file, f"going on at {at} failed", error) from error
        except StorageFailed:
            disk.close(descriptor)
            raise
        return cls(disk, file, descriptor, at)

    def reserve(self, size: int) -> None:
        """Makes sure that `size` more bytes fit; otherwise raises StorageFailed and changes nothing."""
        self._require_alive()
        needed = self.end + size
        if needed <= self._allocated:
            return
        ahead = -(-needed // STEP_SIZE) * STEP_SIZE
        try:
            try:
                self._disk.allocate(self._descriptor, self._allocated, ahead - self._allocated)
            except OSError:
                ahead = needed  # the record may still fit where a whole step does not
                self._disk.allocate(self._descriptor, self._allocated, ahead - self._allocated)
        except OSError as error:
            raise refusals.failed(self._file, "write", error) from error
        self._allocated = ahead

    def write(self, data: bytes | bytearray | memoryview | pa.Buffer) -> None:
        """Writes all of the data at `end`; if that fails, raises StorageUncertain, and the appender is dead."""
        self._require_alive()
        rest, offset = memoryview(data).cast("B"), self.end
        try:
            while len(rest):
                count = self._disk.write(self._descriptor, rest, offset)
                rest, offset = rest[count:], offset + count
        except OSError as error:
            raise self._die("appending to it failed", error) from error
        self.end, self._allocated = offset, max(offset, self._allocated)

    def sync(self) -> None:
        """Returns when all written data is on the disk; otherwise raises StorageUncertain, and the appender is dead."""
        self._require_alive()
        try:
            self._disk.sync_data(self._descriptor)
        except OSError as error:
            raise self._die("syncing it failed", error) from error

    def close(self) -> None:
        """Closes the file; allocated space stays, nothing is synced."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            self._dead = self._dead or f"{self._file}: required an open file to append to, got one that was closed."
            with contextlib.suppress(OSError):
                self._disk.close(descriptor)

    def _die(self, step: str, error: OSError) -> StorageUncertain:
        uncertain = refusals.in_doubt(self._file, step, error)
        self._dead = str(uncertain)
        return uncertain

    def _require_alive(self) -> None:
        if self._dead:
            raise StorageUncertain(self._dead)
