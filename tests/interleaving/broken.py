"""Operations that look atomic and are not: a checker that does not find them in a kernel finds nothing."""

from __future__ import annotations

from typing import Any

from .kernels import load, store


def add_in_two_steps(array: Any, index: int, amount: int) -> int:
    before = load(array, index)
    store(array, index, before + amount)
    return int(before)


def exchange_in_two_steps(array: Any, index: int, value: int) -> int:
    before = load(array, index)
    store(array, index, value)
    return int(before)


def compare_exchange_in_two_steps(array: Any, index: int, old: int, new: int) -> bool:
    if load(array, index) != old:
        return False
    store(array, index, new)
    return True
