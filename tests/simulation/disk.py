"""A disk in memory that forgets, tears, lies and crashes as real ones do, all of it decided by one seed.

There are two images. Programs see the volatile one, as through the cache of an operating system. A
crash throws it away and leaves the durable one, after a last decision about everything that was never
synced:

    file data        each write since the last sync: lost, kept, torn at some byte, or kept in any
                     subset of its sectors
                     with `by_sectors`, several writes to a file: each of its sectors is as it was after
                     one of them; a disk stores sectors, and no write without those before it in one
    file sizes       each truncation and allocation since the last sync: lost or kept
    names            each name on its own, as it was after any of its changes since its folder was synced;
                     so a renamed file may have both names, or none
    folders          a folder whose name is lost takes everything in it along

A sync of a file applies what is pending to the durable image; a sync of a folder does so with its
names. A sync that fails may have stored a part, keep a part and drop a part for good: the next sync
then succeeds without it, while programs still read the bytes. A folder's sync that fails drops nothing,
file systems keep names in a journal.

`Faults` says how often each call goes wrong. `crash_at` names one call, counted from 0, at which the
machine stops, before or after the call's effect; then every call raises `SimulatedCrash` until
`restart()`. Going through all numbers up to `calls` visits every moment of a program.

Invariant: the same seed and the same calls give the same faults, outcomes and history; nothing
depends on names, hashes or time. `describe()` gives the history for a failure message, `struck` counts
the faults by name, so that a test can tell a refusal that the disk caused from one without a reason.

Several programs may use one disk; each open has its own lock, as with `flock`. Not here: what a
network file system does when two machines use it, beyond listings that miss new names.
"""

from __future__ import annotations

import errno
import os
import random
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from tidegate.foundation.disk import Status

from .images import Change, Node, Open, apply

SECTOR_SIZE = 512
_DEVICE = 1
_ROOT = 1

Result = TypeVar("Result")


class SimulatedCrash(BaseException):
    """The machine has stopped; no handler of a program runs on, so this is no Exception."""


@dataclass(frozen=True, slots=True)
class Faults:
    """How often things go wrong, each as a share of the calls that it can happen to."""

    crash: float = 0.0
    sync_fails: float = 0.0
    folder_sync_fails: float = 0.0
    disk_full: float = 0.0
    short_write: float = 0.0
    read_error: float = 0.0
    stale_listing: float = 0.0
    naming_fails: float = 0.0  # link or replace reports an error, having happened or not
    link_repeated: float = 0.0  # link happens, and says that the name is taken


class SimulatedDisk:
    """Implements `tidegate.foundation.disk.Disk`; the module's docstring says what it does on a bad day."""

    def __init__(
        self,
        seed: object,
        faults: Faults | None = None,
        *,
        crash_at: int | None = None,
        by_sectors: bool = False,
    ) -> None:
        self._by_sectors = by_sectors
        self._random = random.Random(repr(seed))
        self._seed = seed
        self.faults = faults or Faults()
        self.crash_at = crash_at
        self.calls = 0
        self.crashed = False
        self.struck: Counter[str] = Counter()
        self.caller = ""  # who makes the next call, for the history
        self._history: list[str] = []
        self._turn = threading.RLock()
        self._clock = 1_700_000_000.0
        self._nodes = {_ROOT: Node(_ROOT, True, self._clock)}
        self._seen: dict[str, int] = {"/": _ROOT}
        self._durable: dict[str, int] = {"/": _ROOT}
        self._pending: dict[str, list[int | None]] = {}  # the values that a name had since its folder was synced
        self._open: dict[int, Open] = {}
        self._next_node, self._next_descriptor = _ROOT + 1, 3

    # What tests do

    def restart(self, *, power_failure: bool = True) -> None:
        """Ends all programs and starts again; without a power failure nothing is lost but locks and descriptors."""
        with self._turn:
            self._history.append(f"---- restart{'' if power_failure else ', the power stayed on'}")
            self._open.clear()
            self.crashed, self.crash_at = False, None
            if power_failure:
                self._lose_power()

    def flip_bit(self, path: str | None = None, offset: int | None = None) -> tuple[str, int]:
        """Flips one bit of a stored file; what is not named, the seed picks. Where it lies."""
        with self._turn:
            full = [name for name, node in self._seen.items() if self._nodes[node].seen]
            file = path or self._random.choice(full)
            node = self._nodes[self._seen[file]]
            place = self._random.randrange(len(node.seen)) if offset is None else offset
            bit = 1 << self._random.randrange(8)
            for image in (node.seen, node.durable):
                if place < len(image):
                    image[place] ^= bit
            self._history.append(f"---- bit {bit:#x} flipped at {place} of {file}")
            return file, place

    def content(self, path: str) -> bytes | None:
        """What programs read there now; None when there is no such file. Not a call: nothing can go wrong."""
        node = self._seen.get(path)
        return None if node is None else bytes(self._nodes[node].seen)

    def put_back(self, inode: int, data: bytes) -> None:
        """Restores a file's bytes from a backup; also of one whose name is gone, since a crash may bring it back."""
        with self._turn:
            if inode in self._nodes:
                node = self._nodes[inode]
                node.seen, node.durable, node.pending = bytearray(data), bytearray(data), []
                self._history.append(f"---- file {inode} put back from a backup")

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted. Not a call: nothing can go wrong."""
        return sorted(os.path.basename(name) for name in self._names_in(folder))

    def inode(self, path: str) -> int | None:
        """What a name leads to. Not a call: nothing can go wrong."""
        return self._seen.get(path)

    def note(self, text: str) -> None:
        """Adds a line to the history."""
        self._history.append(f"==== {text}")

    def end_program(self, descriptors: Iterable[int]) -> None:
        """A program ended: what it had open is closed, and its locks end. The machine goes on."""
        with self._turn:
            for descriptor in descriptors:
                self._open.pop(descriptor, None)

    def describe(self) -> str:
        """The seed and all calls so far, one per line; temporary files are numbered as they come."""
        numbers: dict[str, int] = {}
        text = re.sub(
            r"\.temporary~[\w.~-]+",
            lambda found: f"temporary-{numbers.setdefault(found[0], len(numbers) + 1)}",
            "\n".join(self._history),
        )
        return f"SimulatedDisk(seed={self._seed!r}):\n{text}"

    # The port

    def open_new(self, path: str) -> int:
        def effect() -> int:
            self._require_absent(path)
            self._name(path, self._new_node(is_folder=False))
            return self._new_descriptor(path, writable=True)

        return self._call(f"open_new {path}", effect)

    def open_existing(self, path: str, *, writable: bool) -> int:
        def effect() -> int:
            if self._node(path).is_folder and writable:
                raise _error(errno.EISDIR, path)
            return self._new_descriptor(path, writable=writable)

        return self._call(f"open_existing {path} writable={writable}", effect)

    def close(self, descriptor: int) -> None:
        def effect() -> None:
            self._opened(descriptor)
            del self._open[descriptor]

        self._call(f"close {descriptor}", effect)

    def read(self, descriptor: int, buffer: memoryview, offset: int) -> int:
        def effect() -> int:
            if self._strikes("read_error"):
                raise _error(errno.EIO)
            found = self._file(descriptor).seen[offset : offset + len(buffer)]
            buffer[: len(found)] = found
            return len(found)

        return self._call(f"read {descriptor} {len(buffer)} bytes at {offset}", effect)

    def write(self, descriptor: int, data: memoryview, offset: int) -> int:
        def effect() -> int:
            if self._strikes("disk_full"):
                raise _error(errno.ENOSPC)
            content = bytes(data)
            if len(content) > 1 and self._strikes("short_write"):
                content = content[: self._random.randrange(1, len(content))]
            self._change(descriptor, Change(offset, content))
            return len(content)

        return self._call(f"write {descriptor} {len(data)} bytes at {offset}", effect)

    def truncate(self, descriptor: int, size: int) -> None:
        self._call(f"truncate {descriptor} {size}", lambda: self._change(descriptor, Change(size, None)))

    def allocate(self, descriptor: int, offset: int, length: int) -> bool:
        def effect() -> bool:
            if self._strikes("disk_full"):
                if self._happens(0.5):  # a part of it may be there already
                    self._change(descriptor, Change(offset + length // 2, None, grows_only=True))
                raise _error(errno.ENOSPC)
            self._change(descriptor, Change(offset + length, None, grows_only=True))
            return True

        return self._call(f"allocate {descriptor} {length} bytes at {offset}", effect)

    def sync(self, descriptor: int) -> None:
        self._call(f"sync {descriptor}", lambda: self._sync(descriptor))

    def sync_data(self, descriptor: int) -> None:
        self._call(f"sync_data {descriptor}", lambda: self._sync(descriptor))

    def lock(self, descriptor: int, *, exclusive: bool) -> None:
        def effect() -> None:
            opened = self._opened(descriptor)
            others = [o.lock for o in self._open.values() if o is not opened and o.node == opened.node and o.lock]
            if "exclusive" in others or (exclusive and others):
                raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))
            opened.lock = "exclusive" if exclusive else "shared"

        self._call(f"lock {descriptor} exclusive={exclusive}", effect)

    def unlock(self, descriptor: int) -> None:
        def effect() -> None:
            self._opened(descriptor).lock = ""

        self._call(f"unlock {descriptor}", effect)

    def status(self, descriptor: int) -> Status:
        return self._call(f"status {descriptor}", lambda: _status(self._nodes[self._opened(descriptor).node]))

    def stat(self, path: str) -> Status:
        return self._call(f"stat {path}", lambda: _status(self._node(path)))

    def link(self, source: str, target: str) -> None:
        def effect() -> None:
            node = self._node(source)
            self._require_absent(target)
            if self._strikes("link_repeated"):
                self._name(target, node.number)
                raise _error(errno.EEXIST, target)
            self._rename((target, node.number))

        self._call(f"link {source} {target}", effect)

    def replace(self, source: str, target: str) -> None:
        def effect() -> None:
            node = self._node(source)
            self._require_folder_of(target)
            if target in self._seen and self._node(target).is_folder:
                raise _error(errno.EISDIR, target)
            self._rename((target, node.number), (source, None))

        self._call(f"replace {source} {target}", effect)

    def unlink(self, path: str) -> None:
        def effect() -> None:
            if self._node(path).is_folder:
                raise _error(errno.EISDIR, path)
            self._name(path, None)

        self._call(f"unlink {path}", effect)

    def mkdir(self, path: str) -> None:
        def effect() -> None:
            self._require_absent(path)
            self._name(path, self._new_node(is_folder=True))

        self._call(f"mkdir {path}", effect)

    def listdir(self, path: str) -> list[str]:
        def effect() -> list[str]:
            if not self._node(path).is_folder:
                raise _error(errno.ENOTDIR, path)
            names = list(self._names_in(path))
            if self._strikes("stale_listing"):
                fresh = [name for name in names if name not in self._durable]
                missed = {name for name in fresh if self._happens(0.5)}
                names = [name for name in names if name not in missed]
            return [os.path.basename(name) for name in names]

        return self._call(f"listdir {path}", effect)

    def sync_folder(self, path: str) -> None:
        def effect() -> None:
            if not self._node(path).is_folder:
                raise _error(errno.ENOTDIR, path)
            pending = [name for name in self._pending if os.path.dirname(name) == path]
            fails = self._strikes("folder_sync_fails")
            for name in pending:
                if not fails or self._happens(0.5):
                    self._keep_name(name, self._pending.pop(name)[-1])
            if fails:
                raise _error(errno.EIO, path)

        self._call(f"sync_folder {path}", effect)

    # Inside: calls and faults

    def _call(self, text: str, effect: Callable[[], Result]) -> Result:
        with self._turn:
            if self.crashed:
                raise SimulatedCrash
            number, self.calls = self.calls, self.calls + 1
            self._clock += 0.001
            text = f"{self.caller}{text}"
            crashes = number == self.crash_at or self._strikes("crash")
            if crashes and self._happens(0.5):
                self._crash(f"{number}: {text} -> crash before")
            try:
                result = effect()
            except OSError as error:
                self._history.append(f"{number}: {text} -> {type(error).__name__} {error.errno}")
                if crashes:
                    self._crash("---- crash after")
                raise
            self._history.append(f"{number}: {text}{'' if result is None else f' -> {result}'}")
            if crashes:
                self._crash("---- crash after")
            return result

    def _crash(self, text: str) -> None:
        self._history.append(text)
        self.crashed = True
        raise SimulatedCrash

    def _strikes(self, fault: str) -> bool:
        """Whether a fault happens now; those that do are counted."""
        happens = self._happens(getattr(self.faults, fault))
        self.struck[fault] += happens
        return happens

    def _happens(self, share: float) -> bool:
        return share > 0 and self._random.random() < share

    # Inside: content

    def _change(self, descriptor: int, change: Change) -> None:
        if not self._opened(descriptor).writable:
            raise _error(errno.EBADF)
        node = self._file(descriptor)
        apply(node.seen, change)
        node.pending.append(change)
        node.modified = self._clock

    def _sync(self, descriptor: int) -> None:
        node = self._file(descriptor)
        pending, node.pending = node.pending, []
        if not self._strikes("sync_fails"):
            for change in pending:
                apply(node.durable, change)
            return
        if self._by_sectors and sum(change.data is not None for change in pending) > 1:
            node.pending = pending
            node.durable = self._mixed_sectors(node)
            node.pending = pending if self._happens(0.5) else []
            raise _error(errno.EIO)
        for change in pending:
            fate = self._random.choice(("stored", "kept", "dropped"))
            if fate == "stored":
                apply(node.durable, change)
            elif fate == "kept":
                node.pending.append(change)
        raise _error(errno.EIO)

    def _lose_power(self) -> None:
        for name in list(self._pending):
            values = self._pending.pop(name)
            kept = self._random.randrange(len(values) + 1)
            if kept:
                self._keep_name(name, values[kept - 1])
        for node in self._nodes.values():
            if self._by_sectors and sum(change.data is not None for change in node.pending) > 1:
                node.durable = self._mixed_sectors(node)
            else:
                for change in node.pending:
                    for part in self._surviving(change):
                        apply(node.durable, part)
            node.pending = []
            node.seen = bytearray(node.durable)
        reached: dict[str, int] = {}
        for name in sorted(self._durable):  # a folder comes before what is in it
            parent = reached.get(os.path.dirname(name))
            if name == "/" or (parent is not None and self._nodes[parent].is_folder):
                reached[name] = self._durable[name]
        self._durable, self._seen = reached, dict(reached)
        self._nodes = {number: node for number, node in self._nodes.items() if number in set(reached.values())}

    def _surviving(self, change: Change) -> Iterator[Change]:
        """What a crash leaves of a change that was never synced."""
        fate = self._random.choice(("lost", "kept", "torn", "sectors"))
        if fate == "lost":
            self.struck["lost"] += 1
            return
        if change.data is None or fate == "kept":
            yield change
            return
        self.struck["torn"] += 1
        if fate == "torn":
            yield Change(change.offset, change.data[: self._random.randrange(len(change.data) + 1)])
        else:
            start, end = change.offset, change.offset + len(change.data)
            while start < end:
                stop = min(end, (start // SECTOR_SIZE + 1) * SECTOR_SIZE)
                if self._happens(0.5):
                    yield Change(start, change.data[start - change.offset : stop - change.offset])
                start = stop

    def _mixed_sectors(self, node: Node) -> bytearray:
        """A file each sector of which is as it was after some change since the last sync, and so is its size."""
        images = [bytes(node.durable)]
        for change in node.pending:
            image = bytearray(images[-1])
            apply(image, change)
            images.append(bytes(image))
        size, mixed = len(self._random.choice(images)), bytearray()
        while len(mixed) < size:
            stored = self._random.choice(images)[len(mixed) : len(mixed) + SECTOR_SIZE]
            mixed += stored.ljust(SECTOR_SIZE, b"\0")
        return mixed[:size]

    # Inside: names

    def _name(self, path: str, node: int | None) -> None:
        if node is None:
            self._seen.pop(path, None)
        else:
            self._seen[path] = node
        self._pending.setdefault(path, []).append(node)

    def _rename(self, *changes: tuple[str, int | None]) -> None:
        """Changes names; or reports an error, having done so or not."""
        fails = self._strikes("naming_fails")
        if not (fails and self._happens(0.5)):
            for path, node in changes:
                self._name(path, node)
        if fails:
            raise _error(errno.EIO)

    def _keep_name(self, path: str, node: int | None) -> None:
        if node is None:
            self._durable.pop(path, None)
        else:
            self._durable[path] = node

    def _names_in(self, path: str) -> Iterator[str]:
        return (name for name in self._seen if name != "/" and os.path.dirname(name) == path)

    def _node(self, path: str) -> Node:
        self._require_folder_of(path)
        if path not in self._seen:
            raise _error(errno.ENOENT, path)
        return self._nodes[self._seen[path]]

    def _require_folder_of(self, path: str) -> None:
        parent = os.path.dirname(path)
        if path == "/":
            return
        if parent != "/":
            self._require_folder_of(parent)
        if parent not in self._seen:
            raise _error(errno.ENOENT, path)
        if not self._nodes[self._seen[parent]].is_folder:
            raise _error(errno.ENOTDIR, path)

    def _require_absent(self, path: str) -> None:
        self._require_folder_of(path)
        if path in self._seen:
            raise _error(errno.EEXIST, path)

    def _new_node(self, *, is_folder: bool) -> int:
        number, self._next_node = self._next_node, self._next_node + 1
        self._nodes[number] = Node(number, is_folder, self._clock)
        return number

    # Inside: descriptors

    def _new_descriptor(self, path: str, *, writable: bool) -> int:
        descriptor, self._next_descriptor = self._next_descriptor, self._next_descriptor + 1
        self._open[descriptor] = Open(self._node(path).number, writable)
        return descriptor

    def _opened(self, descriptor: int) -> Open:
        if descriptor not in self._open:
            raise _error(errno.EBADF)
        return self._open[descriptor]

    def _file(self, descriptor: int) -> Node:
        return self._nodes[self._opened(descriptor).node]


def _status(node: Node) -> Status:
    return Status(len(node.seen), node.modified, (_DEVICE, node.number), node.is_folder)


def _error(number: int, path: str | None = None) -> OSError:
    return OSError(number, os.strerror(number), path)
