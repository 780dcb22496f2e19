"""What is recorded of one version, and how that stands in the header of its file.

Versions are numbered by the state, not by Spark. A version records its state, the hash of the version that it was built
on, the applicant and the batch that made it, the owner, and the layouts of the tables at that time:

    version 7 of state 3f1c...                     version 8 of state 3f1c...
    parent  a91e...  (the hash of version 6)       parent  07bd...  (the hash of version 7)
    query   q, batch 4                             query   q, batch 5
    epoch   2, owner q                             epoch   2, owner q

So versions form a chain, and a file that was lost, exchanged, or replaced by an older copy is noticed by every reader
of the version above. A file whose header names another version than its name does was renamed or copied, and is
refused.

A version's hash is that of the file that committed it: its change file, or the snapshot of a version that was loaded as
a whole. A snapshot that was written later, beside the change file, names that file's hash in `commit`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import pyarrow as pa

from tidegate.durability.files import Header
from tidegate.foundation.errors import StorageCorrupted
from tidegate.operations.layout import TableLayout

Kind = Literal["change", "snapshot"]

_PLAIN = ("version", "kind", "query", "batch", "base", "created_at", "events", "committed", "high")
_CHAIN = ("state", "parent", "epoch", "commit", "commands", "log")


@dataclass(frozen=True, slots=True)
class Owner:
    """Who may add versions to a state: a query, as people know it, and the lock that its processes hold.

    `token` names the lock file that says whether any of the query's processes still runs (ownership.py).
    """

    query: str
    name: str
    token: str


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """What a version's file says of it; `kind`, `rows`, `size` and what makes the chain are set by the store.

    `query` names the applicant, and `batch` its batch, that made the version. `high` is the highest `order_by` value
    seen so far; `rows` counts the rows per table in the file, `records` those of what the batch gave out beside its
    changes (records.py). `state` is the state's id, `parent` the hash of the version below (empty for the first),
    `epoch` counts the owners. `commands` is how many commands of the engine's log the version covers, `log` the log's
    hash there (logged.py). `hash` is the version's own. `adopted` are applicants whose batches, up to the one named,
    count as applied because somebody said so (`tidegate state adopt`).

    `program` is empty where the change file holds the rows that changed. Where it holds the batch's events instead,
    `program` is the fingerprint of the program that ran them, which alone can run them again (version_log.py). `ran` is
    the newest version, up to this one, of that kind; 0 when there is none. So one look at a version tells whether the
    rows can be had from files alone: if `ran` is not above the snapshot that the version is rebuilt from. `weight` is
    about what the rows take that the events changed: running them costs as much at least, however few bytes they are.
    `report` is what the batch did, for people (batch_facts.py); empty where no batch made the version.

    `whole` is the newest version, up to this one, whose change file holds all rows and not only those that changed; 0
    when there is none. Nothing below it is needed for the rows, and its tables need not be those of the versions below.

    `result` is the type of the column `result` that the last program had (result_types.py); empty if none recorded it.
    `dropped` are fields, by table, that a person removed from the state (reshaping.py), so that a program that still
    has them is told. None stands for those of the version below.
    """

    version: int
    kind: Kind
    query: str
    batch: int
    base: int
    created_at: float
    events: int = 0
    committed: int = 0
    high: int | float | str | None = None
    layouts: tuple[TableLayout, ...] = ()
    rows: dict[str, int] = field(default_factory=dict)
    size: int = 0
    records: dict[str, int] = field(default_factory=dict)
    state: str = ""
    parent: str = ""
    epoch: int = 1
    owner: Owner | None = None
    commit: str = ""
    commands: int = 0
    log: str = ""
    hash: str = ""
    adopted: dict[str, int] = field(default_factory=dict)
    program: str = ""
    ran: int = 0
    weight: int = 0
    report: dict[str, Any] = field(default_factory=dict)
    whole: int = 0
    result: Any = ""
    dropped: dict[str, list[str]] | None = None


def as_snapshot(info: VersionInfo, rows: Mapping[str, int]) -> VersionInfo:
    """What the snapshot of a version says: it holds rows, and neither events nor records."""
    return replace(info, kind="snapshot", rows=dict(rows), records={}, program="", weight=0)


def to_fields(info: VersionInfo) -> dict[str, Any]:
    """The info as JSON values; size and hash are left out, since a file's header tells them anyway."""
    fields: dict[str, Any] = {name: getattr(info, name) for name in (*_PLAIN, *_CHAIN)}
    fields["rows"] = info.rows
    if info.records:
        fields["records"] = info.records
    if info.adopted:
        fields["adopted"] = info.adopted
    if info.program:
        fields["program"] = info.program
        fields["weight"] = info.weight
    if info.ran:
        fields["ran"] = info.ran
    if info.whole:
        fields["whole"] = info.whole
    if info.result:
        fields["result"] = info.result
    if info.dropped:
        fields["dropped"] = info.dropped
    if info.report:
        fields["report"] = info.report
    fields["owner"] = None if info.owner is None else asdict(info.owner)
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
    plain = {name: fields[name] for name in (*_PLAIN, *_CHAIN)}
    return VersionInfo(
        **plain,
        layouts=tuple(TableLayout.from_json(layout) for layout in fields["layouts"]),
        rows=dict(fields["rows"]),
        size=header.size,
        records=dict(fields.get("records", {})),
        owner=None if fields["owner"] is None else Owner(**fields["owner"]),
        hash=fields["commit"] or header.hash,
        adopted=dict(fields.get("adopted", {})),
        program=fields.get("program", ""),
        ran=fields.get("ran", 0),
        weight=fields.get("weight", 0),
        report=dict(fields.get("report", {})),
        whole=fields.get("whole", 0),
        result=fields.get("result", ""),
        dropped=fields.get("dropped"),
    )


def require_successor(file: str, info: VersionInfo, below: VersionInfo) -> None:
    """That a version goes on from the one below it, and not from another one of that number."""
    if info.state != below.state:
        raise StorageCorrupted(
            f"{file}: damaged at offset 0: expected a file of state {below.state}, found one of state {info.state}. "
            "A file of another state was copied here: put the right one back from a backup."
        )
    if info.parent != below.hash:
        raise StorageCorrupted(
            f"{file}: damaged at offset 0: expected version {info.version} on top of version {below.version} with the "
            f"hash {below.hash}, found one on top of {info.parent}. One of the two files was exchanged for another "
            "copy: put the right one back from a backup; `tidegate state verify` tells which versions are sound."
        )


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
