"""Which rows expire next: compared with a list that is searched, and counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.engine.kernels.deadlines import pop_below, push_earlier
from tidegate.engine.state.deadlines import Deadlines
from tidegate.foundation.jit import uncompiled
from tidegate.operations.layout import Kind

TIMES = {Kind.INT: st.integers(-20, 20), Kind.FLOAT: st.sampled_from([-1.5, 0.0, -0.0, 2.5, 7.0, np.inf, np.nan])}
Array = npt.NDArray[Any]


@pytest.mark.parametrize("kind", [Kind.INT, Kind.FLOAT])
@given(data=st.data())
def test_rows_come_out_once_when_the_limit_has_passed_their_earliest_time(kind: Kind, data: st.DataObject) -> None:
    with uncompiled():
        deadlines, earliest, limit = Deadlines(kind), dict[int, Any](), -30
        for _ in range(data.draw(st.integers(1, 30))):
            rows = data.draw(st.lists(st.tuples(st.integers(0, 9), TIMES[kind]), max_size=6))
            slots, times = np.array([s for s, _ in rows], np.int64), np.array([t for _, t in rows], kind.dtype)
            deadlines.add(slots, times, 10)
            for slot, time in rows:
                if time == time and time < earliest.get(slot, np.inf):
                    earliest[slot] = time
            limit = max(limit, data.draw(st.integers(-25, 25)))
            out = {slot for slot, time in earliest.items() if time < limit}
            taken = deadlines.take_below(limit).tolist()
            assert sorted(taken) == sorted(out)
            earliest = {slot: time for slot, time in earliest.items() if slot not in out}


def test_the_queue_stays_as_small_as_the_table_when_rows_go_back_in_time_again_and_again() -> None:
    deadlines = Deadlines(Kind.INT)
    slots = np.arange(40)
    for time in range(2000, 0, -1):
        deadlines.add(slots, np.full(40, time), 40)
    assert len(deadlines._times) <= 8 * 40
    assert sorted(deadlines.take_below(2).tolist()) == slots.tolist()
    assert len(deadlines.take_below(10_000)) == 0


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_kernels_fill_the_same_arrays_compiled_and_as_plain_python(dtype: Any) -> None:
    random = np.random.default_rng(5)
    found = []
    for push, pop in ((push_earlier, pop_below), (push_earlier.py_func, pop_below.py_func)):
        random = np.random.default_rng(5)
        times, slots, first = np.zeros(500, dtype), np.zeros(500, np.int64), np.full(50, 1000, dtype)
        popped, count = np.zeros(30, np.int64), 0
        for limit in range(5, 60, 5):
            new = random.integers(0, 70, 20).astype(dtype)
            count = push(times, slots, count, first, new, random.integers(0, 50, 20))
            count, taken = pop(times, slots, count, first, dtype(1000), dtype(limit), popped)
            found.append((count, taken, popped.tolist(), times.tolist(), first.tolist()))
    half = len(found) // 2
    assert found[:half] == found[half:]


class Counting(list[Any]):
    """A list that counts how often it is looked at."""

    looks = 0

    def __getitem__(self, place: Any) -> Any:
        Counting.looks += 1
        return super().__getitem__(place)


@pytest.mark.parametrize("rows", [10, 100_000])
def test_taking_out_three_rows_looks_at_a_few_of_them(rows: int) -> None:
    """A binary heap looks at two children on each level; a hundred thousand rows have 17 levels."""
    times = Counting(range(rows))  # what is sorted is a heap
    slots, first = Counting(range(rows)), Counting(range(rows))
    Counting.looks = 0
    count, taken = pop_below.py_func(times, slots, rows, first, 10**9, 3, np.zeros(64, np.int64))
    assert (count, taken) == (rows - 3, 3)
    assert Counting.looks < 3 * 8 * (17 + 1)
