from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.os_scheduling.normalization import STEP, Normalization, to_nice, to_weight

WAYS: tuple[Normalization, ...] = ("linear", "logarithmic", "ratio")
FULL = (-20, 19)
some = st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=12)


def test_the_example_of_the_docstring() -> None:
    priorities = {1: 1, 10: 10, 100: 100}
    assert list(to_nice(priorities, "linear", FULL).values()) == [19, 15, -20]
    assert list(to_nice(priorities, "logarithmic", FULL).values()) == [19, 0, -20]
    assert list(to_nice(priorities, "ratio", FULL).values()) == [1, -10, -20]


@pytest.mark.parametrize("how", WAYS)
@given(some, st.sampled_from([FULL, (0, 19), (-5, 5)]))
def test_nice_values_fit_their_range_and_keep_the_order(
    how: Normalization, drawn: list[float], span: tuple[int, int]
) -> None:
    values = to_nice(dict(enumerate(drawn)), how, span)
    assert all(span[0] <= value <= span[1] for value in values.values())
    ordered = [values[index] for index in sorted(values, key=lambda index: drawn[index])]
    assert all(one >= other for one, other in pairwise(ordered))


@pytest.mark.parametrize("how", WAYS)
@given(some)
def test_weights_fit_their_range_and_keep_the_order(how: Normalization, drawn: list[float]) -> None:
    values = to_weight(dict(enumerate(drawn)), how, (2, 1000), neutral=100)
    assert all(2 <= value <= 1000 * (1 + 1e-9) for value in values.values())
    ordered = [values[index] for index in sorted(values, key=lambda index: drawn[index])]
    assert all(one <= other for one, other in pairwise(ordered))


@given(st.lists(st.floats(1, 1000), min_size=2, max_size=8, unique=True))
def test_ratio_gives_processor_time_in_proportion_to_the_priorities(drawn: list[float]) -> None:
    values = to_nice(dict(enumerate(drawn)), "ratio", FULL)
    top = max(range(len(drawn)), key=drawn.__getitem__)
    for index, value in values.items():
        wanted = drawn[top] / drawn[index]
        assert STEP ** (value - values[top]) == pytest.approx(wanted, rel=STEP**0.5 - 1 + 1e-9)
    weights = to_weight(dict(enumerate(drawn)), "ratio", (1, 100_000), neutral=1)
    assert all(weights[top] / weights[index] == pytest.approx(drawn[top] / drawn[index]) for index in weights)


@pytest.mark.parametrize("how", WAYS)
def test_equal_priorities_change_nothing(how: Normalization) -> None:
    assert to_nice({"a": 7, "b": 7}, how, FULL) == {"a": 0, "b": 0}
    assert to_nice({"a": 7}, how, (5, 19)) == {"a": 5}
    assert to_weight({"a": 7, "b": 7}, how, (2, 5000), neutral=1024) == {"a": 1024, "b": 1024}


@pytest.mark.parametrize("how", WAYS)
def test_nothing_to_normalize_is_nothing(how: Normalization) -> None:
    assert to_nice({}, how, FULL) == {} == to_weight({}, how, (1, 2), neutral=1)
