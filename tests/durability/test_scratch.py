"""Memory that is used again."""

from __future__ import annotations

import numpy as np

from tidegate.durability import scratch
from tidegate.durability.scratch import Scratch


def test_memory_is_used_again_and_grows() -> None:
    memory = Scratch()
    first = memory.take(100)
    assert len(first) == 100
    assert np.shares_memory(first, memory.take(50))
    assert np.shares_memory(memory.take(1000), memory.take(1000))
    assert len(memory.take(1000)) == 1000


def test_what_is_huge_is_given_back() -> None:
    memory = Scratch()
    small, huge = memory.take(100), memory.take(scratch.KEPT_MAX + 1)
    assert len(huge) == scratch.KEPT_MAX + 1
    assert not np.shares_memory(huge, memory.take(scratch.KEPT_MAX))
    assert not np.shares_memory(huge, small)
