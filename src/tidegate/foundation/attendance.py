"""How many processes of a group are at work right now.

Processes that share processors, and do not know each other, count each other before they divide them. Each has a file,
and locks it while it works; the operating system unlocks it when the process ends, however it ends:

    tidegate-tasks-1000/
      310-4401    locked        process 4401 works
      310-4402    locked        process 4402 works         group 310: two at work
      310-4390    not locked    done, or dead: removed if there is no such process any more
      977-1203    locked        another group

A count is a snapshot. It decides how work is divided, never what it computes, so a count that is too high or too low
for a moment does no harm. Where such a folder cannot be had, a process believes that it is alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import psutil

from tidegate.foundation import private_folder


@contextlib.contextmanager
def present(folder: Path, group: str) -> Iterator[int]:
    """Count this process as one of the group while inside; gives how many are, itself included."""
    try:
        private_folder.make(folder)
        if private_folder.weakness(folder) is not None:
            raise PermissionError(f"{folder} can be written by others")
        own = os.open(folder / f"{group}-{os.getpid()}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield 1
        return
    try:
        with contextlib.suppress(OSError):  # held for an instant by somebody who counts, or no locks here
            fcntl.flock(own, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield 1 + sum(
            _is_at_work(other) for other in folder.glob(f"{group}-*") if other.name != f"{group}-{os.getpid()}"
        )
    finally:
        os.close(own)


def _is_at_work(file: Path) -> bool:
    """Whether a process holds its file; the file of one that ended is removed."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        process = file.name.rpartition("-")[2]
        if process.isdecimal() and not psutil.pid_exists(int(process)):
            file.unlink(missing_ok=True)
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
