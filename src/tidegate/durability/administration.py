"""Versions that a person makes: no batch made them, nobody owns the state, and nothing may run on it meanwhile.

    version   7          8                       9
    query     a          -                       a
    batch     41         -                       42
    epoch     3          4                       5
    owner     query a    nobody                  query a
                         (adopted, renamed,
                          rolled back)

Such a version is committed as a batch's is: its change file is created exclusively and stands in the chain, so a query
that starts at the same moment loses or wins as a whole. What waits to be taken from an engine waits in it as well.

Invariant: it is made only when no live owner has the state, and no engine has logged commands that no checkpoint
covers, on top of the version that the person was told about.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from tidegate.durability import log_segments, ownership
from tidegate.durability.files import Body
from tidegate.durability.records import waiting_record, waiting_streams
from tidegate.durability.version_info import VersionInfo
from tidegate.durability.versions import VersionStore
from tidegate.foundation.errors import StateOwned

HIDDEN = "tidegate_"
"""What the names of tables begin with that the engine keeps for itself: windows, waiting events, earlier states."""

_NOTHING = VersionInfo(0, "change", "", 0, 0, 0.0, 0, 0, None, (), {}, 0)


class Administration:
    """A state, at its newest version, that nobody else changes; raises StateOwned when somebody may."""

    def __init__(self, store: VersionStore) -> None:
        self.store = store
        self.newest = store.tip()
        self._epoch = ownership.admit(store.storage, self.newest, None)
        log_segments.require_covered(store.storage, self.newest)

    def commit(self, changes: Mapping[str, pa.Table], **fields: object) -> VersionInfo:
        """Makes the next version: it is as the newest one says, except for `changes` and `fields`."""
        return self._made(lambda info: self.store.commit(info, changes, records=self._waiting()), fields)

    def commit_whole(self, rows: Mapping[str, int], bodies: Sequence[Body], **fields: object) -> VersionInfo:
        """Makes the next version: it has the rows in these sections and no others, whatever the newest one has."""
        waiting = self._waiting()
        return self._made(lambda info: self.store.commit_whole(info, rows, bodies, waiting), fields)

    def _waiting(self) -> dict[str, pa.Table]:
        """The tuples of output streams that nobody took yet: an engine looks for them in the newest version."""
        if self.newest is None:
            return {}
        names = [waiting_record(stream) for stream in waiting_streams(self.newest.records)]
        found = {name: self.store.read_record(self.newest.version, name) for name in names}
        return {name: tuples for name, tuples in found.items() if tuples is not None}

    def _made(self, commit: Callable[[VersionInfo], VersionInfo], fields: Mapping[str, object]) -> VersionInfo:
        below = self.newest or _NOTHING
        info = replace(
            below,
            version=below.version + 1,
            query="",
            batch=0,
            base=below.version,
            created_at=time.time(),
            events=0,
            committed=0,
            epoch=self._epoch,
            owner=None,
            adopted={},
            program="",
            weight=0,
        )
        info = replace(info, **fields)  # type: ignore[arg-type]
        try:
            return commit(info)
        except FileExistsError:
            raise StateOwned(
                f"{self.store.storage.path}: somebody else made version {info.version} at the same moment. Nothing was "
                "done. Stop whatever works on this state, then run this again."
            ) from None
