"""The only module that reads and writes files of state: whole files, in one flat folder.

A file of state is written once and never changed. It appears atomically: readers see all of it or nothing, whenever
a process dies:

    write bytes to a temporary file       a crash here leaves it behind; `sweep` removes it (leftovers.py)
    fsync the file                        its bytes are on the disk
    link it to its name   (exclusive)     fails when the name is taken: the first writer wins
      or rename it over   (replacing)
    remove the temporary name
    fsync the folder                      its name is on the disk

A write that fails says exactly how much is known:

    FileExistsError      the name is taken, nothing of ours is visible
    StorageFailed        it stopped before the link: nothing is visible under that name
    StorageUncertain     the link, the rename or the sync after it failed: the file may or may not exist,
                         and it may not last. `settle` finds out which, once the disk answers again

Invariant: a name that `write` made holds exactly the bytes of one call. Once `write` has returned, or `settle` has
returned True, no crash removes it.

There are three more kinds of files. A hint may be lost (`hint`), a lock ends with its holder (`hold`, holds.py), and a
log grows at its end (`append_to`, appending.py). `open_storage` picks the implementation: local paths use the operating
system through disk.py, anything else goes through fsspec (remote_storage.py).

Reads copy the file into memory. Rejected: mapping it. If a network file system loses a mapped file, SIGBUS kills the
process, where a read returns an error; and the copy costs only 10 ms per 100 MB.

A missing file is `FileNotFoundError`; every other failure that is not named above is `StorageFailed`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterable
from typing import Protocol, TypeAlias

import pyarrow as pa

from tidegate.foundation import holds, leftovers, refusals
from tidegate.foundation.appending import Appender
from tidegate.foundation.disk import Disk, OsDisk
from tidegate.foundation.errors import InputError, StorageFailed
from tidegate.foundation.holds import Hold

SYNC_EVERY_BYTES = 1 << 20
"""A large file is synced piece by piece, because the sync of another file, a log, waits for its unsynced bytes."""

Names = list[str]
Bytes: TypeAlias = bytes | bytearray | memoryview | pa.Buffer


class Storage(Protocol):
    """A flat folder of whole files; the module's docstring states what `write` guarantees."""

    @property
    def path(self) -> str:
        """The folder, as messages name it."""

    @property
    def address(self) -> str | None:
        """The path by which another process of this machine opens this storage; None if that might fail or differ."""

    @property
    def appends(self) -> bool:
        """Whether `append_to` works here."""

    @property
    def visible_is_durable(self) -> bool:
        """Whether a file that can be read is certain to stay, without a sync."""

    def list(self) -> Names:
        """The names of all files except temporary ones, sorted; empty if there is no folder yet."""

    def read(self, name: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
        """`length` bytes from `offset`, or fewer if the file ends earlier."""

    def write(self, name: str, parts: Iterable[Bytes], *, exclusive: bool) -> None:
        """Makes `name` hold `parts`; FileExistsError if `exclusive` and the name is taken.

        StorageUncertain: the write may or may not have happened, or may not last. Any other StorageFailed: it did not.
        """

    def settle(self, name: str) -> bool:
        """Whether the file exists; if so, it is durable on return. StorageFailed if that cannot be ensured."""

    def hint(self, name: str, data: bytes) -> None:
        """Replaces a small file as a whole, without a sync: after a power failure it may hold anything."""

    def hold(self, name: str, *, exclusive: bool = False) -> Hold | None:
        """Locks the file, created if missing, until release or the end of this process; shared unless `exclusive`.

        BlockingIOError if another hold conflicts, None if the storage has no locks.
        """

    def is_held(self, name: str) -> bool | None:
        """Whether any process holds the file, this one included; None if the storage cannot tell."""

    def append_to(self, name: str, at: int | None) -> Appender:
        """A file to append to: a new one if `at` is None (FileExistsError if the name is taken), or an existing one.

        `at` is where to continue, at most the end of what was synced; what lies after it is cut off.
        """

    def delete(self, name: str) -> None:
        """Removes the file; nothing happens when it is not there."""

    def exists(self, name: str) -> bool:
        """Whether the file is there."""

    def size(self, name: str) -> int:
        """The file's size in bytes."""

    def sweep(self) -> Names:
        """Removes what crashed writers left behind, and locks that are not held; returns the removed names."""


def open_storage(path: str) -> Storage:
    """The storage at a local path ("dir", "file:///dir") or an fsspec URL ("memory://x", "s3://bucket/x")."""
    if path == "~" or path.startswith("~/"):
        raise InputError(
            f"{path!r}: a program does not expand ~, so this would be a folder of that name in the working directory; "
            f"give {os.path.expanduser(path)!r}, or os.path.expanduser({path!r})"
        )
    protocol, separator, rest = path.partition(":")
    if not separator or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]+", protocol) or not rest.startswith("/"):
        return LocalStorage(path)
    if protocol in ("file", "local"):
        return LocalStorage(rest[2:] if rest.startswith("//") else rest)
    if not rest.startswith("//"):
        hostless = protocol in ("dbfs", "hdfs", "viewfs")  # the path begins behind an empty host
        wanted = f"{protocol}://{rest}" if hostless else f"{protocol}:/{rest}"
        mounted = f"'/dbfs{rest}', where Databricks mounts it, or " if protocol == "dbfs" else ""
        raise InputError(
            f"{path!r}: a URL has two slashes behind its scheme, so this would be a folder of that name in the working "
            f"directory; give {mounted}{wanted!r}, or './{path}' if such a folder is meant"
        )
    from tidegate.foundation.remote_storage import RemoteStorage  # imported late: it uses the types of this module

    return RemoteStorage.open(path)


class LocalStorage:
    """State in a folder of this machine, or of a file system mounted on it."""

    appends, visible_is_durable = True, False

    def __init__(self, path: str, disk: Disk | None = None) -> None:
        self.path = os.path.abspath(path)
        self._disk: Disk = OsDisk() if disk is None else disk
        self._rooted = False  # whether the folder's own name is known to be on the disk

    @property
    def address(self) -> str | None:
        """The folder's absolute path, if it lies on a disk of the operating system."""
        return self.path if isinstance(self._disk, OsDisk) else None

    def list(self) -> Names:
        """The names of all files except temporary ones, sorted; empty if there is no folder yet."""
        return sorted(name for name in self._listing() if not leftovers.is_temporary(name))

    def read(self, name: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
        """`length` bytes from `offset`, or fewer if the file ends earlier."""
        file = self._file(name)
        with refusals.refusing(file, "read"):
            descriptor = self._disk.open_existing(file, writable=False)
            try:
                return self._read(file, descriptor, offset, length)
            finally:
                self._disk.close(descriptor)

    def write(self, name: str, parts: Iterable[Bytes], *, exclusive: bool) -> None:
        """Makes `name` hold `parts`; FileExistsError if `exclusive` and the name is taken."""
        target = self._file(name)
        try:
            self._make_folder()
            is_taken = exclusive and self._is_there(target)
            temporary, inode = ("", (0, 0)) if is_taken else self._write_temporary(parts, synced=True)
        except OSError as error:
            raise refusals.failed(target, "write", error) from error
        if is_taken:
            raise refusals.taken(target)
        try:
            if exclusive:
                self._link(temporary, inode, target)
            else:
                self._disk.replace(temporary, target)
        except FileExistsError:
            raise refusals.taken(target) from None
        except OSError as error:
            raise refusals.in_doubt(target, "giving it its name failed", error) from error
        finally:
            with contextlib.suppress(OSError):
                self._disk.unlink(temporary)
        try:
            self._disk.sync_folder(self.path)
        except OSError as error:
            raise refusals.in_doubt(target, "it was written, but its folder could not be synced", error) from error

    def settle(self, name: str) -> bool:
        """Whether the file exists; if so, it is durable on return. StorageFailed if that cannot be ensured."""
        file = self._file(name)
        try:
            with refusals.refusing(file, "read"):
                descriptor = self._disk.open_existing(file, writable=False)
        except FileNotFoundError:
            return False
        try:
            try:
                self._disk.sync(descriptor)
            finally:
                self._disk.close(descriptor)
            self._disk.sync_folder(self.path)
        except OSError as error:
            raise refusals.failed(file, "sync", error) from error
        return True

    def hint(self, name: str, data: bytes) -> None:
        """Replaces a small file as a whole, without a sync: after a power failure it may hold anything."""
        file = self._file(name)
        try:
            self._make_folder()
            temporary, _ = self._write_temporary([data], synced=False)
            try:
                self._disk.replace(temporary, file)
            except OSError:
                with contextlib.suppress(OSError):
                    self._disk.unlink(temporary)
                raise
        except OSError as error:
            raise refusals.failed(file, "replace", error) from error

    def hold(self, name: str, *, exclusive: bool = False) -> Hold | None:
        """Locks the file, created if missing, until release or the end of this process; shared unless `exclusive`."""
        file = self._file(name)
        try:
            self._make_folder()
            return holds.hold(self._disk, file, exclusive=exclusive)
        except BlockingIOError as error:
            raise BlockingIOError(error.errno, os.strerror(error.errno or errno.EWOULDBLOCK), file) from None
        except OSError as error:
            raise refusals.failed(file, "lock", error) from error

    def is_held(self, name: str) -> bool | None:
        """Whether any process holds the file, this one included; None if the storage cannot tell."""
        with refusals.refusing(self._file(name), "lock"):
            return holds.is_held(self._disk, self._file(name))

    def append_to(self, name: str, at: int | None) -> Appender:
        """A file to append to: a new one if `at` is None (FileExistsError if the name is taken), or an existing one."""
        file = self._file(name)
        appender = self._create(file) if at is None else Appender.go_on(self._disk, file, at)
        try:
            self._disk.sync_folder(self.path)
        except OSError as error:
            appender.close()
            raise refusals.in_doubt(file, "it was opened, but its folder could not be synced", error) from error
        return appender

    def delete(self, name: str) -> None:
        """Removes the file; nothing happens when it is not there."""
        with contextlib.suppress(FileNotFoundError), refusals.refusing(self._file(name), "delete"):
            self._disk.unlink(self._file(name))

    def exists(self, name: str) -> bool:
        """Whether the file is there."""
        with refusals.refusing(self._file(name), "read"):
            return self._is_there(self._file(name))

    def size(self, name: str) -> int:
        """The file's size in bytes."""
        with refusals.refusing(self._file(name), "read"):
            return self._disk.stat(self._file(name)).size

    def sweep(self) -> Names:
        """Removes what crashed writers left behind, and locks that are not held; returns the removed names."""
        return [name for name in sorted(self._listing()) if self._is_swept(name)]

    def _is_swept(self, name: str) -> bool:
        file = self._file(name)
        with contextlib.suppress(FileNotFoundError), refusals.refusing(file, "delete"):
            if not leftovers.is_temporary(name):
                return leftovers.is_lock(name) and holds.remove_unheld(self._disk, file)
            if leftovers.is_abandoned(name, lambda name: self._disk.stat(self._file(name)).modified):
                self._disk.unlink(file)
                return True
        return False

    def _file(self, name: str) -> str:
        return os.path.join(self.path, name)

    def _is_there(self, file: str) -> bool:
        try:
            self._disk.stat(file)
            return True
        except FileNotFoundError:
            return False

    def _listing(self) -> Names:
        with contextlib.suppress(FileNotFoundError), refusals.refusing(self.path, "list"):
            return self._disk.listdir(self.path)
        return []

    def _read(self, file: str, descriptor: int, offset: int, length: int | None) -> pa.Buffer:
        """The requested bytes that the file has; fewer only if it was truncated meanwhile, otherwise StorageFailed."""
        wanted = max(0, self._disk.status(descriptor).size - offset)
        wanted = wanted if length is None else min(length, wanted)
        buffer = pa.allocate_buffer(wanted)
        view, filled = memoryview(buffer).cast("B"), 0
        while filled < wanted and (count := self._disk.read(descriptor, view[filled:], offset + filled)):
            filled += count
        if filled == wanted:
            return buffer
        if self._disk.status(descriptor).size > offset + filled:
            raise StorageFailed(
                f"{file}: required {wanted} bytes at {offset}, got {filled} although the file is longer. "
                "Check the file system, then run again."
            )
        return buffer.slice(0, filled)

    def _write_temporary(self, parts: Iterable[Bytes], *, synced: bool) -> tuple[str, tuple[int, int]]:
        """The path and the inode of a new file that holds the parts; a failure leaves no file behind."""
        temporary = self._file(leftovers.temporary_name())
        descriptor = self._disk.open_new(temporary)
        try:
            try:
                offset = on_disk = 0
                for part in parts:
                    rest = memoryview(part).cast("B")
                    while len(rest):
                        count = self._disk.write(descriptor, rest[:SYNC_EVERY_BYTES], offset)
                        rest, offset = rest[count:], offset + count
                        if synced and offset - on_disk >= SYNC_EVERY_BYTES:
                            self._disk.sync_data(descriptor)
                            on_disk = offset
                if synced:
                    self._disk.sync(descriptor)
                inode = self._disk.status(descriptor).inode
            finally:
                self._disk.close(descriptor)
        except BaseException:
            with contextlib.suppress(OSError):
                self._disk.unlink(temporary)
            raise
        return temporary, inode

    def _create(self, file: str) -> Appender:
        try:
            self._make_folder()
            is_taken = self._is_there(file)
        except OSError as error:
            raise refusals.failed(file, "write", error) from error
        if is_taken:
            raise refusals.taken(file)
        try:
            return Appender.create(self._disk, file)
        except FileExistsError:
            raise refusals.taken(file) from None
        except OSError as error:
            raise refusals.in_doubt(file, "creating it failed", error) from error

    def _link(self, temporary: str, inode: tuple[int, int], target: str) -> None:
        """Links the file; FileExistsError if the name belongs to another file.

        If the answer to a request is lost, a network file system repeats the request, and then reports the name
        as taken although the first request gave it to our file.
        """
        try:
            self._disk.link(temporary, target)
        except FileExistsError:
            with contextlib.suppress(FileNotFoundError):
                if self._disk.stat(target).inode == inode:
                    return
            raise

    def _make_folder(self) -> None:
        """Makes the folder and those above it, and syncs the parent of each.

        The parent of the lowest existing one is synced too, once: its maker may have died before the sync.
        """
        missing, folder = [], self.path
        while not self._is_folder(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        if missing or not self._rooted:
            with contextlib.suppress(PermissionError):  # then another user made it, not a writer that just died
                self._disk.sync_folder(os.path.dirname(folder))
        for folder in reversed(missing):
            try:
                self._disk.mkdir(folder)
            except FileExistsError:
                if not self._is_folder(folder):
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder) from None
            self._disk.sync_folder(os.path.dirname(folder))
        self._rooted = True

    def _is_folder(self, path: str) -> bool:
        try:
            return self._disk.stat(path).is_folder
        except (FileNotFoundError, NotADirectoryError):
            return False
