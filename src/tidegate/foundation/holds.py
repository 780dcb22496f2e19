"""Locks on files that end with their holder, and whether anybody holds one.

A hold is an `flock` on an open file. The operating system ends it with the process, so no lock is ever stale. Readers
of a version share one, for example:

    versions-7.lock    held (shared) by processes 310 and 522    may not be removed yet
    versions-6.lock    held by nobody                            `sweep` removes it

A lock belongs to an inode, and a name can be given to another inode. So after locking a file, `hold` checks that the
path still names it, and otherwise starts again; `sweep` removes a file while it has the exclusive lock:

    hold                              sweep
    open x.lock  (inode 5)
                                      lock inode 5 exclusively, unlink x.lock
    lock inode 5: granted
    x.lock is not inode 5: again

Invariant: while a hold stands, its path names the locked inode, unless somebody removes the file by hand. Whether a
file is held can only be found out by locking it for an instant. Threads of a process take turns in that; a conflict
with another process counts when it outlasts some milliseconds, so that such a check does not turn a holder away.

A network file system mounted with local locks knows the locks of one machine only.
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

# To ask takes some microseconds. Who wants the lock waits, 63 ms in all, even for one who asks and has
# lost the processor; who asks waits 7 ms, because to be told "held" wrongly does no harm.
PATIENCE_SECONDS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032)
_PATIENCE_OF_ASKING = PATIENCE_SECONDS[:3]
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)


class Hold:
    """A lock that stands until it is released or this process ends."""

    def __init__(self, disk: Disk, descriptor: int) -> None:
        self._disk, self._descriptor = disk, descriptor
        if isinstance(disk, OsDisk):
            _HOLDS.add(self)

    def release(self) -> None:
        """Ends the lock; nothing happens when it was released before."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                self._disk.unlock(descriptor)
            with contextlib.suppress(OSError):
                self._disk.close(descriptor)

    def _drop(self) -> None:
        """Closes a fork's copy: it must neither end its parent's lock nor outlive it."""
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
    """Locks the file, made if it is not there; BlockingIOError on a conflict, None where there are no locks."""
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
    """A descriptor of what the path names, locked; and whether there are locks at all."""
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
    """Whether anybody holds the file; None where there are no locks."""
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
    """Removes the file if nobody holds it; says whether it did."""
    try:
        with _locked_for_an_instant(disk, file) as has_locks:
            if has_locks:
                disk.unlink(file)
            return has_locks
    except (BlockingIOError, FileNotFoundError):
        return False


@contextlib.contextmanager
def _locked_for_an_instant(disk: Disk, file: str) -> Iterator[bool]:
    """Locks what the path names exclusively; says whether there are locks, BlockingIOError when it is held."""
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
    """A descriptor to lock: a writable one if it can be had, network file systems lock no others exclusively."""
    try:
        return disk.open_existing(file, writable=True)
    except OSError as error:
        if error.errno not in _READ_ONLY:
            raise
        return disk.open_existing(file, writable=False)


def _locks(disk: Disk, descriptor: int, *, exclusive: bool) -> bool:
    """Whether there are locks; then the descriptor has one, else BlockingIOError is raised."""
    try:
        disk.lock(descriptor, exclusive=exclusive)
        return True
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return False
        raise


def _names(disk: Disk, file: str, descriptor: int) -> bool:
    """Whether the path leads to what the descriptor does."""
    try:
        return disk.stat(file).inode == disk.status(descriptor).inode
    except FileNotFoundError:
        return False
