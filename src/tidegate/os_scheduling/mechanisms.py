"""Sets nice values, real-time priorities and groups, and undoes it all: the only place that touches the system.

`Mechanisms.apply` takes all settings that should hold, and changes what differs from those that do:

    holds          nice A = -20    nice B = 5
    should hold    nice A = -20                    nice C = 3
    changed                        B as it was     C = 3, after its old value is in the journal

A mechanism that the node refuses as a whole is not tried again, and the next round uses the next best one. A thread
that is refused alone (it belongs to another user) is told, and the others are set. One that has ended is forgotten.

Without CAP_SYS_NICE a nice value may be raised but not lowered again, unless the thread's limit (`ulimit -e`) allows
it. Such a thread is not touched: its old value could not be given back.

Not undone: what a thread hands on to threads that it starts. They are born with its nice value; of a group they leave
with the others when it is removed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tidegate.os_scheduling import cgroups, procfs
from tidegate.os_scheduling.journal import Journal, Record
from tidegate.os_scheduling.procfs import Thread
from tidegate.os_scheduling.translators import GROUPING, Abilities, Key, Setting, Settings


class Mechanisms:
    """The scheduler's hands."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._hierarchy, lacking = _probe()
        self._lacking = dict(lacking)
        self._holds: Settings = {}
        self._folders: dict[str, set[Path]] = {}
        self._refused: set[tuple[Key, str]] = set()

    @property
    def abilities(self) -> Abilities:
        """What can be set, as far as it is known now."""
        return _abilities(self._lacking)

    def apply(self, wanted: Mapping[Key, Setting]) -> list[str]:
        """Make these settings hold, and no others; gives what could not be done, each problem once."""
        notes: list[str] = []
        stale = [setting for key, setting in self._holds.items() if key not in wanted]
        fresh = [setting for key, setting in wanted.items() if self._holds.get(key) != setting]
        for setting in stale:
            self._take_back(setting, notes)
        # A group's values are set when its folder is made, which its first member does.
        for setting in sorted(fresh, key=lambda setting: setting.kind == "member"):
            try:
                self._journal.add(self._before(setting))
                self._make(setting, wanted)
            except (ProcessLookupError, FileNotFoundError) as error:
                if isinstance(setting.target, Thread) and not procfs.is_alive(setting.target):
                    self._forget(setting.target)
                else:
                    self._refuse(setting, error, notes)
            except OSError as error:
                self._refuse(setting, error, notes)
            else:
                self._holds[setting.key] = setting
        return notes

    def _before(self, setting: Setting) -> list[Record]:
        """How the thing is that a setting changes; nothing if it was changed before, or is our own."""
        thread = setting.target
        if not isinstance(thread, Thread):
            return []
        if not procfs.is_alive(thread):
            raise ProcessLookupError(f"thread {thread.tid} has ended")
        if setting.key in self._journal.records and setting.kind != "member":
            return []
        if setting.kind == "nice":
            nice = os.getpriority(os.PRIO_PROCESS, thread.tid)
            if nice < procfs.nice_floor(thread.pid):
                raise PermissionError(
                    f"its nice value {nice} could not be given back without CAP_SYS_NICE; raise the engine's limit "
                    f"(ulimit -e {20 - nice}) or run the scheduler as root"
                )
            return [Record("nice", thread, was=(nice,))]
        if setting.kind == "realtime":
            policy, parameters = os.sched_getscheduler(thread.tid), os.sched_getparam(thread.tid)
            return [Record("realtime", thread, was=(policy, parameters.sched_priority))]
        assert self._hierarchy is not None, "groups are not used where there is no hierarchy"
        folder = self._folder(thread, str(setting.value))
        records = [Record("group", None, str(folder))]
        if cgroups.needs_controller(self._hierarchy, folder.parent):
            records.insert(0, Record("controller", None, str(folder.parent)))
        return [*records, Record("member", thread, str(folder.parent / self._hierarchy.members))]

    def _folder(self, thread: Thread, group: str) -> Path:
        """The folder of a group for a thread: below the group in which the thread was found."""
        assert self._hierarchy is not None, "groups are not used where there is no hierarchy"
        known = self._journal.records.get(("member", thread))
        parent = Path(known.path).parent if known else self._hierarchy.group_of(thread.pid, thread.tid)
        return parent / cgroups.folder_name(group)

    def _make(self, setting: Setting, wanted: Mapping[Key, Setting]) -> None:
        thread = setting.target
        if not isinstance(thread, Thread):
            assert self._hierarchy is not None and not isinstance(setting.value, str)
            for folder in self._folders.get(thread, ()):
                cgroups.set_values(folder, self._hierarchy.values(setting.kind, setting.value))
        elif setting.kind == "nice":
            os.setpriority(os.PRIO_PROCESS, thread.tid, int(setting.value))
        elif setting.kind == "realtime":
            # Threads that it starts are ordinary ones.
            policy = os.SCHED_RR | os.SCHED_RESET_ON_FORK
            os.sched_setscheduler(thread.tid, policy, os.sched_param(int(setting.value)))
        else:
            self._join(thread, str(setting.value), wanted)

    def _join(self, thread: Thread, group: str, wanted: Mapping[Key, Setting]) -> None:
        assert self._hierarchy is not None, "groups are not used where there is no hierarchy"
        folder = self._folder(thread, group)
        if folder not in self._folders.get(group, set()):
            cgroups.make_group(self._hierarchy, folder)
            for kind in GROUPING:
                of_group = wanted.get((kind, group))
                if of_group is not None:
                    cgroups.set_values(folder, self._hierarchy.values(kind, float(of_group.value)))
            self._folders.setdefault(group, set()).add(folder)
        cgroups.write(folder / self._hierarchy.members, f"{thread.tid}")

    def _take_back(self, setting: Setting, notes: list[str]) -> None:
        """Undo one setting that should not hold any more."""
        del self._holds[setting.key]
        if isinstance(setting.target, Thread):
            record = self._journal.records.get(setting.key)
            records = [] if record is None else [record]
        elif any(kind in GROUPING and target == setting.target for kind, target in self._holds):
            return  # the group has another value still
        else:
            folders = self._folders.pop(setting.target, set())
            keys = [("group", str(folder)) for folder in folders]
            records = [self._journal.records[key] for key in keys if key in self._journal.records]
        for record in records:
            try:
                undo(record)
            except OSError as error:
                notes.append(f"{_name(setting)} could not be given back: {error}; it is tried again at the end")
            else:
                self._journal.undone([record])

    def _forget(self, thread: Thread) -> None:
        for kind in ("nice", "realtime", "member"):
            self._holds.pop((kind, thread), None)
            record = self._journal.records.get((kind, thread))
            if record is not None:
                self._journal.undone([record])

    def _refuse(self, setting: Setting, error: OSError, notes: list[str]) -> None:
        reason = error.strerror or str(error)
        if setting.kind == "realtime":
            self._lacking["realtime"] = reason
        elif setting.kind in ("member", "shares", "quota"):
            reason = f"{error.filename}: {reason}" if error.filename else reason
            self._lacking.update({kind: reason for kind in (("quota",) if setting.kind == "quota" else GROUPING)})
        if (setting.key, reason) not in self._refused:
            self._refused.add((setting.key, reason))
            notes.append(f"{_name(setting)} was refused: {reason}")

    def close(self) -> list[str]:
        """Undo everything; gives what could not be undone."""
        self._holds.clear()
        self._folders.clear()
        return self._journal.restore(undo)[1]


def abilities() -> Abilities:
    """What could be set here, as far as one can tell without setting anything."""
    return _abilities(_probe()[1])


def _abilities(lacking: Mapping[str, str]) -> Abilities:
    return Abilities(dict(lacking), procfs.nice_floor(), os.cpu_count() or 1)


def _probe() -> tuple[cgroups.Hierarchy | None, Mapping[str, str]]:
    """The hierarchy of the cpu controller, and a reason for each mechanism that cannot be used. Changes nothing."""
    lacking = {}
    if not procfs.may_set_any_nice():
        lacking["realtime"] = "it needs CAP_SYS_NICE; run the scheduler as root"
        if procfs.nice_floor() > 0:
            lacking["nice"] = (
                "a raised value could not be lowered again; it needs CAP_SYS_NICE or a limit that allows nice 0 "
                "(`ulimit -e 20`, for the engine as well). Run the scheduler as root"
            )
    hierarchy = cgroups.find_hierarchy(Path("/proc/self/mounts").read_text())
    try:
        if hierarchy is None:
            raise FileNotFoundError("no cpu controller of control groups is mounted here")
        folder = hierarchy.group_of(os.getpid(), os.getpid())
        if not os.access(folder, os.W_OK):
            raise PermissionError(f"{folder} cannot be written by this user; run the scheduler as root")
    except OSError as error:
        lacking |= dict.fromkeys(GROUPING, str(error))
    return hierarchy, lacking


def undo(record: Record) -> None:
    """Give one thing its old value, if it is still there."""
    thread = record.thread
    try:
        if thread is None:
            if record.kind == "group":
                cgroups.remove_group(Path(record.path))
            elif Path(record.path).is_dir():
                cgroups.write(Path(record.path) / "cgroup.subtree_control", "-cpu")
        elif not procfs.is_alive(thread):
            return
        elif record.kind == "nice":
            os.setpriority(os.PRIO_PROCESS, thread.tid, record.was[0])
        elif record.kind == "realtime":
            os.sched_setscheduler(thread.tid, record.was[0], os.sched_param(record.was[1]))
        else:
            cgroups.write(Path(record.path), f"{thread.tid}")
    except ProcessLookupError:
        return  # it ended at this moment


def _name(setting: Setting) -> str:
    target = setting.target
    return f"{setting.kind} of " + (f"thread {target.tid}" if isinstance(target, Thread) else f"group {target}")
