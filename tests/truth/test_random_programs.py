"""Any program, any strategy, any batch cuts: the engine computes what the plain functions compute.

Each seed gives a program, rows to load and batches of events. The oracle says what must come out, and
the engine is compared with it bit for bit in several configurations. Compiling costs a second or more
per program, so most programs run as the generated code that would be compiled, in plain Python.

A failure prints the seed, what differed, and a program made as small as possible. One seed again:

    TIDEGATE_SEED=1234 pytest tests/truth/test_random_programs.py
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tidegate.engine import core
from tidegate.foundation.jit import uncompiled

from ..strategies import COMBINATIONS
from .choices import Choices, shrink
from .comparison import Configuration, Mismatch, check, expectation, explain
from .random_events import Case, random_case

COMPILED, UNCOMPILED = 200, 3000
SOAK_COMPILED, SOAK_UNCOMPILED = 600, 20_000
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
    others = [*SERIAL, *EXECUTE, *KEPT, *INTERPRETED]
    return [SAME[seed % len(SAME)], SAME[seed * 7 % len(SAME)], CUTS[seed * 11 % len(CUTS)], others[seed % len(others)]]


def all_compiled(seed: int) -> list[Configuration]:
    return [*SERIAL, *SAME[seed % 4 :: 4], CUTS[seed % len(CUTS)], *EXECUTE, *KEPT]


def everything(seed: int) -> list[Configuration]:
    return [*SERIAL, *SAME, *CUTS, *EXECUTE, *KEPT, *INTERPRETED]


def compare(case: Case, configurations: Sequence[Configuration]) -> None:
    expected = expectation(case)
    for configuration in configurations:
        try:
            check(case, configuration, expected, Choices(len(case.drawn)))
        except Exception as error:
            error.add_note(f"with {configuration}")
            raise


def failure_of(case: Case, configurations: Sequence[Configuration]) -> Exception | None:
    try:
        compare(case, configurations)
    except Exception as error:
        return error
    return None


def report(seed: int, case: Case, error: Exception, configurations: Sequence[Configuration], seconds: float) -> str:
    """The failure of a seed, as small as it could be made in the given time."""

    def again(drawn: Sequence[int]) -> Case:
        return random_case(Choices(replay=drawn), small=case.small)

    def fails(drawn: Sequence[int]) -> bool:
        with contextlib.suppress(RecursionError):
            return type(failure_of(again(drawn), configurations)) is type(error)
        return False

    shrunk = again(shrink(case.drawn, fails, seconds))
    final = failure_of(shrunk, configurations) or error
    notes = " ".join(getattr(final, "__notes__", ()))
    return f"seed {seed}: {type(final).__name__} {notes}\n{final}\n\n{explain(shrunk)}"


def run_seeds(seeds: range, configure: Configure, *, small: bool = False, seconds: float = 30.0) -> int:
    """Compares each seed's case; fails with a report on the first that differs."""
    for seed in seeds:
        case = random_case(Choices(seed), small=small)
        error = failure_of(case, configure(seed))
        if error is not None:
            text = report(seed, case, error, configure(seed), seconds)
            pytest.fail(text, pytrace=not isinstance(error, Mismatch))
    return len(seeds)


def chunks(first: int, count: int, size: int) -> list[range]:
    """Seeds in pieces, one test each, so that they spread over processes."""
    if "TIDEGATE_SEED" in os.environ:
        seed = int(os.environ["TIDEGATE_SEED"])
        return [range(seed, seed + 1)]
    return [range(start, min(start + size, first + count)) for start in range(first, first + count, size)]


def name_of(seeds: range) -> str:
    return f"{seeds.start}-{seeds.stop - 1}"


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of programs that nobody will run again stay out of the user's cache."""
    monkeypatch.setenv("TIDEGATE_CACHE_DIR", str(tmp_path))


@pytest.mark.parametrize("seeds", chunks(0, UNCOMPILED, 60), ids=name_of)
def test_generated_code_equals_the_plain_functions(
    seeds: range, record_property: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seeds.start // 60 % 2:  # what otherwise happens once in a million rows happens in every batch
        monkeypatch.setattr(core, "STRINGS_KEPT", -(10**9))
        monkeypatch.setattr(core, "LOAD_ROWS", 2)
    with uncompiled():
        record_property("compared programs uncompiled", run_seeds(seeds, some_in_turn))


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("seeds", chunks(FIRST_COMPILED_SEED, COMPILED, 5), ids=name_of)
def test_compiled_programs_equal_the_plain_functions(seeds: range, record_property: Record) -> None:
    record_property("compared programs compiled", run_seeds(seeds, all_compiled, small=True))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seeds", chunks(FIRST_SOAK_SEED, SOAK_UNCOMPILED, 1000), ids=name_of)
def test_generated_code_equals_the_plain_functions_for_an_hour(seeds: range, record_property: Record) -> None:
    with uncompiled():
        record_property("compared programs uncompiled", run_seeds(seeds, everything, seconds=120.0))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("seeds", chunks(FIRST_SOAK_SEED, SOAK_COMPILED, 50), ids=name_of)
def test_compiled_programs_equal_the_plain_functions_for_an_hour(seeds: range, record_property: Record) -> None:
    record_property("compared programs compiled", run_seeds(seeds, everything, seconds=120.0))
