"""What Linux tells about threads and the node: the only reader of /proc here. It changes nothing.

A thread id is reused after its thread has ended, so a thread is known by its id, its process and the time at which
it started, in clock ticks since boot. Whoever changes a thread compares all three first:

    Thread(pid=310, tid=322, started=88120)    the operator's thread
    /proc/310/task/322/stat says 91544         it ended, and another one has its id: leave that alone
"""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path

from tidegate.foundation.errors import LimitExceeded

CAP_SYS_NICE = 23
NICE_LOWEST = -20
_AUTOGROUP = Path("/proc/sys/kernel/sched_autogroup_enabled")
_ENDED = ("Z", "X")  # a zombie is not scheduled any more


@dataclass(frozen=True, slots=True)
class Thread:
    """One thread of one process of this boot."""

    pid: int
    tid: int
    started: int


def require_linux() -> None:
    """Refuse to work where there is no /proc."""
    if not Path("/proc/self/task").is_dir():
        raise LimitExceeded(
            "scheduling threads from outside needs Linux with /proc, which is not here. Run it on the node on which "
            "the engine runs; in a container, with the host's process ids (--pid=host)"
        )


def find_thread(pid: int, tid: int) -> Thread | None:
    """The thread of this process with this id; None if it has ended or belongs to another process."""
    fields = _stat(pid, tid)
    return None if fields is None else Thread(pid, tid, int(fields[19]))


def is_alive(thread: Thread) -> bool:
    """Whether this very thread still runs."""
    return find_thread(thread.pid, thread.tid) == thread


def cpu_seconds(thread: Thread) -> float:
    """The processor time that a thread has used; 0 if it has ended."""
    fields = _stat(thread.pid, thread.tid)
    return 0.0 if fields is None else (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _stat(pid: int, tid: int) -> list[str] | None:
    """The fields of a thread's stat behind its name, which may hold spaces and brackets."""
    try:
        text = Path(f"/proc/{pid}/task/{tid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if len(fields) < 20 or fields[0] in _ENDED else fields


def cpu_pressure() -> float | None:
    """The percentage of the last ten seconds in which some thread waited for a processor; None where unknown."""
    try:
        first = Path("/proc/pressure/cpu").read_text().splitlines()[0]
        return float(dict(part.split("=") for part in first.split()[1:])["avg10"])
    except (OSError, LookupError, ValueError):  # built without it, or switched off at boot
        return None


def boot_id() -> str:
    """A name of this boot: what it changed is gone with it."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def may_set_any_nice() -> bool:
    """Whether this process has CAP_SYS_NICE."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> CAP_SYS_NICE & 1)
    return False


def nice_floor(pid: int | None = None) -> int:
    """The lowest nice value that this process may give to a process's threads (its own if none is named).

    Without CAP_SYS_NICE the kernel goes by the limit RLIMIT_NICE of the thread that is changed.
    """
    if may_set_any_nice():
        return NICE_LOWEST
    try:
        limit = resource.prlimit(pid or os.getpid(), resource.RLIMIT_NICE)[0]
    except OSError:
        limit = 0
    return NICE_LOWEST if limit == resource.RLIM_INFINITY else max(NICE_LOWEST, 20 - limit)


def autogroups(pids: set[int]) -> dict[int, str]:
    """The automatic group of each of these processes; none where the kernel does not make them.

    The kernel makes one for each session, such as a terminal's, of threads that are in no control group. Nice compares
    only threads of the same one.
    """
    try:
        if _AUTOGROUP.read_text().strip() != "1":
            return {}
    except OSError:
        return {}
    found = {}
    for pid in pids:
        try:
            found[pid] = Path(f"/proc/{pid}/autogroup").read_text().split()[0]
        except (OSError, IndexError):
            continue
    return found
