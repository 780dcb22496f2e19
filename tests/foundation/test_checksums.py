"""A checksum in pieces is the checksum."""

from __future__ import annotations

import random

import google_crc32c
import pyarrow as pa
import pytest

from tidegate.foundation import checksums


@pytest.mark.parametrize("size", [0, 1, checksums.PIECE_SIZE, checksums.PIECE_SIZE + 1, 3 * checksums.PIECE_SIZE - 1])
def test_it_is_that_of_the_whole_wherever_pieces_end(size: int) -> None:
    data = random.Random(size).randbytes(size)
    seed = google_crc32c.value(b"what stands before it")
    assert checksums.extend(seed, data) == google_crc32c.extend(seed, data)
    assert checksums.extend(seed, pa.py_buffer(data)) == google_crc32c.extend(seed, data)
    writable = pa.allocate_buffer(size)
    memoryview(writable).cast("B")[:] = data
    assert checksums.extend(seed, writable) == google_crc32c.extend(seed, data)
