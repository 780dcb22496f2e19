"""Whether the process that left its name in a file is still running.

Process ids are reused, but an id together with its start time identifies one process of a machine. Temporary files
carry that pair.

Invariant: `is_running` may report a dead process as alive only if another one got the same id within
`TOLERANCE_SECONDS` of its start; it never reports a live one as dead. A zombie counts as gone: it runs no code any
more, and in a container without an init process it is never reaped.
It does not know processes of other machines; callers compare `host()` first.
"""

from __future__ import annotations

import functools
import os
import socket

import psutil

TOLERANCE_SECONDS = 2.0  # start times are counted from boot, and the boot time shifts with the clock


def host() -> str:
    """The name under which this machine records its processes."""
    return socket.gethostname()


def started(pid: int) -> float:
    """When the running process `pid` started, in seconds since 1970."""
    return _own_start(pid) if pid == os.getpid() else float(psutil.Process(pid).create_time())


@functools.lru_cache(maxsize=4)
def _own_start(pid: int) -> float:
    """As `started`, cached by pid: a fork has another pid, so it does not inherit the answer."""
    return float(psutil.Process(pid).create_time())


def is_running(pid: int, start: float) -> bool:
    """Whether the process that started as `pid` at `start` on this machine still runs."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return abs(float(process.create_time()) - start) <= TOLERANCE_SECONDS
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
