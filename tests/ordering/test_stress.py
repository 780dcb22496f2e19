"""Random compiled pipelines with random options, again and again: always the sequential output, and nothing is left."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tidegate.ordering import Observed

from .programs import Program, items, rows, table

SOAK_SECONDS = 600.0
PROGRAMS, LENGTH = 12, 4
"""Compiling takes most of the time: so many pipelines are run with as many options as there is time for."""
OUTPUTS_MOST = 50_000


def _any(operators: list[Observed]) -> int | None:
    """A user's heuristic that is as bad as it may be."""
    return random.choice([None, *(each.number for each in operators)])


def _options(draw: random.Random) -> dict[str, Any]:
    heuristics = ["queue-size", "last-in-pipeline", "estimated-time", "current-throughput", _any]
    return {
        "workers": draw.choice([2, 3, 4, 8, 16]),
        "heuristic": draw.choice(heuristics),
        "reorder": draw.choice(["non-blocking", "lock"]),
        "partitioning": draw.choice(["hybrid", "shared", "partitioned"]),
        "mode": draw.choice(["workers", "workers", "workers", "thread-per-operator"]),
        "capacity": draw.choice([1, 2, 3, 8, 64, 1024, 8192]),
    }


def play_for(seconds: float, first: int) -> int:
    """Rounds that were compared."""
    threads, began, played = set(threading.enumerate()), time.monotonic(), 0
    programs = [Program(first + number, LENGTH) for number in range(PROGRAMS)]
    while time.monotonic() - began < seconds:
        seed = first + played
        draw = random.Random(f"stress {seed}")
        number, options = draw.randrange(PROGRAMS), _options(draw)
        program, records = programs[number], items(draw.choice([0, 1, 30, 300, 2000]), seed)
        expected = rows(Program(first + number, LENGTH).expected(records[:100]))
        if len(expected) < OUTPUTS_MOST // 20:
            expected = rows(Program(first + number, LENGTH).expected(records))
        else:
            records = records[:100]
        if draw.random() < 0.3:
            found = list(program.pipeline.stream(iter(records), **options))
        else:
            found = program.pipeline.run(table(records), **options)
        assert rows(found) == expected, f"seed {seed}: {options}"
        if draw.random() < 0.1:
            stream = program.pipeline.stream(iter(records), **options)
            next(stream, None)
            stream.close()  # type: ignore[attr-defined]
        played += 1
    while (left := set(threading.enumerate()) - threads) and time.monotonic() - began < seconds + 30:
        time.sleep(0.05)
    assert not left
    return played


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_minutes_of_random_pipelines(record_property: Callable[[str, object], None]) -> None:
    seconds = float(os.environ.get("TIDEGATE_STRESS_SECONDS", SOAK_SECONDS))
    played = play_for(seconds, int(time.time()))
    record_property("compared runs of random pipelines", played)
    assert played > PROGRAMS
