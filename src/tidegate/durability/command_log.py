"""The command log of an engine: records are appended, and `wait` returns when they are durable.

    thread 1   append a ─┐                        ┌─ wait(a) returns
    thread 2   append b ─┼─ one write, one sync ──┼─ wait(b) returns
    thread 3      append c ── waits for the next ─┘── one write, one sync ── wait(c) returns

Threads run transactions one after the other, under the engine's lock, and append a record each, in the order of
execution. They wait outside of that lock. The first that waits writes and syncs for all that have appended until then
(group commit); those that come meanwhile are the next group. What `sync` means:

    "group"    a record is on the disk, by a sync that it may share            survives a loss of power
    "always"   a record is on the disk, by a sync of its own                   survives a loss of power
    "never"    a record was handed to the operating system                     survives the end of the process

Where files can be appended to, a segment is one file that grows, with space allocated ahead: a full disk is noticed
before a transaction runs. On object stores every group is a segment of its own, created exclusively under its number;
an engine that finds the number taken is no longer the owner.

When a write or a sync fails, it is unknown what is on the disk. From then on every call is `StorageUncertain`, until
the state has been opened again; what is found then counts.

Invariant: when `wait` returns, the record and all before it can be read back after the fault that `sync` names.

Not here: what records mean (commands.py), their bytes (log_format.py), when a segment ends (logged.py).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

from tidegate.durability.log_format import End, Header, Segment, Tail, encode_frame, encode_header, frames
from tidegate.durability.scratch import Scratch
from tidegate.foundation.appending import Appender
from tidegate.foundation.errors import StateOwned, StorageFailed, StorageUncertain
from tidegate.foundation.storage import Bytes, Storage

Sync = Literal["group", "always", "never"]

FRAME_SIZE_MAX = 64
"""What a frame takes beside its records, at most, and one byte in each sector."""


class _Group:
    """Records that are written and synced together, and the threads that wait for it."""

    __slots__ = ("counts", "done", "gates", "records", "size")

    def __init__(self) -> None:
        self.records: list[Bytes] = []
        self.counts: list[bool] = []
        self.size = 0
        self.done = False
        self.gates: list[threading.Lock] = []

    def gate(self) -> threading.Lock:
        """A closed gate for one that waits: acquiring it returns when it was opened."""
        made = threading.Lock()
        made.acquire()
        self.gates.append(made)
        return made

    def leave(self, gate: threading.Lock) -> None:
        """Wait no longer."""
        if gate in self.gates:
            self.gates.remove(gate)

    def wake(self, count: int | None = None) -> None:
        """Wake `count` of the threads that wait, or all."""
        woken, self.gates = (self.gates, []) if count is None else (self.gates[:count], self.gates[count:])
        for gate in woken:
            gate.release()


class CommandLog:
    """The newest segment of a state's log, open for appending.

    `confirm` raises when the state has another owner; it is asked where no lock keeps others away (object stores).
    """

    def __init__(self, storage: Storage, sync: Sync, confirm: Callable[[], None] = lambda: None) -> None:
        self._storage, self._sync, self._confirm = storage, sync, confirm
        self._lock = threading.Lock()
        self._group = _Group()
        self._leading = False
        self.after_write: Callable[[], None] = lambda: None
        """Called when a group was written, or could not be, by the thread that led; it must not wait."""
        self._failure: Exception | None = None
        self._appender: Appender | None = None
        self._header: Header | None = None
        self._fields: dict[str, Any] = {}
        self._end, self._synced = End(0, 0), 0
        self._unwritten = 0
        self._scratch = Scratch()
        self.first = self.next = 1
        self.size = 0
        """The bytes that were written since the segment was begun, those of all groups that are objects among them."""

    # --- segments ------------------------------------------------------------------------------------------

    def begin(self, first: int, parent: str, **fields: Any) -> None:
        """Start a segment whose first command has the number `first`; what was appended before must be flushed.

        `fields` are what every segment of this engine says: state, epoch, program, transactions.
        """
        assert not self._group.records and not self._leading, "a segment ends when all of it is written"
        self._fields = fields or self._fields
        header, data = encode_header(self._segment(first, parent))
        appender = self._create(header, data) if self._storage.appends else None
        self.close()
        self.first = self.next = first
        self._header, self._appender = header, appender
        self._end, self._synced = header.start, header.end
        self.size = len(data)

    def _create(self, header: Header, data: bytes) -> Appender:
        """A new segment's file. If it certainly does not exist, the old one stays in use; else the log has failed."""
        name, written = header.segment.name, False
        replaces = self._is_empty(name)
        try:
            if self._appender is not None and self._sync == "never":
                self._appender.sync()  # only the newest segment may have a torn tail
            self._storage.write(name, [data], exclusive=not replaces)
            written = True
            return self._storage.append_to(name, len(data))
        except Exception as error:
            if written or isinstance(error, StorageUncertain):
                self._failure = self._failed(error)
            raise

    @property
    def hash(self) -> str:
        """Names everything that was written so far; a segment that nothing was written to adds nothing to it."""
        if self._header is None:
            return ""
        return self._end.hash if self._end.offset > self._header.end else self._header.segment.parent

    def close(self) -> None:
        """End the use of the segment; nothing is written."""
        if self._appender is not None:
            self._appender.close()
            self._appender = None

    def _segment(self, first: int, parent: str) -> Segment:
        return Segment(first=first, parent=parent, created_at=time.time(), **self._fields)

    def _is_empty(self, name: str) -> bool:
        """Whether a segment of that name was started and nothing was ever appended to it: it may be replaced."""
        try:
            data = self._storage.read(name)
        except FileNotFoundError:
            return False
        found = next(frames(name, data))
        return isinstance(found, Tail)

    # --- records -------------------------------------------------------------------------------------------

    def reserve(self, size: int) -> None:
        """Make sure that a record of this size can be appended; StorageFailed, and nothing has changed, if not."""
        with self._lock:
            self._require_alive()
            if self._appender is not None:
                asked = self._unwritten + size
                self._appender.reserve(asked + asked // 256 + FRAME_SIZE_MAX * (len(self._group.records) + 2))

    def append(self, *records: Bytes, numbered: bool = True) -> _Group:
        """Append a command's record; `wait` for what is returned.

        More records are parts of the command and have no number of their own; they stand in the same group. What is not
        `numbered` consists of parts of the last command.
        """
        with self._lock:
            self._require_alive()
            group = self._group
            size = sum(map(len, records))
            group.records += records
            group.counts += (numbered and place == 0 for place in range(len(records)))
            group.size += size
            self._unwritten += size
            return group

    @property
    def has_failed(self) -> bool:
        """Whether a write or a sync has failed; the threads that waited for it got the error."""
        return self._failure is not None

    @property
    def is_writing(self) -> bool:
        """Whether a group is being written; `after_write` is called when that has ended."""
        return self._leading

    def last(self) -> _Group:
        """What to wait for, to wait for everything that was appended."""
        return self._group

    def wait(self, group: _Group) -> None:
        """Return when a group, and all before it, are certain to stay.

        Who sleeps is woken once, and needs no lock to see that the group is done: sixteen that were woken at the same
        moment would queue for it.
        """
        while not group.done:
            with self._lock:
                if self._is_written(group):
                    return
                if not self._leading:
                    self._lead()
                    continue
                gate = group.gate()
            try:
                gate.acquire()
            except BaseException:
                self._leave(group, gate)
                raise

    def _leave(self, group: _Group, gate: threading.Lock) -> None:
        """One that waited was interrupted: should it have been woken to write the next group, another one must."""
        with self._lock:
            group.leave(gate)
            if not self._leading:
                self._group.wake(1)

    def _is_written(self, group: _Group) -> bool:
        """Whether nothing of a group, or before it, is still to be written."""
        if group.done:
            return True
        self._require_alive()
        return not group.records and not self._leading

    def flush(self) -> None:
        """Wait for everything that was appended."""
        self.wait(self._group)

    def _lead(self) -> None:
        """Write and sync the current group, for all that wait for it; the lock is released meanwhile."""
        group, self._leading = self._group, True
        self._group = _Group()
        self._lock.release()
        failure: Exception | None = None
        try:
            self._write(group)
        except BaseException as error:
            failure = self._failed(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._lock.acquire()
            self._leading = False
            self._unwritten -= group.size
            if failure is None:
                group.done = True
            else:
                self._failure = failure
            following = self._group
            following.wake(1 if failure is None and following.records else None)  # one writes the next group, for all
            group.wake()
            self.after_write()

    def _write(self, group: _Group) -> None:
        """Make the records of a group frames, and these certain to stay."""
        if self._sync != "always":
            self._write_payload(group.records[0] if len(group.records) == 1 else b"".join(group.records))
            self.next += sum(group.counts)
            return
        for payload, count in self._payloads(group):
            self._write_payload(payload)
            self.next += count

    def _write_payload(self, payload: Bytes) -> None:
        """Append a frame, and sync it."""
        assert self._header is not None
        if self._appender is None:
            self._write_object(payload)
            return
        data, self._end = encode_frame(self._header, self._end, self._synced, payload, self._scratch)
        self._appender.write(data)
        self.size += len(data)
        if self._sync != "never":
            self._appender.sync()
            self._synced = self._end.offset

    def _payloads(self, group: _Group) -> Iterator[tuple[Bytes, int]]:
        """What is synced together where every command has its own sync, with the number of commands in it."""
        pieces: list[tuple[list[Bytes], int]] = []
        for record, counts in zip(group.records, group.counts, strict=True):
            if counts or self._appender is not None or not pieces:
                pieces.append(([record], counts))
            else:  # an object has a command's number: the command's steps stand in it, too
                pieces[-1][0].append(record)
        for records, count in pieces:
            yield b"".join(records), count

    def _write_object(self, payload: Bytes) -> None:
        """A segment of one frame, where nothing can be appended to."""
        self._header, start = encode_header(self._segment(self.next, self.hash))
        data, self._end = encode_frame(self._header, self._header.start, self._header.end, payload)
        name = self._header.segment.name
        self.size += len(start) + len(data)
        try:
            self._storage.write(name, [start, data], exclusive=True)
        except StorageUncertain:
            if bytes(self._storage.read(name)) != b"".join((start, data)):
                raise
        except FileExistsError:
            raise StateOwned(
                f"{self._storage.path}/{name}: somebody else wrote it: this state was taken over by another engine. "
                "Nothing of this call was applied. Close this engine, and open the state again if it is to go on here."
            ) from None
        self._confirm()  # the number may be free because a new owner has been past it, and removed what it covers

    def _failed(self, error: BaseException) -> Exception:
        if isinstance(error, StorageFailed | StateOwned):
            return error
        return StorageUncertain(f"{self._storage.path}: writing the log was interrupted: {error!r}")

    def _require_alive(self) -> None:
        if self._failure is not None:
            raise type(self._failure)(
                f"{self._failure} What was asked for may or may not be in the log: close this engine and open the "
                "state again; what is found then counts."
            ) from self._failure
