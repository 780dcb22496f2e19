"""Reading the versions of a state: which there are, what they record, and how one is rebuilt.

    snapshot 3 ── change 4 ── change 5          version 5: the rows of snapshot 3, then changes 4 and 5

versions.py describes the files and adds the writing. Reading needs no owner and makes no file, so a state can be read
while a query works on it.

Events in place of rows (version_log.py) can be run only by the program that ran them first: `load`, which knows no
program, refuses them and says which versions it can read; `load_contents` gives them to callers with the program.

Invariant: rows are given out only from files that agree with their checksums and stand in one chain; where the chain is
broken, reading stops with an error that names the file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tidegate.durability import evolution, files
from tidegate.durability.files import Header, Order, Section
from tidegate.durability.listing import Listing, file_name, runs, spans
from tidegate.durability.served import Served
from tidegate.durability.version_info import Kind, VersionInfo, from_header, require_successor
from tidegate.foundation.errors import RecoveryImpossible, TidegateError
from tidegate.foundation.storage import Storage
from tidegate.operations.layout import TableLayout

Changes = dict[str, pa.Table]

SERVED = "served"
"""The kind of the section that tells which batches were applied."""

HEADERS_MAX = 256
"""Headers that are remembered."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A version's file, and where its sections lie; the header's fields are left out."""

    version: int
    kind: Kind
    header: Header

    def sections_of(self, table: str) -> list[Section]:
        """The sections with rows of a table."""
        return [section for section in self.header.sections if section.kind == "table" and section.table == table]


@dataclass(frozen=True, slots=True)
class Contents:
    """What a file holds: rows that changed, and the order of the events where that had to be logged; or the events.

    `changes` has one change table for each table; `events` are those that ran, in their order, and None otherwise.
    """

    info: VersionInfo
    changes: Changes
    order: Order | None = None
    events: pa.Table | None = None


class VersionReader:
    """The versions in one storage: finding and rebuilding them."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._listing: Listing | None = None
        self._headers: dict[str, Header] = {}

    # What there is

    def refresh(self) -> list[int]:
        """Looks at the storage again, by one listing; the versions that can be rebuilt, oldest first."""
        names = self.storage.list()
        self._listing = Listing(names)
        self._headers = {name: self._headers[name] for name in names if name in self._headers}
        return self._listing.rebuildable

    def newest(self) -> VersionInfo | None:
        """The newest version, None when the state is empty; raises when it cannot be rebuilt."""
        highest = self._listed().highest
        if highest == 0:
            return None
        if not self._listed().can_rebuild(highest):
            raise self._impossible(highest)
        return self.info(highest)

    def info(self, version: int) -> VersionInfo:
        """What is recorded of a version; its change file says more than its snapshot."""
        if self._listed().has_change(version):
            return self._read_info(version, "change")
        if self._listed().has_snapshot(version):
            return self._read_info(version, "snapshot")
        raise self._impossible(version)

    def find_info(self, version: int) -> VersionInfo | None:
        """What is recorded of a version that has a change file; None when it has none. Nothing is listed."""
        try:
            header = files.read_header(self.storage, file_name(version, "change"))
        except FileNotFoundError:
            return None
        return self._accept(version, "change", header)

    def infos(self) -> list[VersionInfo]:
        """Every version that can be rebuilt, oldest first."""
        return [self.info(version) for version in self._listed().rebuildable]

    def find(self, query: str, batch: int) -> VersionInfo | None:
        """The version that this batch of this query made. A query's batches only grow: it stops early."""
        for version in reversed(self._listed().rebuildable):
            info = self.info(version)
            if info.query == query and info.batch <= batch:
                return info if info.batch == batch else None
        return None

    def can_rebuild(self, version: int) -> bool:
        """Whether a version can be rebuilt, as far as is known; the empty state always can."""
        return self._listed().can_rebuild(version)

    # Rebuilding

    def read_contents(self, version: int, layouts: Sequence[TableLayout] | None = None) -> Contents:
        """What a version's change file holds: rows or events.

        `layouts` are the program's: rows stored with older ones are upgraded to them.
        """
        if not self._listed().has_change(version) and self._listed().has_snapshot(version):
            raise RecoveryImpossible(
                f"{self._file(version, 'change')}: version {version} was loaded as a whole, there is no "
                f"change to read. Load version {version} instead."
            )
        with self._needed_for(version):
            header, contents = files.read_file(self.storage, file_name(version, "change"))
        info = self._accept(version, "change", header)
        targets = self._targets(info, layouts)
        parts: dict[str, list[pa.Table]] = {name: [] for name in info.rows}
        order: Order | None = None
        events: list[pa.Table] = []
        for section, content in zip(header.sections, contents, strict=True):
            if section.kind == "order":
                order = content
            elif section.kind == files.EVENTS:
                events.append(content)
            elif section.kind == "table":
                parts[section.table].append(evolution.upgrade(content, targets[section.table]))
        changes = {
            name: pa.concat_tables(tables) if tables else evolution.empty_changes(targets[name])
            for name, tables in parts.items()
        }
        return Contents(info, changes, order, pa.concat_tables(events) if info.program else None)

    def locate(self, version: int | None = None) -> VersionInfo:
        """What is recorded of a version (None: the newest) that can be rebuilt; raises when it cannot."""
        self.refresh()
        wanted = self._listed().highest if version is None else version
        if wanted < 1 or not self._listed().can_rebuild(wanted):
            raise self._impossible(wanted)
        return self.info(wanted)

    def load(
        self, version: int | None = None, layouts: Sequence[TableLayout] | None = None
    ) -> tuple[VersionInfo, Iterator[Changes]]:
        """A version (None: the newest) as change tables to apply one after the other to an empty state.

        The rows of the snapshot come first, in pieces, then the changes after it. Whether the files
        are there, fit `layouts` and hold rows is checked before anything is given out; damage is found, and
        raised, on the way: what was applied until then is to be thrown away.
        """
        info, steps = self.load_contents(version, layouts)
        return info, (step.changes for step in steps)

    def load_contents(
        self, version: int | None = None, layouts: Sequence[TableLayout] | None = None, program: str = ""
    ) -> tuple[VersionInfo, Iterator[Contents]]:
        """The same for a program, known by its fingerprint: rows to apply and events to run, one after the other."""
        info = self.locate(version)
        targets = list(self._targets(info, layouts).values())
        self.require_program(info, program)
        return info, self._replay(self.snapshot_below(info.version), info.version, targets, program)

    # Who can rebuild it

    def program_of(self, info: VersionInfo, start: int | None = None) -> str:
        """The fingerprint of the program that must run events to rebuild a version from a snapshot, or from its own.

        Empty where rows alone do. Whoever added a version had rebuilt the one below, so the last events tell whose all
        of them are; where a lost snapshot made that untrue, it is noticed on the way.
        """
        start = self.snapshot_below(info.version) if start is None else start
        return self._read_info(info.ran, "change").program if info.ran > max(start, info.whole) else ""

    def require_program(self, info: VersionInfo, program: str = "") -> None:
        """That a program, known by its fingerprint, can rebuild a version; an empty one runs no events."""
        if self.program_of(info) not in ("", program):
            raise self.program_needed(info, program=program)

    def readable(self) -> list[int]:
        """The versions that can be rebuilt without any program, oldest first; damaged ones are left out."""
        found = []
        for version in self._listed().rebuildable:
            try:
                info = self.info(version)
                if info.ran <= max(self.snapshot_below(version), info.whole):
                    found.append(version)
            except TidegateError:
                continue
        return found

    def program_needed(self, info: VersionInfo, start: int | None = None, program: str = "") -> RecoveryImpossible:
        """Why a version cannot be rebuilt by a program, or by none, and the ways out."""
        start = self.snapshot_below(info.version) if start is None else start
        first = max(start, info.whole) + 1
        between = (self._read_info(number, "change") for number in range(first, info.version + 1))
        foreign = [found.version for found in between if found.program not in ("", program)]
        path, named, readable = self.storage.path, runs(spans(foreign)), self.readable()
        many = f"versions {named} hold" if len(foreign) > 1 else f"version {named} holds"
        whose = "another program than this one ran them" if program else "no program is at hand to run them"
        ways = ["to read, give that program: read_state(..., transactions=[...])"]
        if not readable or readable[-1] < foreign[-1]:
            ways.insert(
                0,
                'run one batch with the program that wrote them and transact(..., log="changes"), which keeps the '
                "whole state, so that any program can go on from it and any tool can read it",
            )
            if readable:
                ways.append(
                    f"go back to a version that can be read: tidegate state rollback {path} --to {readable[-1]}"
                )
        else:
            ways.append("ask for a version that can be read without it")
        return RecoveryImpossible(
            f"{path}: version {info.version} cannot be rebuilt here: {many} the events of a batch, not its rows "
            f'(transact(..., log="commands")), and {whose}; only the program that ran them gives the same rows. '
            f"Versions that can be read without it: {runs(spans(readable)) or 'none'}. What to do, one of: "
            + "; ".join(f"({number}) {way}" for number, way in enumerate(ways, 1))
            + "."
        )

    def _replay(
        self, start: int, version: int, layouts: Sequence[TableLayout], program: str = ""
    ) -> Iterator[Contents]:
        below: VersionInfo | None = None
        whole = self.info(version).whole
        if whole > start:
            start = whole - 1
        elif start:
            with self._needed_for(version):
                header = self._read_header(start, "snapshot")
                below = self._accept(start, "snapshot", header)
                targets = self._targets(below, layouts)
                for section, rows in files.read_sections(self.storage, file_name(start, "snapshot"), header):
                    if section.kind == "table":
                        yield Contents(below, {section.table: evolution.upgrade(rows, targets[section.table])})
        for number in range(start + 1, version + 1):
            found = self.read_contents(number, layouts)
            if below is not None:
                require_successor(self._file(number, "change"), found.info, below)
            if found.events is not None and found.info.program != program:
                raise self.program_needed(self.info(version), start, program)
            below = found.info
            yield found

    def snapshot_rows(self, version: int) -> dict[str, int]:
        """How many rows each table has in the snapshot that a version is rebuilt from; none without one."""
        start = self._listed().snapshot_below(version)
        return self._read_info(start, "snapshot").rows if start else {}

    # Section by section, for callers that must not hold a version in memory

    def snapshot_below(self, version: int) -> int:
        """The newest snapshot at or below a version; 0, the empty state, when there is none."""
        return self._listed().snapshot_below(version)

    def open_file(self, version: int, kind: Kind) -> tuple[VersionInfo, StoredFile]:
        """What a version's file says of itself, and where its rows lie."""
        with self._needed_for(version):
            header = self._read_header(version, kind)
        return self._accept(version, kind, header), StoredFile(version, kind, replace(header, fields={}))

    def read_rows(self, file: StoredFile, section: Section, layout: TableLayout) -> pa.Table:
        """The rows of one section as a change table of a layout, which they must fit."""
        with self._needed_for(file.version):
            rows = files.read_section(self.storage, file_name(file.version, file.kind), file.header, section)
        return evolution.upgrade(rows, layout)

    def described(self, file: StoredFile) -> str:
        """A file as messages name it."""
        return self._file(file.version, file.kind)

    def served_in(self, version: int) -> Served:
        """What was applied up to a version that has a snapshot, as that tells."""
        info, file = self.open_file(version, "snapshot")
        for section in file.header.sections:
            if section.kind == SERVED:
                name = file_name(version, "snapshot")
                with self._needed_for(version):
                    return Served.from_table(files.read_section(self.storage, name, file.header, section))
        served = Served()
        served.add(info)
        return served

    def read_record(self, version: int, name: str) -> pa.Table | None:
        """A record of a version, None when it has none of that name or an empty one; the rest is not read."""
        if not self._listed().has_change(version):
            if self._listed().has_snapshot(version):
                return None
            raise self._impossible(version)
        with self._needed_for(version):
            header = self._read_header(version, "change")
            for section in header.sections:
                if section.kind == "record" and section.table == name:
                    return files.read_section(self.storage, file_name(version, "change"), header, section)
        return None

    def served_at(self, start: int, version: int) -> Served:
        """What was applied up to a version, from a snapshot (0: the empty state) and what the versions after it say."""
        served = self.served_in(start) if start else Served()
        for number in range(start + 1, version + 1):
            served.add(self._read_info(number, "change"))
        return served

    # Inside

    def _listed(self) -> Listing:
        if self._listing is None:
            self.refresh()
        assert self._listing is not None
        return self._listing

    def _read_header(self, version: int, kind: Kind) -> Header:
        name = file_name(version, kind)
        if name not in self._headers:
            self._remember(name, files.read_header(self.storage, name))
        return self._headers[name]

    def _remember(self, name: str, header: Header) -> None:
        while len(self._headers) >= HEADERS_MAX:
            del self._headers[next(iter(self._headers))]
        self._headers[name] = header

    def _read_info(self, version: int, kind: Kind) -> VersionInfo:
        with self._needed_for(version):
            return self._accept(version, kind, self._read_header(version, kind))

    @contextlib.contextmanager
    def _needed_for(self, version: int) -> Iterator[None]:
        """A file that is missing inside is one without which a version cannot be rebuilt."""
        try:
            yield
        except FileNotFoundError:
            raise self._impossible(version) from None

    def _accept(self, version: int, kind: Kind, header: Header) -> VersionInfo:
        return from_header(self._file(version, kind), version, kind, header)

    def _targets(self, info: VersionInfo, layouts: Sequence[TableLayout] | None) -> dict[str, TableLayout]:
        """The layout that each stored table is to have: the program's, or its own when that has none."""
        declared = () if layouts is None else layouts
        newest = info.version == self._listed().highest
        path = self.storage.path if newest else None
        evolution.require_fit(self._file(info.version, info.kind), info.layouts, declared, path)
        return {layout.name: layout for layout in (*info.layouts, *declared)}

    def _file(self, version: int, kind: Kind) -> str:
        return files.described(self.storage, file_name(version, kind))

    def _impossible(self, version: int) -> RecoveryImpossible:
        """Says what is missing for a version and which ones can be loaded, by a fresh listing."""
        self.refresh()
        listing = self._listed()
        highest = listing.highest
        if highest == 0:
            return RecoveryImpossible(
                f"{self.storage.path}: there is no state here: required version {version or 'any'}, found no "
                "version at all. Check the path; the first batch, or initial={...}, makes the first version."
            )
        if version < 1:
            reason = f"version {version} is the empty state, of which nothing is stored"
        elif version > highest:
            reason = f"there is no version {version}, the newest is {highest}"
        elif listing.can_rebuild(version):
            reason = f"version {version} changed while it was read (old versions were collected)"
        else:
            start = listing.snapshot_below(version)
            needed = (number for number in range(start + 1, version + 1) if not listing.has_change(number))
            missing = file_name(next(needed, version), "change")
            reason = (
                f"version {version} cannot be rebuilt: {missing} is missing, and no snapshot lies "
                f"between it and version {version} (it was deleted, or collected as too old)"
            )
        return RecoveryImpossible(
            f"{self.storage.path}: {reason}. Versions that can be loaded: {listing.runs or 'none'}. "
            "Ask for one of these, or restore the missing file from a backup."
        )
