"""Which rows were written, compared with a model that keeps sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from tidegate.engine.state import touched as module
from tidegate.engine.state.touched import SMALLEST, Touched
from tidegate.foundation.jit import uncompiled

SLOTS = 12
words = some.sampled_from([1, 2, 3, -(2**63), 2**63 - 1])
steps = some.lists(
    some.one_of(
        some.tuples(some.just("write"), some.sets(some.integers(0, SLOTS - 1))),
        some.tuples(some.just("free"), some.tuples(some.integers(0, SLOTS - 1), some.tuples(words, words))),
        some.tuples(some.just("take"), some.none()),
    ),
    max_size=60,
)


@given(steps)
def test_every_row_that_was_written_is_there_once(steps: list[tuple[str, Any]]) -> None:
    touched, marks = Touched(2), np.zeros(SLOTS, np.bool_)
    slots: set[int] = set()
    gone: set[tuple[int, int]] = set()
    with uncompiled():
        for kind, value in steps:
            if kind == "write":
                new = np.array(sorted(slot for slot in value if not marks[slot]), np.int64)
                marks[new] = True
                touched.add(new)
                touched.reduce(marks)
                slots |= value
            elif kind == "free" and marks[value[0]]:
                marks[value[0]] = False
                touched.add_gone(np.array([value[1]]))
                slots.discard(value[0])
                gone.add(value[1])
            elif kind == "take":
                assert bool(touched) == bool(slots or gone)
                keys, found = touched.gone_keys(), touched.take(marks)
                assert len(found) == len(slots) and set(found.tolist()) == slots
                assert len(keys) == len(gone) and set(map(tuple, keys.tolist())) == gone
                assert not touched and not marks.any()
                slots, gone = set(), set()


def test_what_it_takes_follows_the_rows_and_not_how_often_they_come_and_go() -> None:
    touched, marks = Touched(1), np.zeros(SMALLEST, np.bool_)
    for number in range(20_000):
        slot = np.array([number % 10])
        marks[slot] = True
        touched.add(slot)
        touched.reduce(marks)
        touched.add_gone(slot[:, None])
        marks[slot] = False
    assert touched._slots <= 3 * len(marks) and len(touched._gone) <= 2 * SMALLEST
    keys, slots = touched.gone_keys(), touched.take(marks)
    assert len(slots) == 0 and keys[:, 0].tolist() == list(range(10))


def test_nothing_is_copied_when_more_rows_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST", 256)
    touched, marks = Touched(1), np.ones(100_000, np.bool_)
    touched.add(np.arange(50_000))
    before = [id(array) for array in touched._full]
    touched.add(np.arange(50_000, 100_000))
    assert [id(array) for array in touched._full[: len(before)]] == before
    assert np.array_equal(touched.take(marks), np.arange(100_000))
