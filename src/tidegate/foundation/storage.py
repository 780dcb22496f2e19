"""The only door to the files of state: whole files in, whole files out, in one flat folder.

A file of state is written once and never changed. It comes into being in one step, so that a
reader sees all of it or nothing, whatever dies at whatever moment:

    write bytes to a temporary file       a crash here leaves it behind; `sweep` removes it (leftovers.py)
    fsync the file                        its bytes are on the disk
    link it to its name   (exclusive)     fails when the name is taken: the first writer wins
      or rename it over   (replacing)
    remove the temporary name
    fsync the folder                      its name is on the disk

Invariant: a name that `list` shows holds exactly the bytes that one call of `write` was given.

`open_storage` picks the implementation. Local paths use the operating system directly. Anything
else goes through fsspec: an object store puts a whole object under its final name atomically, and
refuses to replace when asked; other file systems get the temporary file and the rename, and there
exclusiveness is a check before the rename (the ownership record keeps a second writer away).

Reads are one `read` into memory, not a memory map: a mapped file that a network file system loses
kills the process with SIGBUS where a read gives an error, and the copy costs 10 ms per 100 MB.

A missing file is `FileNotFoundError`, a taken name `FileExistsError`; every other refusal is
`StorageFailed`. Not here: what the bytes mean, and which files belong together.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, Protocol, TypeAlias

import pyarrow as pa

from tidegate.foundation import leftovers
from tidegate.foundation.errors import StorageFailed

Names = list[str]
Bytes: TypeAlias = bytes | bytearray | memoryview | pa.Buffer

_ATOMIC_PUT = {"memory", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl"}
_ADVICE = {
    errno.ENOSPC: "Free space on the file system that holds it, then run again.",
    errno.EDQUOT: "Free space within the quota of this user, then run again.",
    errno.EFBIG: "Raise the limit on file sizes (ulimit -f) or use another file system, then run again.",
    errno.EACCES: "Give this user read and write permission there, or choose another state path.",
    errno.EPERM: "Give this user read and write permission there (the file system must have hard links), "
    "or choose another state path.",
    errno.EROFS: "Mount the file system writable, or choose another state path.",
    errno.ENOTDIR: "A part of the path is a file: choose a path that is a folder or does not exist yet.",
    errno.EISDIR: "A folder has the name of a state file: move it away.",
}


class Storage(Protocol):
    """A flat folder of whole files; the module's docstring states what `write` guarantees."""

    @property
    def path(self) -> str:
        """The folder, as messages name it."""

    def list(self) -> Names:
        """The names of all files, sorted, temporary ones left out; none when there is no folder yet."""

    def read(self, name: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
        """The bytes from `offset`, `length` of them or fewer where the file ends earlier."""

    def write(self, name: str, parts: Iterable[Bytes], *, exclusive: bool) -> None:
        """Makes `name` hold `parts`; FileExistsError when `exclusive` and the name is taken."""

    def delete(self, name: str) -> None:
        """Removes the file; nothing happens when it is not there."""

    def exists(self, name: str) -> bool:
        """Whether the file is there."""

    def size(self, name: str) -> int:
        """The file's size in bytes."""

    def sweep(self) -> Names:
        """Removes what crashed writers left behind; gives the names removed."""


def open_storage(path: str) -> Storage:
    """The storage at a local path ("dir", "file:///dir") or an fsspec URL ("memory://x", "s3://bucket/x")."""
    protocol, separator, rest = path.partition(":")
    if not separator or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]+", protocol) or not rest.startswith("/"):
        return LocalStorage(path)
    if protocol in ("file", "local"):
        return LocalStorage(rest[2:] if rest.startswith("//") else rest)
    return RemoteStorage.open(path)


class LocalStorage:
    """State in a folder of this machine, or of a file system mounted on it."""

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)

    @property
    def path(self) -> str:
        """The folder's absolute path."""
        return self._path

    def list(self) -> Names:
        """The names of all files, sorted, temporary ones left out; none when there is no folder yet."""
        return sorted(name for name in self._listing() if not leftovers.is_temporary(name))

    def read(self, name: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
        """The bytes from `offset`, `length` of them or fewer where the file ends earlier."""
        try:
            with open(self._file(name), "rb", buffering=0) as file:
                remaining = max(0, os.fstat(file.fileno()).st_size - offset)
                wanted = remaining if length is None else min(length, remaining)
                buffer = pa.allocate_buffer(wanted)
                view = memoryview(buffer).cast("B")
                file.seek(offset)
                filled = 0
                while filled < wanted and (count := file.readinto(view[filled:])):
                    filled += count
                return buffer if filled == wanted else buffer.slice(0, filled)
        except FileNotFoundError:
            raise
        except OSError as error:
            _refuse(self._file(name), "read", error)

    def write(self, name: str, parts: Iterable[Bytes], *, exclusive: bool) -> None:
        """Makes `name` hold `parts`; FileExistsError when `exclusive` and the name is taken."""
        target, temporary = self._file(name), self._file(leftovers.temporary_name())
        try:
            _make_folder(self._path)
            if exclusive and os.path.lexists(target):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
            try:
                _write_synced(temporary, parts)
                if exclusive:
                    os.link(temporary, target)
                else:
                    os.replace(temporary, target)
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
        except FileExistsError:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target) from None
        except OSError as error:
            _refuse(target, "write", error)
        try:
            _sync_folder(self._path)
        except OSError as error:
            raise StorageFailed(
                f"{target}: it is written, but the folder could not be synced ({_reason(error)}): a power "
                "failure now may lose it. Check the disk, then run again: work that is found is not repeated."
            ) from error

    def delete(self, name: str) -> None:
        """Removes the file; nothing happens when it is not there."""
        try:
            os.unlink(self._file(name))
        except FileNotFoundError:
            return
        except OSError as error:
            _refuse(self._file(name), "delete", error)

    def exists(self, name: str) -> bool:
        """Whether the file is there."""
        try:
            os.stat(self._file(name))
            return True
        except FileNotFoundError:
            return False
        except OSError as error:
            _refuse(self._file(name), "read", error)

    def size(self, name: str) -> int:
        """The file's size in bytes."""
        try:
            return os.stat(self._file(name)).st_size
        except FileNotFoundError:
            raise
        except OSError as error:
            _refuse(self._file(name), "read", error)

    def sweep(self) -> Names:
        """Removes what crashed writers left behind; gives the names removed."""
        return _sweep(self, self._listing(), lambda name: os.stat(self._file(name)).st_mtime)

    def _file(self, name: str) -> str:
        return os.path.join(self._path, name)

    def _listing(self) -> Names:
        try:
            return os.listdir(self._path)
        except FileNotFoundError:
            return []
        except OSError as error:
            _refuse(self._path, "list", error)


class RemoteStorage:
    """State in any file system that fsspec reaches."""

    def __init__(self, file_system: Any, root: str, path: str, *, atomic_put: bool) -> None:
        self._file_system, self._root, self._path = file_system, root.rstrip("/"), path
        self._atomic_put = atomic_put

    @classmethod
    def open(cls, path: str) -> RemoteStorage:
        """The storage at an fsspec URL; says which package is missing when one is."""
        import fsspec  # a tenth of a second that local state need not pay

        try:
            file_system, root = fsspec.core.url_to_fs(path)
        except (ImportError, ValueError) as error:
            raise StorageFailed(
                f"{path}: no file system for this kind of path ({error}). "
                "Install the package that fsspec names for it, or use a local path."
            ) from error
        return cls(file_system, root, path, atomic_put=path.partition(":")[0] in _ATOMIC_PUT)

    @property
    def path(self) -> str:
        """The URL as it was given."""
        return self._path

    def list(self) -> Names:
        """The names of all files, sorted, temporary ones left out; none when there is no folder yet."""
        return sorted(name for name in self._listing() if not leftovers.is_temporary(name))

    def read(self, name: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
        """The bytes from `offset`, `length` of them or fewer where the file ends earlier."""
        end = None if length is None else offset + length
        with self._border(name, "read"):
            return pa.py_buffer(self._file_system.cat_file(self._file(name), start=offset, end=end))

    def write(self, name: str, parts: Iterable[Bytes], *, exclusive: bool) -> None:
        """Makes `name` hold `parts`; FileExistsError when `exclusive` and the name is taken."""
        target = self._file(name)
        data = b"".join(memoryview(part).cast("B") for part in parts)
        with self._border(name, "write"):
            if exclusive and self._file_system.exists(target):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
            if self._atomic_put:
                self._file_system.pipe_file(target, data, mode="create" if exclusive else "overwrite")
                return
            temporary = self._file(leftovers.temporary_name())
            self._file_system.makedirs(self._root, exist_ok=True)
            try:
                self._file_system.pipe_file(temporary, data)
                if exclusive and self._file_system.exists(target):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
                self._file_system.mv(temporary, target)
            except BaseException:
                with contextlib.suppress(Exception):
                    self._file_system.rm_file(temporary)
                raise

    def delete(self, name: str) -> None:
        """Removes the file; nothing happens when it is not there."""
        with contextlib.suppress(FileNotFoundError), self._border(name, "delete"):
            self._file_system.rm_file(self._file(name))

    def exists(self, name: str) -> bool:
        """Whether the file is there."""
        with self._border(name, "read"):
            return bool(self._file_system.exists(self._file(name)))

    def size(self, name: str) -> int:
        """The file's size in bytes."""
        with self._border(name, "read"):
            return int(self._file_system.size(self._file(name)))

    def sweep(self) -> Names:
        """Removes what crashed writers left behind; gives the names removed."""

        def modified(name: str) -> float:
            return float(self._file_system.modified(self._file(name)).timestamp())

        return _sweep(self, self._listing(), modified)

    def _file(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _listing(self) -> Names:
        try:
            with self._border("", "list"):
                self._file_system.invalidate_cache(self._root)
                entries = self._file_system.ls(self._root, detail=True)
        except FileNotFoundError:
            return []
        return [e["name"].rstrip("/").rsplit("/", 1)[-1] for e in entries if e["type"] == "file"]

    @contextlib.contextmanager
    def _border(self, name: str, action: str) -> Any:
        """Turns whatever a file system's package raises into this module's errors."""
        try:
            yield
        except (FileNotFoundError, FileExistsError, StorageFailed):
            raise
        except Exception as error:
            _refuse(f"{self._path.rstrip('/')}/{name}".rstrip("/"), action, error)


def _refuse(file: str, action: str, error: Exception) -> NoReturn:
    number = error.errno if isinstance(error, OSError) and error.errno else 0
    kept = "Nothing was committed; what was committed before stands. " if action == "write" else ""
    advice = _ADVICE.get(number, "Check that the path is right and that it can be reached, then run again.")
    raise StorageFailed(f"{file}: could not {action} it: {_reason(error)}. {kept}{advice}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno:
        return f"{os.strerror(error.errno)} (errno {error.errno})"
    return f"{type(error).__name__}: {error}"


def _write_synced(file: str, parts: Iterable[Bytes]) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        for part in parts:
            view = memoryview(part).cast("B")
            while len(view):
                view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_folder(path: str) -> None:
    """Makes the folder and those above it, each synced into the one that holds it."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        try:
            os.mkdir(folder)
        except FileExistsError:
            if not os.path.isdir(folder):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder) from None
        _sync_folder(os.path.dirname(folder))


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems sync no folders
            raise
    finally:
        os.close(descriptor)


def _sweep(storage: Storage, names: Names, modified: Callable[[str], float]) -> Names:
    swept = []
    for name in sorted(filter(leftovers.is_temporary, names)):
        with contextlib.suppress(FileNotFoundError):
            if leftovers.is_abandoned(name, modified):
                storage.delete(name)
                swept.append(name)
    return swept
