"""Memory that is used again, because asking the system for it each time is expensive.

The pages of fresh memory are made when they are first touched, and meanwhile the other threads of the process wait with
theirs: batches of 100,000 events that are logged while they run took twice as long through fresh memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

KEPT_MAX = 32 << 20
"""What is larger is not kept: a state that once ran one huge batch should not stay that large."""


class Scratch:
    """Memory for one piece of bytes at a time: taking it again ends the use of what was taken before."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)

    def take(self, size: int) -> npt.NDArray[Any]:
        """Memory of this size; its content is undefined."""
        if size > KEPT_MAX:
            return np.empty(size, np.uint8)
        if size > len(self._memory):
            self._memory = np.empty(min(size + size // 4, KEPT_MAX), np.uint8)
        return self._memory[:size]
