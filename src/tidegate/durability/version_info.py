"""What is recorded of one version, and how that stands in the header of its file.

Versions are numbered by the state, not by Spark: a version remembers the query and the batch that
made it, the version it was built on, and the layouts of the tables at that time. A file whose header
speaks of another version than its name does was renamed or copied, and is not believed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from tidegate.durability.files import Header
from tidegate.foundation.errors import StorageCorrupted
from tidegate.operations.layout import TableLayout

Kind = Literal["change", "snapshot"]

_PLAIN = ("version", "kind", "query", "batch", "base", "created_at", "events", "committed", "high")


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """What a version's file says of it; `kind`, `rows` and `size` are set by the store when it writes.

    `high` is the highest `order_by` value seen so far; `rows` counts the rows per table in the file, `records` those
    of what the batch gave out beside its changes (records.py).
    """

    version: int
    kind: Kind
    query: str
    batch: int
    base: int
    created_at: float
    events: int
    committed: int
    high: int | float | str | None
    layouts: tuple[TableLayout, ...]
    rows: dict[str, int]
    size: int
    records: dict[str, int] = field(default_factory=dict)


def to_fields(info: VersionInfo) -> dict[str, Any]:
    """The info as JSON values; the size is left out, since a file's header tells it anyway."""
    fields: dict[str, Any] = {name: getattr(info, name) for name in _PLAIN}
    fields["rows"] = info.rows
    if info.records:
        fields["records"] = info.records
    fields["layouts"] = [layout.to_json() for layout in info.layouts]
    return fields


def from_header(file: str, version: int, kind: Kind, header: Header) -> VersionInfo:
    """The info in a file's header, when it is that of the version that the file's name says."""
    fields = header.fields
    if fields["version"] != version or fields["kind"] != kind:
        raise StorageCorrupted(
            f"{file}: damaged at offset 0: expected the {kind} of version {version}, found the "
            f"{fields['kind']} of version {fields['version']}. It was renamed or copied: undo that."
        )
    layouts = tuple(TableLayout.from_json(layout) for layout in fields["layouts"])
    plain = {name: fields[name] for name in _PLAIN}
    records = dict(fields.get("records", {}))
    return VersionInfo(**plain, layouts=layouts, rows=dict(fields["rows"]), size=header.size, records=records)


def require_tables(
    info: VersionInfo, tables: Mapping[str, pa.Table], schema: Callable[[TableLayout], pa.Schema]
) -> None:
    """That rows about to be written have the columns and types of their layouts."""
    layouts = {layout.name: layout for layout in info.layouts}
    for name, table in tables.items():
        if name not in layouts:
            raise ValueError(f"version {info.version}: rows for table {name}, which has no layout in its info")
        required = schema(layouts[name])
        if table.schema.names != required.names or table.schema.types != required.types:
            raise ValueError(f"version {info.version}: table {name} requires\n{required}\ngot\n{table.schema}")
