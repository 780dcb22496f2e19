"""Operators for ordered pipelines whose cost, number of outputs and keys can be set: what experiments vary.

    compute    stateless, one output                 its value becomes a number that takes `rounds` to compute
    spread     stateless, `OUTPUTS` of them          the same, and outputs go to different keys
    seal       a state for each key, one output      each state is a seal over all values of its key, in order

Each spends its time in `cost.burn`, so results are wrong if a record is lost, doubled, or taken out of order.
`burned` is the same number in one step: a benchmark can know what is right without spending the time again.

`tasks` makes records. Keys are uniform, or drawn from a normal distribution around the middle of the key space: the
smaller sigma is, the more of them fall into few ranges. `key_ranges` cuts the key space into ranges of equal width.

Beside them stand three light operators over `Reading`, as a pipeline of cheap steps has them:

    celsius (stateless) ─ is_plausible (stateless) ─ smooth (a state for each sensor)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.workloads.cost import burn

OUTPUTS = 50
KEYS = 1_000
_MODULUS, _FACTOR, _SUMMAND = 2_147_483_647, 48_271, 12_345

Integers = npt.NDArray[np.int64]


@dataclass
class Task:
    """Something to compute."""

    key: int
    rounds: int
    value: int


@dataclass
class Seal:
    """A number that depends on all values of a key and on their order."""

    seal: int = 0


def compute(task: Task) -> Task:
    """Spend the cost on the value."""
    return Task(task.key, task.rounds, burn(task.value, task.rounds))


def spread(task: Task) -> list[Task]:
    """Spend the cost on the value, and give it to many keys."""
    out = []
    value = burn(task.value, task.rounds)
    for number in range(OUTPUTS):
        out.append(Task((task.key + number) % KEYS, task.rounds, value + number))
    return out


def seal(state: Seal, task: Task) -> Task:
    """Spend the cost on the seal of the key."""
    state.seal = burn(state.seal + task.value, task.rounds)
    return Task(task.key, task.rounds, state.seal)


def burned(value: int, rounds: int) -> int:
    """The number that `burn` gives: the step is linear, and so are many steps together."""
    power = pow(_FACTOR, rounds, _MODULUS)
    geometric = (power - 1) * pow(_FACTOR - 1, -1, _MODULUS)
    return (value * power + _SUMMAND * geometric) % _MODULUS


def tasks(count: int, *, rounds: int, sigma: float | None = None, seed: int = 1) -> pa.Table:
    """So many tasks; keys are uniform without a sigma."""
    random = np.random.default_rng([seed, 3])
    key = random.integers(0, KEYS, count) if sigma is None else _normal_keys(random, count, sigma)
    return pa.table({"key": key, "rounds": np.full(count, rounds), "value": random.integers(0, 1_000_000, count)})


def _normal_keys(random: np.random.Generator, count: int, sigma: float) -> Integers:
    """Keys from a normal distribution: what falls between -1 and 1 is the key space, and the rest is drawn again."""
    if not sigma > 0.0:
        raise ValueError(f"sigma is more than 0; got {sigma}")
    drawn = random.normal(0.0, sigma, count)
    while (outside := np.abs(drawn) >= 1.0).any():
        drawn[outside] = random.normal(0.0, sigma, int(outside.sum()))
    return ((drawn + 1.0) / 2.0 * KEYS).astype(np.int64)


def key_ranges(count: int) -> tuple[int, ...]:
    """Where ranges of equal width begin, all but the first."""
    return tuple(KEYS * number // count for number in range(1, count))


# --- light operators --------------------------------------------------------------------------------------------------


@dataclass
class Reading:
    """A sensor's reading, in tenths of a degree."""

    at: int
    sensor: int
    degrees: int


@dataclass
class Smoothed:
    """The last value of a sensor, smoothed."""

    degrees: int = 0


def celsius(reading: Reading) -> Reading:
    """From degrees Fahrenheit."""
    return Reading(reading.at, reading.sensor, (reading.degrees - 320) * 5 // 9)


def is_plausible(reading: Reading) -> bool:
    """Whether a sensor can have seen this."""
    return -500 < reading.degrees < 600


def smooth(state: Smoothed, reading: Reading) -> Reading:
    """A quarter of the new value and three quarters of the old one."""
    state.degrees = (3 * state.degrees + reading.degrees) // 4
    return Reading(reading.at, reading.sensor, state.degrees)


def readings(count: int, *, sensors: int = 1_000, seed: int = 1) -> pa.Table:
    """So many readings, a few of them not plausible."""
    random = np.random.default_rng([seed, 4])
    degrees = np.round(random.normal(600.0, 400.0, count)).astype(np.int64)
    return pa.table({"at": np.arange(count), "sensor": random.integers(0, sensors, count), "degrees": degrees})
