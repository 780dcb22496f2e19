"""A new state from one version of an old one, which may be damaged everywhere else.

    old state                                            new state
    snapshot 10, change 11, change 12 (damaged), ...     snapshot 11, whole, with an id of its own

Only the files that the version needs are read; where the nearest snapshot is damaged, an older one and the changes
after it are used. A version that only a program can rebuild (version_log.py) is refused, and never replaced by an older
one.

The new state keeps the version's number and what was applied up to it; a query whose checkpoint is newer is refused
until it is adopted there (adoption.py). It has another id: the old state is left as it is, and may be used elsewhere.

Invariant: the new state comes into being in one step, by its only file.

Cost: the rows of the version in memory.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass, replace

from tidegate.durability import files, head
from tidegate.durability.files import Body
from tidegate.durability.listing import file_name
from tidegate.durability.soundness import SoundReader, check_file
from tidegate.durability.version_info import VersionInfo, as_snapshot, to_fields
from tidegate.durability.version_reader import SERVED, VersionReader
from tidegate.foundation.errors import InputError, RecoveryImpossible, StorageFailed, TidegateError
from tidegate.foundation.storage import Storage

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Recovered:
    """The only version of the new state, and what of the old one it was made of.

    `newest` is the highest version that the old state has a file of.
    """

    version: VersionInfo
    start: int
    newest: int


def require_empty(storage: Storage) -> None:
    """That there is nothing in a place that a state is to be made in."""
    names = storage.list()
    if names:
        raise InputError(
            f"{storage.path}: required a new or an empty folder, found {len(names)} files in it ({names[0]} ...). "
            "Choose another one; or, if an interrupted copy left them, remove them first."
        )


def recover(source: Storage, target: Storage, version: int | None = None) -> Recovered:
    """Makes a state in `target`, which must be empty, of a version of `source` (None: the newest that is sound)."""
    require_empty(target)
    reader = SoundReader(source, source.list())
    highest = reader.listing.highest
    wanted = range(highest, 0, -1) if version is None else [version]
    start, found = next(
        ((start, number) for number in wanted if (start := _start(reader, number)) is not None), (None, 0)
    )
    if start is None:
        raise _refusal(source, reader, version)
    info = _info(reader, found, start)
    if reader.program_of(info, start):
        raise reader.program_needed(info, start)
    tables = {layout.name: reader.rows(layout, start, found) for layout in info.layouts}
    bodies: list[Body] = [("table", name, piece) for name, table in tables.items() for piece in files.pieces(table)]
    bodies.append((SERVED, "", reader.served_at(start, found).to_table()))
    whole = as_snapshot(info, {name: table.num_rows for name, table in tables.items()})
    whole = replace(whole, ran=0, whole=0, state=uuid.uuid4().hex, parent="", commit="", owner=None)
    return Recovered(_written(target, whole, bodies), start, highest)


def _start(reader: SoundReader, version: int) -> int | None:
    try:
        return reader.start_of(version) if version > 0 else None
    except FileNotFoundError:  # collected while we looked
        return None


def _info(reader: SoundReader, version: int, start: int) -> VersionInfo:
    found = reader.check(version, "snapshot" if version == start else "change")
    assert isinstance(found, VersionInfo)
    return found


def _written(target: Storage, whole: VersionInfo, bodies: list[Body]) -> VersionInfo:
    _, parts = files.encode(to_fields(whole), bodies)
    name = file_name(whole.version, "snapshot")
    target.write(name, parts, exclusive=True)
    written = check_file(target, name)
    try:
        head.note(target, written)
    except StorageFailed:
        _log.warning("%s: the newest version could not be noted", target.path, exc_info=True)
    return written


def _refusal(source: Storage, reader: SoundReader, version: int | None) -> TidegateError:
    """Why there is nothing to make a state of, with the damage that was found on the way."""
    damage = [f"  {problem}\n" for problem in reader.damage]
    if version is not None and not damage:
        try:
            VersionReader(source).load(version)
        except TidegateError as error:
            return error
    if not reader.listing.highest:
        return RecoveryImpossible(f"{source.path}: there is no state here: found no version at all. Check the path.")
    asked = "no version" if version is None else f"version {version}"
    what = f"{asked} can be rebuilt" if version is None else f"{asked} cannot be rebuilt"
    return RecoveryImpossible(
        f"{source.path}: {what} from files that are sound:\n{''.join(damage)}"
        "`tidegate state verify` tells which versions are. Ask for one of these, or put the files back from a backup."
    )
