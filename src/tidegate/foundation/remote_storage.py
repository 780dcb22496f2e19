"""State in any file system that fsspec reaches: object stores, and file systems with a rename.

The hard part is that exactly one of several writers of a name succeeds. An object store creates a whole object in one
step and can be asked to refuse a taken name; elsewhere a temporary file is renamed, and the rename must refuse too:

    object store     put(name, bytes, if there is no such object)
    others           put(temporary, bytes), rename(temporary, name)

Neither can be relied on. S3-compatible stores may ignore the condition, old packages drop it silently, and most renames
replace. So before the first exclusive write under a path a probe object is created twice. If the second creation is not
refused, the storage itself refuses exclusive writes. Rejected: checking before the write, because two writers can both
pass the check.

Invariant: as in storage.py. A store acknowledges only what it keeps, so `settle` is `exists`.

An answer can get lost, and clients then repeat the request. So a put that failed for any other reason than "the name is
taken" is `StorageUncertain`, and so is "taken" if the object holds exactly our bytes: it may be our own, put by the
first of two requests.

There are no locks and no append-only files: `hold` and `is_held` return None, `appends` is False.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from tidegate.foundation import leftovers, refusals
from tidegate.foundation.appending import Appender
from tidegate.foundation.errors import StorageFailed
from tidegate.foundation.holds import Hold
from tidegate.foundation.storage import Bytes, Names

_ATOMIC_PUT = {"memory", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl"}
_PACKAGES = {
    "s3fs": ("s3", "s3a"),
    "gcsfs": ("gs", "gcs"),
    "adlfs": ("abfs", "abfss", "az", "adl"),
    "ossfs": ("oss",),
    "paramiko": ("sftp", "ssh"),
    "smbprotocol": ("smb",),
    "requests": ("webhdfs", "webHDFS", "dbfs", "http", "https"),
}
_HADOOP = (
    "It needs the native library of Hadoop: set HADOOP_HOME and JAVA_HOME, and CLASSPATH to what `hadoop classpath "
    "--glob` prints; or reach the same folder through webhdfs://, which needs no library but requests."
)
_ADVICE = {
    protocol: f"Install its package, here and on Spark's workers: pip install {package}"
    for package, protocols in _PACKAGES.items()
    for protocol in protocols
} | {"hdfs": _HADOOP, "viewfs": _HADOOP}
_OTHER_ADVICE = "Install the package that fsspec names for it, or use a local path."
_ALREADY_THERE = (412, "412", "PreconditionFailed")

# fsspec's in-memory file system checks and then writes, not atomically; its only writers are threads of this process.
_MEMORY_TURN = threading.Lock()

_PROBING = threading.Lock()
_REFUSES: dict[tuple[int, str], bool] = {}  # (file system, root): whether it refuses a taken name


class RemoteStorage:
    """State in any file system that fsspec reaches; `path` is the URL as it was given.

    It has no address: another process may not be able to open it, for lack of the credentials that this one has.
    """

    address, appends, visible_is_durable = None, False, True

    def __init__(self, file_system: Any, root: str, path: str, *, atomic_put: bool) -> None:
        self._file_system, self._root, self.path = file_system, root.rstrip("/"), path
        self._atomic_put = atomic_put
        self._in_memory = path.startswith("memory:")

    @classmethod
    def open(cls, path: str) -> RemoteStorage:
        """The storage at an fsspec URL; the error names a missing package."""
        import fsspec  # takes a tenth of a second, which local state need not pay

        protocol = path.partition(":")[0]
        try:
            file_system, root = fsspec.core.url_to_fs(path)
        except (ImportError, ValueError, OSError) as error:
            raise StorageFailed(
                f"{path}: no file system for this kind of path ({error}). {_ADVICE.get(protocol, _OTHER_ADVICE)}"
            ) from error
        return cls(file_system, root, path, atomic_put=protocol in _ATOMIC_PUT)

    def list(self) -> Names:
        """The names of all files except temporary ones, sorted; empty if there is no folder yet."""
        return sorted(name for name in self._listing() if not leftovers.is_temporary(name))

    def read(self, name: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
        """`length` bytes from `offset`, or fewer if the file ends earlier."""
        if length == 0:  # some stores cannot serve an empty range
            self.size(name)
            return pa.py_buffer(b"")
        end = None if length is None else offset + length
        with self._border(name, "read"):
            try:
                return pa.py_buffer(self._file_system.cat_file(self._file(name), start=offset or None, end=end))
            except Exception:
                if offset < self.size(name):
                    raise
                return pa.py_buffer(b"")  # for some stores a range after the end is an error

    def write(self, name: str, parts: Iterable[Bytes], *, exclusive: bool) -> None:
        """Makes `name` hold `parts`; FileExistsError if `exclusive` and the name is taken."""
        target = self._file(name)
        data = b"".join(memoryview(part).cast("B") for part in parts)
        if exclusive:
            with self._border(name, "write"):
                self._require_refusal()
                if self._is_there(target):
                    raise refusals.taken(self._described(name))
        if self._atomic_put:
            self._put(name, target, data, exclusive=exclusive)
        else:
            self._move_in(name, target, data, exclusive=exclusive)

    def settle(self, name: str) -> bool:
        """Whether the file exists: a store acknowledges only what it keeps."""
        return self.exists(name)

    def hint(self, name: str, data: bytes) -> None:
        """Replaces a small file as a whole."""
        self.write(name, [data], exclusive=False)

    def hold(self, name: str, *, exclusive: bool = False) -> Hold | None:
        """None: there are no locks."""
        return None

    def is_held(self, name: str) -> bool | None:
        """None: there are no locks."""
        return None

    def append_to(self, name: str, at: int | None) -> Appender:
        """Refused: objects do not grow."""
        raise StorageFailed(
            f"{self._described(name)}: required a file system whose files can grow, got an object store or another "
            f"remote file system. Ask `appends` first, or use a local path."
        )

    def delete(self, name: str) -> None:
        """Removes the file; nothing happens when it is not there."""
        with contextlib.suppress(FileNotFoundError), self._border(name, "delete"):
            self._file_system.rm_file(self._file(name))

    def exists(self, name: str) -> bool:
        """Whether the file is there."""
        with self._border(name, "read"):
            return self._is_there(self._file(name))

    def size(self, name: str) -> int:
        """The file's size in bytes."""
        with self._border(name, "read"):
            return int(self._info(self._file(name))["size"])

    def sweep(self) -> Names:
        """Removes what crashed writers left behind; returns the removed names."""

        def modified(name: str) -> float:
            with self._border(name, "read"):
                return float(self._file_system.modified(self._file(name)).timestamp())

        swept = []
        for name in sorted(filter(leftovers.is_temporary, self._listing())):
            with contextlib.suppress(FileNotFoundError):
                if leftovers.is_abandoned(name, modified):
                    self.delete(name)
                    swept.append(name)
        return swept

    def _file(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _described(self, name: str) -> str:
        return f"{self.path.rstrip('/')}/{name}".rstrip("/")

    def _info(self, file: str) -> Any:
        """Fresh metadata of a file, past the listings that packages cache.

        Rejected: fsspec's `exists`, which treats every error, even a lost connection, as a missing file.
        """
        self._file_system.invalidate_cache(self._root)
        return self._file_system.info(file)

    def _is_there(self, file: str) -> bool:
        try:
            self._info(file)
            return True
        except FileNotFoundError:
            return False

    def _listing(self) -> Names:
        try:
            with self._border("", "list"):
                self._file_system.invalidate_cache(self._root)
                entries = self._file_system.ls(self._root, detail=True)
        except FileNotFoundError:
            return []
        return [e["name"].rstrip("/").rsplit("/", 1)[-1] for e in entries if e["type"] == "file"]

    @contextlib.contextmanager
    def _border(self, name: str, action: str) -> Iterator[None]:
        """Turns the exceptions of a file system's package into this module's errors."""
        try:
            yield
        except (FileExistsError, StorageFailed):
            raise
        except Exception as error:
            if isinstance(error, FileNotFoundError) and action != "write":
                raise
            raise refusals.failed(self._described(name), action, error) from error

    # Exclusive writes

    def _put(self, name: str, target: str, data: bytes, *, exclusive: bool) -> None:
        try:
            self._create(target, data) if exclusive else self._file_system.pipe_file(target, data)
        except Exception as error:
            if not (exclusive and _says_taken(error)):
                raise refusals.in_doubt(self._described(name), "putting it failed", error) from error
            if not self._in_memory and self._holds(name, target, data):
                raise refusals.in_doubt(
                    self._described(name), "the name is taken by exactly these bytes, ours or another writer's", error
                ) from error
            raise refusals.taken(self._described(name)) from None

    def _create(self, target: str, data: bytes) -> None:
        with _MEMORY_TURN if self._in_memory else contextlib.nullcontext():
            self._file_system.pipe_file(target, data, mode="create")

    def _holds(self, name: str, target: str, data: bytes) -> bool:
        """Whether the object holds exactly the data."""
        try:
            return int(self._info(target)["size"]) == len(data) and self._file_system.cat_file(target) == data
        except FileNotFoundError:
            return False
        except Exception as error:
            step = "the name is taken, by whom could not be found out"
            raise refusals.in_doubt(self._described(name), step, error) from error

    def _move_in(self, name: str, target: str, data: bytes, *, exclusive: bool) -> None:
        temporary = self._file(leftovers.temporary_name())
        try:
            with self._border(name, "write"):
                self._file_system.makedirs(self._root, exist_ok=True)
                self._file_system.pipe_file(temporary, data)
            try:
                self._file_system.mv(temporary, target)
            except Exception as error:
                if exclusive and self._both_there(temporary, target):
                    raise refusals.taken(self._described(name)) from None
                raise refusals.in_doubt(self._described(name), "giving it its name failed", error) from error
        finally:
            with contextlib.suppress(Exception):
                self._file_system.rm_file(temporary)

    def _both_there(self, temporary: str, target: str) -> bool:
        try:
            return self._is_there(temporary) and self._is_there(target)
        except Exception:
            return False

    def _require_refusal(self) -> None:
        """Requires that the file system refuses a taken name; probed once per root and process."""
        key = (hash(self._file_system), self._root)
        with _PROBING:
            if key not in _REFUSES:
                _REFUSES[key] = self._probe_put() if self._atomic_put else self._probe_rename()
            if _REFUSES[key]:
                return
        kind = self.path.partition(":")[0]
        got = "one that replaces it" if self._atomic_put else "one whose rename replaces it"
        raise StorageFailed(
            f"{self.path}: required a file system that refuses to create a file whose name is taken, got {got} "
            f"({kind}, {type(self._file_system).__name__}). Two writers could both believe that their version counts. "
            "Nothing was committed. Use a store with conditional writes (S3's If-None-Match, which AWS has and not "
            f"every compatible store) and a recent fsspec package for {kind}, or a local path."
        )

    def _probe_put(self) -> bool:
        probe = self._file(leftovers.temporary_name())
        try:
            for content in (b"first", b"second"):
                try:
                    self._create(probe, content)
                except Exception as error:
                    if not _says_taken(error):
                        raise
                    return True
            return False
        finally:
            self._discard(probe)

    def _probe_rename(self) -> bool:
        first, second = (self._file(leftovers.temporary_name()) for _ in range(2))
        self._file_system.makedirs(self._root, exist_ok=True)
        try:
            self._file_system.pipe_file(first, b"first")
            self._file_system.pipe_file(second, b"second")
            try:
                self._file_system.mv(second, first)
            except Exception:
                return bool(self._file_system.cat_file(first) == b"first")
            return False
        finally:
            self._discard(first)
            self._discard(second)

    def _discard(self, file: str) -> None:
        with contextlib.suppress(Exception):
            self._file_system.rm_file(file)


def _says_taken(error: BaseException | None) -> bool:
    """Whether an error means that the name is taken; not every store's error is recognised by its package."""
    while error is not None:
        response = getattr(error, "response", None)
        code = response.get("Error", {}).get("Code") if isinstance(response, dict) else None
        codes = (code, *(getattr(error, name, None) for name in ("code", "status", "status_code")))
        if isinstance(error, FileExistsError) or any(isinstance(c, int | str) and c in _ALREADY_THERE for c in codes):
            return True
        error = error.__cause__
    return False
