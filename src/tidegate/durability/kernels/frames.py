"""Walks the frames of a log segment: checks each of them, and copies the payloads back to back, without marks.

    file       ... [ form size chain check p p p A5 ][ form size chain check p p A5 | p p p A5 ] ...
    payloads   ppp ppppp ...                                 (the mark of a sector) ^
    bounds     0   3     8 ...

log_format.py describes the layout of a frame and its checks. Only the small and the medium form are handled here; the
large one is as fast in Python, because its payload takes longer than its head.

The checksum is crc32c, eight bytes at a time by eight tables: table t gives the contribution of a byte that is
followed by t more bytes. A frame of 20 bytes takes 70 ns.

Invariant: a frame that passes here also passes in log_format.py, as the same frame. A frame that does not pass is not
judged here: the walk ends before it, and the Python reader decides.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.foundation.jit import kernel

SMALL, MEDIUM = 0x53, 0x6C
FRAME_SIZE_MIN = 12
PAYLOAD_SIZE_MAX = (1 << 16) - 1
"""The smallest frame has a head of 10 bytes, one of payload and its mark; the largest payload is a medium frame's."""

OFFSET, CHAIN = 0, 1
"""The position of a walk: the next frame's offset, and the chain that it extends."""

HEAD_ROOM = 32
_MARK = 0xA5
_PLACE_SIZE, _CHECKSUMS_SIZE = 8, 8
_SMALL_FIELDS, _MEDIUM_FIELDS = 2, 7
_SECTOR_BITS, _ROOM = 9, 511
_ALL = 0xFFFFFFFF
_POLYNOMIAL = 0x82F63B78


def _tables() -> npt.NDArray[Any]:
    found = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        found[0, byte] = crc
    for table in range(1, 8):
        before = found[table - 1]
        found[table] = before >> 8 ^ found[0, before & 0xFF]
    return found


_BEHIND_0, _BEHIND_1, _BEHIND_2, _BEHIND_3, _BEHIND_4, _BEHIND_5, _BEHIND_6, _BEHIND_7 = _tables()


@kernel
def extend_checksum(checksum, data, start, stop):  # type: ignore[no-untyped-def]
    """Extend a crc32c by the bytes from `start` to `stop`; the checksum of no bytes is 0."""
    crc = np.int64(checksum) ^ _ALL
    at = start
    while at + 8 <= stop:
        crc = np.int64(
            _BEHIND_7[crc & 0xFF ^ data[at]]
            ^ _BEHIND_6[crc >> 8 & 0xFF ^ data[at + 1]]
            ^ _BEHIND_5[crc >> 16 & 0xFF ^ data[at + 2]]
            ^ _BEHIND_4[crc >> 24 ^ data[at + 3]]
            ^ _BEHIND_3[data[at + 4]]
            ^ _BEHIND_2[data[at + 5]]
            ^ _BEHIND_1[data[at + 6]]
            ^ _BEHIND_0[data[at + 7]]
        )
        at += 8
    if at + 4 <= stop:
        crc = np.int64(
            _BEHIND_3[crc & 0xFF ^ data[at]]
            ^ _BEHIND_2[crc >> 8 & 0xFF ^ data[at + 1]]
            ^ _BEHIND_1[crc >> 16 & 0xFF ^ data[at + 2]]
            ^ _BEHIND_0[crc >> 24 ^ data[at + 3]]
        )
        at += 4
    while at < stop:
        crc = crc >> 8 ^ np.int64(_BEHIND_0[crc & 0xFF ^ data[at]])
        at += 1
    return crc ^ _ALL


@kernel
def copy_content(data, at, size, content_out, to):  # type: ignore[no-untyped-def]
    """Copy bytes of frames without the sectors' marks; returns the offset after them, -1 if a mark is wrong.

    All of them must be within the file.
    """
    while size > 0:
        inside = at & _ROOM
        if inside == _ROOM:
            if data[at] != _MARK:
                return np.int64(-1)
            at += 1
            inside = 0
        piece = min(size, _ROOM - inside)
        for position in range(piece):
            content_out[to + position] = data[at + position]
        at += piece
        to += piece
        size -= piece
    return np.int64(at)


@kernel
def number_at(data, at, size):  # type: ignore[no-untyped-def]
    """The number that `size` bytes encode, little-endian."""
    number = np.int64(0)
    for byte in range(size):
        number |= np.int64(data[at + byte]) << (8 * byte)
    return number


@kernel
def walk_frames(data, seed, limit, standing, head, payloads_out, bounds_out, stops_out, chains_out):  # type: ignore[no-untyped-def]
    """Read frames up to one that does not pass, or that starts at or after `limit`; returns how many.

    Args:
        data: the whole file.
        seed: the checksum of the segment's header.
        limit: see above.
        standing: the position where the walk starts; on return, where it ended (`OFFSET`, `CHAIN`).
        head: room for `HEAD_ROOM` bytes.
        payloads_out: the payloads, with room for all bytes up to the limit and one payload more.
        bounds_out: where each payload starts, and the last one ends.
        stops_out: the offset after each frame.
        chains_out: the chain after each frame.
    """
    offset, chain, to, count = standing[OFFSET], standing[CHAIN], np.int64(0), 0
    bounds_out[0] = 0
    while offset < limit:
        place = offset
        if offset & _ROOM == _ROOM:
            if data[offset] != _MARK:
                break
            place = offset + 1
        if place >= data.shape[0]:
            break
        form = data[place]
        if form != SMALL and form != MEDIUM:
            break
        fields = _SMALL_FIELDS if form == SMALL else _MEDIUM_FIELDS
        if place + fields + _CHECKSUMS_SIZE + 2 > data.shape[0]:
            break
        for byte in range(_PLACE_SIZE):
            head[byte] = place >> (8 * byte) & 0xFF
        at = copy_content(data, place, fields + _CHECKSUMS_SIZE, head, _PLACE_SIZE)
        chain_at = _PLACE_SIZE + fields
        if at < 0 or extend_checksum(seed, head, 0, chain_at + 4) != number_at(head, chain_at + 4, 4):
            break
        size = number_at(head, _PLACE_SIZE + 1, 1 if form == SMALL else 2)
        last = (place >> _SECTOR_BITS) * _ROOM + (place & _ROOM) + fields + _CHECKSUMS_SIZE + size - 1
        behind = last // _ROOM * (_ROOM + 1) + last % _ROOM + 1
        if behind >= data.shape[0] or data[behind] != _MARK:
            break
        if copy_content(data, at, size, payloads_out, to) < 0:
            break
        found = extend_checksum(extend_checksum(chain, head, _PLACE_SIZE, chain_at), payloads_out, to, to + size)
        if found != number_at(head, chain_at, 4):
            break
        offset, chain, to = behind + 1, found, to + size
        stops_out[count] = offset
        chains_out[count] = chain
        count += 1
        bounds_out[count] = to
    standing[OFFSET], standing[CHAIN] = offset, chain
    return count
