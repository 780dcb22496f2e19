"""Control groups of the cpu controller, version 1 or 2: where they are, and how threads come and go.

A group is made below the one that a thread is in already, so that no thread leaves the limits of its container:

    version 1    /sys/fs/cgroup/cpu/docker/7f3a/           tasks: 310 322 323
                 /sys/fs/cgroup/cpu/docker/7f3a/tidegate-traffic/     cpu.shares = 4096, tasks: 322
    version 2    /sys/fs/cgroup/app.slice/                 the cpu controller on for what is below
                 /sys/fs/cgroup/app.slice/tidegate-traffic/           threaded, cpu.weight = 400, cgroup.threads: 322

In version 2 a group below one with processes can only be a threaded one; with it the group above becomes the root of a
threaded tree, and may then hand the cpu controller down. Removing the groups makes it an ordinary one again.
"""

from __future__ import annotations

import contextlib
import os
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PREFIX = "tidegate-"
_PERIOD_US = 100_000
_WEIGHT_OF_1024_SHARES = 100


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Where the cpu controller is mounted, and by which version."""

    version: int
    mount: Path

    @property
    def members(self) -> str:
        """The file of a group that lists its threads, and takes new ones."""
        return "tasks" if self.version == 1 else "cgroup.threads"

    def group_of(self, pid: int, tid: int) -> Path:
        """The folder of the group that a thread is in. Raises OSError if it has ended or the folder is not visible."""
        text = Path(f"/proc/{pid}/task/{tid}/cgroup").read_text()
        for line in text.splitlines():
            number, controllers, path = line.split(":", 2)
            if "cpu" in controllers.split(",") if self.version == 1 else number == "0":
                folder = self.mount / path.lstrip("/")
                if not folder.is_dir():
                    raise FileNotFoundError(f"{folder}, the group of thread {tid}, cannot be seen from here")
                return folder
        raise FileNotFoundError(f"thread {tid} is in no group of the cpu controller")

    def values(self, kind: str, value: float) -> dict[str, str]:
        """The files of a group, and what to write to them, for shares or for a quota in cores."""
        if kind == "shares":
            if self.version == 1:
                return {"cpu.shares": f"{round(value)}"}
            return {"cpu.weight": f"{min(max(round(value * _WEIGHT_OF_1024_SHARES / 1024), 1), 10_000)}"}
        quota = max(1000, round(value * _PERIOD_US))  # the kernel takes no less than a millisecond
        if self.version == 1:
            return {"cpu.cfs_period_us": f"{_PERIOD_US}", "cpu.cfs_quota_us": f"{quota}"}
        return {"cpu.max": f"{quota} {_PERIOD_US}"}


def find_hierarchy(mounts: str) -> Hierarchy | None:
    """The cpu controller's hierarchy, by the text of /proc/self/mounts; None if there is none."""
    for line in mounts.splitlines():
        _, mount, kind, options = line.split()[:4]
        folder = Path(re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), mount))
        if kind == "cgroup" and "cpu" in options.split(","):
            return Hierarchy(1, folder)
        if kind == "cgroup2":
            with contextlib.suppress(OSError):
                if "cpu" in (folder / "cgroup.controllers").read_text().split():
                    return Hierarchy(2, folder)
    return None


def folder_name(group: str) -> str:
    """A group's folder. What a folder's name cannot have becomes a dash, and a checksum tells such groups apart."""
    plain = re.sub(r"[^A-Za-z0-9_.+-]+", "-", group)[:150]
    return PREFIX + (plain if plain == group else f"{plain}-{zlib.crc32(group.encode(errors='replace')):08x}")


def needs_controller(hierarchy: Hierarchy, parent: Path) -> bool:
    """Whether the cpu controller must be switched on for the groups below `parent`."""
    return hierarchy.version == 2 and "cpu" not in (parent / "cgroup.subtree_control").read_text().split()


def make_group(hierarchy: Hierarchy, folder: Path) -> None:
    """Make a group, if it is not there, and prepare it for threads."""
    folder.mkdir(exist_ok=True)
    if hierarchy.version == 2:
        if (folder / "cgroup.type").read_text().strip() != "threaded":
            write(folder / "cgroup.type", "threaded")
        if needs_controller(hierarchy, folder.parent):
            write(folder.parent / "cgroup.subtree_control", "+cpu")


def set_values(folder: Path, values: Mapping[str, str]) -> None:
    """Write to the files of a group."""
    for file, value in values.items():
        write(folder / file, value)


def remove_group(folder: Path) -> None:
    """Remove a group. Threads that are still in it, such as those that its members started, go to the one above."""
    for name in ("tasks", "cgroup.threads"):
        members = folder / name
        for _ in range(3):  # new threads may be born in the group meanwhile
            with contextlib.suppress(OSError):
                for tid in members.read_text().split():
                    with contextlib.suppress(ProcessLookupError):
                        write(folder.parent / name, tid)
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(folder)


def write(file: Path, value: str) -> None:
    """One write of one value, as the kernel wants it; it never makes a file."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, value.encode())
    finally:
        os.close(descriptor)
