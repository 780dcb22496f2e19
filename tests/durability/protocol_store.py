"""The state folder of the protocol's model: files that are visible before they are durable, and the chain in them.

    file        version  kind      which      status
    (1, "change",   7, DURABLE)    7 is the version's number in a table of all versions ever made: it stands for
    (2, "change",   9, NEW)        the file's content and its hash, its parent included
    (1, "snapshot", 7, GONE)       removed, but a power failure may bring it back

    folder sync       NEW becomes DURABLE, GONE vanishes
    power failure     any of the NEW may be lost, any of the GONE may come back: in every combination

What the files mean is decided by the code that ships: which versions can be rebuilt (`Listing`), whether one follows
from the other (`require_successor`), what was applied for whom (`Served`, through the table that snapshots hold),
whether the end of the history was lost (`head`), who may commit (`ownership.admit`).

Results are remembered, for a search asks the same questions many thousand times.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import pyarrow as pa

from tidegate.durability import head
from tidegate.durability.listing import Listing, file_name
from tidegate.durability.served import Served
from tidegate.durability.version_info import Kind, Owner, VersionInfo, require_successor
from tidegate.foundation.errors import StateDiverged, StorageCorrupted

DURABLE, NEW, GONE = 0, 1, 2

File = tuple[int, Kind, int, int]
Files = tuple[File, ...]
Visible = tuple[tuple[int, Kind, int], ...]


class Version(NamedTuple):
    """What a version says of itself; `parent` is the version below, 0 for none."""

    number: int
    state: str
    parent: int
    query: str
    batch: int
    epoch: int
    owner: str = ""
    token: str = ""
    adopted: tuple[tuple[str, int], ...] = ()


_versions: list[Version] = [Version(0, "", 0, "", 0, 0)]
_identities: dict[Version, int] = {}


def identify(version: Version) -> int:
    """The number that stands for a version and its hash."""
    if version not in _identities:
        _identities[version] = len(_versions)
        _versions.append(version)
    return _identities[version]


def version(identity: int) -> Version:
    """The version behind a number; 0 is the empty state."""
    return _versions[identity]


@cache
def history(identity: int) -> tuple[int, ...]:
    """A version and all that it was built on, oldest first, whether or not their files are still there."""
    return (*history(version(identity).parent), identity) if identity else ()


@cache
def info(identity: int) -> VersionInfo:
    """The version as the code that ships knows it."""
    found = version(identity)
    return VersionInfo(
        version=found.number,
        kind="change",
        query=found.query,
        batch=found.batch,
        base=found.number - 1,
        created_at=0.0,
        events=1,
        committed=1,
        high=None,
        layouts=(),
        rows={},
        size=1,
        state=found.state,
        parent=f"hash {found.parent}" if found.parent else "",
        epoch=found.epoch,
        owner=Owner(found.owner, found.owner, found.token) if found.owner else None,
        hash=f"hash {identity}",
        adopted=dict(found.adopted),
    )


@cache
def served(identity: int, since: int) -> Served:
    """What was applied up to a version, by those with a number from `since` on; through a snapshot's table and back."""
    lines = Served()
    for each in history(identity):
        if version(each).number >= since:
            lines.add(info(each))
    return Served.from_table(lines.to_table())


@cache
def listing(visible: Visible) -> Listing:
    """The files that can be seen, as the code that ships lists them."""
    return Listing(file_name(number, kind) for number, kind, _ in visible)


# --- the folder ---------------------------------------------------------------------------------------------


@cache
def seen(files: Files) -> Visible:
    """What a process sees: all but what was removed."""
    return tuple((number, kind, identity) for number, kind, identity, status in files if status != GONE)


@cache
def synced(files: Files) -> Files:
    """The folder after a sync."""
    return tuple((number, kind, identity, DURABLE) for number, kind, identity, status in files if status != GONE)


def added(files: Files, number: int, kind: Kind, identity: int) -> Files:
    """The folder with one more file, which is not durable yet; it replaces one of its name."""
    others = [file for file in files if file[:2] != (number, kind)]
    return tuple(sorted([*others, (number, kind, identity, NEW)]))


def removed(files: Files, number: int, kind: Kind) -> Files:
    """The folder without a file, which a power failure may bring back if it was durable."""
    return tuple(
        (*file[:3], GONE) if file[:2] == (number, kind) else file
        for file in files
        if file[:2] != (number, kind) or file[3] == DURABLE
    )


def after_power_failure(files: Files) -> Iterator[Files]:
    """Every folder that a power failure may leave."""
    certain = [file for file in files if file[3] == DURABLE]
    open_ones = [(*file[:3], DURABLE) for file in files if file[3] != DURABLE]
    for kept in itertools.product((True, False), repeat=len(open_ones)):
        yield tuple(sorted([*certain, *itertools.compress(open_ones, kept)]))


def lagging(visible: Visible) -> Visible:
    """A listing that does not have the newest version yet."""
    highest = listing(visible).highest
    return tuple(file for file in visible if file[0] < highest)


def put(visible: Visible) -> Files:
    """A folder that holds these files, as a restored copy does."""
    return tuple((*file, DURABLE) for file in visible)


# --- what a writer finds ------------------------------------------------------------------------------------


class Found(NamedTuple):
    """The newest version (0: there is none), the first one whose line is known, and why reading stopped, if it did."""

    tip: int
    since: int
    damage: str = ""


@cache
def read_chain(visible: Visible, links_checked: bool, lines_in_snapshots: bool) -> Found:
    """What `VersionStore._find_tip` finds: the newest version, by the chain from the newest snapshot on."""
    files = {(number, kind): identity for number, kind, identity in visible}
    names = listing(visible)
    highest = names.highest
    if highest == 0:
        return Found(0, 0)
    if not names.can_rebuild(highest):
        return Found(0, 0, f"version {highest} is there and cannot be rebuilt")
    start = names.snapshot_below(highest)
    tip = files[start, "snapshot"] if start else 0
    for number in range(start + 1, highest + 1):
        above = files[number, "change"]
        if tip and links_checked:
            try:
                require_successor(file_name(number, "change"), info(above), info(tip))
            except StorageCorrupted as error:
                return Found(0, 0, str(error))
        tip = above
    return Found(tip, 0 if lines_in_snapshots or not start else start)


def newest(visible: Visible) -> int:
    """The newest version by its name alone; 0 when there is none."""
    highest = listing(visible).highest
    files = {(number, kind): identity for number, kind, identity in visible}
    return files.get((highest, "change")) or files.get((highest, "snapshot"), 0)


def fits(visible: Visible, tip: int, known: int) -> bool:
    """Whether the files that were read are those that the newest version was built on: all from the newest snapshot on,
    or from the version that was known.
    """
    start = max(known, listing(visible).snapshot_below(version(tip).number))
    ancestors = set(history(tip))
    return all(identity in ancestors for number, _, identity in visible if start <= number <= version(tip).number)


class Folder:
    """The part of a storage that the decisions about heads and owners ask for."""

    path = "state"

    def __init__(self, noted: int = 0, held: frozenset[str] = frozenset(), marks: tuple[int, ...] = ()) -> None:
        self._noted, self._held, self._marks = noted, held, marks
        self.written: dict[str, bytes] = {}

    def is_held(self, name: str) -> bool:
        """Whether a process that holds this lock lives."""
        return name.removesuffix(".lock") in self._held

    def exists(self, name: str) -> bool:
        """Whether a mark of an epoch is there."""
        return int(name.removesuffix(".released")) in self._marks

    def hint(self, name: str, data: bytes) -> None:
        """Takes a note."""
        self.written[name] = data

    def read(self, name: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
        """The note of the head."""
        if not self._noted:
            raise FileNotFoundError(name)
        return pa.py_buffer(note(self._noted))


@cache
def note(identity: int) -> bytes:
    """The note of a head, as the code that ships writes it."""
    folder: Any = Folder()
    head.note(folder, info(identity))
    return folder.written[head.NAME]


@cache
def is_lost(noted: int, tip: int) -> bool:
    """Whether the note of the head speaks of a version that is not there."""
    folder: Any = Folder(noted)
    try:
        head.require_reached(folder, info(tip) if tip else None, head.read(folder))
    except StateDiverged:
        return True
    return False
