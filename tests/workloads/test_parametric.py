from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.workloads import parametric
from tidegate.workloads.cost import burn
from tidegate.workloads.parametric import KEYS, OUTPUTS, Reading, Seal, Smoothed, Task


@given(st.integers(0, 2**40), st.integers(0, 300))
def test_the_closed_form_is_what_the_loop_gives(value: int, rounds: int) -> None:
    assert parametric.burned(value, rounds) == burn(value, rounds)


def test_operators_spend_their_rounds_on_values_and_seals() -> None:
    assert parametric.compute(Task(3, 7, 11)) == Task(3, 7, burn(11, 7))
    state = Seal(5)
    assert parametric.seal(state, Task(3, 7, 11)) == Task(3, 7, burn(16, 7)) and state == Seal(burn(16, 7))


def test_outputs_of_one_record_go_to_different_keys() -> None:
    out = parametric.spread(Task(KEYS - 1, 2, 9))
    assert len(out) == len({task.key for task in out}) == OUTPUTS == 50
    assert all(0 <= task.key < KEYS for task in out)
    assert [task.value - burn(9, 2) for task in out] == list(range(50))


def test_a_small_sigma_puts_most_keys_into_few_ranges() -> None:
    shares = []
    for sigma in (None, 1.0, 0.3, 0.1):
        key = parametric.tasks(20_000, rounds=1, sigma=sigma)["key"].to_numpy()
        assert key.min() >= 0 and key.max() < KEYS and abs(key.mean() - KEYS / 2) < 0.05 * KEYS
        counts = Counter(np.searchsorted(parametric.key_ranges(16), key, side="right").tolist())
        assert counts.keys() <= set(range(16))
        shares.append(max(counts.values()) / 20_000)
    assert shares[0] < 0.07 < shares[1] < 0.11 < shares[2] < 0.25 < shares[3] < 0.5


def test_ranges_have_the_same_width() -> None:
    assert parametric.key_ranges(1) == () and parametric.key_ranges(4) == (250, 500, 750)
    widths = {later - earlier for earlier, later in itertools.pairwise((0, *parametric.key_ranges(100), KEYS))}
    assert widths == {KEYS // 100}


def test_tasks_follow_from_their_seed_and_a_sigma_is_positive() -> None:
    assert parametric.tasks(50, rounds=2, sigma=0.2).equals(parametric.tasks(50, rounds=2, sigma=0.2))
    assert not parametric.tasks(50, rounds=2).equals(parametric.tasks(50, rounds=2, seed=2))
    with pytest.raises(ValueError, match="sigma is more than 0; got 0"):
        parametric.tasks(5, rounds=1, sigma=0)


def test_light_operators_convert_drop_and_smooth() -> None:
    assert parametric.celsius(Reading(1, 2, 320)) == Reading(1, 2, 0)
    assert parametric.celsius(Reading(1, 2, 2120)).degrees == 1000
    assert [parametric.is_plausible(Reading(0, 0, degrees)) for degrees in (-500, 0, 600)] == [False, True, False]
    state = Smoothed(100)
    assert parametric.smooth(state, Reading(1, 2, 200)) == Reading(1, 2, 125) and state == Smoothed(125)


def test_a_few_readings_are_not_plausible() -> None:
    rows = parametric.readings(2_000).to_pylist()
    kept = sum(parametric.is_plausible(parametric.celsius(Reading(**row))) for row in rows)
    assert 1_800 < kept < 2_000
