"""The interleaver itself: it repeats what a seed did, finds what it is there for, and leaves nothing behind."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from .interleaver import Interleaver, Stuck
from .kernels import compare_exchange, fetch_add, load, relax, shared, store
from .races import Race
from .schedules import Schedule, Seeded, check, every_schedule, failing_seed

SEEDS = range(200)


def run(schedule: Schedule, *tasks: Callable[[], Any], **options: Any) -> list[Any]:
    return Interleaver(schedule, **options).run(tasks)


# --- what it finds ---------------------------------------------------------------------------------------------


def add_in_two_steps(array: Any) -> None:
    store(array, 0, load(array, 0) + 1)


def add_at_once(array: Any) -> None:
    fetch_add(array, 0, 1)


def add_plainly(array: Any) -> None:
    array[0] += 1


def additions(add: Callable[[Any], None], schedule: Schedule, **options: Any) -> None:
    array = shared(np.zeros(1, np.int64))
    run(schedule, *[lambda: add(array)] * 3, **options)
    assert array.item(0) == 3


@pytest.mark.parametrize("add", [add_in_two_steps, add_plainly])
def test_a_lost_addition_is_found_and_its_seed_repeats_it(add: Callable[[Any], None]) -> None:
    seed, _ = failing_seed(lambda seed: additions(add, Seeded(seed)), SEEDS)
    for _ in range(3):
        with pytest.raises(AssertionError):
            additions(add, Seeded(seed))


def test_atomic_additions_lose_nothing() -> None:
    assert check(lambda seed: additions(add_at_once, Seeded(seed), finds_races=True), SEEDS) == len(SEEDS)


def test_a_failure_names_its_seed_and_shows_the_last_steps() -> None:
    def play(seed: int) -> None:
        run(Seeded(seed), lambda: load(np.zeros(1, np.int64), 0), lambda: 1 // 0)

    with pytest.raises(ZeroDivisionError) as caught:
        check(play, [17])
    told = "\n".join(caught.value.__notes__)
    assert "play(17) repeats it" in told and "load" in told and "test_interleaver.py" in told


def take_both(locks: Any, first: int, second: int) -> None:
    for lock in (first, second):
        spins = 0
        while not compare_exchange(locks, lock, 0, 1):
            spins = relax(spins)
    store(locks, second, 0)
    store(locks, first, 0)


def test_a_deadlock_is_found() -> None:
    """Two workers take two locks in opposite order: some schedules get through, and some never do."""

    def play(seed: int) -> None:
        locks = np.zeros(2, np.int64)
        run(Seeded(seed), lambda: take_both(locks, 0, 1), lambda: take_both(locks, 1, 0))

    seed, error = failing_seed(play, SEEDS)
    assert isinstance(error, Stuck) and "deadlock: workers 0, 1 wait" in str(error)
    with pytest.raises(Stuck):
        play(seed)

    def play_in_one_order(seed: int) -> None:
        locks = np.zeros(2, np.int64)
        run(Seeded(seed), lambda: take_both(locks, 0, 1), lambda: take_both(locks, 0, 1))

    check(play_in_one_order, SEEDS)


def test_waiting_for_what_comes_is_no_deadlock() -> None:
    """Each waits for the other in turn, and a waiting worker is not asked again before something changed."""

    def count(array: Any, remainder: int) -> None:
        for number in range(remainder, 20, 2):
            spins = 0
            while load(array, 0) != number:
                spins = relax(spins)
            store(array, 0, number + 1)

    for seed in SEEDS:
        array = np.zeros(1, np.int64)
        interleaver = Interleaver(Seeded(seed), steps_max=200)
        interleaver.run([lambda: count(array, 0), lambda: count(array, 1)])  # noqa: B023
        assert array[0] == 20


def test_a_livelock_is_found() -> None:
    """Both raise a flag, and step back as long as the other's is up; in step with each other they do so for ever."""

    def insist(flags: Any, mine: int) -> None:
        while True:
            store(flags, mine, 1)
            if load(flags, 1 - mine) == 0:
                return
            store(flags, mine, 0)

    class InStep:
        def pick(self, ready: Any, current: int) -> int:
            return ready[(ready.index(current) + 1) % len(ready)] if current in ready else ready[0]

    flags = np.zeros(2, np.int64)
    with pytest.raises(Stuck, match="livelock: not done after 1000 steps"):
        run(InStep(), lambda: insist(flags, 0), lambda: insist(flags, 1), steps_max=1000)


# --- all schedules -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [(1, 1), (2, 3), (3, 3), (2, 2, 2)])
def test_every_schedule_is_every_order_of_the_steps(steps: tuple[int, ...]) -> None:
    orders = []
    for schedule in every_schedule(preemptions_max=99):
        order: list[int] = []
        array = np.zeros(1, np.int64)

        def task(worker: int, count: int, order: list[int] = order, array: Any = array) -> None:
            for _ in range(count):
                load(array, 0)
                order.append(worker)

        run(schedule, *(lambda worker=w, count=n: task(worker, count) for w, n in enumerate(steps)))  # type: ignore[misc]
        orders.append(tuple(order))
    expected = math.factorial(sum(steps))
    for count in steps:
        expected //= math.factorial(count)
    assert len(set(orders)) == expected


def test_a_race_of_one_preemption_is_found_with_one_and_not_without() -> None:
    def failures(preemptions_max: int) -> int:
        failed = 0
        for schedule in every_schedule(preemptions_max):
            try:
                additions(add_in_two_steps, schedule)
            except AssertionError:
                failed += 1
        return failed

    assert failures(0) == 0 < failures(1) < failures(2)


# --- races -----------------------------------------------------------------------------------------------------


def publish(data: Any, flag: Any, raise_flag: Callable[[Any], None], sees_flag: Callable[[Any], bool]) -> None:
    def write() -> None:
        data[0] = 7
        raise_flag(flag)

    def read() -> None:
        if sees_flag(flag):
            assert data[0] == 7

    for seed in range(50):
        data[:] = flag[:] = 0
        run(Seeded(seed), write, read, finds_races=True)


def test_publishing_by_a_plain_flag_is_a_race_though_nothing_went_wrong() -> None:
    data, flag = shared(np.zeros(1, np.int64)), shared(np.zeros(1, np.int64))
    publish(data, flag, lambda flag: store(flag, 0, 1), lambda flag: load(flag, 0) == 1)

    def raise_plainly(flag: Any) -> None:
        flag[0] = 1

    with pytest.raises(Race, match=r"write by worker 0 .*read by worker 1|read by worker 1 .*write by worker 0"):
        publish(data, flag, raise_plainly, lambda flag: bool(flag[0] == 1))
    with pytest.raises(Race, match="atomic"):
        publish(data, flag, raise_plainly, lambda flag: load(flag, 0) == 1)


# --- what it leaves --------------------------------------------------------------------------------------------


def test_an_error_ends_all_workers() -> None:
    started, ended = [], []

    def wait_for_ever(array: Any) -> None:
        started.append(array)
        try:
            while load(array, 0) == 0:
                relax(0)
        finally:
            ended.append(array)

    def fail() -> None:
        raise OSError("disk on fire")

    for seed in range(20):
        array = np.zeros(1, np.int64)
        with pytest.raises(OSError, match="disk on fire"):
            run(Seeded(seed), lambda: wait_for_ever(array), fail, lambda: wait_for_ever(array))  # noqa: B023
        assert len(ended) == len(started)
    assert len(started) > 10


def test_results_come_in_the_order_of_the_tasks() -> None:
    assert run(Seeded(3), lambda: "a", lambda: load(np.array([5]), 0), lambda: "c") == ["a", 5, "c"]
