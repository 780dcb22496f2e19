from __future__ import annotations

import pytest

from tidegate.workloads import cost
from tidegate.workloads.cost import Stone, burn, calibrate, polish


@pytest.mark.parametrize("value", [0, 1, -1, 2**62, -(2**63), 2**31 - 1])
@pytest.mark.parametrize("rounds", [0, 1, 50])
def test_a_burn_stays_far_from_64_bits(value: int, rounds: int) -> None:
    assert 0 <= burn(value, rounds) < 2**31


def test_each_round_changes_the_result() -> None:
    assert len({burn(7, rounds) for rounds in range(1000)}) == 1000


def test_a_seal_depends_on_the_order_of_changes() -> None:
    assert burn(burn(1, 10) + 5, 10) != burn(burn(5, 10) + 1, 10)


def test_the_plain_transaction_writes_the_seal() -> None:
    stone = Stone(1)
    assert polish(stone, 3) == stone.seal == burn(1, 3)


def test_calibration_counts_the_rounds_of_a_microsecond() -> None:
    """The best batch with rounds takes 5 s, the best one without takes 1 s: 4 s are the loop's."""
    now = 0.0
    ticks = iter([0.0, 9.0, 0.0, 5.0, 0.0, 6.0, 0.0, 3.0, 0.0, 1.0, 0.0, 1.5])

    def clock() -> float:
        nonlocal now
        now += next(ticks)
        return now

    assert calibrate(events=10, rounds=400, tries=3, clock=clock) == pytest.approx(10 * 400 / 4e6)


def test_a_clock_that_sees_nothing_is_no_calibration() -> None:
    with pytest.raises(RuntimeError, match="more rounds"):
        calibrate(events=1, rounds=1, tries=1, clock=lambda: 0.0)


def test_the_measured_pace_is_that_of_a_loop_that_was_not_optimised_away() -> None:
    assert 10.0 < calibrate(events=200, tries=3) < 2_000.0
    assert 10.0 < cost.NOMINAL_PACE < 2_000.0
