"""The segments of a state's command log: which follow a checkpoint, and whether each continues the one before.

    checkpoint        covers commands 1 to 700, the log's hash there is 5d01
    000000000701.log  begins with command 701, continues 5d01, ends with 7f2a
    000000000950.log  begins with command 950, continues 7f2a

A segment that is missing, or that does not continue the one before, is an error that names the file: its commands were
acknowledged.

Invariant: `following` gives all commands that were logged behind the checkpoint, in the order of their execution, each
once. Only the last segment may have a torn tail, since a segment is synced before the next one is started.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from tidegate.durability.files import described
from tidegate.durability.log_format import Header, Tail, decode_header
from tidegate.durability.log_reading import Payloads, scan
from tidegate.durability.version_info import VersionInfo
from tidegate.foundation.errors import RecoveryImpossible, StateDiverged, StorageCorrupted
from tidegate.foundation.storage import Storage


@dataclass(slots=True)
class OpenSegment:
    """A segment that is being read; `tail` is known when all of its frames were."""

    file: str
    name: str
    header: Header
    data: pa.Buffer
    tail: Tail | None = None

    @property
    def hash(self) -> str:
        """Names everything that was logged up to the segment's end; an empty segment adds nothing to it."""
        assert self.tail is not None, "a segment is read to its end"
        return self.tail.end.hash if self.tail.end.offset > self.header.end else self.header.segment.parent

    def pieces(self) -> Iterator[Payloads]:
        """What the frames hold, many at a time; damage raises `StorageCorrupted`."""
        for part in scan(self.file, self.data, self.header):
            if isinstance(part, Tail):
                self.tail = part
            else:
                yield part

    def payloads(self) -> Iterator[bytes]:
        """What each frame holds."""
        return (piece.payload(number) for piece in self.pieces() for number in range(len(piece)))


def numbers(storage: Storage) -> list[int]:
    """The numbers of the first commands of all segments, in their order."""
    found = (re.fullmatch(r"([0-9]{12})\.log", name) for name in storage.list())
    return [int(match[1]) for match in found if match]


def open_segment(storage: Storage, first: int) -> OpenSegment:
    """The segment that begins with a command."""
    name = f"{first:012d}.log"
    file, data = described(storage, name), storage.read(name)
    header = decode_header(file, data)
    if header.segment.first != first:
        raise StorageCorrupted(
            f"{file}: damaged at offset 0: expected the log from command {first} on, found the one from command "
            f"{header.segment.first} on. It was renamed or copied: undo that."
        )
    return OpenSegment(file, name, header, data)


def require_covered(storage: Storage, newest: VersionInfo | None) -> None:
    """That no engine logged commands behind the newest version: continuing from there would lose them."""
    covered = 0 if newest is None else newest.commands
    for first in numbers(storage):
        if first > covered and next(open_segment(storage, first).payloads(), None) is not None:
            raise RecoveryImpossible(
                f"{storage.path}: commands of a tg.Engine were logged here and are in no checkpoint yet: the engine "
                "was not closed. Open the state once with that engine's program, tg.Engine(..., directory=...), and "
                "close it: that writes a checkpoint."
            )


def following(storage: Storage, newest: VersionInfo | None, counted: dict[str, int]) -> Iterator[OpenSegment]:
    """The segments behind a checkpoint, in their order; each must be read to its end before the next is asked for.

    The reader says in `counted` how many commands it found in a segment, by the segment's name.
    """
    first, parent = (1, "") if newest is None else (newest.commands + 1, newest.log)
    there = [number for number in numbers(storage) if number >= first]
    if there and there[0] != first:
        raise StateDiverged(
            f"{storage.path}: commands from {first} to {there[0] - 1} were logged here, and {first:012d}.log is "
            "missing. Put it back from a backup. To go on without what is missing, go back to the newest checkpoint: "
            f"tidegate recover {storage.path} --into ANOTHER_PATH"
        )
    for place, number in enumerate(there):
        segment = open_segment(storage, number)
        if number != first:
            raise StorageCorrupted(
                f"{segment.file}: expected the log from command {first} on, found the one from command {number} on: "
                "one of the log's files was exchanged for another copy. Put the right one back from a backup."
            )
        if segment.header.segment.parent != parent or (newest and segment.header.segment.state != newest.state):
            raise StorageCorrupted(
                f"{segment.file}: damaged at offset 0: expected a log that goes on from {parent or 'nothing'} in state "
                f"{newest.state if newest else ''}, found one from {segment.header.segment.parent} in state "
                f"{segment.header.segment.state}. It belongs to another state, or one of the two was exchanged for "
                "another copy: put the right one back from a backup."
            )
        yield segment
        assert segment.tail is not None, "a segment is read to its end"
        if segment.tail.torn and place + 1 < len(there):
            raise StorageCorrupted(
                f"{segment.file}: damaged at offset {segment.tail.end.offset}: expected frames up to command "
                f"{there[place + 1] - 1}, found a torn one. Restore the file from a backup."
            )
        first, parent = number + counted[segment.name], segment.hash


def other_program(storage: Storage, segment: OpenSegment) -> RecoveryImpossible:
    """The error for a segment that another program than this one wrote."""
    return RecoveryImpossible(
        f"{segment.file}: its commands were logged by another program than this one, and only that one gives the "
        "same rows when they are run again. Open the state once with the program that wrote it and close the "
        "engine: that writes a checkpoint, from which any program can go on. To go on from the newest checkpoint, "
        f"without the commands behind it: tidegate recover {storage.path} --into ANOTHER_PATH"
    )
