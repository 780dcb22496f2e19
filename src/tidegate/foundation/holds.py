"""File locks that end with their holder, and a check whether a file is locked.

A hold is an `flock` on an open file. The operating system releases it when the process ends, so no lock is ever stale.
For example, readers of a version share one:

    versions-7.lock    held (shared) by processes 310 and 522    may not be removed yet
    versions-6.lock    not held                                  `sweep` removes it

A lock belongs to an inode, and a path may come to name another inode. So after locking a file, `hold` checks that the
path still names it, and otherwise starts again; `sweep` removes a file while it has the exclusive lock:

    hold                              sweep
    open x.lock  (inode 5)
                                      lock inode 5 exclusively, unlink x.lock
    lock inode 5: granted
    x.lock is not inode 5: again

Invariant: during a hold, its path names the locked inode, unless the file is removed by hand. The only way to check
whether a file is held is to lock it briefly. Threads of a process take turns in that. A conflict with another process
counts only if it lasts some milliseconds, so that such a check does not make a `hold` fail.

On a network file system mounted with local locks, only the locks of the same machine are seen.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
import weakref
from collections.abc import Iterator

from tidegate.foundation.disk import Disk, OsDisk

# A check takes some microseconds. `hold` retries for 63 ms in all, to outlast even a checker that has lost the
# processor; a check retries for 7 ms only, because a wrong answer "held" does no harm.
PATIENCE_SECONDS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032)
_PATIENCE_OF_ASKING = PATIENCE_SECONDS[:3]
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)


class Hold:
    """A lock that lasts until it is released or this process ends."""

    def __init__(self, disk: Disk, descriptor: int) -> None:
        self._disk, self._descriptor = disk, descriptor
        if isinstance(disk, OsDisk):
            _HOLDS.add(self)

    def release(self) -> None:
        """Releases the lock; does nothing if it was released before."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                self._disk.unlock(descriptor)
            with contextlib.suppress(OSError):
                self._disk.close(descriptor)

    def _drop(self) -> None:
        """Closes the copy in a forked process: it must neither release its parent's lock nor prolong it."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                self._disk.close(descriptor)


_HOLDS: weakref.WeakSet[Hold] = weakref.WeakSet()
_turn = threading.RLock()


def _drop_in_child() -> None:
    global _turn
    _turn = threading.RLock()  # the thread that had it does not exist here
    for hold in list(_HOLDS):
        hold._drop()


os.register_at_fork(after_in_child=_drop_in_child)


def hold(disk: Disk, file: str, *, exclusive: bool) -> Hold | None:
    """Locks the file, created if missing; BlockingIOError on a conflict, None if the file system has no locks."""
    patience = list(PATIENCE_SECONDS)
    while True:
        try:
            with _turn:
                descriptor, has_locks = _hold_now(disk, file, exclusive=exclusive)
            break
        except BlockingIOError:
            if not patience:
                raise
            time.sleep(patience.pop(0))
    if has_locks:
        return Hold(disk, descriptor)
    disk.close(descriptor)
    return None


def _hold_now(disk: Disk, file: str, *, exclusive: bool) -> tuple[int, bool]:
    """A locked descriptor of the file at the path, and whether the file system has locks at all."""
    while True:
        try:
            descriptor = _open_for_locking(disk, file)
        except FileNotFoundError:
            try:
                descriptor = disk.open_new(file)
            except FileExistsError:
                continue
        try:
            has_locks = _locks(disk, descriptor, exclusive=exclusive)
            if not has_locks or _names(disk, file, descriptor):
                return descriptor, has_locks
        except OSError:
            disk.close(descriptor)
            raise
        disk.close(descriptor)


def is_held(disk: Disk, file: str) -> bool | None:
    """Whether any process holds the file; None if the file system has no locks."""
    for pause in (*_PATIENCE_OF_ASKING, None):
        try:
            with _locked_for_an_instant(disk, file) as has_locks:
                return False if has_locks else None
        except FileNotFoundError:
            return False
        except BlockingIOError:
            if pause is not None:
                time.sleep(pause)
    return True


def remove_unheld(disk: Disk, file: str) -> bool:
    """Removes the file if it is not held; returns whether it did."""
    try:
        with _locked_for_an_instant(disk, file) as has_locks:
            if has_locks:
                disk.unlink(file)
            return has_locks
    except (BlockingIOError, FileNotFoundError):
        return False


@contextlib.contextmanager
def _locked_for_an_instant(disk: Disk, file: str) -> Iterator[bool]:
    """Locks the file at the path exclusively; yields whether there are locks, BlockingIOError if it is held."""
    with _turn:
        while True:
            descriptor = _open_for_locking(disk, file)
            try:
                has_locks = _locks(disk, descriptor, exclusive=True)
                if not has_locks or _names(disk, file, descriptor):
                    yield has_locks
                    return
            finally:
                disk.close(descriptor)


def _open_for_locking(disk: Disk, file: str) -> int:
    """A descriptor to lock, writable if possible: network file systems lock only those exclusively."""
    try:
        return disk.open_existing(file, writable=True)
    except OSError as error:
        if error.errno not in _READ_ONLY:
            raise
        return disk.open_existing(file, writable=False)


def _locks(disk: Disk, descriptor: int, *, exclusive: bool) -> bool:
    """Locks the descriptor; False if the file system has no locks, BlockingIOError if another lock conflicts."""
    try:
        disk.lock(descriptor, exclusive=exclusive)
        return True
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return False
        raise


def _names(disk: Disk, file: str, descriptor: int) -> bool:
    """Whether path and descriptor refer to the same file."""
    try:
        return disk.stat(file).inode == disk.status(descriptor).inode
    except FileNotFoundError:
        return False
