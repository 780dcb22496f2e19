"""An earlier version's rows again, as a new version on top of the newest one.

    version   5     6     7     8
    rows      A     B     C     B           8 rolls back to 6: nothing of 7 is forgotten, its rows are replaced

All tables go back together, with those that the engine keeps for itself (windows, waiting events) and the highest
`order_by` value. What was applied stays applied: queries continue with their next batch, and batches whose effects were
undone do not come again.

Where the newest version cannot be read without a program (version_log.py), the difference is unknown: the new version
is then written whole. So it is where tables or fields were renamed or dropped in between (reshaping.py): they are again
what they were.

Invariant: the rows of the new version equal those of the earlier one, read with today's layouts, or with the earlier
ones where it is written whole after a change of these.

Cost: one table at a time in memory, at both versions; one section where it is written whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tidegate.durability.administration import Administration
from tidegate.durability.compaction import merged
from tidegate.durability.files import Body
from tidegate.durability.row_changes import changes_between
from tidegate.durability.stored_rows import rows_at
from tidegate.durability.version_files import VersionFiles
from tidegate.durability.version_info import VersionInfo
from tidegate.durability.versions import VersionStore
from tidegate.foundation.errors import InputError
from tidegate.foundation.storage import Storage


@dataclass(frozen=True, slots=True)
class RolledBack:
    """From which version to which one; `rows` counts the rows that changed, by table, or all of them where it is whole.

    `version` is the new one, None when all rows were as they were and nothing was written.
    """

    newest: int
    to: int
    rows: dict[str, int]
    version: VersionInfo | None
    whole: bool = False


def roll_back(storage: Storage, to: int) -> RolledBack:
    """Makes a version with the rows of version `to`."""
    administration = Administration(VersionStore(storage))
    store, newest = administration.store, administration.newest
    if newest is None or to >= newest.version:
        found = "there is no state here" if newest is None else f"the newest is version {newest.version}"
        raise InputError(f"{storage.path}: required an earlier version to go back to, got {to}: {found}.")
    earlier, _ = store.load(to)
    if store.program_of(newest) or newest.whole > to:
        layouts = earlier.layouts if newest.whole > to else newest.layouts
        source = VersionFiles(store, to)
        source.require_fit(layouts)
        tables = {layout.name: merged(source, layout) for layout in layouts}
        bodies: list[Body] = [("table", name, section) for name, sections in tables.items() for section in sections]
        counts = {name: sum(map(len, sections)) for name, sections in tables.items()}
        dropped = (earlier if newest.whole > to else newest).dropped or {}
        version = administration.commit_whole(counts, bodies, high=earlier.high, layouts=layouts, dropped=dropped)
        counts = {name: count for name, count in counts.items() if count}
        return RolledBack(newest.version, to, counts, version, whole=True)
    changes: dict[str, pa.Table] = {}
    for layout in newest.layouts:
        found = changes_between(layout, rows_at(store, layout, newest.version), rows_at(store, layout, to))
        if found.num_rows:
            changes[layout.name] = found
    rows = {name: table.num_rows for name, table in changes.items()}
    if not changes:
        return RolledBack(newest.version, to, rows, None)
    return RolledBack(newest.version, to, rows, administration.commit(changes, high=earlier.high))
