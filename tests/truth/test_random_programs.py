"""Any program, any strategy, any batch cuts: the engine computes what the plain functions compute.

Each seed gives a program, rows to load and batches of events. The oracle says what must come out, and
the engine is compared with it bit for bit in several configurations. Compiling costs most of a second
per program, so most programs run as the generated code that would be compiled, in plain Python.

A failure prints the seed, what differed, and a program made as small as possible. To look at one seed:

    pytest tests/truth/test_random_programs.py --seed 1234
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import pytest

from tidegate.foundation.jit import uncompiled

from ..strategies import CONFIGURATIONS
from .choices import Choices, shrink
from .comparison import Configuration, Mismatch, check, expectation, explain
from .random_events import Case, random_case

COMPILED, COMPILED_CHUNK = 200, 10
UNCOMPILED, UNCOMPILED_CHUNK = 3000, 60
SOAK_COMPILED, SOAK_UNCOMPILED = 3000, 60_000
FIRST_COMPILED_SEED = 1_000_000
FIRST_SOAK_SEED = 2_000_000

SAME = [Configuration(strategy, workers) for strategy, workers in CONFIGURATIONS]
OTHERS = [
    *(Configuration(strategy, workers, batching="cuts") for strategy, workers in CONFIGURATIONS),
    Configuration(interpreted=True),
    Configuration(interpreted=True, batching="cuts"),
    Configuration(batching="execute"),
    Configuration(interpreted=True, batching="execute"),
]


def compare(case: Case, configurations: Sequence[Configuration]) -> None:
    expected = expectation(case)
    for configuration in configurations:
        try:
            check(case, configuration, expected, Choices(len(case.drawn)))
        except Exception as error:
            error.add_note(f"with {configuration}")
            raise


def some_configurations(seed: int) -> list[Configuration]:
    """Two per program: every one has its turn."""
    return [SAME[seed % len(SAME)], OTHERS[seed // len(SAME) % len(OTHERS)]]


def failure_of(case: Case, configurations: Sequence[Configuration]) -> Exception | None:
    try:
        compare(case, configurations)
    except Exception as error:
        return error
    return None


def report(
    seed: int, case: Case, error: Exception, configurations: Sequence[Configuration], seconds: float
) -> str:
    """The failure of a seed, as small as it could be made in the given time."""

    def fails(drawn: Sequence[int]) -> bool:
        with contextlib.suppress(RecursionError):
            return type(failure_of(random_case(Choices(replay=drawn)), configurations)) is type(error)
        return False

    small = random_case(Choices(replay=shrink(case.drawn, fails, seconds)))
    final = failure_of(small, configurations) or error
    notes = " ".join(getattr(final, "__notes__", ()))
    return f"seed {seed}: {type(final).__name__} {notes}\n{final}\n\n{explain(small)}"


def run_seeds(
    seeds: Iterator[int] | range, configure: Callable[[int], list[Configuration]], seconds: float
) -> int:
    """Compares each seed's case; fails with a report on the first that differs."""
    compared = 0
    for seed in seeds:
        case = random_case(Choices(seed))
        error = failure_of(case, configure(seed))
        if error is not None:
            pytest.fail(
                report(seed, case, error, configure(seed), seconds), pytrace=not isinstance(error, Mismatch)
            )
        compared += 1
    return compared


def chunks(first: int, count: int, size: int) -> list[range]:
    return [range(start, min(start + size, first + count)) for start in range(first, first + count, size)]


def name_chunk(chunk: range) -> str:
    return f"seeds {chunk.start} to {chunk.stop - 1}"


Record = Callable[[str, object], None]


@pytest.mark.parametrize("seeds", chunks(0, UNCOMPILED, UNCOMPILED_CHUNK), ids=name_chunk)
def test_generated_code_equals_the_plain_functions(seeds: range, record_property: Record) -> None:
    with uncompiled():
        record_property("compared programs uncompiled", run_seeds(seeds, some_configurations, 20.0))


@pytest.mark.parametrize("seeds", chunks(FIRST_COMPILED_SEED, COMPILED, COMPILED_CHUNK), ids=name_chunk)
def test_compiled_programs_equal_the_plain_functions(seeds: range, record_property: Record) -> None:
    record_property("compared programs compiled", run_seeds(seeds, lambda _: [*SAME, *OTHERS], 60.0))


@pytest.mark.soak
@pytest.mark.parametrize("seeds", chunks(FIRST_SOAK_SEED, SOAK_UNCOMPILED, 1000), ids=name_chunk)
def test_generated_code_equals_the_plain_functions_for_hours(seeds: range, record_property: Record) -> None:
    with uncompiled():
        record_property("compared programs uncompiled", run_seeds(seeds, lambda _: [*SAME, *OTHERS], 60.0))


@pytest.mark.soak
@pytest.mark.parametrize("seeds", chunks(FIRST_SOAK_SEED, SOAK_COMPILED, 50), ids=name_chunk)
def test_compiled_programs_equal_the_plain_functions_for_hours(seeds: range, record_property: Record) -> None:
    record_property("compared programs compiled", run_seeds(seeds, lambda _: [*SAME, *OTHERS], 60.0))
