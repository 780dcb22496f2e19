"""The light pipeline as one would write it with `concurrent.futures`: a pool for what has no state, and order restored.

    record by record    each record is a task of a thread pool; results are taken in the order in which they were asked
                        for, and the step with state runs where they are taken
    in chunks           the same with processes, which run Python at the same time, and a thousand records a task: fewer
                        hand-overs, but a record waits for its chunk

So many tasks are under way at most: that bounds the memory, as queues of the ordered runtime do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import Any

from tidegate.workloads.parametric import Reading, Smoothed, celsius, is_plausible, smooth

UNDER_WAY = 256
CHUNK = 1_000


def convert(reading: Reading) -> list[Reading]:
    """The two steps without state."""
    converted = celsius(reading)
    return [converted] if is_plausible(converted) else []


def convert_all(chunk: Sequence[Reading]) -> list[Reading]:
    """The same for many records."""
    return [output for reading in chunk for output in convert(reading)]


def record_by_record(pool: Executor, readings: Sequence[Reading]) -> list[Reading]:
    """The pipeline with a task for each record."""
    return _with_state(_in_order(pool, convert, readings))


def in_chunks(pool: Executor, readings: Sequence[Reading]) -> list[Reading]:
    """The pipeline with a task for a thousand records."""
    chunks = (readings[begin : begin + CHUNK] for begin in range(0, len(readings), CHUNK))
    return _with_state(_in_order(pool, convert_all, chunks))


def _in_order(
    pool: Executor, function: Callable[[Any], list[Reading]], items: Iterable[Any]
) -> Iterator[list[Reading]]:
    waiting: deque[Future[list[Reading]]] = deque()
    for item in items:
        if len(waiting) == UNDER_WAY:
            yield waiting.popleft().result()
        waiting.append(pool.submit(function, item))
    while waiting:
        yield waiting.popleft().result()


def _with_state(results: Iterable[list[Reading]]) -> list[Reading]:
    states: dict[int, Smoothed] = {}
    out = []
    for converted in results:
        for reading in converted:
            out.append(smooth(states.setdefault(reading.sensor, Smoothed()), reading))
    return out
