"""What everything was before it was changed, written down first, so that it can be undone after any end.

The journal is a file in a private folder of the user, one for each machine. A line is written before the change that
it describes is made, and another one when the change has been undone:

    {"boot": "5f0c...", "pid": 4402}
    {"kind": "nice", "thread": {"pid": 310, "tid": 322, "started": 88120}, "path": "", "was": [0]}
    {"kind": "group", "thread": null, "path": "/sys/fs/cgroup/cpu/tidegate-traffic", "was": []}
    {"kind": "member", "thread": {...}, "path": "/sys/fs/cgroup/cpu/tasks", "was": []}
    {"undone": {"kind": "nice", ...}}

Invariant: what differs from how it was found has a record in the file. The first record of a thing counts, because
later ones would describe our own changes. Undoing runs backwards, so threads leave a group before it is removed. A
record may describe a change that was never made: undoing it then changes nothing. Threads that have ended, or whose
ids have other threads now, are left alone.

A machine that fails takes both changes and page cache with it, so lines are not synced to disk: they must outlive
the process only. A journal of an earlier boot describes nothing that is still there, and is dropped.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tidegate.foundation import private_folder, processes
from tidegate.foundation.disk import OsDisk
from tidegate.foundation.errors import StateOwned, StorageFailed
from tidegate.foundation.holds import hold
from tidegate.foundation.refusals import refusing
from tidegate.os_scheduling import procfs
from tidegate.os_scheduling.procfs import Thread

LINES_MAX = 10_000
"""A longer journal is written anew, without what has been undone."""


@dataclass(frozen=True, slots=True)
class Record:
    """One thing that is about to be changed.

    Args:
        kind: `nice`, `realtime` or `member` (of a thread), `group` or `controller` (of a folder).
        thread: The thread, if it is a thread's.
        path: The folder of a group that is made, one whose controllers are changed, or the file of a thread's group.
        was: The values that it had.
    """

    kind: str
    thread: Thread | None
    path: str = ""
    was: tuple[int, ...] = ()

    @property
    def key(self) -> tuple[str, Thread | str]:
        """What is changed: it has one record."""
        return self.kind, self.path if self.thread is None else self.thread


def default_folder() -> Path:
    """The private folder of this user for schedules."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(state) / "tidegate" / "schedule"


class Journal:
    """The journal of this user on this machine. Only one process has it at a time.

    Args:
        folder: A private folder; it is made if it is missing.
    """

    def __init__(self, folder: Path) -> None:
        with refusing(str(folder), "make"):
            private_folder.make(folder)
            weakness = private_folder.weakness(folder)
        if weakness is not None:
            raise StorageFailed(f"{weakness}. What others can write there could change any thread of yours")
        self._file = folder / f"journal-{processes.host()}.jsonl"
        self._lock_file = folder / f"lock-{processes.host()}"
        self._lock = self._take_lock()
        self._lines = 0
        self.records: dict[tuple[str, Thread | str], Record] = {}
        with refusing(str(self._file), "read"):
            self._read(procfs.boot_id())

    def _take_lock(self) -> Any:
        try:
            lock = hold(OsDisk(), str(self._lock_file), exclusive=True)
        except BlockingIOError:
            with contextlib.suppress(OSError, ValueError):
                first = json.loads(self._file.read_text().split("\n", 1)[0])
                raise StateOwned(f"{self._occupied()} as process {first['pid']}. Stop that one first") from None
            raise StateOwned(f"{self._occupied()}. Stop that one first") from None
        return lock

    def _occupied(self) -> str:
        return f"{self._lock_file}: a scheduler of this user is running on this machine already"

    def _read(self, boot: str) -> None:
        lines = self._file.read_bytes().split(b"\n") if self._file.exists() else []
        entries = []
        for line in lines:
            with contextlib.suppress(ValueError):  # a torn line: its change was not made yet
                entries.append(json.loads(line))
        if not entries or entries[0].get("boot") != boot:
            entries = []
        for entry in entries[1:]:
            if "undone" in entry:
                self.records.pop(_record(entry["undone"]).key, None)
            else:
                record = _record(entry)
                self.records.setdefault(record.key, record)
        self._write_anew(boot)

    def _write_anew(self, boot: str) -> None:
        """A journal with what is not undone, in place of the old one at once."""
        header: dict[str, Any] = {"boot": boot, "pid": os.getpid()}
        text = "\n".join([_line(header), *map(_line, self.records.values())])
        fresh = self._file.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        os.replace(fresh, self._file)
        self._lines = len(self.records) + 1

    def add(self, records: Iterable[Record]) -> None:
        """Write down what is about to be changed. Only then may it be changed."""
        fresh = {record.key: record for record in records if record.key not in self.records}
        self._append(fresh.values())
        self.records.update(fresh)

    def undone(self, records: Iterable[Record]) -> None:
        """Write down that these have their old values, or are gone."""
        ended = list(records)
        for record in ended:
            self.records.pop(record.key, None)
        self._append({"undone": asdict(record)} for record in ended)
        if self._lines > LINES_MAX + 2 * len(self.records):
            with refusing(str(self._file), "write"):
                self._write_anew(procfs.boot_id())

    def _append(self, entries: Iterable[Record | dict[str, Any]]) -> None:
        lines = ["\n" + _line(entry) for entry in entries]  # in front: the line before may be torn, by a full disk
        if lines:
            with refusing(str(self._file), "write"), self._file.open("a") as file:
                file.write("".join(lines))
            self._lines += len(lines)

    def restore(self, undo: Callable[[Record], None]) -> tuple[int, list[str]]:
        """Undo all records, the newest first; how many, and what could not be undone."""
        problems, done = [], []
        for record in reversed(list(self.records.values())):
            try:
                undo(record)
            except OSError as error:
                what = f"{record.kind} of {record.path or record.thread}"
                problems.append(f"{what} could not be undone: {error}. Run `tidegate schedule restore` as root")
            else:
                done.append(record)
        with contextlib.suppress(StorageFailed):  # a full disk; to undo it twice is harmless
            self.undone(done)
        return len(done), problems

    def close(self) -> None:
        """Give the journal up to the next process; a journal in which nothing is left is removed."""
        if not self.records:
            self._file.unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.release()


def _line(entry: Record | dict[str, Any]) -> str:
    if isinstance(entry, Record):
        entry = asdict(entry)
    return json.dumps(entry)


def _record(entry: dict[str, Any]) -> Record:
    thread = entry["thread"]
    known = None if thread is None else Thread(thread["pid"], thread["tid"], thread["started"])
    return Record(entry["kind"], known, entry["path"], tuple(entry["was"]))
