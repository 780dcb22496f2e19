r"""The bytes of one segment of the command log, and what a crash may leave of them.

    000000000042.log
    offset 0    magic "TIDELOG\0"                         8 bytes
           8    format number                            4 bytes, little endian like all numbers
          12    where the header ends                    4 bytes
          16    crc32c of bytes 0-15 and of the header   4 bytes
          20    header: JSON (ASCII), filled up with spaces to a multiple of 512
     header's   frame, frame, frame ...                  back to back; each is what one write appended
          end   zeros                                    space that was allocated ahead, or nothing

    a frame     form      1 byte        small            medium           large
                length    of payload    1 byte           2 bytes          8 bytes
                in flight in bytes      0, not written   4 bytes          8 bytes
                chain     4 bytes       crc32c of all forms, lengths and payloads so far, seeded by the header's crc32c
                check     4 bytes       crc32c of the above and of the frame's place in this segment
                payload   1 byte at least
                mark      1 byte        A5

and besides, the last byte of every sector of 512 bytes is a mark, too. It belongs to no payload:

    offset   505  506  507  508  509  510  511 | 512  513  514
             form  3  [ chain  and  check   A5 |      ]  p  ...

So each piece of a frame in each sector ends in a mark, which is never zero. "In flight" are the bytes right before the
frame that no finished sync covered when it was written: the frame witnesses that everything before them was synced.

**What a crash leaves.** Everything that was synced is there. Of the frames in flight there is

  a prefix      all bytes up to some point, zeros or the end of the file behind it: a process killed in mid-write; or
  some sectors  each sector holds its bytes up to the end of some frame in it, or all, or none, zeros behind them: power
                failed, and pages of the file went to disk in any order, each as it was after some write.

             synced         | in flight                                     the reader says
    written  [ a ][ b ]       [ c     :      :   ][ d  :   ]
    crash    [ a ][ b ]       [ c     :  ----------------------             torn at c: a prefix
    crash    [ a ][ b ]       [ c     :------:   ][ d  :   ]                torn at c: a sector is missing
    damage   [ a ][ b ]       [ c   x :      :   ][ d  :   ]                damaged at c: no piece of it is missing
    damage   [ a ]-----       [ c     :      :   ][ d  :   ]                damaged at b: c witnesses that b was synced

**Torn or damaged.** Reading follows the chain to the first frame that does not pass, at p. If only zeros follow, the
log ends there. Otherwise p is torn if one of the two lines above explains all that lies behind it:

  a prefix      the bytes from p to the last that is not zero are the beginning of a frame: its form, a head that passes
                its check where it is complete, marks at the ends of sectors; the frame's own end mark is missing.
  some sectors  each sector from p on is zero, or its last byte that is not zero is a mark; of the frame at p each piece
                is wholly zero or ends in its mark, and one at least is zero; its head, if there, passes its check.

and no frame behind p witnesses that p was synced. Everything else is damage, even what two crashes at once might leave
(a process killed in mid-write, and power that fails before that write is on disk): better to ask a person than to drop
what somebody was told is safe.

A flipped bit leaves all pieces of a frame where they are, and turns no mark and no form into zero or into one another
(they differ in four bits or more), so it is always damage, in the last synced frame as in the zeros behind it.
What nobody can tell: the last synced frame with a sector wiped to zeros, and no frame behind it, looks like one that
was never synced, and so do frames wiped as a whole. Checkpoints and the `parent` of the next segment know better.

Invariants: what `frames` gives are whole frames in the order in which they were written, none missing in between. A
state that the two lines describe is never reported as damage, and costs no frame that was synced.

Duties of the writer: the header is synced, and the file has its name, before the first frame is written. A writer that
continues a segment first cuts off a torn tail, else old pieces would stand among new ones after the next crash, and
syncs the segment, since whole frames may never have been synced.

Not here: what a payload means (commands.py), files and syncs.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import google_crc32c
import numpy as np

from tidegate.durability.scratch import Scratch
from tidegate.foundation.errors import RecoveryImpossible, StorageCorrupted
from tidegate.foundation.storage import Bytes

FORMAT = 1
MAGIC = b"TIDELOG\0"
SECTOR_SIZE = 512
"""What a disk writes as a whole. One with larger sectors leaves whole groups of these."""

MARK = 0xA5
"""Ends every piece of a frame. It differs in four bits or more from zero and from all forms."""

_SMALL, _MEDIUM, _LARGE = 0x53, 0x6C, 0x9A
_FORMS = {_SMALL: struct.Struct("<BB"), _MEDIUM: struct.Struct("<BHI"), _LARGE: struct.Struct("<BQQ")}
_SMALL_MAX, _MEDIUM_MAX, _IN_FLIGHT_MEDIUM_MAX = (1 << 8) - 1, (1 << 16) - 1, (1 << 32) - 1

_PREAMBLE = struct.Struct("<8sIII")
_CHECKED = 16  # the part of the preamble that its checksum covers
_CHECKSUM = struct.Struct("<I")
_PLACE = struct.Struct("<Q")
_MARK = bytes([MARK])
_ROOM = SECTOR_SIZE - 1  # what a sector holds besides its mark
_ZEROS = bytes(1 << 18)
_SECTORS_AT_ONCE = 16  # from here on marks are set in all sectors at once: 0.02 ms for 1,000 of them instead of 0.5


@dataclass(frozen=True, slots=True)
class Segment:
    """What a segment says of itself.

    `first` is the version that its first command makes, `parent` the hash of what it goes on from: `End.hash` of the
    segment before, or that of a checkpoint. `transactions` lists names and parameters by number, so that commands can
    be shown without the program (`commands.signatures`).
    """

    state: str
    epoch: int
    first: int
    parent: str
    program: str
    transactions: list[Any]
    created_at: float

    @property
    def name(self) -> str:
        """The name of the segment's file."""
        return f"{self.first:012d}.log"


@dataclass(frozen=True, slots=True)
class End:
    """Where the next frame goes, and the chain that it extends."""

    offset: int
    chain: int

    @property
    def hash(self) -> str:
        """Names everything in the segment up to here."""
        return f"{self.chain:08x}"


@dataclass(frozen=True, slots=True)
class Header:
    """A segment's header with its checksum; `end` is where the first frame starts."""

    segment: Segment
    checksum: int
    end: int

    @property
    def start(self) -> End:
        """Where the first frame goes."""
        return End(self.end, self.checksum)


@dataclass(frozen=True, slots=True)
class Frame:
    """A whole frame: where it starts, what it holds, and the end of the log when it was the last."""

    offset: int
    payload: bytes
    end: End


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a segment: frames go on at `end`.

    Of a torn tail something is left behind `end`, up to `remains_until`: cut it off before anything is appended.
    """

    end: End
    torn: bool
    remains_until: int


# --- writing ----------------------------------------------------------------------------------------------------


def encode_header(segment: Segment) -> tuple[Header, bytes]:
    """A new segment: its header, and the bytes with which its file begins."""
    text = json.dumps(asdict(segment), separators=(",", ":")).encode("ascii")
    end = -(-(_PREAMBLE.size + len(text)) // SECTOR_SIZE) * SECTOR_SIZE
    text = text.ljust(end - _PREAMBLE.size)
    start = _PREAMBLE.pack(MAGIC, FORMAT, end, 0)[:_CHECKED]
    checksum = google_crc32c.value(start + text)
    return Header(segment, checksum, end), start + _CHECKSUM.pack(checksum) + text


def encode_frame(
    header: Header, end: End, synced: int, payload: Bytes, scratch: Scratch | None = None
) -> tuple[Bytes, End]:
    """The bytes to append at `end`, at first `header.start`, and the end behind them.

    `synced` is the offset up to which finished syncs cover the file; the bytes of a large frame are put into `scratch`.
    """
    offset, size = end.offset, len(payload)
    in_flight = offset - synced
    assert size and in_flight >= 0, f"a frame of {size} bytes at {offset}, synced up to {synced}"
    if in_flight == 0 and size <= _SMALL_MAX:
        fields = _FORMS[_SMALL].pack(_SMALL, size)
    elif size <= _MEDIUM_MAX and in_flight <= _IN_FLIGHT_MEDIUM_MAX:
        fields = _FORMS[_MEDIUM].pack(_MEDIUM, size, in_flight)
    else:
        fields = _FORMS[_LARGE].pack(_LARGE, size, in_flight)
    chain: int = google_crc32c.extend(google_crc32c.extend(end.chain, fields), payload)
    start = fields + _CHECKSUM.pack(chain)
    check = google_crc32c.extend(header.checksum, _PLACE.pack(_first_place(offset)) + start)
    data = _with_marks(offset, start + _CHECKSUM.pack(check), payload, scratch or Scratch())
    return data, End(offset + len(data), chain)


def _with_marks(offset: int, start: bytes, payload: Bytes, scratch: Scratch) -> Bytes:
    """A frame's content with marks where sectors end, and one behind it; which may be one and the same."""
    room, size = _ROOM - offset % SECTOR_SIZE, len(start) + len(payload)
    if size <= room:
        return b"".join((start, payload, _MARK))
    sectors, rest = divmod(size - room, _ROOM)
    if sectors < _SECTORS_AT_ONCE or room < len(start):
        content = b"".join((start, payload))
        view = memoryview(content)
        pieces = [view[:room], *(view[at : at + _ROOM] for at in range(room, len(content), _ROOM))]
        return _MARK.join(pieces) + _MARK
    given, out = np.frombuffer(payload, np.uint8), scratch.take(size + sectors + 1 + (rest > 0))
    first, filled = room - len(start), size - len(start) - rest
    out[: len(start)] = np.frombuffer(start, np.uint8)
    out[len(start) : room], out[room] = given[:first], MARK
    whole = out[room + 1 : room + 1 + sectors * SECTOR_SIZE].reshape(sectors, SECTOR_SIZE)
    whole[:, :_ROOM] = given[first:filled].reshape(sectors, _ROOM)
    whole[:, _ROOM] = MARK
    if rest:
        out[room + 1 + sectors * SECTOR_SIZE : -1], out[-1] = given[filled:], MARK
    return out.data


# --- reading ----------------------------------------------------------------------------------------------------


def decode_header(file: str, data: Bytes) -> Header:
    """The header of the segment that `data` is the beginning of; `file` is its name in messages."""
    view = memoryview(data)
    magic = bytes(view[: len(MAGIC)])
    if magic != MAGIC:
        raise _corrupted(file, 0, f"the mark {MAGIC!r} of a log segment", repr(magic))
    if len(view) < _PREAMBLE.size:
        raise _corrupted(file, len(view), f"{_PREAMBLE.size} bytes before the header", f"the file's end at {len(view)}")
    _, number, end, stored = _PREAMBLE.unpack(view[: _PREAMBLE.size])
    if end < _PREAMBLE.size or end % SECTOR_SIZE:
        raise _corrupted(file, 12, f"a header that ends at a multiple of {SECTOR_SIZE}", str(end))
    if len(view) < end:
        raise _corrupted(file, len(view), f"a header of {end} bytes", f"the file's end after {len(view)}")
    text = bytes(view[_PREAMBLE.size : end])
    checksum = google_crc32c.extend(google_crc32c.value(bytes(view[:_CHECKED])), text)
    if checksum != stored:
        raise _corrupted(file, 0, f"header checksum {stored:08x}", f"{checksum:08x}")
    if number != FORMAT:
        raise RecoveryImpossible(
            f"{file}: written in log format {number}, this Tidegate reads format {FORMAT}. "
            "Use the version of Tidegate that wrote it, or a newer one."
        )
    return Header(Segment(**json.loads(text)), checksum, end)


def frames(file: str, data: Bytes, header: Header | None = None, start: End | None = None) -> Iterator[Frame | Tail]:
    """The frames of a segment, one after the other, and its tail as the last; damage raises `StorageCorrupted`.

    `data` is the whole file, `file` its name in messages, `start` the end of the frame to continue behind.
    """
    if header is None:
        header = decode_header(file, data)
    reader = _Reader(file, memoryview(data).cast("B"), header.checksum)
    end = start or header.start
    while (frame := reader.frame_at(end)) is not None:
        yield frame
        end = frame.end
    yield reader.tail(end)


@dataclass(slots=True)
class _Head:
    """A head that passed its check: the frame's bytes in this segment lie from its offset to `stop`."""

    fields: bytes
    size: int
    in_flight: int
    chain: int
    payload_at: int
    stop: int


class _Reader:
    """Reads frames of one segment; beyond the end of the file all bytes are taken for zeros."""

    def __init__(self, file: str, view: memoryview, seed: int) -> None:
        self._file, self._view, self._seed = file, view, seed

    def frame_at(self, end: End) -> Frame | None:
        """The frame at an offset, if it is whole."""
        head = self._head_at(end.offset)
        if head is None or not self._marks_are_there(end.offset, head.stop):
            return None
        payload = self._content(head.payload_at, head.size)
        if self._chain(end, head, payload) != head.chain:
            return None
        return Frame(end.offset, payload, End(head.stop, head.chain))

    def tail(self, end: End) -> Tail:
        """What an offset is at which there is no whole frame: the end, a torn frame, or damage, which raises."""
        last = self._last_byte(end.offset)
        if last < end.offset:
            return Tail(end, False, end.offset)
        if not (self._is_prefix(end.offset, last) or self._misses_sectors(end.offset, last)):
            raise _corrupted(self._file, end.offset, *self._complaint(end, last))
        witness = self._witness(end.offset, last)
        if witness is not None:
            found = f"a part of it missing, while the frame at offset {witness} witnesses that it was synced"
            raise _corrupted(self._file, end.offset, "a whole frame", found)
        return Tail(end, True, last + 1)

    # --- parts of a frame ---

    def _head_at(self, offset: int) -> _Head | None:
        place = _first_place(offset)
        form = self._form_at(place)
        if form is None:
            return None
        size = form.size + 2 * _CHECKSUM.size
        head = self._content(place, size)
        if len(head) < size:
            return None
        start, check = head[: -_CHECKSUM.size], head[-_CHECKSUM.size :]
        if _CHECKSUM.pack(google_crc32c.extend(self._seed, _PLACE.pack(place) + start)) != check:
            return None
        _, payload_size, in_flight = (*form.unpack_from(start), 0)[:3]
        (chain,) = _CHECKSUM.unpack_from(start, form.size)
        payload_at, stop = _behind(place, size), _behind(place, size + payload_size) + 1
        return _Head(start[: form.size], payload_size, in_flight, chain, payload_at, stop)

    def _form_at(self, place: int) -> struct.Struct | None:
        return _FORMS.get(self._view[place]) if place < len(self._view) else None

    def _content(self, at: int, size: int) -> bytes:
        """Bytes of frames from an offset on, without the marks of sectors; fewer where the file ends."""
        at = _first_place(at)
        room = _ROOM - at % SECTOR_SIZE
        if size <= room:
            return bytes(self._view[at : at + size])
        pieces = [self._view[at : at + room]]
        at, size = at + room + 1, size - room
        pieces += [self._view[at : at + _ROOM] for at in range(at, at + size // _ROOM * SECTOR_SIZE, SECTOR_SIZE)]
        at += size // _ROOM * SECTOR_SIZE
        return b"".join([*pieces, self._view[at : at + size % _ROOM]])

    def _marks_are_there(self, start: int, stop: int) -> bool:
        """Whether a frame's own mark, and those of the sectors that it reaches, are what they must be."""
        return stop <= len(self._view) and self._view[stop - 1] == MARK and self._sectors_are_marked(start, stop)

    def _sectors_are_marked(self, start: int, stop: int) -> bool:
        marks = bytes(self._view[_sector_of(start) + _ROOM : stop : SECTOR_SIZE])
        return marks.count(_MARK) == len(marks)

    @staticmethod
    def _chain(end: End, head: _Head, payload: bytes) -> int:
        return int(google_crc32c.extend(google_crc32c.extend(end.chain, head.fields), payload))

    # --- what a crash may leave ---

    def _last_byte(self, start: int) -> int:
        """The offset of the last byte that is not zero; `start - 1` if there is none from `start` on."""
        stop = len(self._view)
        while stop > start:
            begin = max(start, stop - len(_ZEROS))
            chunk = bytes(self._view[begin:stop])
            if chunk != _ZEROS[: len(chunk)]:  # comparing is the fast way to pass over space that was allocated ahead
                return begin + len(chunk.rstrip(b"\0")) - 1
            stop = begin
        return start - 1

    def _is_prefix(self, offset: int, last: int) -> bool:
        """Whether all that lies behind an offset may be the beginning of one frame."""
        if not self._sectors_are_marked(offset, last + 1):
            return False
        place = _first_place(offset)
        form = self._form_at(place)
        if form is None:
            return place > last
        if last < _behind(place, form.size + 2 * _CHECKSUM.size) - 1:
            return True
        head = self._head_at(offset)
        return head is not None and last < head.stop - 1

    def _misses_sectors(self, offset: int, last: int) -> bool:
        """Whether sectors that are missing, all or from the end of a frame on, explain what lies behind an offset."""
        for start in _sectors(offset, last + 1):
            piece = self._piece(start)
            if piece and piece[-1] != MARK:
                return False
        place = _first_place(offset)
        form = self._form_at(place)
        head_size = 1 if form is None else form.size + 2 * _CHECKSUM.size
        if not all(self._piece(start) for start in _sectors(offset, _behind(place, head_size))):
            return True
        head = self._head_at(offset)
        if head is None:
            return False
        missing = False
        for start in _sectors(offset, head.stop):
            if not self._piece(start):
                missing = True
            elif self._byte(min(_sector_of(start) + _ROOM, head.stop - 1)) != MARK:
                return False
        return missing

    def _witness(self, offset: int, last: int) -> int | None:
        """The offset of a frame that was written when the one at `offset` had been synced; None if none is found."""
        for place in self._places(offset, last):
            if (head := self._head_at(place)) is not None and place - 1 - head.in_flight > offset:
                return place
        return None

    def _places(self, offset: int, last: int) -> Iterator[int]:
        """Where frames may start: behind a mark, or where a sector does."""
        for start in _sectors(offset, last + 1):
            if start > offset:
                yield start
            piece, at = self._piece(start), -1
            while (at := piece.find(_MARK, at + 1)) >= 0:
                if 0 < (start + at + 1) % SECTOR_SIZE < _ROOM:  # else the next sector's start is the place
                    yield start + at + 1

    def _piece(self, start: int) -> bytes:
        """What stands from an offset to its sector's end, without zeros behind it."""
        return bytes(self._view[start : _sector_of(start) + SECTOR_SIZE]).rstrip(b"\0")

    def _byte(self, offset: int) -> int:
        return self._view[offset] if offset < len(self._view) else 0

    def _complaint(self, end: End, last: int) -> tuple[str, str]:
        """What was expected where damage is, and what was found."""
        head = self._head_at(end.offset)
        if head is None:
            found = bytes(self._view[end.offset : end.offset + 16]).hex(" ")
            return "a frame, zeros, or what a crash leaves of a frame", f"{found} .. up to offset {last}"
        if not self._marks_are_there(end.offset, head.stop):
            return f"a frame of {head.stop - end.offset} bytes with its marks", "marks that no crash leaves so"
        chain = self._chain(end, head, self._content(head.payload_at, head.size))
        return f"checksum {head.chain:08x} of a frame of {head.stop - end.offset} bytes", f"{chain:08x}"


# --- offsets ----------------------------------------------------------------------------------------------------


def _sector_of(offset: int) -> int:
    return offset - offset % SECTOR_SIZE


def _sectors(start: int, stop: int) -> Iterator[int]:
    """Where the piece in each sector starts, of what lies between two offsets."""
    if start < stop:
        yield start
        yield from range(_sector_of(start) + SECTOR_SIZE, stop, SECTOR_SIZE)


def _first_place(offset: int) -> int:
    """Where the first byte of what is written at an offset goes: not where a sector has its mark."""
    return offset + 1 if offset % SECTOR_SIZE == _ROOM else offset


def _behind(place: int, size: int) -> int:
    """The offset right behind `size` bytes that start at a place, marks of sectors not counted."""
    last = _sector_of(place) // SECTOR_SIZE * _ROOM + place % SECTOR_SIZE + size - 1
    return last // _ROOM * SECTOR_SIZE + last % _ROOM + 1


def _corrupted(file: str, offset: int, expected: str, found: str) -> StorageCorrupted:
    return StorageCorrupted(
        f"{file}: damaged at offset {offset}: expected {expected}, found {found}. Restore the file from a backup, or "
        "give up what was done since: `tidegate recover PATH --to VERSION` goes on from a version before the damage."
    )
