"""The history of a state: numbered versions, each a change to the one before it, some also whole.

    000000000001.snapshot    version 1 was loaded as a whole
    000000000002.change      what version 2 changed in version 1
    000000000003.change
    000000000003.snapshot    all rows of version 3, so that readers need not start at 1
    000000000004.change

Version 0 is the empty state and has no file. A version is committed as soon as its change file is
there, or its snapshot when it has no change. To rebuild version n, take the newest snapshot at or
below n and apply the changes after it, up to n; every one of them must be there.

Invariant: files appear whole, are never altered, and a version is created exclusively, on top
of the one just below it. So which versions can be rebuilt follows from the names alone (one listing),
and what a reader has seen of a file stays true. A hole in the history is never papered over: with
a newer version on disk that cannot be rebuilt, `newest` raises instead of going back in time.

Beside the rows that it changed, a version's change file may hold records: tables that the batch gave out (records.py).
They are no part of the state, so no snapshot holds them; they are there as long as the change file is, which is at
least while the version is among the newest `keep_versions`.

Cost: a commit writes the rows that changed and lists nothing. A snapshot is due when replaying the
changes would cost as much as reading it, so the bytes written stay within a constant factor of the
changes. `collect` removes what no kept version needs.

Not here: running events, keeping state in memory, who may commit (versioned.py, ownership.py).
A store is not safe for use by several threads at once; several processes are fine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from tidegate.durability import evolution, files
from tidegate.durability.files import Header, Order
from tidegate.durability.version_info import Kind, VersionInfo, from_header, require_tables, to_fields
from tidegate.foundation.errors import RecoveryImpossible
from tidegate.foundation.storage import Storage
from tidegate.operations.layout import TableLayout

__all__ = ["Changes", "VersionInfo", "VersionStore"]

Changes = dict[str, pa.Table]

SNAPSHOT_SECTION_ROWS = 1 << 20  # bounds the memory of writing and reading: 16 MB for two integers a row
SNAPSHOT_AFTER_BYTES = 8 << 20
SNAPSHOT_AFTER_CHANGES = 2000


class VersionStore:
    """The versions in one storage: committing, finding, rebuilding and collecting them."""

    def __init__(self, storage: Storage, keep_versions: int = 100) -> None:
        if keep_versions < 1:
            raise ValueError(f"keep_versions: required at least 1, got {keep_versions}")
        self.storage = storage
        self.keep_versions = keep_versions
        self._listed = False
        self._changes: set[int] = set()
        self._snapshots: set[int] = set()
        self._rebuildable: list[int] = []
        self._headers: dict[str, Header] = {}

    # What there is

    def refresh(self) -> list[int]:
        """Looks at the storage again, by one listing; the versions that can be rebuilt, oldest first."""
        names = self.storage.list()
        found: dict[str, set[int]] = {"change": set(), "snapshot": set()}
        for name in names:
            number, kind = name[:12], name[13:]
            if kind in found and name[12] == "." and number.isdecimal() and number.isascii():
                found[kind].add(int(number))
        self._changes, self._snapshots = found["change"], found["snapshot"]
        self._headers = {name: self._headers[name] for name in names if name in self._headers}
        self._rebuildable, reached = [], 0
        for version in sorted(self._changes | self._snapshots):
            if version in self._snapshots or version == reached + 1:
                self._rebuildable.append(version)
                reached = version
        self._listed = True
        return list(self._rebuildable)

    def newest(self) -> VersionInfo | None:
        """The newest version, None when the state is empty; raises when it cannot be rebuilt."""
        self._list_once()
        newest = self._highest()
        if newest == 0:
            return None
        if self._rebuildable[-1:] != [newest]:
            raise self._impossible(newest)
        return self.info(newest)

    def info(self, version: int) -> VersionInfo:
        """What is recorded of a version; its change file says more than its snapshot."""
        self._list_once()
        if version in self._changes:
            return self._read_info(version, "change")
        if version in self._snapshots:
            return self._read_info(version, "snapshot")
        raise self._impossible(version)

    def infos(self) -> list[VersionInfo]:
        """Every version that can be rebuilt, oldest first."""
        self._list_once()
        return [self.info(version) for version in self._rebuildable]

    def find(self, query: str, batch: int) -> VersionInfo | None:
        """The version that this batch of this query made. A query's batches only grow: it stops early."""
        self._list_once()
        for version in reversed(self._rebuildable):
            info = self.info(version)
            if info.query == query and info.batch <= batch:
                return info if info.batch == batch else None
        return None

    # Rebuilding

    def read_changes(
        self, version: int, layouts: Sequence[TableLayout] | None = None
    ) -> tuple[VersionInfo, Changes, Order | None]:
        """What a version changed, one change table per table of it, and the logged order of its events.

        `layouts` are the program's: rows stored with older ones are upgraded to them.
        """
        self._list_once()
        if version not in self._changes and version in self._snapshots:
            raise RecoveryImpossible(
                f"{self._file(version, 'change')}: version {version} was loaded as a whole, there is no "
                f"change to read. Load version {version} instead."
            )
        try:
            header, contents = files.read_file(self.storage, _name(version, "change"))
        except FileNotFoundError:
            raise self._impossible(version) from None
        info = self._accept(version, "change", header)
        targets = self._targets(info, layouts)
        parts: dict[str, list[pa.Table]] = {name: [] for name in info.rows}
        order: Order | None = None
        for section, content in zip(header.sections, contents, strict=True):
            if section.kind == "order":
                order = content
            elif section.kind == "table":
                parts[section.table].append(evolution.upgrade(content, targets[section.table]))
        changes = {
            name: pa.concat_tables(tables) if tables else evolution.empty_changes(targets[name])
            for name, tables in parts.items()
        }
        return info, changes, order

    def load(
        self, version: int | None = None, layouts: Sequence[TableLayout] | None = None
    ) -> tuple[VersionInfo, Iterator[Changes]]:
        """A version (None: the newest) as change tables to apply one after the other to an empty state.

        The rows of the snapshot come first, in pieces, then the changes after it. Whether the files
        are there and fit `layouts` is checked before anything is given out; damage is found, and
        raised, on the way: what was applied until then is to be thrown away.
        """
        self.refresh()
        wanted = self._highest() if version is None else version
        if wanted < 1 or wanted not in self._rebuildable:
            raise self._impossible(wanted)
        info = self.info(wanted)
        targets = list(self._targets(info, layouts).values())
        start = self._snapshot_below(wanted)
        return info, self._replay(start, wanted, targets)

    def _replay(self, start: int, version: int, layouts: Sequence[TableLayout]) -> Iterator[Changes]:
        if start:
            name = _name(start, "snapshot")
            try:
                header = self._read_header(start, "snapshot")
                targets = self._targets(self._accept(start, "snapshot", header), layouts)
                for section, rows in files.read_sections(self.storage, name, header):
                    yield {section.table: evolution.upgrade(rows, targets[section.table])}
            except FileNotFoundError:
                raise self._impossible(version) from None
        for number in range(start + 1, version + 1):
            yield self.read_changes(number, layouts)[1]

    def read_record(self, version: int, name: str) -> pa.Table | None:
        """A record of a version, None when it has none of that name or an empty one; the rest is not read."""
        self._list_once()
        if version not in self._changes:
            if version in self._snapshots:
                return None
            raise self._impossible(version)
        file = _name(version, "change")
        try:
            header = self._read_header(version, "change")
            parts = [
                files.read_section(self.storage, file, header, section)
                for section in header.sections
                if section.kind == "record" and section.table == name
            ]
        except FileNotFoundError:
            raise self._impossible(version) from None
        return parts[0] if parts else None

    # Adding

    def commit(
        self,
        info: VersionInfo,
        changes: Mapping[str, pa.Table],
        order: Order | None = None,
        records: Mapping[str, pa.Table] | None = None,
    ) -> VersionInfo:
        """Commits `info.version`: the change tables, the order of its events where it must be logged, its records.

        FileExistsError when the version is there already: someone else made it, and it is to be read.
        """
        self._require_next(info)
        stored = [(name, table) for name, table in changes.items() if table.num_rows]
        require_tables(info, changes, evolution.change_schema)
        given = records or {}
        info = replace(info, kind="change", rows=_row_counts(changes), records=_row_counts(given))
        written = self._write(info, stored, order, [(name, table) for name, table in given.items() if table.num_rows])
        self._changes.add(info.version)
        self._rebuildable.append(info.version)
        return written

    def snapshot(self, info: VersionInfo, tables: Mapping[str, pa.Table]) -> VersionInfo:
        """Writes all rows of `info.version`.

        For a version that is committed this only makes loading faster, and one that is there stays.
        Otherwise it commits the version, on condition that nobody did: FileExistsError.
        """
        self._list_once()
        committed = info.version in self._changes
        if not committed:
            self._require_next(info)
        require_tables(info, tables, lambda layout: layout.arrow_schema)
        pieces = [
            (name, table.slice(start, SNAPSHOT_SECTION_ROWS))
            for name, table in tables.items()
            for start in range(0, table.num_rows, SNAPSHOT_SECTION_ROWS)
        ]
        try:
            written = self._write(replace(info, kind="snapshot", rows=_row_counts(tables), records={}), pieces, None)
        except FileExistsError:
            if not committed:
                raise
            written = self._read_info(info.version, "snapshot")
        self._snapshots.add(info.version)
        if info.version not in self._rebuildable:
            self._rebuildable = sorted([*self._rebuildable, info.version])
        return written

    def wants_snapshot(self) -> bool:
        """Whether replaying the changes since the newest snapshot costs as much as reading one.

        Records count as well: they lie in the same files, and only a newer snapshot lets these be collected.
        """
        self._list_once()
        start = self._snapshot_below(self._highest())
        since = [version for version in self._changes if version > start]
        if len(since) >= SNAPSHOT_AFTER_CHANGES:
            return True
        snapshot_size = self._size(start, "snapshot") if start else 0
        return sum(self._size(version, "change") for version in since) >= max(snapshot_size, SNAPSHOT_AFTER_BYTES)

    def collect(self) -> list[str]:
        """Removes what none of the newest `keep_versions` versions needs, and what crashed writers left.

        Oldest first: at every moment what remains is a history with a later beginning. Nothing of a
        history with a hole at its end is removed: it may be what someone repairs it from.
        """
        self.refresh()
        swept = self.storage.sweep()
        if not self._rebuildable or self._rebuildable[-1] != self._highest():
            return swept
        oldest = self._rebuildable[-self.keep_versions :][0]
        start = self._snapshot_below(oldest)
        surplus = [(version, "change") for version in self._changes if version <= start and version < oldest]
        surplus += [(version, "snapshot") for version in self._snapshots if version < start]
        deleted = []
        for version, kind in sorted(surplus):
            self.storage.delete(name := f"{version:012d}.{kind}")
            deleted.append(name)
        if deleted:
            self.refresh()
        return deleted + swept

    # Inside

    def _list_once(self) -> None:
        if not self._listed:
            self.refresh()

    def _highest(self) -> int:
        return max(max(self._changes, default=0), max(self._snapshots, default=0))

    def _snapshot_below(self, version: int) -> int:
        """The newest snapshot at or below a version; 0, the empty state, when there is none."""
        return max((snapshot for snapshot in self._snapshots if snapshot <= version), default=0)

    def _require_next(self, info: VersionInfo) -> None:
        """That the version comes right after the newest one; a glance, the exclusive write decides."""
        if info.version < 1 or info.base != info.version - 1:
            raise ValueError(
                f"{self.storage.path}: required a version >= 1 on the base just below it, "
                f"got version {info.version} on base {info.base}"
            )
        self._list_once()
        if info.base != self._highest():
            self.refresh()
        if info.version <= self._highest() or self.storage.exists(_name(info.version, "snapshot")):
            raise FileExistsError(f"{self.storage.path}: version {info.version} is committed already")
        if info.base and info.base not in self._rebuildable:
            raise self._impossible(info.base)

    def _write(
        self,
        info: VersionInfo,
        tables: Sequence[tuple[str, pa.Table]],
        order: Order | None,
        records: Sequence[tuple[str, pa.Table]] = (),
    ) -> VersionInfo:
        header, parts = files.encode(to_fields(info), tables, order, records)
        name = _name(info.version, info.kind)
        self.storage.write(name, parts, exclusive=True)
        self._headers[name] = header
        return replace(info, size=header.size)

    def _read_header(self, version: int, kind: Kind) -> Header:
        name = _name(version, kind)
        if name not in self._headers:
            self._headers[name] = files.read_header(self.storage, name)
        return self._headers[name]

    def _read_info(self, version: int, kind: Kind) -> VersionInfo:
        try:
            return self._accept(version, kind, self._read_header(version, kind))
        except FileNotFoundError:
            raise self._impossible(version) from None

    def _accept(self, version: int, kind: Kind, header: Header) -> VersionInfo:
        self._headers[_name(version, kind)] = header
        return from_header(self._file(version, kind), version, kind, header)

    def _targets(self, info: VersionInfo, layouts: Sequence[TableLayout] | None) -> dict[str, TableLayout]:
        """The layout that each stored table is to have: the program's, or its own when that has none."""
        declared = () if layouts is None else layouts
        evolution.require_fit(f"{self._file(info.version, info.kind)}", info.layouts, declared)
        return {layout.name: layout for layout in (*info.layouts, *declared)}

    def _size(self, version: int, kind: Kind) -> int:
        name = _name(version, kind)
        return self._headers[name].size if name in self._headers else self.storage.size(name)

    def _file(self, version: int, kind: Kind) -> str:
        return files.described(self.storage, _name(version, kind))

    def _impossible(self, version: int) -> RecoveryImpossible:
        """Says what is missing for a version and which ones can be loaded, by a fresh listing."""
        loadable = self.refresh()
        highest = self._highest()
        if highest == 0:
            return RecoveryImpossible(
                f"{self.storage.path}: there is no state here: required version {version or 'any'}, found no "
                "version at all. Check the path; the first batch, or initial={...}, makes the first version."
            )
        if version < 1:
            reason = f"version {version} is the empty state, of which nothing is stored"
        elif version > highest:
            reason = f"there is no version {version}, the newest is {highest}"
        elif version in loadable:
            reason = f"version {version} changed while it was read (old versions were collected)"
        else:
            start = self._snapshot_below(version)
            needed = (number for number in range(start + 1, version + 1) if number not in self._changes)
            missing = _name(next(needed, version), "change")
            reason = (
                f"version {version} cannot be rebuilt: {missing} is missing, and no snapshot lies "
                f"between it and version {version} (it was deleted, or collected as too old)"
            )
        return RecoveryImpossible(
            f"{self.storage.path}: {reason}. Versions that can be loaded: {_ranges(loadable) or 'none'}. "
            "Ask for one of these, or restore the missing file from a backup."
        )


def _name(version: int, kind: Kind) -> str:
    return f"{version:012d}.{kind}"


def _row_counts(tables: Mapping[str, pa.Table]) -> dict[str, int]:
    return {name: table.num_rows for name, table in tables.items()}


def _ranges(versions: Sequence[int]) -> str:
    """Ascending numbers, runs of them shortened: "1-3, 7"."""
    runs: list[list[int]] = []
    for version in versions:
        if runs and version == runs[-1][1] + 1:
            runs[-1][1] = version
        else:
            runs.append([version, version])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
