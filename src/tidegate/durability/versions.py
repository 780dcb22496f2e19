"""The history of a state: numbered versions, each a change to the one before it, some also whole.

    000000000001.change      what version 1 changed in the empty state
    000000000002.change      what version 2 changed in version 1
    000000000003.change
    000000000003.snapshot    all rows of version 3, so that readers need not start at 1
    000000000004.change
    head                     says that version 4 was committed (head.py)

Version 0 is the empty state and has no file. A version is committed by one operation: its change file, or its snapshot
when it has no change, is created exclusively under its name. To rebuild version n, take the newest snapshot at or below
n and apply the changes after it, up to n. Each version names its state and the hash of the version below
(version_info.py); readers check these links, and a writer checks before each batch that its base is still there.

Invariant: files appear whole, are never altered, and a version is created exclusively, on top of the one just below it.
So the names alone tell which versions can be rebuilt, and what a reader has seen of a file stays true. A hole in the
history is never hidden: with a newer version on disk that cannot be rebuilt, `newest` raises instead of going back.

A commit whose write failed is resolved by reading: if the version is there and ours, it is committed. If it is there
but may not survive a loss of power, the commit is `StorageUncertain` until the state has been opened again. What fails
after the commit (the head, a snapshot, a collection) is logged and tried again later; it never makes a commit fail.

A change file holds the rows that a batch changed, or the events that it ran (version_log.py); a snapshot always holds
rows. A change file may also hold records, tables that the batch gave out (records.py); no snapshot holds those. Where a
person changed what a table is (reshaping.py), it holds all rows of the version, and readers begin with it.

Cost: a commit writes the rows that changed and lists nothing. A snapshot is due when replaying the changes would cost
as much as reading it, so the bytes written stay within a constant factor of the changes.

Not here: running events, keeping state in memory, who may commit (versioned.py, ownership.py). A store is not safe for
use by several threads at once; several processes are fine.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tidegate.durability import evolution, files, head
from tidegate.durability.files import Body, Deferred, Header, Order
from tidegate.durability.listing import file_name
from tidegate.durability.served import Served
from tidegate.durability.version_info import (
    Kind,
    VersionInfo,
    as_snapshot,
    from_header,
    require_successor,
    require_tables,
    to_fields,
)
from tidegate.durability.version_reader import SERVED, Changes, VersionReader
from tidegate.foundation.errors import DefinitionError, StateDiverged, StorageFailed, StorageUncertain, TidegateError
from tidegate.foundation.storage import Storage
from tidegate.operations.layout import TableLayout

__all__ = ["Changes", "VersionInfo", "VersionStore", "check_keep_versions"]

SNAPSHOT_AFTER_BYTES = 8 << 20
CHANGE_BYTES_MIN = 32 << 10
"""What a change file weighs at least: about as many bytes as load in the time that opening it takes (an estimate)."""

_log = logging.getLogger(__name__)


def check_keep_versions(keep_versions: object) -> None:
    """Raise DefinitionError unless it is a number of versions to keep."""
    if not isinstance(keep_versions, int) or isinstance(keep_versions, bool) or keep_versions < 1:
        raise DefinitionError(f"keep_versions: required a whole number of at least 1, got {keep_versions!r}")


@dataclass(slots=True)
class _Tip:
    """The newest version as a writer knows it: what it is, what was served up to it, what weighs on a reader.

    `snapshot` is the version of the newest snapshot, `changes_size` what the changes after it weigh. `asked` holds what
    they weighed when a snapshot was asked for, by version; none is due again before they weigh `postponed`.
    """

    info: VersionInfo
    served: Served
    snapshot: int
    snapshot_size: int
    changes_size: int
    postponed: int = 0
    asked: dict[int, int] = field(default_factory=dict)

    def advance(self, info: VersionInfo) -> None:
        self.info = info
        self.served.add(info)
        self.changes_size += max(info.size, info.weight, CHANGE_BYTES_MIN)

    def postpone(self) -> None:
        self.asked[self.info.version] = self.changes_size
        self.postponed = 2 * self.changes_size

    def replace_snapshot(self, written: VersionInfo) -> None:
        covered = self.changes_size if written.version == self.info.version else self.asked.get(written.version, 0)
        self.snapshot, self.snapshot_size = written.version, written.size
        self.changes_size -= covered
        self.asked = {v: size - covered for v, size in self.asked.items() if v > written.version}
        self.postponed = 0


class VersionStore(VersionReader):
    """The versions in one storage: committing, finding, rebuilding and collecting them."""

    def __init__(self, storage: Storage, keep_versions: int = 100) -> None:
        check_keep_versions(keep_versions)
        super().__init__(storage)
        self.keep_versions = keep_versions
        self._tip: _Tip | None = None

    def forget(self) -> None:
        """Know nothing of the storage any more: it is looked at, and made certain, before it is used again."""
        self._listing, self._headers, self._tip = None, {}, None

    # The newest version, for writers

    def tip(self) -> VersionInfo | None:
        """The newest version, looked for again; None when the state is empty.

        The first time, the files are listed, the chain is checked from the newest snapshot on, and the newest version
        is made certain to stay. From then on it takes one small read, which shows that the known version is still the
        one that is there, and one for each version that came after it.
        """
        if self._tip is not None and not self._is_there(self._tip.info):
            self.forget()
        if self._tip is None:
            self._tip = self._find_tip()
        else:
            self._follow(self._tip)
        return None if self._tip is None else self._tip.info

    @property
    def served(self) -> Served:
        """What was applied up to the version that `tip` found."""
        return Served() if self._tip is None else self._tip.served

    def _find_tip(self) -> _Tip | None:
        noted = head.read(self.storage)  # before the listing, which then has at least that version
        self.refresh()
        highest = self._listed().highest
        newest = self.newest()
        head.require_reached(self.storage, newest, noted)
        if newest is None:
            return None
        self.storage.settle(file_name(highest, newest.kind))
        start = self._listed().snapshot_below(highest)
        tip: _Tip | None = None
        if start:
            info = self._read_info(start, "snapshot")
            tip = _Tip(info, self.served_in(start), start, info.size, 0)
        for version in range(start + 1, highest + 1):
            info = self._read_info(version, "change")
            tip = tip or _Tip(info, Served(), 0, 0, 0)
            if tip.info is not info:
                require_successor(self._file(version, "change"), info, tip.info)
            tip.advance(info)
        return tip

    def _follow(self, tip: _Tip) -> None:
        """Take over the versions that others committed since, once they are certain to stay.

        Their writer may have died, or may still be, between giving a file its name and syncing the folder.
        """
        found = [tip.info]
        while True:
            version = found[-1].version + 1
            try:
                header = files.read_header(self.storage, file_name(version, "change"))
            except FileNotFoundError:
                break
            info = self._accept(version, "change", header)
            require_successor(self._file(version, "change"), info, found[-1])
            found.append(info)
        if len(found) > 1 and self.storage.settle(file_name(found[-1].version, "change")):
            for info in found[1:]:
                self._listed().add(info.version, "change")
                tip.advance(info)

    def _is_there(self, info: VersionInfo) -> bool:
        """Whether a version's file is there and is the one that we know."""
        kind: Kind = "change" if self._listed().has_change(info.version) else "snapshot"
        try:
            header = files.read_header(self.storage, file_name(info.version, kind))
        except FileNotFoundError:
            return False
        return from_header(self._file(info.version, kind), info.version, kind, header).hash == info.hash

    # Adding

    def commit(
        self,
        info: VersionInfo,
        changes: Mapping[str, pa.Table],
        order: Order | None = None,
        records: Mapping[str, pa.Table] | None = None,
        events: pa.Table | None = None,
    ) -> VersionInfo:
        """Commits `info.version`: the change tables, the order of its events where it must be logged, its records.

        With `info.program` it is the events that are kept, and there are no change tables.
        FileExistsError when the version is there already: someone else made it, and it is to be read.
        """
        if bool(info.program) != (events is not None) or (changes and events is not None):
            raise ValueError(f"version {info.version}: required rows, or events and the program that ran them")
        info = self._chained(info)
        require_tables(info, changes, evolution.change_schema)
        given = records or {}
        bodies = _sections(changes)
        if events is not None:  # one section at least: it tells the columns
            bodies += [(files.EVENTS, "", piece) for piece in (list(files.pieces(events)) or [events])]
        bodies += [("record", name, table) for name, table in given.items() if table.num_rows]
        if order is not None:
            bodies.append(("order", "", order))
        info = replace(info, kind="change", rows=_row_counts(changes), records=_row_counts(given))
        return self._committed(self._write(info, bodies))

    def commit_whole(
        self, info: VersionInfo, rows: Mapping[str, int], bodies: Sequence[Body], records: Mapping[str, pa.Table]
    ) -> VersionInfo:
        """Commits `info.version` with all of its rows, from sections of them: it has these and no others.

        It takes the name that a batch would take, so of the two one is committed. FileExistsError as `commit`.
        """
        counts = _row_counts(records)
        info = replace(self._chained(info), kind="change", rows=dict(rows), records=counts, whole=info.version)
        given = [("record", name, table) for name, table in records.items() if table.num_rows]
        return self._committed(self._write(info, [*bodies, *given]))

    def snapshot(self, info: VersionInfo, tables: Mapping[str, pa.Table]) -> VersionInfo:
        """Writes all rows of `info.version`.

        For a version that is committed this only makes loading faster, and one that is there stays.
        Otherwise it commits the version, on condition that nobody did: FileExistsError.
        """
        require_tables(info, tables, lambda layout: layout.arrow_schema)
        rows, bodies = _row_counts(tables), _sections(tables)
        if not self._listed().has_change(info.version):
            info = as_snapshot(self._chained(info), rows)
            served = Served.from_table(self._served_at(info.base).to_table())
            served.add(info)
            return self._committed(self._write(info, [*bodies, (SERVED, "", served.to_table())]))
        below = self._read_info(info.version, "change")
        return self.write_snapshot(below, info.layouts, rows, self._served_at(info.version), bodies)

    def write_snapshot(
        self,
        below: VersionInfo,
        layouts: tuple[TableLayout, ...],
        rows: Mapping[str, int],
        served: Served,
        bodies: Sequence[Body],
    ) -> VersionInfo:
        """Writes the snapshot of a committed version, `below`, from sections of its rows; one that is there stays.

        `served` is what was applied up to that version. Just before the file gets its name, it is checked that the
        version is still there: a folder that was emptied and used again must not get rows of the old state.
        """
        lines = served.to_table()

        def last() -> pa.Table:
            if not self._is_there(below):
                raise StateDiverged(
                    f"{self._file(below.version, 'change')}: required version {below.version} with the hash "
                    f"{below.hash}, found another one or none: the state was replaced while a snapshot of it was "
                    "written. The snapshot is thrown away; open the state again."
                )
            return lines

        bodies = [*bodies, (SERVED, "", Deferred(lines.num_rows, files.section_size(lines), last))]
        whole = replace(as_snapshot(below, rows), commit=below.hash, layouts=layouts)
        try:
            written = self._write(whole, bodies)
        except FileExistsError:
            written = self._read_info(below.version, "snapshot")
        self.learn(written)
        return written

    def learn(self, snapshot: VersionInfo) -> None:
        """Takes over that a snapshot was written, by this store or another; what it made superfluous is not removed."""
        listing, tip = self._listed(), self._tip
        if not listing.can_rebuild(snapshot.version):
            return  # of a state that is not here any more
        listing.add(snapshot.version, "snapshot")
        if tip is not None and snapshot.version > tip.snapshot:
            tip.replace_snapshot(snapshot)

    def postpone_snapshot(self) -> None:
        """A snapshot of the newest version is being made elsewhere: none is due until it is there, or takes too long.

        It takes too long when the changes have doubled meanwhile. So one that fails is not tried at every batch.
        """
        if self._tip is not None:
            self._tip.postpone()

    def wants_snapshot(self) -> bool:
        """Whether replaying the changes since the newest snapshot costs as much as reading one.

        Records count as well: they lie in the same files, and only a newer snapshot lets these be collected.
        """
        if self._tip is None:
            self.tip()
        tip = self._tip
        return tip is not None and tip.changes_size >= max(tip.snapshot_size, SNAPSHOT_AFTER_BYTES, tip.postponed)

    def runs_events(self) -> bool:
        """Whether events must be run to get from the newest snapshot to the newest version: files alone do not do."""
        return self._tip is not None and self._tip.info.ran > self._tip.snapshot

    def collect(self, look_again: bool = True) -> list[str]:
        """Removes what none of the newest `keep_versions` versions needs, and what crashed writers left.

        Oldest first: at every moment what remains is a history with a later beginning. Nothing of a
        history with a hole at its end is removed: it may be what someone repairs it from. What the last batch needs to
        be run again, should it be asked for, is kept as well: the version below it. Without `look_again` only what is
        known to be there is removed, and nothing is listed.
        """
        swept: list[str] = []
        if look_again:
            self.refresh()
            swept = self.storage.sweep()
        start, oldest = self._kept_from()
        surplus = self._listed().surplus(start, oldest)
        if look_again and surplus and start and not self.storage.settle(file_name(start, "snapshot")):
            return swept
        for version, kind in surplus:
            self.storage.delete(file_name(version, kind))
        self._listed().forget(start, oldest)
        return [file_name(version, kind) for version, kind in surplus] + swept

    def forget_collected(self) -> None:
        """What `collect` would remove was removed by another store: forget about it."""
        self._listed().forget(*self._kept_from())

    # Inside

    def _kept_from(self) -> tuple[int, int]:
        """The snapshot that the oldest kept version stands on, and that version; (0, 0) when all is kept."""
        listing = self._listed()
        newest = listing.highest
        if newest == 0 or not listing.can_rebuild(newest):
            return 0, 0
        pinned = self._served_at(newest).pinned(self.info(newest).query.split("/", 1)[0])
        oldest = min(listing.oldest_kept(self.keep_versions), max(1, pinned - 1))
        return listing.snapshot_below(oldest), oldest

    def _served_at(self, version: int) -> Served:
        """What was served up to a version, which is the newest one in all but tools and tests."""
        if self._tip is not None and self._tip.info.version == version:
            return self._tip.served
        return self.served_at(self._listed().snapshot_below(version), version)

    def _chained(self, info: VersionInfo) -> VersionInfo:
        """The version on top of the newest one; this is a first check, and the exclusive write decides."""
        if info.version < 1 or info.base != info.version - 1:
            raise ValueError(
                f"{self.storage.path}: required a version >= 1 on the base just below it, "
                f"got version {info.version} on base {info.base}"
            )
        if info.base != self._listed().highest:
            self.refresh()
        listing = self._listed()
        names = (file_name(info.version, "snapshot"), file_name(info.version, "change"))
        if info.version <= listing.highest or any(self.storage.exists(name) for name in names):
            raise FileExistsError(f"{self.storage.path}: version {info.version} is committed already")
        if not listing.can_rebuild(info.base):
            raise self._impossible(info.base)
        ran = info.version if info.program else 0
        if info.base == 0:
            return replace(info, state=uuid.uuid4().hex, parent="", commit="", ran=ran, whole=0)
        below = (
            self._tip.info if self._tip is not None and self._tip.info.version == info.base else self.info(info.base)
        )
        if info.commands < below.commands:  # not from an engine with a log: what that had logged stays covered
            info = replace(info, commands=below.commands, log=below.log)
        dropped = below.dropped if info.dropped is None else info.dropped
        info = replace(info, result=info.result or below.result, dropped=dropped or None)
        return replace(info, state=below.state, parent=below.hash, commit="", ran=ran or below.ran, whole=below.whole)

    def _write(self, info: VersionInfo, bodies: Sequence[Body]) -> VersionInfo:
        is_whole = info.kind == "change" and info.whole == info.version
        header, parts = files.encode(to_fields(info), bodies, is_whole)
        name = file_name(info.version, info.kind)
        try:
            self.storage.write(name, parts, exclusive=True)
        except StorageUncertain as error:
            self._resolve(name, header, error)
        self._remember(name, header)
        return replace(info, size=header.size, hash=info.commit or header.hash)

    def _resolve(self, name: str, header: Header, error: StorageUncertain) -> None:
        """Find out what became of a write that may or may not have happened."""
        file = files.described(self.storage, name)
        try:
            there = files.read_header(self.storage, name).hash
        except FileNotFoundError:
            raise StorageFailed(f"{error} It is not there: nothing was committed.") from error
        except TidegateError as unreadable:
            raise StorageUncertain(f"{error} Whether it is there could not be found out: {unreadable}") from error
        if there != header.hash:
            raise FileExistsError(f"{file}: somebody else wrote it")
        if self.storage.visible_is_durable:
            _log.warning("%s; it is there, and nothing is wrong", error)
            return
        raise StorageUncertain(
            f"{file}: it is written, but it is not certain that it would survive a loss of power: {error} Open the "
            "state again before anything else is done with it: what is found then counts."
        ) from error

    def _committed(self, written: VersionInfo) -> VersionInfo:
        """A version is there: know of it. Nothing that fails here may fail the commit."""
        self._listed().add(written.version, written.kind)
        if self._tip is not None and self._tip.info.version == written.base:
            self._tip.advance(written)
            if written.kind == "snapshot":
                self._tip.replace_snapshot(written)
        elif written.base == 0:
            served = Served()
            served.add(written)
            whole = written.kind == "snapshot"
            weight = max(written.size, written.weight, CHANGE_BYTES_MIN)
            weights = (written.version, written.size, 0) if whole else (0, 0, weight)
            self._tip = _Tip(written, served, *weights)
        else:
            self._tip = None
        try:
            head.note(self.storage, written)
        except (StorageFailed, OSError):
            _log.warning("%s: the newest version could not be noted", self.storage.path, exc_info=True)
        return written


def _sections(tables: Mapping[str, pa.Table]) -> list[Body]:
    return [("table", name, piece) for name, table in tables.items() for piece in files.pieces(table)]


def _row_counts(tables: Mapping[str, pa.Table]) -> dict[str, int]:
    return {name: table.num_rows for name, table in tables.items()}
