"""Files that are not state: how temporary files and locks are named, and when one may be removed.

A file of state is first written under a temporary name, which a killed writer leaves behind. The name identifies the
writer:

    .temporary~worker-7~4026531836~31337~1722500000.25~9f3c1a52b07e
               host     id space   pid   started       unique

Invariant: the file of a live writer never counts as abandoned, however old it is. A file is abandoned
if its writer ran in this process id namespace and is gone. If the writer ran on another host or in another container,
the file is abandoned if it was not modified for a day.
A lock file ends in ".lock", and is a leftover if no process holds it (holds.py).
"""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Callable

from tidegate.foundation import processes

ABANDONED_AFTER_SECONDS = 24 * 3600.0
_PREFIX = ".temporary~"
_LOCK = ".lock"


def temporary_name() -> str:
    """A unique name for a file that this process is about to write."""
    pid = os.getpid()
    return f"{_PREFIX}{_machine()}~{pid}~{processes.started(pid):.2f}~{uuid.uuid4().hex[:12]}"


def is_temporary(name: str) -> bool:
    """Whether a file of this name is temporary, and not (yet) a file of state."""
    return name.startswith(_PREFIX)


def is_lock(name: str) -> bool:
    """Whether a file of this name is a lock file."""
    return name.endswith(_LOCK)


def is_abandoned(name: str, modified: Callable[[str], float]) -> bool:
    """Whether the temporary file may be removed; `modified` returns its modification time, in seconds since 1970."""
    parts = re.fullmatch(r"(.+~\d+)~(\d+)~([0-9.]+)~[0-9a-f]+", name.removeprefix(_PREFIX))
    if parts and parts[1] == _machine():
        return not processes.is_running(int(parts[2]), float(parts[3]))
    return time.time() - modified(name) > ABANDONED_AFTER_SECONDS


def _machine() -> str:
    """This machine and its process id namespace: containers may share a host name."""
    try:
        space = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        space = 0
    return re.sub(r"[^A-Za-z0-9.-]", "_", processes.host()) + f"~{space}"
