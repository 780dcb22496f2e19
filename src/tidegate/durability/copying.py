"""Copies of a state that are states themselves: backups of a live state, and restoring them.

    state (a query continues)                backup                          the next one
    snapshot 80                              snapshot 80                     -
    changes 81 ... 100                       changes 81 ... 100              -
    (101 comes while we copy)                head: 100                       changes 101 ... 130, head: 130

A version is chosen by one listing. It needs whole files that are never altered, so later changes of the state do not
matter; if files are collected before they were copied, the copy starts again with a new listing. Every byte is compared
with its checksum. Besides the newest version, the version below the last batch stays reachable: a query that asks for
its last batch again must get its outcomes.

In an empty place, the file without which nothing can be rebuilt comes last: an interrupted copy is not a state, and
opening it says what is missing. On top of an older backup, files come in an order in which the backup can be opened at
every moment, at the old version or a newer one. The head is written last.

Invariant: a backup's files are never altered and never removed. A different file under the same name means that the
backup is of another state, or of another branch of its history, and is refused.

A restored state has the id of the original: it is the same state, and only one of them may continue.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from tidegate.durability import files, head
from tidegate.durability.files import Header
from tidegate.durability.listing import Listing, file_name, parse_name
from tidegate.durability.recovery import require_empty
from tidegate.durability.soundness import SoundReader, Told
from tidegate.durability.version_info import VersionInfo, require_successor
from tidegate.durability.version_reader import VersionReader
from tidegate.foundation.errors import RecoveryImpossible, StateDiverged, StorageFailed, StorageUncertain
from tidegate.foundation.storage import Storage

ATTEMPTS_MAX = 20
"""How often a copy starts again because files were collected under it."""


@dataclass(frozen=True, slots=True)
class Copied:
    """The version that the copy is at, and how many files and bytes were copied for that."""

    version: VersionInfo
    files: int
    size: int


class _Collected(Exception):
    """A file went away before it was copied."""


def back_up(
    source: Storage, target: Storage, told: Told | None = None, started: Callable[[int], None] | None = None
) -> Copied:
    """Copies the newest version of `source`, which may be live, to `target`, which may hold an older backup of it.

    `started` is told how many bytes there are to copy, `told` how many more were copied.
    """
    return _Copy(source, target, told, started).run()


def restore(
    source: Storage, target: Storage, told: Told | None = None, started: Callable[[int], None] | None = None
) -> Copied:
    """Makes the same state of a backup, in an empty place."""
    require_empty(target)
    return _Copy(source, target, told, started).run()


@dataclass(slots=True)
class _Copy:
    source: Storage
    target: Storage
    told: Told | None
    started: Callable[[int], None] | None
    made: list[str] = field(default_factory=list)
    size: int = 0

    def run(self) -> Copied:
        was_state = _opens(Listing(self.target.list()))
        try:
            newest = self._attempts()
            marker = f"{newest.epoch:012d}.released"
            if self.source.exists(marker):
                self.target.hint(marker, b"{}")
            head.note(self.target, newest)
        except BaseException:
            if not was_state:
                self._remove()
            raise
        return Copied(newest, len(self.made), self.size)

    def _attempts(self) -> VersionInfo:
        for _ in range(ATTEMPTS_MAX):
            try:
                return self._copy()
            except _Collected as error:
                cause = error.__cause__
        if isinstance(cause, RecoveryImpossible):  # it was no collection
            raise cause
        raise StorageFailed(
            f"{self.source.path}: files disappeared faster than they could be copied, {ATTEMPTS_MAX} times. Run this "
            "again when less is written, or with a larger keep_versions."
        )

    def _copy(self) -> VersionInfo:
        noted = head.read(self.source)
        names = self.source.list()
        reader, listing = SoundReader(self.source, names), Listing(names)
        if not _opens(listing):
            VersionReader(self.source).load(None)  # raises, and says what is missing
            raise _Collected
        try:
            newest = reader.info(listing.highest)
            head.require_reached(self.source, newest, noted)
            present = Listing(self.target.list())
            self._require_same(reader, present, newest)
            wanted = [name for name in self._ordered(reader, listing, present) if not _has(present, name)]
            self._require_chain(reader, wanted)
        except RecoveryImpossible as error:
            raise _Collected from error
        headers = {name: self._header(name) for name in wanted}
        if self.started is not None:
            self.started(self.size + sum(header.size for header in headers.values()))
        for name, header in headers.items():
            self._copy_file(name, header)
        return newest

    def _copy_file(self, name: str, header: Header) -> None:
        try:
            self.target.write(name, self._parts(name, header), exclusive=True)
        except FileExistsError:
            raise StateDiverged(
                f"{files.described(self.target, name)}: somebody else wrote it while this copy was made. Let only one "
                "copy at a time go to a place."
            ) from None
        except StorageUncertain:
            self.made.append(name)
            if not self.target.settle(name) or files.read_header(self.target, name).hash != header.hash:
                raise
            return
        self.made.append(name)

    def _header(self, name: str) -> Header:
        try:
            return files.read_header(self.source, name)
        except FileNotFoundError:
            raise _Collected from None

    def _parts(self, name: str, header: Header) -> Iterator[pa.Buffer]:
        try:
            for piece in files.read_pieces(self.source, name, header):
                self.size += piece.size
                if self.told is not None:
                    self.told(piece.size)
                yield piece
        except FileNotFoundError:
            raise _Collected from None

    def _require_same(self, reader: SoundReader, present: Listing, newest: VersionInfo) -> None:
        """That the target is an earlier piece of the same history: by the chain, one common version tells."""
        if present.highest == 0:
            return
        backup = VersionReader(self.target)
        known = backup.info(present.highest)
        if known.state != newest.state:
            raise StateDiverged(
                f"{self.target.path}: this is a backup of state {known.state}; {self.source.path} is state "
                f"{newest.state}. Nothing was copied. Use a folder of its own for each state."
            )
        if known.version > newest.version:
            raise StateDiverged(
                f"{self.target.path}: this backup is at version {known.version}, and the state at {self.source.path} "
                f"only at {newest.version}: the state was put back to an older copy, or has lost versions. Nothing was "
                "copied. Restore this backup, or use a new folder for the course that the state has taken since."
            )
        there = reader.listing
        common = range(known.version, 0, -1)
        last = next((number for number in common if _has_any(present, number) and _has_any(there, number)), 0)
        if last and reader.info(last).hash != backup.info(last).hash:
            raise StateDiverged(
                f"{self.target.path}: version {last} of this backup is not the one at {self.source.path}: since the "
                "backup was made, the state went back to an earlier version and took another course. Nothing was "
                "copied. Use a new folder."
            )

    def _ordered(self, reader: SoundReader, listing: Listing, present: Listing) -> list[str]:
        """The files that the copy is to have, in the order of copying."""
        highest, whole = listing.highest, listing.snapshot_below(listing.highest)
        needed = self._needed(reader, whole, highest)
        above = range(present.highest + 1, highest + 1)
        newest_snapshot = [file_name(whole, "snapshot")] if whole else []
        goes_on = all(listing.has_change(number) for number in above)
        if _opens(present) and goes_on and (needed > present.highest or present.can_rebuild(needed)):
            return [*(file_name(number, "change") for number in above), *newest_snapshot]
        start = listing.snapshot_below(needed)
        if not all(listing.has_change(number) for number in range(start + 1, highest + 1)):
            start = whole
        first_snapshot = [file_name(start, "snapshot")] if start else []
        changes = [number for number in range(start + 1, highest + 1) if listing.has_change(number)]
        usable = [file_name(number, "change") for number in changes if number > whole]
        rest = [file_name(number, "change") for number in changes if number <= whole]
        if _opens(present):
            return list(dict.fromkeys([*newest_snapshot, *usable, *first_snapshot, *rest]))
        return list(dict.fromkeys([*reversed([*rest, *usable]), *first_snapshot, *newest_snapshot]))

    def _needed(self, reader: SoundReader, snapshot: int, highest: int) -> int:
        """The oldest version that has to be there: the one below the last batch, which may be asked for again."""
        served = reader.served_at(snapshot, highest)
        last = max(served.lines().items(), key=lambda item: item[1].version, default=None)
        pinned = served.pinned(last[0].split("/", 1)[0]) if last else 0
        return max(1, pinned - 1) if pinned else highest

    def _require_chain(self, reader: SoundReader, wanted: list[str]) -> None:
        for version, kind in filter(None, map(parse_name, wanted)):
            if kind == "change" and version > 1 and _has_any(reader.listing, version - 1):
                described = files.described(self.source, file_name(version, "change"))
                require_successor(described, reader.info(version), reader.info(version - 1))

    def _remove(self) -> None:
        """Leave the place as it was: what was copied is not a state. What others rest on goes last."""
        for name in reversed(self.made):
            with contextlib.suppress(StorageFailed):
                self.target.delete(name)


def _opens(listing: Listing) -> bool:
    return listing.highest > 0 and listing.can_rebuild(listing.highest)


def _has_any(listing: Listing, version: int) -> bool:
    return listing.has_change(version) or listing.has_snapshot(version)


def _has(listing: Listing, name: str) -> bool:
    parsed = parse_name(name)
    assert parsed is not None
    version, kind = parsed
    return listing.has_snapshot(version) if kind == "snapshot" else listing.has_change(version)
