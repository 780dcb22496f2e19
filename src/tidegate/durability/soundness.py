"""Which files of a state are sound, and which versions follow from those alone.

    000000000001.change       sound
    000000000002.change       damaged                       1           from change 1
    000000000003.change       sound                         -           change 2 is damaged
    000000000003.snapshot     sound                         3, 4        from snapshot 3
    000000000004.change       sound, on top of 3

A file is checked once, as a whole, when it is needed. A reader of sound files treats the others as missing, and starts
at an older snapshot where the nearest one is damaged.

Invariant: rows come only from files whose every byte was compared with its checksum, in one chain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from tidegate.durability import files
from tidegate.durability.listing import Listing, file_name, parse_name
from tidegate.durability.served import Served
from tidegate.durability.stored_rows import fold
from tidegate.durability.version_info import Kind, VersionInfo, from_header, require_successor
from tidegate.durability.version_reader import SERVED, VersionReader
from tidegate.foundation.errors import TidegateError
from tidegate.foundation.storage import Storage
from tidegate.operations.layout import TableLayout

Checked = dict[str, VersionInfo | TidegateError]

Told = Callable[[int], None]
"""Is told how many bytes more were read."""


def check_file(storage: Storage, name: str, told: Told | None = None) -> VersionInfo:
    """What a version file says, after each of its bytes was checked; raises what is wrong with it."""
    parsed = parse_name(name)
    assert parsed is not None
    header = files.read_header(storage, name)
    info = from_header(files.described(storage, name), *parsed, header)
    for piece in files.read_pieces(storage, name, header):
        if told is not None:
            told(piece.size)
    return info


class SoundReader(VersionReader):
    """A state of which only sound files count."""

    def __init__(self, storage: Storage, names: Iterable[str], checked: Checked | None = None) -> None:
        super().__init__(storage)
        self._names = [name for name in names if parse_name(name)]
        self._listing = Listing(self._names)
        self._checked: Checked = {} if checked is None else checked

    def refresh(self) -> list[int]:
        """What can be rebuilt by the names that are left; nothing is listed again."""
        self._listing = Listing(self._names)
        return self._listing.rebuildable

    @property
    def listing(self) -> Listing:
        """The files that are not known to be unsound."""
        return self._listed()

    @property
    def damage(self) -> list[str]:
        """What was found to be wrong so far."""
        return [f"{found}" for found in self._checked.values() if isinstance(found, TidegateError)]

    def check(self, version: int, kind: Kind, told: Told | None = None) -> VersionInfo | TidegateError:
        """What a file says, or what is wrong with it; a file that is not there raises FileNotFoundError."""
        name = file_name(version, kind)
        if name not in self._checked:
            try:
                self._checked[name] = check_file(self.storage, name, told)
            except TidegateError as error:
                self._checked[name] = error
        return self._checked[name]

    def leave_out(self, name: str) -> None:
        """Take a file for missing."""
        self._names.remove(name)
        self.refresh()

    def start_of(self, version: int) -> int | None:
        """The newest snapshot (0: the empty state) from which sound files lead to a version; None if there is none."""
        for start in [*reversed([s for s in self.listing.snapshots if s <= version]), 0]:
            if self._leads(start, version):
                return start
        return None

    def _leads(self, start: int, version: int) -> bool:
        """Whether all files between a snapshot and a version are there, sound, and one chain."""
        if any(not self.listing.has_change(number) for number in range(start + 1, version + 1)):
            return False
        below = self.check(start, "snapshot") if start else None
        for number in range(start + 1, version + 1):
            info = self.check(number, "change")
            if isinstance(info, TidegateError) or isinstance(below, TidegateError):
                return False
            try:
                if below is not None:
                    require_successor(self._file(number, "change"), info, below)
            except TidegateError:
                return False
            below = info
        return not isinstance(below, TidegateError)

    def rows(self, layout: TableLayout, start: int, version: int) -> pa.Table:
        """The rows of a table at a version, from a snapshot (0: the empty state) and the changes after it."""
        steps = self._replay(start, version, [layout])
        return fold(layout, (step.changes[layout.name] for step in steps if layout.name in step.changes))

    def served_in(self, version: int) -> Served:
        """What a snapshot says was served."""
        info, header = self._read_info(version, "snapshot"), self._read_header(version, "snapshot")
        for section in header.sections:
            if section.kind == SERVED:
                name = file_name(version, "snapshot")
                return Served.from_table(files.read_section(self.storage, name, header, section))
        served = Served()
        served.add(info)
        return served
