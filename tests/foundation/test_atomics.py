"""Atomic memory under many threads: nothing is lost, nothing is seen too early, and waiting ends.

As plain Python, which defines them, the operations return and leave what they do as machine code.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tidegate.foundation.atomics import (
    SPINS,
    address_of,
    call,
    compare_exchange,
    copy,
    exchange,
    fetch_add,
    load,
    peek,
    relax,
    relax_crowded,
    store,
    ticks,
)
from tidegate.foundation.jit import kernel

THREADS = 4
INTEGERS = pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64])


def in_threads(task: Callable[[int], Any], count: int = THREADS) -> list[Any]:
    """Call `task(0)`, `task(1)`, ... in threads that start together; fails if one does not come back."""
    found: dict[int, Any] = {}
    barrier = threading.Barrier(count)

    def run(number: int) -> None:
        barrier.wait()
        found[number] = task(number)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 60
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0))
    assert len(found) == count, "a thread waits for ever"
    return [found[number] for number in range(count)]


@kernel
def add_often(array, index, amount, times):  # type: ignore[no-untyped-def]
    before_sum = 0
    for _ in range(times):
        before_sum += fetch_add(array, index, amount) + load(array, index + 1)  # another load: no sum in a register
    return before_sum


@kernel
def add_plainly(array, index, amount, times):  # type: ignore[no-untyped-def]
    for _ in range(times):
        array[index] = load(array, index) + amount


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_additions_of_many_threads_are_all_there(kind: Any) -> None:
    array = np.zeros(3, kind)
    in_threads(lambda _: add_often(array, 1, 1, 1_000_000))
    assert array.tolist() == [0, THREADS * 1_000_000, 0]


def test_each_addition_returns_a_value_that_no_other_did() -> None:
    """The values before are 0, 1, 2, ... in whatever order: their sum shows a double one."""
    array, times = np.zeros(2, np.int64), 500_000
    sums = in_threads(lambda _: add_often(array, 0, 1, times))
    total = THREADS * times
    assert sum(sums) == total * (total - 1) // 2


def test_plain_additions_lose_some() -> None:
    """If they never did, the tests above would say nothing."""
    array = np.zeros(1, np.int64)
    for _ in range(200):
        array[0] = 0
        in_threads(lambda _: add_plainly(array, 0, 1, 200_000))
        if array[0] != THREADS * 200_000:
            return
    pytest.fail("unprotected additions lost none in 200 rounds")


@kernel
def with_lock(lock, shared, times):  # type: ignore[no-untyped-def]
    for _ in range(times):
        spins = 0
        while not compare_exchange(lock, 0, 0, 1):
            spins = relax(spins)
        shared[0] += 1
        shared[1] = shared[1] + shared[0]
        store(lock, 0, 0)


@INTEGERS
def test_compare_exchange_makes_a_lock(kind: Any) -> None:
    lock, shared, times = np.zeros(1, kind), np.zeros(2, np.int64), 20_000
    in_threads(lambda _: with_lock(lock, shared, times))
    total = THREADS * times
    assert shared.tolist() == [total, total * (total + 1) // 2]


@kernel
def hand_over(box, data, rounds):  # type: ignore[no-untyped-def]
    """Write data, then a number; wait until the other side has taken it."""
    for number in range(1, rounds + 1):
        for index in range(data.shape[0]):
            data[index] = number * 1000 + index
        store(box, 0, number)
        spins = 0
        while load(box, 8) != number:
            spins = relax(spins)


@kernel
def take_over(box, data, rounds):  # type: ignore[no-untyped-def]
    """Wait for each number, and count the data that are not of it."""
    wrong = 0
    for number in range(1, rounds + 1):
        spins = 0
        while load(box, 0) != number:
            spins = relax(spins)
        for index in range(data.shape[0]):
            wrong += data[index] != number * 1000 + index
        store(box, 8, number)
    return wrong


def test_what_was_written_before_a_release_is_there_after_the_acquire() -> None:
    box, data, rounds = np.zeros(16, np.int64), np.zeros(24, np.int64), 20_000
    _, wrong = in_threads(lambda n: (hand_over, take_over)[n](box, data, rounds), 2)
    assert wrong == 0


@kernel
def pass_on(tokens, worker, workers, rounds, data):  # type: ignore[no-untyped-def]
    """A token goes round: who has it adds one to what it carries, by an exchange of each place with empty."""
    for _ in range(rounds):
        spins = 0
        token = exchange(tokens, worker * 8, -1)
        while token < 0:
            spins = relax(spins)
            token = exchange(tokens, worker * 8, -1)
        data[0] += 1
        store(tokens, (worker + 1) % workers * 8, token + 1)
    return 0


def test_an_exchange_takes_a_thing_once() -> None:
    tokens, data, rounds = np.full(THREADS * 8, -1, np.int64), np.zeros(1, np.int64), 3000
    tokens[0] = 0
    in_threads(lambda worker: pass_on(tokens, worker, THREADS, rounds, data))
    assert data[0] == THREADS * rounds and tokens[0] == THREADS * rounds


# --- alone -----------------------------------------------------------------------------------------------------


@kernel
def use_all(array, index):  # type: ignore[no-untyped-def]
    return (
        fetch_add(array, index, 5),
        exchange(array, index, -7),
        compare_exchange(array, index, 1, 2),
        compare_exchange(array, index, -7, 9),
        load(array, index),
    )


BOTH = pytest.mark.parametrize(
    "form", [lambda kernel: kernel, lambda kernel: kernel.py_func], ids=["compiled", "plain"]
)
"""A kernel as machine code, and as the Python that it was made of."""


@BOTH
@INTEGERS
def test_what_they_return_and_that_neighbours_stay(kind: Any, form: Any) -> None:
    array = np.full(5, 3, kind)
    assert form(use_all)(array, 2) == (3, 8, False, True, 9)
    assert array.tolist() == [3, 3, 9, 3, 3]


@BOTH
def test_a_lock_of_plain_operations_holds_among_threads(form: Any) -> None:
    lock, shared, times = np.zeros(1, np.int32), np.zeros(2, np.int64), 200
    in_threads(lambda _: form(with_lock)(lock, shared, times))
    assert shared[0] == THREADS * times
    array = np.zeros(2, np.int64)
    in_threads(lambda _: form(add_often)(array, 0, 1, times))
    assert array.tolist() == [THREADS * times, 0]


@kernel
def count_relaxed(times):  # type: ignore[no-untyped-def]
    spins, crowded = 0, 0
    for _ in range(times):
        spins, crowded = relax(spins), relax_crowded(crowded)
    return spins, crowded


@BOTH
def test_relax_counts_its_steps(form: Any) -> None:
    assert form(count_relaxed)(2 * SPINS) == (2 * SPINS, 2 * SPINS)


@kernel
def ticks_of(rounds):  # type: ignore[no-untyped-def]
    began = ticks()
    total = 0
    for number in range(rounds):
        total = (total * 31 + number) % 1_000_003
    return ticks() - began, total


@BOTH
def test_ticks_go_on_with_the_work(form: Any) -> None:
    form(ticks_of)(1)
    few, many = (min(form(ticks_of)(rounds)[0] for _ in range(9)) for rounds in (1000, 200_000))
    assert 0 < few < many


@kernel
def peek_all(array):  # type: ignore[no-untyped-def]
    total = 0
    for index in range(array.shape[0]):
        total = total * 10 + peek(address_of(array, 0), index) + peek(address_of(array, index), 0)
    return total


@BOTH
def test_peek_finds_what_lies_at_an_address(form: Any) -> None:
    assert form(peek_all)(np.array([1, 2, 3, 4])) == 2468
    assert form(peek_all)(np.arange(8)[2:5]) == 468


@kernel
def copy_bytes(source, target, size):  # type: ignore[no-untyped-def]
    copy(source, target, size)


@BOTH
@pytest.mark.parametrize("size", [1, 8, 16, 40])
def test_copy_takes_as_many_bytes_as_it_is_told(size: int, form: Any) -> None:
    source, target = np.arange(1, 65, dtype=np.uint8), np.zeros(64, np.uint8)
    form(copy_bytes)(source.ctypes.data + 3, target.ctypes.data + 5, size)
    assert target.tolist() == [0] * 5 + list(range(4, 4 + size)) + [0] * (59 - size)


@kernel
def call_it(address, numbers):  # type: ignore[no-untyped-def]
    return call(address, numbers[0], numbers[1], numbers[2], numbers[3])


@BOTH
def test_a_function_is_called_by_its_address_with_its_four_integers(form: Any) -> None:
    function = ctypes.CFUNCTYPE(ctypes.c_int64, *(ctypes.c_int64,) * 4)(
        lambda a, b, c, d: a * 1000 + b * 100 + c * 10 + d
    )
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert form(call_it)(address, np.array([-9, 2, 3, 4])) == -9000 + 234
