"""Converts the processor's cycle counter to seconds: its rate is measured once, against the clock."""

from __future__ import annotations

import functools
import time

from tidegate.foundation.atomics import ticks
from tidegate.foundation.jit import kernel


@kernel
def read_ticks():  # type: ignore[no-untyped-def]
    """The cycle counter now."""
    return ticks()


@functools.cache
def ticks_per_second() -> float:
    """How fast the cycle counter counts."""
    read_ticks()
    began, first = time.perf_counter(), read_ticks()
    while time.perf_counter() - began < 2e-3:
        pass
    return float(read_ticks() - first) / (time.perf_counter() - began)
