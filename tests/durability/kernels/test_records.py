from __future__ import annotations

import inspect
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tidegate.durability.kernels import records
from tidegate.engine.state.strings import read_only

INT, FLOAT, BOOL, STR, LIST = records.INT, records.FLOAT, records.BOOL, records.STR, records.LIST
STEPS = [
    [(INT, 0, 0), (FLOAT, 1, 0), (BOOL, 2, 0), (STR, 3, 0)],
    [(LIST, 0, 2), (INT, 0, 0), (STR, 1, 0), (INT, 0, 0), (LIST, 1, 1), (BOOL, 3, 0)],
]
NO_STEPS = 2
DOUBLE = struct.pack("<d", -0.0)
FIRST = b"\x00" + b"\xf4\x03" + DOUBLE + b"\x01" + b"\x02ab"
SECOND = b"\x08" + b"\x02" + b"\x02\x01x" + b"\x01\x00" + b"\x05" + b"\x03\x00\x01\x00"
LARGEST = b"\x00" + b"\xfe" + b"\xff" * 8 + b"\x01" + DOUBLE + b"\x00" + b"\x00"
SMALLEST = b"\x00" + b"\xff" * 9 + b"\x01" + DOUBLE + b"\x00" + b"\x00"
UNUSUAL = [
    b"\x01", b"\x04", b"\x10", b"\x18", b"\x80\x80\x80", b"\xff" * 9 + b"\x01", b"\x00" + b"\xff" * 9 + b"\x02",
    FIRST[:-1], FIRST[:-4], FIRST[:9], FIRST[:-4] + b"\x02", FIRST[:-4] + b"\x01\x7f", SECOND[:-1], SECOND[:-5],
    b"\x08" + b"\x7f", b"\x08" + b"\xff" * 9 + b"\x01", b"\x00" + b"\x02" + DOUBLE + b"\x01" + b"\xff" * 9 + b"\x01",
]  # fmt: skip


def as_array(data: bytes) -> Any:
    return read_only(np.frombuffer(data, np.uint8))


def program() -> tuple[Any, Any]:
    first, steps = [], []
    for own in STEPS:
        first.append(len(steps))
        steps += [*own, (-1, 0, 0)]
    return np.array([*first, -1], np.int64), np.array(steps, np.int64)


def columns(rows: int = 8) -> tuple[Any, ...]:
    return (
        np.zeros(rows, np.int32),
        np.zeros((5, rows), np.int64),
        np.zeros((4, 64), np.int64),
        np.zeros((2, rows + 1), np.int64),
    )


def decoded(read: Any, payloads: list[bytes], rows: int = 8, limits: tuple[int, int] = (1000, 100)) -> list[Any]:
    found, standing = columns(rows), np.zeros(4, np.int64)
    bounds = read_only(np.concatenate([[0], np.cumsum([len(payload) for payload in payloads])]).astype(np.int64))
    count = read(as_array(b"".join(payloads)), bounds, limits, program(), standing, found)
    return [int(count), standing.tolist(), *(array.tolist() for array in found)]


@pytest.mark.parametrize("unusual", UNUSUAL, ids=bytes.hex)
def test_decoding_stops_before_a_record_that_is_not_plain_and_leaves_no_word_of_it(unusual: bytes) -> None:
    before = [FIRST + SECOND, LARGEST]
    found = decoded(records.read_calls, [*before, FIRST + unusual])
    assert found == decoded(records.read_calls.py_func, [*before, FIRST + unusual])
    size = len(b"".join(before) + FIRST)
    assert found[:2] == [4, [2, size, 1, 1]]
    assert [row[4:] for row in found[3]] == [[0] * 4] * 5


def test_values_go_into_their_columns() -> None:
    found = decoded(records.read_calls, [FIRST, SECOND + SMALLEST, LARGEST])
    assert found == decoded(records.read_calls.py_func, [FIRST, SECOND + SMALLEST, LARGEST])
    count, standing, kinds, words, items, ends = found
    data = FIRST + SECOND + SMALLEST + LARGEST
    assert (count, standing) == (4, [3, len(data), 0, 0])
    assert kinds[:4] == [0, 1, 0, 0]
    assert words[0][:4] == [250, -3, -(2**63), 2**63 - 1]
    assert words[1][:4] == [-(2**63), 0, -(2**63), -(2**63)]
    assert words[2][:4] == [1, 0, 0, 0]
    assert data[words[3][0] :][: words[4][0]] == b"ab"
    assert ends[0][:5] == [0, 0, 2, 2, 2] and ends[1][:5] == [0, 0, 3, 3, 3]
    assert items[0][:2] == [1, -1] and items[3][:3] == [0, 1, 0]
    assert data[items[1][0] :][: items[2][0]] == b"x" and items[2][1] == 0


@pytest.mark.parametrize(("rows", "limits"), [(2, (1000, 100)), (8, (20, 100)), (8, (1000, 14)), (8, (1000, 15))])
def test_rows_and_bytes_have_limits(rows: int, limits: tuple[int, int]) -> None:
    payloads = [FIRST * 3, SECOND]
    found = decoded(records.read_calls, payloads, rows, limits)
    assert found == decoded(records.read_calls.py_func, payloads, rows, limits)
    assert found[0] == {(2, 1000): 2, (8, 20): 2}.get((rows, limits[0]), 0 if limits[1] == 14 else 4)
    assert found[1][3] == (limits[1] == 14)


DATA = as_array(FIRST + SECOND)
CASES: dict[str, Callable[[], list[tuple[Any, ...]]]] = {
    "read_word": lambda: [
        (as_array(data), 0, len(data))
        for data in (b"\x00", b"\xf4\x03", b"\xff" * 9 + b"\x01", b"\xff" * 9 + b"\x02", b"\x80", b"")
    ],
    "read_value": lambda: [
        (code, DATA, at, len(DATA), 1, 2, columns()[1])
        for code, at in ((INT, 1), (FLOAT, 3), (BOOL, 11), (STR, 12), (FLOAT, len(DATA) - 3), (BOOL, 1), (STR, 2))
    ],
    "read_list": lambda: [(DATA, len(FIRST) + 1, len(DATA), program()[1], 5, 3, *columns()[2:])],
    "read_call": lambda: [(DATA, at, len(DATA), program(), 3, columns()) for at in (0, 1, len(FIRST))],
    "place_spans": lambda: [(np.array([3, 0, 2]), np.zeros(4, np.int32))],
    "copy_spans": lambda: [(DATA, np.array([3, 0, 2]), np.array([0, 3, 3, 5], np.int32), np.zeros(5, np.uint8))],
}


@pytest.mark.parametrize("name", CASES)
def test_as_plain_python_every_kernel_fills_the_same_arrays(name: str) -> None:
    kernel = getattr(records, name)
    for compiled, plain in zip(CASES[name](), CASES[name](), strict=True):
        assert repr(_plain(kernel(*compiled))) == repr(_plain(kernel.py_func(*plain)))
        for one, other in zip(compiled, plain, strict=True):
            assert repr(one) == repr(other)


def _plain(value: Any) -> Any:
    return tuple(map(int, value)) if isinstance(value, tuple) else None if value is None else int(value)


def test_every_kernel_has_a_case() -> None:
    own = {
        name for name, found in vars(records).items() if hasattr(found, "py_func") and inspect.isroutine(found.py_func)
    }
    assert own - {"read_calls"} == set(CASES)
