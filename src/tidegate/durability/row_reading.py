"""One row, or the rows of one table, from the files of a state that may be in use; no engine is built.

    find_row(storage, layout, key)          one row: the newest file that knows the key decides
    read_files(storage, version, look)      whatever a function reads from the files of a version

The newest version is read at the moment of the call. Where its files are collected under a reader because a query goes
on, reading starts again with the version that is the newest then.

Commands that an engine logged behind its newest checkpoint are in no version: who asks for the newest rows of such a
state is refused, and told which version can be read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pyarrow as pa

from tidegate.durability import evolution, log_segments
from tidegate.durability.version_files import Told, VersionFiles
from tidegate.durability.version_info import VersionInfo
from tidegate.durability.version_reader import VersionReader
from tidegate.engine.arguments import key_columns
from tidegate.foundation.errors import InputError, RecoveryImpossible
from tidegate.foundation.storage import Storage
from tidegate.operations.layout import TableLayout

T = TypeVar("T")

ATTEMPTS_MAX = 20
"""How often reading starts again because files were collected under it."""


def find_row(
    storage: Storage, layout: TableLayout, key: tuple[Any, ...], version: int | None = None
) -> dict[str, Any] | None:
    """The row of a key at a version (None: the newest), in this layout; None if there is no such row."""
    columns = pa.table(key_columns(layout, key), names=list(layout.key))

    def look(info: VersionInfo, files: VersionFiles) -> dict[str, Any] | None:
        require_table(storage.path, info, layout.name)
        path = storage.path if version is None else None
        evolution.require_fit(storage.path, info.layouts, [layout], path)
        found = files.find(layout, columns)
        row = None if found is None else found.to_pylist()[0]
        return None if row is None else {c.name: c.type.take(row[c.name]) for c in layout.columns}

    return read_files(storage, version, look)


def read_files(
    storage: Storage,
    version: int | None,
    look: Callable[[VersionInfo, VersionFiles], T],
    told: Told = lambda size: None,
) -> T:
    """What a function makes of the files of a version (None: the newest); where these go, it is called again."""
    reader = VersionReader(storage)
    for attempt in range(ATTEMPTS_MAX):
        info = reader.locate(version)
        if version is None:
            require_covered(storage, info)
        try:
            return look(info, VersionFiles(reader, info.version, told))
        except RecoveryImpossible:
            reader.refresh()
            if version is not None or reader.can_rebuild(info.version) or attempt + 1 == ATTEMPTS_MAX:
                raise
    raise AssertionError("the last attempt returns or raises")


def require_covered(storage: Storage, newest: VersionInfo) -> None:
    """That the newest version has all that an engine did; what it logged behind it is not there to be read."""
    try:
        log_segments.require_covered(storage, newest)
    except RecoveryImpossible as error:
        raise RecoveryImpossible(
            f"{error} Or read the newest checkpoint as it is: version {newest.version}."
        ) from error


def require_table(path: str, info: VersionInfo, name: str) -> TableLayout:
    """The layout that a version has of a table."""
    found = next((layout for layout in info.layouts if layout.name == name), None)
    if found is None:
        known = ", ".join(sorted(layout.name for layout in info.layouts)) or "no tables"
        raise InputError(f"{path}: there is no table {name!r} in version {info.version}. This state has: {known}")
    return found
