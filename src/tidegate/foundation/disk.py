"""The operating system's file calls that local storage uses, behind one port.

What `LocalStorage` promises rests on the order of a few calls and on what each of them means when it fails. They go
through this port, so that tests can use a disk that crashes between any two calls and loses what was not synced:

    LocalStorage, Appender, Hold
            |
          Disk
            |
      +-----+---------+
    OsDisk      SimulatedDisk (tests/simulation)

Invariant: a method is one call of the operating system, or one call and what belongs to it (a folder is opened to be
synced). Nothing is retried, cached or translated: every refusal is the `OSError` of that call; for a lock that another
process has it is `BlockingIOError`. Descriptors are closed when another program is executed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from dataclasses import dataclass
from typing import Protocol

# Some network file systems sync no folders and have no other way to do it.
_FOLDERS_NOT_SYNCED = (errno.EINVAL, errno.ENOTSUP)
_NOT_ALLOCATING = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_FULL_SYNC = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: there fsync does not reach the disk's platter


@dataclass(frozen=True, slots=True)
class Status:
    """What a path or a descriptor leads to; `inode` names one file of this machine, `modified` counts from 1970."""

    size: int
    modified: float
    inode: tuple[int, int]
    is_folder: bool


class Disk(Protocol):
    """The file calls; each raises the OSError of the operating system."""

    def open_new(self, path: str) -> int:
        """Creates the file, to read and write it; FileExistsError when the name is taken."""

    def open_existing(self, path: str, *, writable: bool) -> int:
        """Opens a file that is there."""

    def close(self, descriptor: int) -> None:
        """Ends the use of a descriptor, and a lock that it has."""

    def read(self, descriptor: int, buffer: memoryview, offset: int) -> int:
        """Fills the buffer with what lies at the offset, or a part of it; how many bytes, 0 at the end."""

    def write(self, descriptor: int, data: memoryview, offset: int) -> int:
        """Writes the data at the offset, or a part of it; how many bytes."""

    def truncate(self, descriptor: int, size: int) -> None:
        """Makes the file this long."""

    def allocate(self, descriptor: int, offset: int, length: int) -> bool:
        """Reserves space that reads as zeros, and makes the file long enough; False where that is not supported."""

    def sync(self, descriptor: int) -> None:
        """Returns when the file's bytes and all about it are on the disk."""

    def sync_data(self, descriptor: int) -> None:
        """Returns when the file's bytes, and what is needed to read them, are on the disk."""

    def lock(self, descriptor: int, *, exclusive: bool) -> None:
        """Locks the file for this descriptor, shared or exclusively; BlockingIOError when another lock forbids it."""

    def unlock(self, descriptor: int) -> None:
        """Ends the descriptor's lock, in copies of it that a fork made too."""

    def status(self, descriptor: int) -> Status:
        """What the descriptor leads to."""

    def stat(self, path: str) -> Status:
        """What the path leads to."""

    def link(self, source: str, target: str) -> None:
        """Gives a file a second name; FileExistsError when it is taken."""

    def replace(self, source: str, target: str) -> None:
        """Renames a file over whatever has the name."""

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
        """Creates the file, to read and write it; FileExistsError when the name is taken."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def open_existing(self, path: str, *, writable: bool) -> int:
        """Opens a file that is there."""
        return os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)

    def close(self, descriptor: int) -> None:
        """Ends the use of a descriptor, and a lock that it has."""
        os.close(descriptor)

    def read(self, descriptor: int, buffer: memoryview, offset: int) -> int:
        """Fills the buffer with what lies at the offset, or a part of it; how many bytes, 0 at the end."""
        return os.preadv(descriptor, [buffer], offset)

    def write(self, descriptor: int, data: memoryview, offset: int) -> int:
        """Writes the data at the offset, or a part of it; how many bytes."""
        return os.pwrite(descriptor, data, offset)

    def truncate(self, descriptor: int, size: int) -> None:
        """Makes the file this long."""
        os.ftruncate(descriptor, size)

    def allocate(self, descriptor: int, offset: int, length: int) -> bool:
        """Reserves space that reads as zeros, and makes the file long enough; False where that is not supported."""
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
        """Returns when the file's bytes and all about it are on the disk."""
        if _FULL_SYNC is None:
            os.fsync(descriptor)
        else:
            fcntl.fcntl(descriptor, _FULL_SYNC)

    def sync_data(self, descriptor: int) -> None:
        """Returns when the file's bytes, and what is needed to read them, are on the disk."""
        if _FULL_SYNC is None and hasattr(os, "fdatasync"):
            os.fdatasync(descriptor)
        else:
            self.sync(descriptor)

    def lock(self, descriptor: int, *, exclusive: bool) -> None:
        """Locks the file for this descriptor, shared or exclusively; BlockingIOError when another lock forbids it."""
        fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)

    def unlock(self, descriptor: int) -> None:
        """Ends the descriptor's lock, in copies of it that a fork made too."""
        fcntl.flock(descriptor, fcntl.LOCK_UN)

    def status(self, descriptor: int) -> Status:
        """What the descriptor leads to."""
        return _status(os.fstat(descriptor))

    def stat(self, path: str) -> Status:
        """What the path leads to."""
        return _status(os.stat(path))

    def link(self, source: str, target: str) -> None:
        """Gives a file a second name; FileExistsError when it is taken."""
        os.link(source, target)

    def replace(self, source: str, target: str) -> None:
        """Renames a file over whatever has the name."""
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
