"""A compaction in a process of its own: the only way not to share Python's lock with the engine.

    engine's process                            child, of low priority
    thread: start, wait            ──────────>  compact, collect
            read what was written  <──────────  ends

A thread takes the lock dozens of times a section, and the engine waits to get it back. With 20 million rows, batches of
6 ms took 11 ms beside such a thread, and 47 ms at the 99th percentile; a lower priority makes it worse on a busy
machine, because the thread then holds the lock without a processor. A child costs a second of processor time to start,
at low priority, and its own memory. It ends when its parent does; an unfinished file is left to a sweep.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

from tidegate.durability.compaction import PRIORITY, Stopped, compact
from tidegate.durability.versions import VersionStore
from tidegate.foundation.storage import open_storage


def start(path: str, version: int, keep_versions: int) -> subprocess.Popen[str]:
    """Starts a child that compacts a version and collects what that made superfluous; its stderr says what failed."""
    command = [sys.executable, "-W", "ignore", "-m", __name__, path, str(version), str(keep_versions), str(os.getpid())]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )


def main(path: str, version: int, keep_versions: int, parent: int) -> None:
    """What the child does."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)

    def pause() -> None:
        if os.getppid() != parent:
            raise Stopped("the engine's process has ended")

    store = VersionStore(open_storage(path), keep_versions)
    compact(store, version, pause)
    store.collect()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))
