"""Versions that a person makes: no batch made them, nobody owns the state, and nothing may run on it meanwhile.

    version   7          8                       9
    query     a          -                       a
    batch     41         -                       42
    epoch     3          4                       5
    owner     query a    nobody                  query a
                         (adopted, renamed,
                          rolled back)

Such a version is committed as a batch's is: it is created exclusively and stands in the chain, so a query that starts
at the same moment loses or wins as a whole.

Invariant: it is made only when no live owner has the state, on top of the version that the person was told about.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from tidegate.durability import ownership
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

    def commit(
        self, changes: Mapping[str, pa.Table], whole: Mapping[str, pa.Table] | None = None, **fields: object
    ) -> VersionInfo:
        """Makes the next version: it is as the newest one says, except for `changes` and `fields`.

        With `whole` it has these rows and no others, whatever the newest one has.
        """
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
            return self.store.commit(info, changes) if whole is None else self.store.snapshot(info, whole)
        except FileExistsError:
            raise StateOwned(
                f"{self.store.storage.path}: somebody else made version {info.version} at the same moment. Nothing was "
                "done. Stop whatever works on this state, then run this again."
            ) from None
