"""The head: a note beside the versions that names the newest one, so that the loss of a committed version is noticed.

    head      {"state": "3f1c...", "version": 8, "hash": "07bd...", "check": 2870113}

The versions of a state form a chain, so the version above reveals that one in the middle is lost. Nothing stands above
the newest one. Therefore its number is noted after the commit, in a separate file that is replaced each time, without
a sync. The note may lag behind, because the process died in between or the machine lost power, but it never names a
version that was not committed before.

Invariant: if the head is newer than the newest version present, a version was lost.

Rejected: making this note the commit point, as a pointer that is swapped. Creating the version's file under its number
already refuses a second writer on any file system with an exclusive create, and correctness depends on one file less.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass

from tidegate.durability.version_info import VersionInfo
from tidegate.foundation.errors import StateDiverged
from tidegate.foundation.storage import Storage

NAME = "head"


@dataclass(frozen=True, slots=True)
class Head:
    """The newest version according to the note."""

    state: str
    version: int
    hash: str


def note(storage: Storage, info: VersionInfo) -> None:
    """Note that a version was committed."""
    text = json.dumps(asdict(Head(info.state, info.version, info.hash)))
    storage.hint(NAME, json.dumps({"head": text, "check": zlib.crc32(text.encode())}).encode("ascii"))


def read(storage: Storage) -> Head | None:
    """The newest version that was noted; None if there is no note, or a crash damaged it."""
    try:
        content = json.loads(bytes(storage.read(NAME)))
        text = content["head"]
        return Head(**json.loads(text)) if content["check"] == zlib.crc32(text.encode()) else None
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # it was never synced: after a power failure it may hold anything


def require_reached(storage: Storage, newest: VersionInfo | None, head: Head | None) -> None:
    """Raises StateDiverged if versions at the end of the history were lost.

    Read `head` before `newest`: otherwise a version committed in between would look like a lost one.
    """
    if head is None or (newest is not None and head.state == newest.state and head.version <= newest.version):
        return
    found = "none" if newest is None else f"version {newest.version} of state {newest.state}"
    raise StateDiverged(
        f"{storage.path}: version {head.version} of state {head.state} was committed here, and the newest one that is "
        f"there is {found}: files of the state were lost, or replaced by older ones. Put them back from a backup. To "
        f"go on without what is missing: tidegate state adopt {storage.path} --lost"
    )
