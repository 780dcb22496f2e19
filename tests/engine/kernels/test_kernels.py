"""Every kernel is a plain loop: run as Python it fills the same arrays as compiled."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidegate.engine.kernels import events, index, strings
from tidegate.engine.state.strings import string_buffers, words_of

MODULES = (events, index, strings)


def kernels(module: ModuleType) -> dict[str, Any]:
    """The kernels that a module defines."""
    return {
        name: value
        for name, value in vars(module).items()
        if hasattr(value, "py_func") and value.py_func.__module__ == module.__name__
    }


def an_index(words: int, capacity: int = 64, rows: int = 40) -> tuple[Any, ...]:
    """An index with some keys in it, a few slots free, made by the kernels themselves."""
    made = (
        np.full(2 * capacity, -1, np.int64),
        np.zeros((capacity, words), np.int64),
        np.zeros(4, np.int64),
        np.zeros(capacity, np.int64),
        np.zeros(capacity, np.int64),
    )
    slots = np.zeros(rows, np.int64)
    index.resolve_all(made, some_keys(rows, words), 0, slots)
    exists = np.ones(capacity, np.bool_)
    exists[slots[::5]] = False
    index.remove_absent(made, exists, slots)
    made[2][index.FRESH] = 0
    return made


def some_keys(rows: int, words: int, seed: int = 3) -> Any:
    return np.random.default_rng(seed).integers(-(2**63), 2**63 - 1, (rows, words))


def some_events(rows: int) -> tuple[Any, Any, Any]:
    kinds = np.arange(rows, dtype=np.int16) % 3
    status = np.where(np.arange(rows) % 7 == 0, 5, 0).astype(np.int32)
    return kinds, status, np.array([True, False, True, False])


def wanted_keys(words: int) -> Any:
    return np.concatenate([some_keys(40, words), some_keys(10, words, seed=9)])


def a_pool(strings_max: int = 64) -> tuple[Any, ...]:
    return (
        np.full(2 * strings_max, -1, np.int64),
        np.zeros(strings_max + 1, np.int64),
        np.zeros(strings_max, np.uint64),
        np.zeros(256, np.uint8),
        np.zeros(2, np.int64),
    )


def a_filled_pool() -> tuple[Any, ...]:
    """A pool that holds some of the words, and one more."""
    made = a_pool()
    strings.intern(made, *string_buffers(pa.array(["ab", "abd", "xyz"])), 0, np.zeros(3, np.int64))
    return made


WORDS = string_buffers(pa.array(["ab", "", "abc", "ab", "é", "xyz", ""]))
NAMES = string_buffers(pa.array(["ab", "xyz"]))
OFFSETS = np.concatenate([[0], np.cumsum(np.arange(25) % 4)])

TEXT = np.frombuffer(b"a text of some twenty-eight..", np.uint8)
STARTS = np.array([0, 3, 5])
LONG = string_buffers(pa.array(["transferred", "transferrex", "transfer", "transferred"]))


def filled(names: Any) -> Any:
    """Names in a table that is not yet full."""
    offsets, data = names
    spans = zip(offsets[:-1], np.diff(offsets), strict=True)
    found = [strings.first_word(data, words_of(data), *span) for span in spans]
    table = (offsets, data, np.array(found, np.uint64), np.full(8, -1, np.int16))
    strings.place_names(table)
    return table


LONG_NAMES = filled(string_buffers(pa.array(["transferrer", "transferred"])))
STATUS, SIZES = np.array([1, 0, 2, 1, 0, 0, 0, 2, 0, 1], np.int32), np.array([0, 3, 2])
EIGHT_AND_TWO = np.array([0b01110010, 0b01], np.uint8)
PLACES = np.array([0, 3, 3, 5, 8, 8, 8, 8, 10, 10, 13], np.int32)

CASES: dict[str, Callable[[], list[tuple[Any, ...]]]] = {
    "scramble": lambda: [(np.int64(value),) for value in (0, 1, -1, 2**63 - 1, -(2**63))],
    "tag_of": lambda: [(some_keys(4, words), 2) for words in (1, 2, 3)],
    "probe_word": lambda: [(an_index(1)[0], np.uint64(63), key[0]) for key in wanted_keys(1)],
    "probe_words": lambda: [
        (an_index(2)[0], np.uint64(63), an_index(2)[1], wanted_keys(2), row) for row in range(0, 50, 3)
    ],
    "find": lambda: [
        (an_index(words)[0], np.uint64(63), an_index(words)[1], wanted_keys(words), row)
        for words in (1, 2)
        for row in range(0, 50, 7)
    ],
    "add": lambda: (
        [(an_index(words), some_keys(5, words, seed=9), 2) for words in (1, 3)]
        + [(an_index(1, capacity=16, rows=12), some_keys(5, 1, seed=9), 0)]
    ),
    "resolve_all": lambda: [(an_index(words), wanted_keys(words), 5, np.zeros(50, np.int64)) for words in (1, 2)],
    "resolve_events": lambda: [
        (an_index(words), wanted_keys(words), 0, some_events(50), np.zeros(8, np.int64), np.zeros(50, np.int64))
        for words in (1, 2)
    ],
    "resolve_lists": lambda: [
        (an_index(words), wanted_keys(words), 0, some_events(25), OFFSETS, np.zeros(50, np.int64)) for words in (1, 2)
    ],
    "find_all": lambda: [(an_index(words), wanted_keys(words), np.zeros(50, np.int64)) for words in (1, 2)],
    "rebuild": lambda: [((np.full(256, -1, np.int64), *an_index(2)[1:4], listed(an_index(2))),)],
    "remove_absent": lambda: [
        (an_index(words, rows=44), np.arange(64) % 3 == 0, np.array([0, 1, 2, 2, 5, 9, 40])) for words in (1, 2)
    ],
    "list_slots": lambda: [(an_index(1)[0], np.zeros(64, np.int64))],
    "hash_bytes": lambda: [(WORDS[1], 0, 2), (WORDS[1], 3, 3)],
    "intern": lambda: [(a_pool(), *WORDS, 0, np.zeros(7, np.int64)), (a_pool(3), *WORDS, 1, np.zeros(7, np.int64))],
    "find_texts": lambda: [(a_filled_pool(), *WORDS, np.zeros(7, np.int64))],
    "fill_buckets": lambda: [(np.full(16, -1, np.int64), np.arange(1, 9, dtype=np.uint64) * np.uint64(77), 8)],
    "first_word": lambda: (
        [(TEXT, words_of(TEXT), start, size) for start in (0, 3, 8, 20) for size in (0, 1, 5, 8)]
        + [(TEXT, words_of(TEXT), 2, 20)]
    ),
    "name_place": lambda: [(np.uint64(0x7265), size, np.uint64(7)) for size in (0, 2, 9)],
    "place_names": lambda: [((*LONG_NAMES[:3], np.full(size, -1, np.int16)),) for size in (4, 16)],
    "is_name": lambda: [(name, LONG_NAMES, LONG[1], 0, 11, LONG_NAMES[2][0]) for name in (0, 1)],
    "match_names": lambda: [
        (*WORDS, words_of(WORDS[1]), filled(NAMES), np.zeros(7, np.int16)),
        (WORDS[0].astype(np.int32), WORDS[1], words_of(WORDS[1]), filled(NAMES), np.zeros(7, np.int16)),
        (*LONG, words_of(LONG[1]), LONG_NAMES, np.zeros(4, np.int16)),
    ],
    "place_reasons": lambda: [
        (STATUS[:count], SIZES, np.zeros(2, np.uint8), np.zeros(count + 1, np.int32)) for count in (0, 7, 8, 10)
    ],
    "copy_reasons": lambda: [(STATUS, EIGHT_AND_TWO, STARTS, TEXT, PLACES, np.zeros(13, np.uint8))],
    "hash_rows": lambda: [(*WORDS, np.zeros(7, np.uint64))],
    "refuse_marked": lambda: [(some_events(30), np.arange(30) % 2 == 0, 9)],
    "touched_rows": lambda: [(some_events(30), np.arange(30) % 11, np.zeros(11, np.bool_), np.zeros(40, np.int64), 2)],
    "touched_list_rows": lambda: [
        (some_events(25), OFFSETS, np.arange(50) % 13, np.zeros(13, np.bool_), np.zeros(60, np.int64), 0)
    ],
    "take_marked": lambda: [(np.array([3, 0, 3, 1, 4, 1]), np.array([True, False, False, True, True]))],
    "is_strictly_increasing": lambda: [(np.array(values),) for values in ([1, 2, 3], [1, 1, 2], [2, 1], [1.5], [7, 7])],
}


def listed(made: tuple[Any, ...]) -> Any:
    slots = np.zeros(64, np.int64)
    index.list_slots(made[0], slots)
    return slots


@pytest.mark.parametrize("name", sorted({name for module in MODULES for name in kernels(module)}))
def test_a_kernel_run_as_python_does_what_it_does_compiled(name: str) -> None:
    kernel = next(kernels(module)[name] for module in MODULES if name in kernels(module))
    assert inspect.signature(kernel.py_func).parameters
    for arguments in CASES[name]():
        compiled, plain = copy.deepcopy(arguments), copy.deepcopy(arguments)
        with np.errstate(all="ignore"):
            expected, got = kernel.py_func(*plain), kernel(*compiled)
        assert (got is None and expected is None) or int(got) == int(expected)
        assert_same_arrays(compiled, plain)


def assert_same_arrays(first: Any, second: Any) -> None:
    if isinstance(first, tuple):
        for one, other in zip(first, second, strict=True):
            assert_same_arrays(one, other)
    elif isinstance(first, np.ndarray):
        np.testing.assert_array_equal(first, second)
