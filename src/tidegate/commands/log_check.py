"""Checks every byte of a command log, that its segments go on from each other, and that a checkpoint fits them.

    checkpoint 7   covers commands 1 to 700, the log's hash there is 5d01
    000000000500.log   500 to 700    ends with 5d01      covered
    000000000701.log   701 to 949    goes on from 5d01   whole
    000000000950.log   950 to 961    goes on from 7f2a   whole, or torn: the last one may be

Damage is collected, not raised, so that one run shows all of it. A torn tail is not damage: a crash leaves it, nothing
in it was acknowledged, and the next engine truncates it. Commands that no segment holds are missing only behind the
newest checkpoint; before it they were removed, or never logged, as those of plain Python are.

An engine that runs at the same time makes checkpoints and removes the segments that they cover. So if something seems
wrong and there is a newer checkpoint than at the start, everything is checked again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from tidegate.commands.log_records import codec_of, decode
from tidegate.durability.log_format import Frame, Segment, frames
from tidegate.durability.log_segments import numbers, open_segment
from tidegate.durability.version_info import VersionInfo
from tidegate.durability.version_reader import VersionReader
from tidegate.foundation.errors import TidegateError
from tidegate.foundation.storage import Storage

ATTEMPTS_MAX = 5


@dataclass(frozen=True, slots=True)
class SegmentCheck:
    """One segment: what it says of itself, what it holds, and what is wrong with it (None: nothing).

    `commands` and `used` count what could be read: up to the damage, if there is any.
    """

    name: str
    first: int
    commands: int
    used: int
    size: int
    covered: bool
    torn: bool
    problem: str | None
    segment: Segment | None
    hash: str

    @property
    def next(self) -> int:
        """The command with which the next segment begins."""
        return self.first + self.commands


@dataclass(frozen=True, slots=True)
class LogCheck:
    """All segments of a log, the newest checkpoint, and what is wrong with how they follow each other."""

    segments: tuple[SegmentCheck, ...]
    checkpoint: VersionInfo | None
    problems: tuple[str, ...]

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems and all(segment.problem is None for segment in self.segments)


def check_log(storage: Storage) -> LogCheck:
    """Read and check all segments of a log; raises where there is no state at all."""
    for _ in range(ATTEMPTS_MAX - 1):
        before, found = _versions(storage), _check(storage)
        if found.sound or before == _versions(storage):
            return found
    return _check(storage)


def _versions(storage: Storage) -> list[int]:
    return VersionReader(storage).refresh()


def _check(storage: Storage) -> LogCheck:
    reader, problems = VersionReader(storage), list[str]()
    newest: VersionInfo | None = None
    there = numbers(storage)
    if not reader.refresh() and not there:
        reader.load(None)  # raises, and says that there is no state here
    try:
        newest = reader.newest()
    except TidegateError as error:
        problems.append(str(error))
    if newest is None and not problems and there:
        problems.append(
            f"{storage.path}: there is a log, and no version of the state: it belongs to none, or it is lost"
        )
    covered = newest.commands if newest is not None else 0
    segments = tuple(found for number in there if (found := _read(storage, number, covered)) is not None)
    problems += _breaks(storage, segments, newest)
    return LogCheck(segments, newest, tuple(problems))


def _read(storage: Storage, first: int, covered: int) -> SegmentCheck | None:
    """One segment, every frame of it; None when an engine has removed it."""
    name = f"{first:012d}.log"
    segment: Segment | None = None
    used, commands, torn, problem, found = 0, 0, False, None, ""
    try:
        size = storage.size(name)
        opened = open_segment(storage, first)
        segment, codec = opened.header.segment, codec_of(opened.header.segment)
        used, found = opened.header.end, segment.parent
        for part in frames(opened.file, opened.data, opened.header):
            if isinstance(part, Frame):
                records = decode(segment, part, codec, first + commands - 1)
                commands, used, found = records[-1].number - first + 1, part.end.offset, part.end.hash
            else:
                torn = part.torn
    except FileNotFoundError:
        return None
    except TidegateError as error:
        text = str(error)
        problem = text if name in text else f"{storage.path}/{name}: damaged at offset {used}: {text}"
    covers = first + max(commands, 1) - 1 <= covered
    return SegmentCheck(name, first, commands, used, size, covers, torn, problem, segment, found)


def _breaks(storage: Storage, segments: tuple[SegmentCheck, ...], newest: VersionInfo | None) -> Iterator[str]:
    """What is wrong between sound segments, and between them and the newest checkpoint."""
    covered = newest.commands if newest is not None else 0
    for one, other in pairwise(segments):
        if one.problem or other.problem or one.segment is None or other.segment is None:
            continue  # what it held is not known
        if one.torn:
            yield f"{storage.path}/{one.name}: torn at offset {one.used}, and it is not the last segment"
        if other.first < one.next:
            yield f"{storage.path}/{other.name}: begins with a command that {one.name} holds, too"
        elif other.first > one.next and other.first > covered + 1:
            yield _missing(storage, max(one.next, covered + 1), other.first)
        elif other.first == one.next and other.segment.parent != one.hash:
            yield _foreign(storage, other, f"the log's hash {one.hash or 'of nothing'}", other.segment.parent)
    behind = [segment for segment in segments if segment.first > covered]
    if behind and behind[0].first > covered + 1 and behind[0] is segments[0]:
        yield _missing(storage, covered + 1, behind[0].first)
    if newest is None:
        return
    for segment in segments:
        if segment.segment is None or segment.problem:
            continue
        if segment.segment.state != newest.state:
            yield _foreign(storage, segment, f"state {newest.state}", segment.segment.state)
        elif segment.first <= covered < segment.next - 1:
            yield f"{storage.path}/{segment.name}: checkpoint {newest.version} ends inside of it, at command {covered}"
        elif segment.commands and segment.next == covered + 1 and segment.hash != newest.log:
            yield _foreign(
                storage, segment, f"checkpoint {newest.version}, which the hash {newest.log} names", segment.hash
            )
        elif segment.first == covered + 1 and segment.segment.parent != newest.log:
            yield _foreign(storage, segment, f"the log's hash {newest.log or 'of nothing'}", segment.segment.parent)


def _missing(storage: Storage, first: int, following: int) -> str:
    return (
        f"{storage.path}: commands from {first} to {following - 1} are in no checkpoint, and {first:012d}.log, which "
        "held them, is missing: put it back from a backup"
    )


def _foreign(storage: Storage, segment: SegmentCheck, expected: str, found: str) -> str:
    return (
        f"{storage.path}/{segment.name}: damaged at offset 0: expected one that fits {expected}, found "
        f"{found or 'nothing'}: it belongs to another state, or was exchanged for another copy"
    )
