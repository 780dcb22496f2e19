"""A new snapshot from an old one and the changes since, from files alone: no engine is asked for its rows.

    snapshot 3    A 100   B 50   D 7                  streams through, without A and B, which changes touched
    change 4      A 80    B gone                      A 80 is left out: a later change has A again
    change 5      A 60    C 5
    snapshot 5    D 7     A 60   C 5

An engine that made its own snapshot would stop for seconds with twenty million rows. `compact` reads the old snapshot
and the changes section by section (version_files.py). It reads the rows twice, since a file says where its sections end
before the first of them begins: once to find the rows that remain and the sizes of the sections, once to write them. In
memory are, one table at a time, the index of the changed keys, then the positions of the rows that go, and one section;
never the state.

Invariant: what is read is under checksums and in one chain, and the snapshot gets its name when it is complete. So a
crash leaves the old snapshot, all changes, and at most a temporary file, which a sweep removes. Several processes may
compact one version at once: the first one's file stays.

Versions that hold events instead of rows cannot be merged; `compact` refuses them. Rows come in no order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import pyarrow as pa

from tidegate.durability import files
from tidegate.durability.files import Body, Deferred
from tidegate.durability.version_files import Piece, VersionFiles
from tidegate.durability.version_info import VersionInfo
from tidegate.durability.versions import VersionStore
from tidegate.operations.layout import TableLayout

PRIORITY = 10
"""The nice value of a process that compacts: beside a busy one it gets a tenth of a processor, and is never starved."""

Reshape = Callable[[pa.Table], pa.Table]
"""Turns some rows of a table into what is to be written of them."""


class Stopped(Exception):
    """The compaction was told to stop."""


def compact(store: VersionStore, version: int, pause: Callable[[], None] = lambda: None) -> VersionInfo:
    """Writes the snapshot of a committed version, from the newest snapshot below it; one that is there stays.

    `pause` is called between sections; what it raises ends the compaction, and nothing of it remains.
    """
    store.refresh()
    if store.snapshot_below(version) == version:
        return store.open_file(version, "snapshot")[0]
    source = VersionFiles(store, version, lambda size: pause())
    bodies: list[Body] = []
    rows: dict[str, int] = {}
    for layout in source.layouts:
        sections = merged(source, layout)
        rows[layout.name] = sum(len(section) for section in sections)
        bodies += [("table", layout.name, section) for section in sections]
    return store.write_snapshot(source.info, source.layouts, rows, source.served, bodies)


def merged(source: VersionFiles, layout: TableLayout, reshape: Reshape = lambda rows: rows) -> list[Deferred]:
    """All rows of a table as sections to write; each is made when it is written, and they must be written in order."""
    pieces: list[Piece] = []
    found = _joined(map(reshape, source.rows(layout, pieces)))
    sizes = [(part.num_rows, files.section_size(part)) for part in found]
    parts = _joined(map(reshape, source.rows_again(layout, pieces)))
    return [Deferred(rows, size, partial(next, parts)) for rows, size in sizes]


def _joined(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
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
    if held:
        yield pa.concat_tables(held).combine_chunks()
