"""The operating system's file calls that local storage uses, behind one port.

The guarantees of `LocalStorage` depend on the order of a few calls and on what each means when it fails. They go
through this port, so that tests can use a disk that crashes between any two calls and loses what was not synced:

    LocalStorage, Appender, Hold
            |
          Disk
            |
      +-----+---------+
    OsDisk      SimulatedDisk (tests/simulation)

Invariant: a method is one call of the operating system, plus what that call requires (a folder is opened to be
synced). Nothing is retried, cached or translated: every failure is the `OSError` of that call, and `BlockingIOError`
if another process has the lock. Descriptors are closed when another program is executed (close-on-exec).
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from dataclasses import dataclass
from typing import Protocol

# Some network file systems cannot sync a folder, and offer no substitute.
_FOLDERS_NOT_SYNCED = (errno.EINVAL, errno.ENOTSUP)
_NOT_ALLOCATING = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_FULL_SYNC = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: its fsync does not flush the disk's own cache


@dataclass(frozen=True, slots=True)
class Status:
    """What a path or a descriptor refers to; `inode` identifies a file on this machine, `modified` counts from 1970."""

    size: int
    modified: float
    inode: tuple[int, int]
    is_folder: bool


class Disk(Protocol):
    """The file calls; each raises the OSError of the operating system."""

    def open_new(self, path: str) -> int:
        """Creates a file for reading and writing; FileExistsError if the name is taken."""

    def open_existing(self, path: str, *, writable: bool) -> int:
        """Opens an existing file."""

    def close(self, descriptor: int) -> None:
        """Closes a descriptor, and releases the lock that it may have."""

    def read(self, descriptor: int, buffer: memoryview, offset: int) -> int:
        """Reads into the buffer from the offset, perhaps only a part; returns the number of bytes, 0 at the end."""

    def write(self, descriptor: int, data: memoryview, offset: int) -> int:
        """Writes the data at the offset, perhaps only a part; returns the number of bytes."""

    def truncate(self, descriptor: int, size: int) -> None:
        """Sets the file's length to `size`."""

    def allocate(self, descriptor: int, offset: int, length: int) -> bool:
        """Reserves space that reads as zeros, and extends the file to hold it; False if that is not supported."""

    def sync(self, descriptor: int) -> None:
        """Returns when the file's bytes and all its metadata are on the disk (fsync)."""

    def sync_data(self, descriptor: int) -> None:
        """Returns when the file's bytes, and the metadata needed to read them, are on the disk (fdatasync)."""

    def lock(self, descriptor: int, *, exclusive: bool) -> None:
        """Locks the file for this descriptor, shared or exclusively; BlockingIOError if another lock conflicts."""

    def unlock(self, descriptor: int) -> None:
        """Releases the descriptor's lock, also for copies of the descriptor in forked processes."""

    def status(self, descriptor: int) -> Status:
        """The status of the descriptor's file."""

    def stat(self, path: str) -> Status:
        """The status of the file or folder at the path."""

    def link(self, source: str, target: str) -> None:
        """Gives a file a second name (hard link); FileExistsError if that is taken."""

    def replace(self, source: str, target: str) -> None:
        """Renames a file, and replaces the one that has the name."""

    def unlink(self, path: str) -> None:
        """Removes a name."""

    def mkdir(self, path: str) -> None:
        """Makes a folder; FileExistsError when the name is taken."""

    def listdir(self, path: str) -> list[str]:
        """The names in a folder, in no order."""

    def sync_folder(self, path: str) -> None:
        """Returns when the names in the folder are on the disk."""


class OsDisk:
    """The file systems of this machine."""

    def open_new(self, path: str) -> int:
        """Creates a file for reading and writing; FileExistsError if the name is taken."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def open_existing(self, path: str, *, writable: bool) -> int:
        """Opens an existing file."""
        return os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)

    def close(self, descriptor: int) -> None:
        """Closes a descriptor, and releases the lock that it may have."""
        os.close(descriptor)

    def read(self, descriptor: int, buffer: memoryview, offset: int) -> int:
        """Reads into the buffer from the offset, perhaps only a part; returns the number of bytes, 0 at the end."""
        return os.preadv(descriptor, [buffer], offset)

    def write(self, descriptor: int, data: memoryview, offset: int) -> int:
        """Writes the data at the offset, perhaps only a part; returns the number of bytes."""
        return os.pwrite(descriptor, data, offset)

    def truncate(self, descriptor: int, size: int) -> None:
        """Sets the file's length to `size`."""
        os.ftruncate(descriptor, size)

    def allocate(self, descriptor: int, offset: int, length: int) -> bool:
        """Reserves space that reads as zeros, and extends the file to hold it; False if that is not supported."""
        if not hasattr(os, "posix_fallocate"):
            return False
        try:
            os.posix_fallocate(descriptor, offset, length)
        except OSError as error:
            if error.errno in _NOT_ALLOCATING:
                return False
            raise
        return True

    def sync(self, descriptor: int) -> None:
        """Returns when the file's bytes and all its metadata are on the disk (fsync)."""
        if _FULL_SYNC is None:
            os.fsync(descriptor)
        else:
            fcntl.fcntl(descriptor, _FULL_SYNC)

    def sync_data(self, descriptor: int) -> None:
        """Returns when the file's bytes, and the metadata needed to read them, are on the disk (fdatasync)."""
        if _FULL_SYNC is None and hasattr(os, "fdatasync"):
            os.fdatasync(descriptor)
        else:
            self.sync(descriptor)

    def lock(self, descriptor: int, *, exclusive: bool) -> None:
        """Locks the file for this descriptor, shared or exclusively; BlockingIOError if another lock conflicts."""
        fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)

    def unlock(self, descriptor: int) -> None:
        """Releases the descriptor's lock, also for copies of the descriptor in forked processes."""
        fcntl.flock(descriptor, fcntl.LOCK_UN)

    def status(self, descriptor: int) -> Status:
        """The status of the descriptor's file."""
        return _status(os.fstat(descriptor))

    def stat(self, path: str) -> Status:
        """The status of the file or folder at the path."""
        return _status(os.stat(path))

    def link(self, source: str, target: str) -> None:
        """Gives a file a second name (hard link); FileExistsError if that is taken."""
        os.link(source, target)

    def replace(self, source: str, target: str) -> None:
        """Renames a file, and replaces the one that has the name."""
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        """Removes a name."""
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        """Makes a folder; FileExistsError when the name is taken."""
        os.mkdir(path)

    def listdir(self, path: str) -> list[str]:
        """The names in a folder, in no order."""
        return os.listdir(path)

    def sync_folder(self, path: str) -> None:
        """Returns when the names in the folder are on the disk."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.sync(descriptor)
        except OSError as error:
            if error.errno not in _FOLDERS_NOT_SYNCED:
                raise
        finally:
            os.close(descriptor)


def _status(found: os.stat_result) -> Status:
    return Status(found.st_size, found.st_mtime, (found.st_dev, found.st_ino), stat.S_ISDIR(found.st_mode))
