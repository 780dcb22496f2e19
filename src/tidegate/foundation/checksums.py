"""crc32c of large buffers, beside threads that have something better to do.

The library computes 10 GB a second and holds Python's lock meanwhile. An engine that runs batches beside a thread which
writes a checkpoint gives the lock away dozens of times a batch, for each kernel, and each time waits until the thread
lets go of it. So the checksum of a large buffer is computed in pieces, and the lock is offered after each of them.
"""

from __future__ import annotations

import time

import google_crc32c
import pyarrow as pa

PIECE_SIZE = 128 << 10
"""What takes some 15 us: less than to wake the thread that waits."""


def extend(checksum: int, data: bytes | pa.Buffer) -> int:
    """The checksum of what `checksum` is that of, with `data` behind it."""
    size = len(data)
    if size <= PIECE_SIZE:
        return int(google_crc32c.extend(checksum, data))
    buffer = pa.py_buffer(data)
    for start in range(0, size, PIECE_SIZE):
        checksum = google_crc32c.extend(checksum, buffer.slice(start, min(PIECE_SIZE, size - start)))
        time.sleep(0)
    return checksum
