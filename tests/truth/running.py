"""Runs random programs by their seeds in several configurations, and reports a failure as small as it can be made."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence

import pytest

from ..strategies import COMBINATIONS
from .choices import Choices, shrink
from .comparison import Configuration, Mismatch, check, expectation, explain, imported
from .random_events import Case, Size, random_case

COMPILED, UNCOMPILED, LARGE = 20, 720, 80
SOAK_COMPILED, SOAK_UNCOMPILED, SOAK_LARGE = 500, 10_000, 2_000
FIRST_COMPILED_SEED, FIRST_SOAK_SEED = 1_000_000, 2_000_000

SERIAL = [Configuration(), Configuration(batching="cuts")]
SAME = [Configuration(strategy, workers) for strategy, workers in COMBINATIONS]
CUTS = [Configuration(strategy, workers, batching="cuts") for strategy, workers in COMBINATIONS]
EXECUTE = [Configuration(batching="execute")]
KEPT = [Configuration(batching="reopened"), Configuration(batching="repeated")]
INTERPRETED = [
    Configuration(interpreted=True),
    Configuration(interpreted=True, batching="cuts"),
    Configuration(interpreted=True, batching="execute"),
    Configuration(interpreted=True, batching="repeated"),
]
Configure = Callable[[int], list[Configuration]]
Record = Callable[[str, object], None]


def some_in_turn(seed: int) -> list[Configuration]:
    """A few configurations for each program; every one has its turn."""
    others = [*SERIAL, *CUTS, *EXECUTE, *KEPT, *INTERPRETED]
    return [SAME[seed % len(SAME)], SAME[seed * 7 % len(SAME)], others[seed % len(others)]]


def some_compiled(seed: int) -> list[Configuration]:
    """Serial for every program; for one in four, whose operations are compiled as well, a quarter of all others."""
    parallel = [*SAME[seed // 4 % 4 :: 4], CUTS[seed % len(CUTS)]] if seed % 4 == 0 else []
    return [*SERIAL, *parallel, *EXECUTE, *KEPT]


def everything_in_turn(seed: int) -> list[Configuration]:
    """A sixth of all schedules, and all that is not a schedule, for each program."""
    return [*SERIAL, *SAME[seed % 6 :: 6], *CUTS[seed % 6 :: 6], *EXECUTE, *KEPT, *INTERPRETED]


def adaptive_in_turn(seed: int) -> list[Configuration]:
    """The adaptive strategy with some workers, and one fixed strategy."""
    return [Configuration("adaptive", (2, 3, 8)[seed % 3]), SAME[seed * 7 % len(SAME)]]


def compare(case: Case, configurations: Sequence[Configuration]) -> int:
    """Returns how many batches ran on several workers because the adaptive strategy chose so."""
    expected, shared = expectation(case), 0
    for interpreted, source in ((False, case.program.source), (True, case.program.interpreted)):
        chosen = [each for each in configurations if each.interpreted == interpreted]
        with imported(source) if chosen else contextlib.nullcontext() as module:  # declaring takes longer than running
            for configuration in chosen:
                try:
                    shared += check(case, module, configuration, expected, Choices(len(case.drawn)))
                except Exception as error:
                    error.add_note(f"with {configuration}")
                    raise
    return shared


def failure_of(case: Case, configurations: Sequence[Configuration]) -> Exception | None:
    try:
        compare(case, configurations)
    except Exception as error:
        return error
    return None


def report(seed: int, case: Case, error: Exception, configurations: Sequence[Configuration], seconds: float) -> str:
    """The failure of a seed, as small as it could be made in the given time."""

    def again(drawn: Sequence[int]) -> Case:
        return random_case(Choices(replay=drawn), case.size)

    def fails(drawn: Sequence[int]) -> bool:
        with contextlib.suppress(RecursionError):
            return type(failure_of(again(drawn), configurations)) is type(error)
        return False

    shrunk = again(shrink(case.drawn, fails, seconds))
    final = failure_of(shrunk, configurations) or error
    notes = " ".join(getattr(final, "__notes__", ()))
    return f"seed {seed}: {type(final).__name__} {notes}\n{final}\n\n{explain(shrunk)}"


def run_seeds(
    seeds: range, configure: Configure, record: Record, what: str, *, size: Size = "usual", seconds: float = 30.0
) -> int:
    """Compares each seed's case, and records how many; fails with a report on the first that differs.

    Returns how many batches ran on several workers because the adaptive strategy chose so.
    """
    shared = 0
    for seed in seeds:
        case = random_case(Choices(seed), size)
        try:
            shared += compare(case, configure(seed))
        except Exception as error:
            text = report(seed, case, error, configure(seed), seconds)
            pytest.fail(text, pytrace=not isinstance(error, Mismatch))
    record(f"compared {what}", len(seeds))
    record("compared batches on several workers by adaptive's own choice", shared)
    return shared


def chunks(first: int, count: int, size: int) -> list[range]:
    """Seeds in pieces, one test each, so that they spread over processes."""
    if "TIDEGATE_SEED" in os.environ:
        seed = int(os.environ["TIDEGATE_SEED"])
        return [range(seed, seed + 1)]
    return [range(start, min(start + size, first + count)) for start in range(first, first + count, size)]


def name_of(seeds: range) -> str:
    return f"{seeds.start}-{seeds.stop - 1}"
