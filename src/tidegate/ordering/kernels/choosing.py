"""The built-in heuristics, as workers ask them: functions of an array with a row for each operator.

`ordering.heuristics` says what they are.
"""

from __future__ import annotations

from tidegate.foundation.jit import kernel

WAITING, BUSY_NOW, LIMIT_OF, COST_OF, SELECTIVITY_OF, BEHIND, SPENT_ON, SLICE_OF, FIGURES = range(9)
"""The columns of the array: as in `Observed`."""

CAPACITY = 4096.0
"""How many records may wait in the whole pipeline, for queue-size: the paper's C."""


@kernel
def _can_use(figures, operator):  # type: ignore[no-untyped-def]
    return figures[operator, WAITING] > 0.0 and figures[operator, BUSY_NOW] < figures[operator, LIMIT_OF]


@kernel
def queue_size(figures):  # type: ignore[no-untyped-def]
    """The first operator whose outputs wait in a number below its threshold."""
    whole, cumulative = 0.0, 1.0
    for operator in range(figures.shape[0]):
        cumulative *= figures[operator, SELECTIVITY_OF]
        whole += cumulative
    cumulative = 1.0
    for operator in range(figures.shape[0]):
        cumulative *= figures[operator, SELECTIVITY_OF]
        threshold = max(CAPACITY * cumulative / max(whole, 1e-9), 1.0)
        if _can_use(figures, operator) and figures[operator, BEHIND] < threshold:
            return operator
    return -1


@kernel
def last_in_pipeline(figures):  # type: ignore[no-untyped-def]
    """The last operator that can use a worker."""
    for operator in range(figures.shape[0] - 1, -1, -1):
        if _can_use(figures, operator):
            return operator
    return -1


@kernel
def estimated_time(figures):  # type: ignore[no-untyped-def]
    """The operator whose waiting records would take longest."""
    found, longest = -1, -1.0
    for operator in range(figures.shape[0]):
        if _can_use(figures, operator):
            time = figures[operator, WAITING] * figures[operator, COST_OF] / (figures[operator, BUSY_NOW] + 1.0)
            if time > longest:
                found, longest = operator, time
    return found


@kernel
def current_throughput(figures):  # type: ignore[no-untyped-def]
    """The operator with the lowest throughput in the current window, in records of the source."""
    found, lowest, cumulative = -1, 0.0, 1.0
    for operator in range(figures.shape[0]):
        if _can_use(figures, operator):
            time = figures[operator, SPENT_ON] + figures[operator, BUSY_NOW] * figures[operator, SLICE_OF]
            done = time / max(figures[operator, COST_OF] * cumulative, 1e-9)
            if found < 0 or done < lowest:
                found, lowest = operator, done
        cumulative *= figures[operator, SELECTIVITY_OF]
    return found
