"""Checks every stored byte of a state, and that its history has no hole.

A file is sound when all of it agrees with its checksums and its header speaks of the version that its
name says. A history is sound when its newest version can be rebuilt from what is there. Damage is
collected, not raised: a person who runs this wants to know all of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast

from tidegate.durability import files
from tidegate.durability.version_info import from_header
from tidegate.durability.versions import VersionStore
from tidegate.foundation.errors import TidegateError


@dataclass(frozen=True, slots=True)
class FileCheck:
    """One file: what it holds, and what is wrong with it (None: nothing)."""

    name: str
    rows: int
    size: int
    problem: str | None


@dataclass(frozen=True, slots=True)
class StateCheck:
    """All files of a state, and what is wrong with the history that they form."""

    files: tuple[FileCheck, ...]
    history_problems: tuple[str, ...]
    oldest: int | None
    newest: int | None

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.history_problems and all(file.problem is None for file in self.files)


def check_files(store: VersionStore) -> StateCheck:
    """Read and check all version files of a state."""
    checks = tuple(
        _check(store, name, int(match[1]), match[2])
        for name in store.storage.list()
        if (match := re.fullmatch(r"(\d{12})\.(change|snapshot)", name))
    )
    versions = store.refresh()
    problems = []
    try:
        if store.newest() is None:
            store.load(None)  # raises, and says that there is no state here
    except TidegateError as error:
        problems.append(str(error))
    return StateCheck(checks, tuple(problems), versions[0] if versions else None, versions[-1] if versions else None)


def _check(store: VersionStore, name: str, version: int, kind: str) -> FileCheck:
    size = store.storage.size(name)
    try:
        header, _ = files.read_file(store.storage, name)
        file = files.described(store.storage, name)
        info = from_header(file, version, cast(Literal["change", "snapshot"], kind), header)
    except TidegateError as error:
        return FileCheck(name, 0, size, str(error))
    return FileCheck(name, sum(info.rows.values()), size, None)
