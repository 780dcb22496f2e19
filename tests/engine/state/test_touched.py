from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as some

from tidegate.engine.state.touched import SMALLEST, Touched

words = some.integers(-(2**63), 2**63 - 1)


@given(some.lists(some.lists(some.tuples(some.sampled_from([1, 2, 3, -(2**63), 2**63 - 1]), words), max_size=100)))
def test_every_key_that_was_added_is_there_once(parts: list[list[tuple[int, int]]]) -> None:
    touched = Touched(2)
    for part in parts:
        touched.add(np.array(sorted(set(part)), np.int64).reshape(-1, 2))
    found = [tuple(key) for key in touched.distinct().tolist()]
    assert len(found) == len(set(found)) and set(found) == {key for part in parts for key in part}


def test_what_it_takes_follows_the_rows_and_not_how_often_they_are_written() -> None:
    touched = Touched(1)
    for number in range(100_000):
        touched.add(np.array([[number % 10]]))
    assert len(touched._keys) <= 2 * SMALLEST
    assert touched.distinct()[:, 0].tolist() == list(range(10))
