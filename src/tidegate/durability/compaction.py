"""A new snapshot from an old one and the changes since, from files alone: no engine is asked for its rows.

    snapshot 3    A 100   B 50   D 7                  streams through, without A and B, which changes touched
    change 4      A 80    B gone                      A 80 is left out: a later change has A again
    change 5      A 60    C 5
    snapshot 5    D 7     A 60   C 5

An engine that made its own snapshot would stop for seconds with twenty million rows. `compact` puts the keys that the
changes touched into an index (changed_keys.py) and reads the old snapshot section by section. It reads the rows twice,
since a file says where its sections end before the first of them begins: once to find the rows that remain and the
sizes of the sections, once to write them. In memory are, one table at a time, the index of the changed keys, then the
positions of the rows that go, and one section; never the state.

Invariant: what is read is under checksums and in one chain, and the snapshot gets its name when it is complete. So a
crash leaves the old snapshot, all changes, and at most a temporary file, which a sweep removes. Several processes may
compact one version at once: the first one's file stays.

Versions that hold events instead of rows cannot be merged; `compact` refuses them. Rows come in no order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from tidegate.durability import evolution, files
from tidegate.durability.changed_keys import ChangedKeys, Positions
from tidegate.durability.files import Body, Deferred, Section
from tidegate.durability.served import Served
from tidegate.durability.version_info import VersionInfo, require_successor
from tidegate.durability.version_reader import StoredFile
from tidegate.durability.versions import VersionStore
from tidegate.operations.layout import TableLayout

PRIORITY = 10
"""The nice value of a process that compacts: beside a busy one it gets a tenth of a processor, and is never starved."""


class Stopped(Exception):
    """The compaction was told to stop."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """A section of an old file, and the positions of its rows that are not taken over."""

    file: StoredFile
    section: Section
    left_out: Positions


def compact(store: VersionStore, version: int, pause: Callable[[], None] = lambda: None) -> VersionInfo:
    """Writes the snapshot of a committed version, from the newest snapshot below it; one that is there stays.

    `pause` is called between sections; what it raises ends the compaction, and nothing of it remains.
    """
    store.refresh()
    if store.snapshot_below(version) == version:
        return store.open_file(version, "snapshot")[0]
    return _Compaction(store, version, pause).write()


class _Compaction:
    """The files that a snapshot is made from, and what is known of the version that it is of."""

    def __init__(self, store: VersionStore, version: int, pause: Callable[[], None]) -> None:
        self._store, self._pause = store, pause
        self._snapshot: StoredFile | None = None
        self._changes: list[StoredFile] = []
        self._served = Served()
        layouts: dict[str, TableLayout] = {}
        seen: dict[tuple[TableLayout, ...], StoredFile] = {}
        start = store.snapshot_below(version)
        below: VersionInfo | None = None
        if start:
            below, self._snapshot = store.open_file(start, "snapshot")
            self._served = store.served_in(start)
            seen[below.layouts] = self._snapshot
        for number in range(start + 1, version + 1):
            info, file = store.open_file(number, "change")
            if info.program:
                raise store.program_needed(store.info(version), start)
            if below is not None:
                require_successor(store.described(file), info, below)
            seen.setdefault(info.layouts, file)
            self._served.add(info)
            self._changes.append(file)
            below = info
            pause()
        assert below is not None
        self._info = below
        for found in (*seen, below.layouts):
            layouts |= {layout.name: layout for layout in found}
        self._layouts = tuple(layouts.values())
        for found, file in seen.items():
            evolution.require_fit(store.described(file), found, self._layouts)

    def write(self) -> VersionInfo:
        """Writes the snapshot."""
        bodies: list[Body] = []
        rows: dict[str, int] = {}
        for layout in self._layouts:
            taken: list[_Piece] = []
            sizes = [(part.num_rows, files.section_size(part)) for part in self._joined(self._find(layout, taken))]
            parts = self._joined(self._read(layout, taken))
            bodies += [("table", layout.name, Deferred(*size, partial(next, parts))) for size in sizes]
            rows[layout.name] = sum(count for count, _ in sizes)
        return self._store.write_snapshot(self._info, self._layouts, rows, self._served, bodies)

    def _find(self, layout: TableLayout, taken_out: list[_Piece]) -> Iterator[pa.Table]:
        """The rows of a table that remain, section by section; notes where they are."""
        changes = [(file, section) for file in self._changes for section in file.sections_of(layout.name)]
        keys = ChangedKeys(layout)
        for file, section in changes:
            keys.note(self._store.read_rows(file, section, layout))
            self._pause()
        if self._snapshot is not None:
            for section in self._snapshot.sections_of(layout.name):
                rows = self._store.read_rows(self._snapshot, section, layout)
                taken_out.append(_Piece(self._snapshot, section, keys.touched(rows)))
                yield _without(rows, taken_out[-1].left_out)
        first = 0
        for file, section in changes:
            rows = self._store.read_rows(file, section, layout)
            left_out = keys.surpassed(rows, first)
            first += rows.num_rows
            if len(left_out) < rows.num_rows:
                taken_out.append(_Piece(file, section, left_out))
                yield _without(rows, left_out)

    def _read(self, layout: TableLayout, pieces: list[_Piece]) -> Iterator[pa.Table]:
        """The same rows again."""
        for piece in pieces:
            yield _without(self._store.read_rows(piece.file, piece.section, layout), piece.left_out)

    def _joined(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The same rows in sections of at least half the usual size, so that sections do not shrink as rows go."""
        held: list[pa.Table] = []
        size = 0
        for table in tables:
            for piece in files.pieces(table):
                held.append(piece)
                size += piece.nbytes
                if 2 * size >= files.SECTION_BYTES:
                    yield pa.concat_tables(held).combine_chunks()
                    held, size = [], 0
            self._pause()
        if held:
            yield pa.concat_tables(held).combine_chunks()


def _without(rows: pa.Table, positions: Positions) -> pa.Table:
    """A change table as whole rows, some left out."""
    rows = rows.drop_columns([evolution.EXISTS.name])
    if len(positions) == 0:
        return rows
    kept = np.ones(rows.num_rows, np.bool_)
    kept[positions] = False
    return rows.filter(pa.array(kept))
