"""Which version files exist, and which versions can be rebuilt from them, judged by file names alone.

    000000000001.snapshot                 1            rebuilt from its snapshot
    000000000002.change                   1, 2         from snapshot 1 and change 2
    000000000004.change                   -            change 3 is missing
    000000000005.snapshot                 5            from its snapshot

A version can be rebuilt if it has a snapshot, or if it has a change and the version below can be rebuilt. Version 0 is
the empty state. The rebuildable versions are stored as runs of numbers, so that adding a version at the end costs the
same however many there are.
"""

from __future__ import annotations

import bisect
import itertools
from collections import deque
from collections.abc import Iterable

from tidegate.durability.version_info import Kind


def file_name(version: int, kind: Kind) -> str:
    """The name of a version's file."""
    return f"{version:012d}.{kind}"


def parse_name(name: str) -> tuple[int, Kind] | None:
    """The version and the kind of a version file; None for any other file."""
    number, kind = name[:12], name[12:]
    if len(number) < 12 or not (number.isdecimal() and number.isascii()) or kind not in (".change", ".snapshot"):
        return None
    return int(number), "change" if kind == ".change" else "snapshot"


def spans(versions: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Ascending numbers as runs: pairs of a first and a last number."""
    found: list[tuple[int, int]] = []
    for version in versions:
        if found and found[-1][1] == version - 1:
            found[-1] = (found[-1][0], version)
        else:
            found.append((version, version))
    return tuple(found)


def runs(pairs: Iterable[Iterable[int]], between: str = "-") -> str:
    """Runs of numbers as text: "1-3, 7"."""
    return ", ".join(f"{first}" if first == last else f"{first}{between}{last}" for first, last in pairs)


class Listing:
    """The version files of a state: those listed at first, and those added since."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        found: dict[Kind, list[int]] = {"change": [], "snapshot": []}
        for version, kind in filter(None, map(parse_name, names)):
            found[kind].append(version)
        self._changes = deque(sorted(found["change"]))
        self._has_change = set(self._changes)
        self.snapshots = sorted(found["snapshot"])
        self._runs: list[list[int]] = []
        reached = 0
        whole = set(self.snapshots)
        for version in sorted(self._has_change | whole):
            if version in whole or version == reached + 1:
                self._note(version)
                reached = version

    @property
    def highest(self) -> int:
        """The newest version that has a file; 0 when there is none."""
        return max(self._changes[-1] if self._changes else 0, self.snapshots[-1] if self.snapshots else 0)

    @property
    def rebuildable(self) -> list[int]:
        """The versions that can be rebuilt, oldest first."""
        return [version for first, last in self._runs for version in range(first, last + 1)]

    @property
    def runs(self) -> str:
        """The versions that can be rebuilt, as text: "1-3, 7"."""
        return runs(self._runs)

    def can_rebuild(self, version: int) -> bool:
        """Whether a version can be rebuilt; the empty state always can."""
        return version == 0 or any(first <= version <= last for first, last in reversed(self._runs))

    def has_change(self, version: int) -> bool:
        """Whether a version has a change file."""
        return version in self._has_change

    def has_snapshot(self, version: int) -> bool:
        """Whether a version has a snapshot."""
        place = bisect.bisect_left(self.snapshots, version)
        return place < len(self.snapshots) and self.snapshots[place] == version

    def snapshot_below(self, version: int) -> int:
        """The newest snapshot at or below a version; 0, the empty state, when there is none."""
        place = bisect.bisect_right(self.snapshots, version)
        return self.snapshots[place - 1] if place else 0

    def oldest_kept(self, count: int) -> int:
        """The oldest of the newest `count` versions that can be rebuilt; 0 when there is none."""
        for first, last in reversed(self._runs):
            if count <= last - first + 1:
                return last - count + 1
            count -= last - first + 1
        return self._runs[0][0] if self._runs else 0

    def add(self, version: int, kind: Kind) -> None:
        """Note that a file was written."""
        if kind == "snapshot":
            if not self.has_snapshot(version):
                bisect.insort(self.snapshots, version)
        elif version not in self._has_change:
            self._changes.append(version)
            self._has_change.add(version)
        if not self.can_rebuild(version):
            self._note(version)

    def surplus(self, below: int, kept_from: int) -> list[tuple[int, Kind]]:
        """The files, oldest first, not needed to rebuild versions from `kept_from` on, given snapshot `below`."""
        changes = itertools.takewhile(lambda version: version <= below and version < kept_from, self._changes)
        found: list[tuple[int, Kind]] = [(version, "change") for version in changes]
        found += [(version, "snapshot") for version in self.snapshots if version < below]
        return sorted(found)

    def forget(self, below: int, kept_from: int) -> None:
        """Note that the surplus was removed: nothing below snapshot `below` can be rebuilt any more."""
        while self._changes and self._changes[0] <= below and self._changes[0] < kept_from:
            self._has_change.discard(self._changes.popleft())
        self.snapshots = [version for version in self.snapshots if version >= below]
        self._runs = [[max(first, below), last] for first, last in self._runs if last >= below]

    def _note(self, version: int) -> None:
        if self._runs and self._runs[-1][1] == version - 1:
            self._runs[-1][1] = version
        else:
            self._runs.append([version, version])
