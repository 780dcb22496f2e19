from __future__ import annotations

import random
from typing import Any

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from tidegate.durability import log_format
from tidegate.durability.kernels import frames
from tidegate.durability.kernels.frames import copy_content, extend_checksum, number_at, walk_frames
from tidegate.engine.state.strings import read_only

from ..test_log_format import SEGMENT, Written


def as_array(data: bytes) -> Any:
    return read_only(np.frombuffer(data, np.uint8))


@given(some.binary(max_size=70), some.binary(max_size=70))
def test_a_checksum_is_the_one_that_the_library_computes(first: bytes, second: bytes) -> None:
    data = as_array(first + second)
    checksum = extend_checksum(0, data, 0, len(first))
    assert checksum == google_crc32c.value(first)
    assert extend_checksum(checksum, data, len(first), len(data)) == google_crc32c.value(first + second)


def test_a_checksum_of_many_bytes_is_the_one_that_the_library_computes() -> None:
    data = random.Random(1).randbytes(100_003)
    for start in range(8):
        found = extend_checksum(7, as_array(data), start, len(data))
        assert found == google_crc32c.extend(7, data[start:])
        assert extend_checksum.py_func(7, as_array(data), start, start + 99) == google_crc32c.extend(
            7, data[start : start + 99]
        )


def test_the_forms_and_sizes_are_those_of_the_log_format() -> None:
    assert {frames.SMALL, frames.MEDIUM} == {log_format._SMALL, log_format._MEDIUM}
    assert frames._MARK == log_format.MARK and frames._ROOM + 1 == log_format.SECTOR_SIZE == 1 << frames._SECTOR_BITS
    assert frames.PAYLOAD_SIZE_MAX == log_format._MEDIUM_MAX
    smallest = len(Written([(b"x", True)]).data) - log_format.encode_header(SEGMENT)[0].end
    assert smallest == frames.FRAME_SIZE_MIN


def walked(walk: Any, written: Written, data: bytes, limit: int) -> list[Any]:
    outputs = [np.zeros(len(data), np.uint8), *(np.zeros(100, np.int64) for _ in range(3))]
    standing = np.array([written.header.end, written.header.checksum], np.int64)
    head = np.zeros(frames.HEAD_ROOM, np.uint8)
    count = walk(as_array(data), written.header.checksum, limit, standing, head, *outputs)
    return [int(count), standing.tolist(), head.tolist(), *(array.tolist() for array in outputs)]


@pytest.mark.parametrize("cut", [0, 1, 30])
def test_the_walk_as_plain_python_fills_the_same_arrays(cut: int) -> None:
    sizes = [30, 460, 3, 495, 600, 1, 25, 1100, 12, 491, 500, 1, 2, 70]
    written = Written((bytes([n + 1, 0, 0xA5]) * size, n % 3 > 0) for n, size in enumerate(sizes))
    data = written.data[: len(written.data) - cut]
    for limit in (len(data), written.header.end + 700, written.header.end):
        compiled = walked(walk_frames, written, data, limit)
        assert walked(walk_frames.py_func, written, data, limit) == compiled
        assert compiled[0] == sum(end.offset < limit for end in written.ends[:-1]) - (cut > 0 and limit == len(data))


def test_copying_and_reading_numbers_as_plain_python_is_the_same() -> None:
    data = as_array(bytes([1, 2, 255]) * 400 + bytes([0xA5]) * 800)
    for at, size in ((0, 10), (500, 100), (505, 6), (511, 1), (1500, 100), (1000, 900)):
        found = [np.zeros(1000, np.uint8), np.zeros(1000, np.uint8)]
        assert copy_content(data, at, size, found[0], 3) == copy_content.py_func(data, at, size, found[1], 3)
        assert np.array_equal(*found)
    for size in range(5):
        assert (
            number_at(data, 1, size) == number_at.py_func(data, 1, size) == int.from_bytes(data[1 : 1 + size], "little")
        )
