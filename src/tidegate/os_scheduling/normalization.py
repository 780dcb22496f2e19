"""From priorities, which are any numbers, to the values that the kernel takes.

    priorities     linear              logarithmic         ratio
    1, 10, 100     19, 15, -20         19, 0, -20          1, -10, -20    (nice)

`linear` keeps differences: for sizes and ages. `logarithmic` keeps the order of magnitudes: for rates, which differ by
factors. Both stretch the priorities over the whole range. `ratio` keeps proportions: one step of nice is a factor of
1.25 in processor time, and a weight is the priority itself; where that needs more room than there is, the logarithms
are pressed into the range.

Equal priorities ask for nothing, and give the value that threads have by default. Logarithms need positive numbers:
what is not positive counts as the smallest positive priority.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Literal, TypeVar

Normalization = Literal["linear", "logarithmic", "ratio"]
Span = tuple[float, float]

STEP = 1.25
"""The kernel's ratio of processor time between neighbouring nice values."""

_K = TypeVar("_K", bound=Hashable)


def to_nice(priorities: Mapping[_K, float], how: Normalization, span: Span) -> dict[_K, int]:
    """Nice values in a span; the highest priority gets the lowest one."""
    low, high = span
    if _all_equal(priorities):
        return dict.fromkeys(priorities, round(min(max(0, low), high)))
    if how != "ratio":
        return {key: round(high - share * (high - low)) for key, share in _shares(priorities, how).items()}
    logs = _logarithms(priorities)
    top = max(logs.values())
    steps = {key: (top - log) / math.log(STEP) for key, log in logs.items()}
    squeeze = min(1.0, (high - low) / max(max(steps.values()), 1e-12))
    return {key: round(low + step * squeeze) for key, step in steps.items()}


def to_weight(priorities: Mapping[_K, float], how: Normalization, span: Span, neutral: float) -> dict[_K, float]:
    """Weights in a span; the highest priority gets the highest one."""
    low, high = span
    if _all_equal(priorities):
        return dict.fromkeys(priorities, min(max(neutral, low), high))
    if how == "linear":
        return {key: low + share * (high - low) for key, share in _shares(priorities, how).items()}
    if how == "logarithmic":
        return {key: low * (high / low) ** share for key, share in _shares(priorities, how).items()}
    top = max(priorities.values())
    if top <= 0:
        return to_weight(priorities, "linear", span, neutral)
    return {key: max(low, high * value / top) for key, value in priorities.items()}


def _shares(priorities: Mapping[_K, float], how: Normalization) -> dict[_K, float]:
    """Min-max normalization: 0 for the lowest, 1 for the highest."""
    values = priorities if how == "linear" else _logarithms(priorities)
    low, high = min(values.values()), max(values.values())
    if low == high:
        return dict.fromkeys(values, 0.5)
    # Halves, because the difference of two floats may be more than the largest one.
    return {key: (value / 2 - low / 2) / (high / 2 - low / 2) for key, value in values.items()}


def _logarithms(priorities: Mapping[_K, float]) -> dict[_K, float]:
    least = min((value for value in priorities.values() if value > 0), default=1.0)
    return {key: math.log(max(value, least)) for key, value in priorities.items()}


def _all_equal(priorities: Mapping[_K, float]) -> bool:
    return len(set(priorities.values())) <= 1
