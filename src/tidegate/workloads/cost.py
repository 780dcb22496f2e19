"""What an operation costs: a loop of integer arithmetic, and how long one round of it takes here.

A published workload says "10 µs for each operation". `burn` spends that time inside a transaction, as
compiled code that no optimiser can remove: its result goes into the row, as a seal over the row's
history. So the seal costs time, and it shows whether a row's changes were made in the right order.

    seal = burn(account.seal + amount, rounds)

`rounds` is a column of the events, so a cost can differ from event to event. How many rounds are a
microsecond depends on the machine: `calibrate` measures it, and a workload takes the number as its
`pace`. With the same pace the same events come out, here and elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pyarrow as pa

import tidegate as tg

NOMINAL_PACE = 200.0
"""Rounds in a microsecond where none were measured: about right for a core of the 2020s."""


def burn(value: int, rounds: int) -> int:
    """A number below 2³¹ that takes `rounds` steps to compute, each of which needs the one before.

    The modulus is a prime: with a power of two, compilers merge several steps into one.
    """
    value = value % 2_147_483_647
    for _ in range(rounds):
        value = (value * 48_271 + 12_345) % 2_147_483_647
    return value


@tg.table(key="id")
class Stone:
    """A row to burn time on."""

    id: int
    seal: int = 0


@tg.transaction
def polish(stone: Stone, rounds: int) -> int:
    """The smallest transaction around `burn`."""
    seal = burn(stone.seal + 1, rounds)
    stone.seal = seal
    return seal


def calibrate(
    *, events: int = 2_000, rounds: int = 5_000, tries: int = 7, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Rounds of `burn` in a microsecond on this machine: the pace that makes a cost in µs honest.

    The time of a batch with no rounds is taken off, so that only the loop is counted. The shortest of several
    tries counts: whatever else the machine does can only make a loop slower.
    """
    engine = tg.Engine([polish], strategy="serial")

    def seconds(each: int) -> float:
        batch = pa.table({"stone": pa.array(range(events)), "rounds": pa.array([each] * events)})
        taken = []
        for _ in range(tries):
            start = clock()
            engine.run(batch)
            taken.append(clock() - start)
        return min(taken)

    loop = seconds(rounds) - seconds(0)
    if loop <= 0.0:
        raise RuntimeError(f"{events * rounds:,} rounds took no time that this clock can see; use more rounds")
    return events * rounds / (loop * 1e6)
