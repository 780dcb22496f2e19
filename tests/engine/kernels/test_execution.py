"""The three explorations under any schedule: however workers wait, signal and take work, the outcome is serial."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tidegate.engine.kernels import execution
from tidegate.engine.kernels.operation import ARRIVED, CURSOR, LINE, PHASE
from tidegate.operations.decision import DECISIONS, Decision

from ...interleaving import kernels
from ...interleaving.batches import play, small_pieces
from ...interleaving.broken import add_in_two_steps, compare_exchange_in_two_steps, exchange_in_two_steps
from ...interleaving.interleaver import Interleaver
from ...interleaving.kernels import load, plain_kernels, store
from ...interleaving.schedules import Schedule, Seeded, check, every_schedule, failing_seed

SIGNALS = Decision("ns", "operation", "eager")
EACH = pytest.mark.parametrize("decision", DECISIONS, ids=str)


@EACH
def test_any_schedule_gives_the_serial_outcome(decision: Decision) -> None:
    with small_pieces():
        check(lambda seed: play(seed, decision), range(80))


@EACH
def test_any_schedule_of_plain_accesses_gives_it_without_a_race(decision: Decision) -> None:
    with small_pieces(accesses=True):
        check(lambda seed: play(seed, decision, finds_races=True), range(500, 508))


@EACH
def test_an_interrupt_at_any_moment_ends_all_waiting_and_changes_nothing(decision: Decision) -> None:
    with small_pieces():
        interrupted: list[bool] = []
        check(lambda seed: interrupted.append(play(seed, decision, interrupts=True)), range(700, 730))
    assert any(interrupted)


@pytest.mark.soak
@EACH
def test_thousands_of_schedules(decision: Decision) -> None:
    with small_pieces():
        check(lambda seed: play(seed, decision), range(1000, 4000))
        check(lambda seed: play(seed, decision, interrupts=True), range(1000, 3000))
    with small_pieces(accesses=True):
        check(lambda seed: play(seed, decision, finds_races=True), range(1000, 1400))


# --- parts of it, in every order --------------------------------------------------------------------------------


def play_stack(schedule: Schedule) -> None:
    """Two workers send units to a stack, one takes all of it now and then: each unit comes once."""
    inbox, following = np.full(LINE, -1, np.int32), np.full(4, -1, np.int32)
    found: list[int] = []

    def take() -> None:
        for _ in range(2):
            unit = execution._take_all(inbox, 0)
            while unit >= 0:
                found.append(unit)
                unit = int(following[unit])

    def send(*units: int) -> None:
        for unit in units:
            execution._send(inbox, following, unit, 0)

    Interleaver(schedule).run([lambda: send(0, 1), lambda: send(2), take])
    take()
    assert sorted(found) == [0, 1, 2]


def test_a_signal_comes_once_in_every_order() -> None:
    with plain_kernels():
        assert sum(play_stack(schedule) is None for schedule in every_schedule(2)) > 100


def play_offer(schedule: Schedule) -> None:
    """Workers take from each other's offers until nothing is left: each unit comes once."""
    offer, following = np.full(2 * LINE, -1, np.int32), np.array([2, 3, 4, -1, -1], np.int32)
    offer[0], offer[LINE] = 0, 1
    found: list[int] = []

    def take(worker: int) -> None:
        unit = execution._take_some(offer, following, worker, 2)
        while unit >= 0:
            found.append(unit)
            unit = int(following[unit])

    Interleaver(schedule).run([lambda: take(0), lambda: take(1), lambda: take(0)])
    for _ in range(3):
        take(0)
    assert sorted(found) == [0, 1, 2, 3, 4]


def test_what_is_offered_is_taken_once_in_every_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "UNITS_TAKEN", 2)
    with plain_kernels():
        assert sum(play_offer(schedule) is None for schedule in every_schedule(2)) > 100


def play_meeting(schedule: Schedule, workers: int = 2, rounds: int = 3) -> None:
    """Nobody begins a round before all have ended the last one."""
    control = np.zeros(8 * LINE, np.int64)
    ended = np.zeros(rounds, np.int64)

    def work() -> None:
        for number in range(rounds):
            assert number == 0 or load(ended, number - 1) == workers
            kernels.fetch_add(ended, number, 1)
            assert execution.meet(control, workers)

    Interleaver(schedule).run([work] * workers)
    assert control[PHASE] == rounds and control[ARRIVED] == control[CURSOR] == 0


def test_a_meeting_waits_for_all_in_every_order() -> None:
    with plain_kernels():
        assert sum(play_meeting(schedule) is None for schedule in every_schedule(2)) > 100
        check(lambda seed: play_meeting(Seeded(seed), workers=4), range(300))


# --- that it would be found -------------------------------------------------------------------------------------


def take_all_without_taking(stack: Any, owner: int) -> int:
    return int(load(stack, owner * LINE))


def meet_nobody(control: Any, workers: int) -> bool:
    store(control, CURSOR, 0)
    return True


def keep_last(failure: Any, transaction: int, found: int) -> None:
    store(failure, transaction, found)


def wait_no_longer(array: Any, index: int) -> int:
    """Instead of waiting until nothing is pending, a worker looks once and goes on."""
    return 0 if array.dtype == np.int32 else int(load(array, index))


@pytest.mark.parametrize(
    ("decision", "name", "broken"),
    [
        (SIGNALS, "fetch_add", add_in_two_steps),
        (SIGNALS, "exchange", exchange_in_two_steps),
        (SIGNALS, "_take_all", take_all_without_taking),
        (SIGNALS, "_keep_first", keep_last),
        (Decision("ns", "group", "lazy"), "fetch_add", add_in_two_steps),
        (Decision("bfs", "operation", "eager"), "meet", meet_nobody),
        (Decision("bfs", "operation", "lazy"), "fetch_add", add_in_two_steps),
        (Decision("dfs", "operation", "lazy"), "load", wait_no_longer),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_what_is_broken_on_purpose_is_found(
    decision: Decision, name: str, broken: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_pieces():
        monkeypatch.setattr(execution, name, broken)
        seed, error = failing_seed(lambda seed: play(seed, decision), range(2000))
        with pytest.raises(type(error)):
            play(seed, decision)


@pytest.mark.parametrize(
    ("part", "name", "broken"),
    [
        (play_stack, "compare_exchange", compare_exchange_in_two_steps),
        (play_stack, "exchange", exchange_in_two_steps),
        (play_offer, "exchange", exchange_in_two_steps),
        (play_meeting, "fetch_add", add_in_two_steps),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_part_that_is_broken_on_purpose_is_found(
    part: Callable[[Schedule], None], name: str, broken: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with plain_kernels():
        monkeypatch.setattr(execution, name, broken)
        failing_seed(lambda seed: part(Seeded(seed)), range(500))


def test_a_version_that_is_shown_by_a_plain_write_is_a_race(monkeypatch: pytest.MonkeyPatch) -> None:
    """On this machine a reader might see it in time: no outcome tells, the order of the accesses does."""

    def count_down_plainly(array: Any, index: int, amount: int) -> int:
        before = int(array[index])
        array[index] = before + amount
        return before

    with small_pieces(accesses=True):
        monkeypatch.setattr(execution, "fetch_add", count_down_plainly)
        _, error = failing_seed(lambda seed: play(seed, SIGNALS, finds_races=True), range(50))
    assert "race:" in str(error)
