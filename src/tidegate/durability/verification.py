"""Checks a state: which files are as they were written, and which versions can be rebuilt from those.

    000000000001.change                 sound
    000000000002.change                 damaged at offset 512
    000000000003.change                 sound
    000000000004.change   .snapshot     sound
    head                                version 4

    wrong: 000000000002.change; versions 2 to 3 cannot be rebuilt       can be rebuilt: 1, 4

Checked are all bytes of all files; that they belong to one state; that each version names the hash of the one below,
and a snapshot that of the change beside it; that the newest version is not older than the head says; that the batches
of an applicant only grow, and that snapshots agree with the versions on what was applied. `deep` also rebuilds every
snapshot from the one before it and compares the rows, except where versions hold events: a remark says so.

Problems are collected, not raised. What looks odd and is not wrong is a remark: a history that begins later or
continues at a snapshot, as collections and incremental backups leave it, or a head that was lost with the power.

A state may be verified while a query runs on it. Files that are collected meanwhile make the check start again, without
reading sound files twice.

Invariant: a file that is called sound was read as a whole, and a version that is said to be there can be loaded, or
recovered where a damaged snapshot prevents loading (recovery.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tidegate.durability import files, head
from tidegate.durability.head import Head
from tidegate.durability.listing import Listing, file_name, parse_name, runs, spans
from tidegate.durability.row_changes import changes_between
from tidegate.durability.served import Served
from tidegate.durability.soundness import Checked, SoundReader, Told
from tidegate.durability.version_info import Kind, VersionInfo, require_successor
from tidegate.durability.version_reader import VersionReader
from tidegate.foundation.errors import RecoveryImpossible, StateDiverged, StorageFailed, TidegateError
from tidegate.foundation.storage import Storage

ATTEMPTS_MAX = 20
"""How often a check starts again because files were collected under it."""


@dataclass(frozen=True, slots=True)
class FileCheck:
    """One file: what it holds, and what is wrong with it (None: nothing)."""

    name: str
    rows: int
    size: int
    problem: str | None


@dataclass(frozen=True, slots=True)
class StateCheck:
    """All files of a state, what is wrong with the history that they form, and what is merely worth knowing.

    `rebuildable` are the versions that can be rebuilt, as pairs of a first and a last one; `readable` are those of
    them that take no program.
    """

    path: str
    state: str
    newest: int
    rebuildable: tuple[tuple[int, int], ...]
    files: tuple[FileCheck, ...]
    problems: tuple[str, ...]
    remarks: tuple[str, ...]
    readable: tuple[tuple[int, int], ...]

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems and all(file.problem is None for file in self.files)

    @property
    def runs(self) -> str:
        """The versions that can be rebuilt, as people read them."""
        return runs(self.rebuildable, " to ") or "none"


def check_state(
    storage: Storage, deep: bool = False, told: Told | None = None, started: Callable[[int], None] | None = None
) -> StateCheck:
    """Read and check all version files of a state.

    `started` is told how many bytes there are to read, `told` how many more were read.
    """
    checked: Checked = {}
    for _ in range(ATTEMPTS_MAX):
        try:
            return _Check(storage, checked).run(deep, told, started)
        except FileNotFoundError:  # collected meanwhile: what is there now is a later piece of the history
            continue
    raise StorageFailed(
        f"{storage.path}: files disappeared faster than they could be read, {ATTEMPTS_MAX} times. Run this again when "
        "less is written, or with a larger keep_versions."
    )


@dataclass(slots=True)
class _Check:
    """One pass over a state."""

    storage: Storage
    checked: Checked
    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    wrong: dict[str, str] = field(default_factory=dict)
    infos: dict[tuple[int, Kind], VersionInfo] = field(default_factory=dict)

    def run(self, deep: bool, told: Told | None, started: Callable[[int], None] | None) -> StateCheck:
        noted = head.read(self.storage)
        names = self.storage.list()
        versions = [(name, *parsed) for name in names if (parsed := parse_name(name))]
        reader = SoundReader(self.storage, names, self.checked)
        sizes = {name: self.storage.size(name) for name, _, _ in versions}
        if started is not None:
            started(sum(size for name, size in sizes.items() if name not in self.checked))
        for name, version, kind in versions:
            found = reader.check(version, kind, told)
            if isinstance(found, TidegateError):
                self._reject(reader, name, str(found))
            else:
                self.infos[version, kind] = found
        state = self._require_one_state(reader)
        self._compare_snapshots(reader)
        self._follow_links(reader)
        if deep:
            self._rebuild_snapshots(reader)
        readable = self._note_events(reader, deep)
        by_name = Listing(names)
        self._look_for_holes(reader.listing, by_name)
        self._compare_head(noted, names, by_name.highest)
        self._follow_served(reader)
        unknown = [name for name in names if not parse_name(name) and name != head.NAME and not _is_mark(name)]
        if unknown:
            self.remarks.append(f"not looked at, for no version is in it: {', '.join(unknown)}")
        rows = {name: self.infos.get((version, kind)) for name, version, kind in versions}
        checks = [
            FileCheck(name, sum(info.rows.values()) if info else 0, sizes[name], self.wrong.get(name))
            for name, info in rows.items()
        ]
        found_runs = spans(reader.listing.rebuildable)
        return StateCheck(
            self.storage.path,
            state,
            by_name.highest,
            found_runs,
            tuple(checks),
            tuple(self.problems),
            tuple(self.remarks),
            found_runs if readable is None else spans(readable),
        )

    def _reject(self, reader: SoundReader, name: str, problem: str) -> None:
        self.wrong.setdefault(name, problem)
        reader.leave_out(name)

    def _describe(self, version: int, kind: Kind) -> str:
        return files.described(self.storage, file_name(version, kind))

    def _require_one_state(self, reader: SoundReader) -> str:
        """That all files belong to the state that most of them name."""
        counts = Counter(info.state for info in self.infos.values())
        if not counts:
            return ""
        state = counts.most_common(1)[0][0]
        for (version, kind), info in list(self.infos.items()):
            if info.state != state:
                name = file_name(version, kind)
                self._reject(reader, name, f"a file of state {info.state}, the others are of state {state}")
                del self.infos[version, kind]
        return state

    def _compare_snapshots(self, reader: SoundReader) -> None:
        """That a snapshot is that of the version whose change stands beside it."""
        for version, kind in list(self.infos):
            change = self.infos.get((version, "change"))
            snapshot = self.infos.get((version, "snapshot"))
            if kind != "snapshot" or change is None or snapshot is None or change.hash == snapshot.hash:
                continue
            above = self.infos.get((version + 1, "change"))
            below = self._identity(version - 1)
            change_is_wrong = (
                above.parent == snapshot.hash if above else below is not None and change.parent != below.hash
            )
            wrong: Kind = "change" if change_is_wrong else "snapshot"
            found = (
                f"the snapshot is of a version {version} with the hash {snapshot.hash}, the change has {change.hash}"
            )
            self._reject(reader, file_name(version, wrong), f"{found}: the {wrong} does not belong here")
            del self.infos[version, wrong]

    def _identity(self, version: int) -> VersionInfo | None:
        return self.infos.get((version, "change")) or self.infos.get((version, "snapshot"))

    def _follow_links(self, reader: SoundReader) -> None:
        """That each version goes on from the one below."""
        for (version, kind), info in sorted(self.infos.items()):
            below = self._identity(version - 1)
            if kind != "change" or (below is None and version > 1):
                continue
            try:
                if below is not None:
                    require_successor(self._describe(version, "change"), info, below)
                elif info.parent:
                    raise StateDiverged(
                        f"{self._describe(1, 'change')}: the first version has one below: {info.parent}"
                    )
            except TidegateError as error:
                self.problems.append(str(error))
                reader.leave_out(file_name(version, "change"))

    def _rebuild_snapshots(self, reader: SoundReader) -> None:
        """That each snapshot has the rows that the one before it and the changes in between give."""
        for version in list(reader.listing.snapshots):
            start = reader.listing.snapshot_below(version - 1)
            needed = range(start + 1, version + 1)
            if not all(reader.listing.has_change(number) for number in needed):
                continue
            change = self.infos[version, "change"]
            if change.ran > max(start, change.whole):
                continue  # only a program could: `_note_events` says so
            differences = {}
            try:
                for layout in self.infos[version, "snapshot"].layouts:
                    rebuilt = reader.rows(layout, start, version)
                    found = changes_between(layout, rebuilt, reader.rows(layout, version, version)).num_rows
                    if found:
                        differences[layout.name] = found
            except RecoveryImpossible as error:
                raise FileNotFoundError from error
            if differences:
                rows = ", ".join(f"{count:,} of {name}" for name, count in differences.items())
                source = f"snapshot {start} and the changes" if start else "the changes"
                problem = f"its rows are not those that {source} up to {version} give; they differ in {rows}"
                self._reject(reader, file_name(version, "snapshot"), problem)

    def _note_events(self, reader: SoundReader, deep: bool) -> list[int] | None:
        """Which versions only a program can rebuild, and which snapshots were not compared for that reason.

        Returns the versions that take no program; None where none does.
        """
        held = [version for (version, kind), info in sorted(self.infos.items()) if kind == "change" and info.program]
        if not held:
            return None
        readable = reader.readable()
        self.remarks.append(
            f"{'versions' if len(held) > 1 else 'version'} {runs(spans(held))}: events in place of rows. Their files "
            "are checked; only the program that ran the events can rebuild what follows from them. Versions that can "
            f"be read without it: {runs(spans(readable)) or 'none'}"
        )
        skipped = [
            version
            for version in reader.listing.snapshots
            if (found := self.infos.get((version, "change")))
            and found.ran > max(reader.snapshot_below(version - 1), found.whole)
        ]
        if deep and skipped:
            self.remarks.append(f"not rebuilt, for that takes a program: snapshot {runs(spans(skipped))}")
        return readable

    def _look_for_holes(self, sound: Listing, by_name: Listing) -> None:
        there = sorted(
            {version for name in (*self.infos, *map(parse_name, self.wrong)) if name for version in name[:1]}
        )
        if not there:
            try:
                VersionReader(self.storage).load(None)  # raises, and says that there is no state here
            except TidegateError as error:
                self.problems.append(str(error))
            return
        missing = sorted(set(range(there[0], there[-1] + 1)) - set(sound.rebuildable))
        for first, last in spans(missing):
            told = f"version {first}" if first == last else f"versions {first} to {last}"
            empty = not any(first <= version <= last for version in there)
            resumes = by_name.has_snapshot(last + 1) and not by_name.has_change(last + 1)
            harmed = any(first <= parsed[0] <= last for name in self.wrong if (parsed := parse_name(name)))
            if empty and resumes:
                self.remarks.append(f"{told} are not here: the history goes on at snapshot {last + 1}")
            elif first == there[0] and last < there[-1] and not harmed:
                self.remarks.append(f"{told} cannot be rebuilt any more: what they began with was collected")
            else:
                self.problems.append(f"{told} cannot be rebuilt: {self._culprit(first, by_name)}")

    def _culprit(self, version: int, by_name: Listing) -> str:
        name = file_name(version, "change")
        if name in self.wrong:
            return f"{name} is damaged or not the right one"
        if not by_name.has_change(version):
            return f"{name} is missing"
        return f"{name} does not go on from a version that can be rebuilt"

    def _compare_head(self, noted: Head | None, names: Iterable[str], highest: int) -> None:
        if noted is None:
            found = "cannot be read" if head.NAME in names else "is not there"
            self.remarks.append(f"the head {found}: were the newest version lost, nobody would notice")
            return
        newest, same = self._identity(highest), self._identity(noted.version)
        if newest is None and highest >= noted.version:
            return  # the newest one is damaged, which is told already
        try:
            head.require_reached(self.storage, newest, noted)
        except StateDiverged as error:
            self.problems.append(str(error))
            return
        if same is not None and same.hash != noted.hash:
            self.problems.append(
                f"the head names version {noted.version} with the hash {noted.hash}, the one that is there has "
                f"{same.hash}: it was exchanged for another copy"
            )

    def _follow_served(self, reader: SoundReader) -> None:
        """That batches of an applicant only grow, and that snapshots say the same of them as the versions do."""
        for first, last in spans(reader.listing.rebuildable):
            served = Served()
            for version in range(first, last + 1):
                change = None
                if reader.listing.has_change(version) and (version > first or version == 1):
                    change = self.infos[version, "change"]
                    self._require_growth(served, change)
                    served.add(change)
                if reader.listing.has_snapshot(version):
                    self._compare_served(reader, version, None if change is None else served)
                    served = reader.served_in(version)

    def _require_growth(self, served: Served, info: VersionInfo) -> None:
        line = served.line(info.query) if info.query else None
        if line is not None and info.batch <= line.batch:
            made = f"version {line.version}" if line.version else "somebody who adopted it"
            self.problems.append(
                f"version {info.version} applied batch {info.batch} of {info.query}, but batch {line.batch} counts as "
                f"applied already, by {made}"
            )

    def _compare_served(self, reader: SoundReader, version: int, expected: Served | None) -> None:
        name = file_name(version, "snapshot")
        told = reader.served_in(version)
        late = [line for line in told.lines().values() if line.version > version]
        if late:
            self.problems.append(f"{name} says of {len(late)} applicants that later versions than its own served them")
        if expected is not None and (told.lines(), told.horizon) != (expected.lines(), expected.horizon):
            self.problems.append(f"{name} says other batches were applied than the versions up to {version} say")


def _is_mark(name: str) -> bool:
    return name.endswith((".lock", ".released"))
