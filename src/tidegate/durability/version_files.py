"""The files that a version is rebuilt from, and the rows of one table in them, section by section.

    snapshot 3    A 100   B 50   D 7                  streams through, without A and B, which changes touched
    change 4      A 80    B gone                      A 80 is left out: a later change has A again
    change 5      A 60    C 5
    rows          D 7     A 60   C 5

`rows` puts the keys that the changes touched into an index (changed_keys.py) and reads the files section by section. In
memory are the index of the changed keys and one section; never a table. Rows come in no order.

`find` looks for one row, in the newest file first: the first one that knows the key decides.

Invariant: what is read is under checksums and in one chain, and fits the layouts of the version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidegate.durability import evolution
from tidegate.durability.changed_keys import ChangedKeys, Positions
from tidegate.durability.files import Section
from tidegate.durability.served import Served
from tidegate.durability.version_info import VersionInfo, require_successor
from tidegate.durability.version_reader import StoredFile, VersionReader
from tidegate.operations.layout import TableLayout

Told = Callable[[int], None]
"""Is told how many bytes more were read."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A section of a file, and the positions of its rows that are not rows of the version."""

    file: StoredFile
    section: Section
    left_out: Positions


class VersionFiles:
    """The files of one version, and what their headers tell; versions with events in place of rows are refused.

    `layouts` has the tables of the version as it was committed, and `info` is what its file says. `told` is called
    after each section with the bytes that it has, and between files with none; what it raises ends the reading.
    """

    def __init__(self, store: VersionReader, version: int, told: Told = lambda size: None) -> None:
        self._store, self._told = store, told
        self._snapshot: StoredFile | None = None
        self._changes: list[StoredFile] = []
        self.served = Served()
        start, first = store.snapshot_below(version), store.info(version).whole
        layouts: dict[str, TableLayout] = {}
        seen: dict[tuple[TableLayout, ...], StoredFile] = {}
        below: VersionInfo | None = None
        if start:
            below, file = store.open_file(start, "snapshot")
            self.served = store.served_in(start)
            if start >= first:
                self._snapshot = seen[below.layouts] = file
        for number in range(start + 1, version + 1):
            info, file = store.open_file(number, "change")
            if below is not None:
                require_successor(store.described(file), info, below)
            self.served.add(info)
            below = info
            if number >= first:
                if info.program:
                    raise store.program_needed(store.info(version), start)
                seen.setdefault(info.layouts, file)
                self._changes.append(file)
            told(0)
        assert below is not None
        self.info = below
        for found in (*seen, below.layouts):
            layouts |= {layout.name: layout for layout in found}
        self.layouts = tuple(layouts.values())
        self._seen = seen
        self.require_fit(self.layouts)

    def require_fit(self, layouts: tuple[TableLayout, ...]) -> None:
        """That the rows in all files fit layouts."""
        for found, file in self._seen.items():
            evolution.require_fit(self._store.described(file), found, layouts)

    def size(self, table: str) -> int:
        """How many bytes the rows of a table take in the files."""
        return sum(section.size for _, section in self._sections(table))

    def rows(self, layout: TableLayout, pieces: list[Piece] | None = None) -> Iterator[pa.Table]:
        """The rows of a table, section by section; notes in `pieces` where they are."""
        changes = [(file, section) for file in self._changes for section in file.sections_of(layout.name)]
        pieces = [] if pieces is None else pieces
        keys = ChangedKeys(layout)
        for file, section in changes:
            keys.note(self._store.read_rows(file, section, layout))
            self._told(0)
        if self._snapshot is not None:
            for section in self._snapshot.sections_of(layout.name):
                rows = self._read(self._snapshot, section, layout)
                pieces.append(Piece(self._snapshot, section, keys.touched(rows)))
                yield _without(rows, pieces[-1].left_out)
        first = 0
        for file, section in changes:
            rows = self._read(file, section, layout)
            left_out = keys.surpassed(rows, first)
            first += rows.num_rows
            if len(left_out) < rows.num_rows:
                pieces.append(Piece(file, section, left_out))
                yield _without(rows, left_out)

    def rows_again(self, layout: TableLayout, pieces: list[Piece]) -> Iterator[pa.Table]:
        """The same rows, from the pieces that `rows` noted."""
        for piece in pieces:
            yield _without(self._read(piece.file, piece.section, layout), piece.left_out)

    def find(self, layout: TableLayout, key: pa.Table) -> pa.Table | None:
        """The row with a key, which is a table of one row with the key's columns; None if there is no such row."""
        wanted = ChangedKeys(layout)
        wanted.note(key)
        for file, section in reversed(self._sections(layout.name)):
            rows = self._read(file, section, layout)
            positions = wanted.touched(rows)
            if len(positions):
                found = rows.slice(int(positions[-1]), 1)
                exists = found.column(evolution.EXISTS.name)[0].as_py()
                return found.drop_columns([evolution.EXISTS.name]) if exists else None
        return None

    def _sections(self, table: str) -> list[tuple[StoredFile, Section]]:
        files = [*([] if self._snapshot is None else [self._snapshot]), *self._changes]
        return [(file, section) for file in files for section in file.sections_of(table)]

    def _read(self, file: StoredFile, section: Section, layout: TableLayout) -> pa.Table:
        rows = self._store.read_rows(file, section, layout)
        self._told(section.size)
        return rows


def _without(rows: pa.Table, positions: Positions) -> pa.Table:
    """A change table as whole rows, some left out."""
    rows = rows.drop_columns([evolution.EXISTS.name])
    if len(positions) == 0:
        return rows
    kept = np.ones(rows.num_rows, np.bool_)
    kept[positions] = False
    return rows.filter(pa.array(kept))
