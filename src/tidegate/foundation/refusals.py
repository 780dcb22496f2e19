"""Errors for what a file system refused, with the reason and what to do next.

    failed("state/7.change", "write", OSError(ENOSPC))
      StorageFailed: state/7.change: could not write it: No space left on device (errno 28). Nothing was
      committed; what was committed before stands. Free space on the file system that holds it, ...

Invariant: only `failed` of a write says that nothing was committed, and `in_doubt` never does: readers
of such a message decide by it whether to try again.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

from tidegate.foundation.errors import StorageFailed, StorageUncertain

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
    errno.EIO: "Check the disk and the system's log, then run again.",
}
_NOTHING_COMMITTED = "Nothing was committed; what was committed before stands. "


def failed(file: str, action: str, error: Exception) -> StorageFailed:
    """The file system refused to read, write, ... the file; a refused write left nothing under its name."""
    kept = _NOTHING_COMMITTED if action == "write" else ""
    return StorageFailed(f"{file}: could not {action} it: {reason(error)}. {kept}{_advice(error)}")


@contextlib.contextmanager
def refusing(file: str, action: str) -> Iterator[None]:
    """Turns an OSError raised inside into `failed`, except that a missing file stays FileNotFoundError."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise failed(file, action, error) from error


def in_doubt(file: str, step: str, error: Exception) -> StorageUncertain:
    """After this failed step the file may or may not exist, and may not last; `step` says what failed."""
    return StorageUncertain(
        f"{file}: {step}: {reason(error)}. It may be written or not, and a power failure may still undo it. "
        f"{_advice(error)} Work that is found then is not repeated."
    )


def taken(file: str) -> FileExistsError:
    """The name belongs to a file of another writer."""
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), file)


def reason(error: Exception) -> str:
    """The file system's error as text."""
    if isinstance(error, OSError) and error.errno:
        return f"{os.strerror(error.errno)} (errno {error.errno})"
    return f"{type(error).__name__}: {error}"


def _advice(error: Exception) -> str:
    number = error.errno if isinstance(error, OSError) and error.errno else 0
    return _ADVICE.get(number, "Check that the path is right and that it can be reached, then run again.")
