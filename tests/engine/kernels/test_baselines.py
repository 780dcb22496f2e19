"""The published ways to run transactions, under any schedule: locks, versions, partitions and chains keep the order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidegate.engine.kernels import baselines
from tidegate.engine.kernels.lifecycle import EXECUTED
from tidegate.operations.decision import Chains, Partitioned, Strategy

from ...interleaving.batches import play, small_pieces
from ...interleaving.broken import add_in_two_steps, compare_exchange_in_two_steps
from ...interleaving.kernels import load
from ...interleaving.schedules import check, failing_seed

STRATEGIES: tuple[Strategy, ...] = (
    "lock",
    "mvlk",
    Partitioned(2),
    Partitioned(16),
    Chains("shared-nothing"),
    Chains("shared-everything"),
)
EACH = pytest.mark.parametrize("strategy", STRATEGIES, ids=str)


@EACH
def test_any_schedule_gives_the_serial_outcome(strategy: Strategy) -> None:
    with small_pieces():
        check(lambda seed: play(seed, strategy), range(100))


@EACH
def test_any_schedule_of_plain_accesses_gives_it_without_a_race(strategy: Strategy) -> None:
    with small_pieces(accesses=True):
        check(lambda seed: play(seed, strategy, finds_races=True), range(500, 510))


@EACH
def test_an_interrupt_at_any_moment_ends_all_waiting_and_changes_nothing(strategy: Strategy) -> None:
    with small_pieces():
        interrupted: list[bool] = []
        check(lambda seed: interrupted.append(play(seed, strategy, interrupts=True)), range(700, 730))
    assert any(interrupted)


@pytest.mark.soak
@EACH
def test_thousands_of_schedules(strategy: Strategy) -> None:
    with small_pieces():
        check(lambda seed: play(seed, strategy), range(1000, 5000))
        check(lambda seed: play(seed, strategy, interrupts=True), range(1000, 3000))
    with small_pieces(accesses=True):
        check(lambda seed: play(seed, strategy, finds_races=True), range(1000, 1400))


def test_no_lock_at_all_is_found_to_be_wrong() -> None:
    """It is wrong by design: a checker that finds nothing here finds nothing anywhere."""
    with small_pieces():
        failing_seed(lambda seed: play(seed, "unsafe-nolock"), range(200))


def never_wait(*_: Any) -> bool:
    return True


def all_have_run(array: Any, index: int) -> int:
    """Answers "it has run" for every operation."""
    return EXECUTED if array.dtype.itemsize == 1 else int(load(array, index))


def nothing_remains(array: Any, index: int) -> int:
    """Answers "it has run" for every transaction."""
    return 0 if array.dtype.itemsize == 4 else int(load(array, index))


@pytest.mark.parametrize(
    ("strategy", "name", "broken"),
    [
        ("lock", "_wait_until", never_wait),
        ("lock", "_wait_for_turn", never_wait),
        ("lock", "fetch_add", add_in_two_steps),
        ("mvlk", "load", nothing_remains),
        (Partitioned(2), "fetch_add", add_in_two_steps),
        (Chains("shared-nothing"), "load", all_have_run),
        (Chains("shared-everything"), "compare_exchange", compare_exchange_in_two_steps),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_what_is_broken_on_purpose_is_found(
    strategy: Strategy, name: str, broken: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_pieces():
        monkeypatch.setattr(baselines, name, broken)
        seed, error = failing_seed(lambda seed: play(seed, strategy), range(2000))
        with pytest.raises(type(error)):
            play(seed, strategy)
