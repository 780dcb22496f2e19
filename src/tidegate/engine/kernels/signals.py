"""Lets a loop in compiled code find out that the user interrupts it.

While machine code runs, Python's own handlers do not. But a signal is at once written into `signals`, memory that the
engine shares with the signal handler (`foundation.interrupts`): one byte for each signal, its number, in their order.
"""

from __future__ import annotations

from tidegate.foundation.atomics import load
from tidegate.foundation.jit import inline, kernel

_INTERRUPT = 2  # SIGINT, the same number wherever there are signals
_BYTE_BITS, _BYTE_MASK = 8, 0xFF


@inline
def is_interrupted(signals):  # type: ignore[no-untyped-def]
    """Whether Ctrl-C was pressed; as long as no signal came, one load."""
    return load(signals, 0) != 0 and _holds_interrupt(signals)


@kernel
def _holds_interrupt(signals):  # type: ignore[no-untyped-def]
    for place in range(signals.shape[0]):
        word = signals[place]
        if word == 0:
            return False
        for shift in range(0, 64, _BYTE_BITS):
            if (word >> shift) & _BYTE_MASK == _INTERRUPT:
                return True
    return False
