"""Any program, any strategy, any batch cuts: the engine computes what the plain functions compute.

Each seed gives a program, rows to load and batches of events. The oracle says what must come out, and
the engine is compared with it bit for bit in several configurations. Compiling costs a second or more
per program, so most programs run as the generated code that would be compiled, in plain Python.

A failure prints the seed, what differed, and a program made as small as possible. One seed again:

    TIDEGATE_SEED=1234 pytest tests/truth/test_random_programs.py
"""

from __future__ import annotations

import pytest

from tidegate.engine import core
from tidegate.engine.execution.workers import processors
from tidegate.foundation.jit import uncompiled

from .running import (
    FIRST_SOAK_SEED,
    LARGE,
    SOAK_LARGE,
    SOAK_UNCOMPILED,
    UNCOMPILED,
    Record,
    adaptive_in_turn,
    chunks,
    everything_in_turn,
    name_of,
    run_seeds,
    some_in_turn,
)


@pytest.mark.parametrize("seeds", chunks(0, UNCOMPILED, 60), ids=name_of)
def test_generated_code_equals_the_plain_functions(
    seeds: range, record_property: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seeds.start // 60 % 2:  # what otherwise happens once in a million rows happens in every batch
        monkeypatch.setattr(core, "STRINGS_KEPT", -(10**9))
        monkeypatch.setattr(core, "LOAD_ROWS", 2)
    with uncompiled():
        run_seeds(seeds, some_in_turn, record_property, "programs uncompiled")


@pytest.mark.parametrize("seeds", chunks(0, LARGE, 10), ids=name_of)
def test_so_it_does_in_batches_that_adaptive_shares_among_workers(seeds: range, record_property: Record) -> None:
    with uncompiled():
        shared = run_seeds(seeds, adaptive_in_turn, record_property, "programs with large batches", size="large")
    assert shared or processors() == 1 or len(seeds) == 1, "no batch met what it is there for"


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seeds", chunks(FIRST_SOAK_SEED, SOAK_UNCOMPILED, 1000), ids=name_of)
def test_generated_code_equals_the_plain_functions_for_an_hour(seeds: range, record_property: Record) -> None:
    with uncompiled():
        run_seeds(seeds, everything_in_turn, record_property, "programs uncompiled", seconds=120.0)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seeds", chunks(FIRST_SOAK_SEED, SOAK_LARGE, 200), ids=name_of)
def test_so_it_does_in_large_batches_for_an_hour(seeds: range, record_property: Record) -> None:
    with uncompiled():
        what = "programs with large batches"
        run_seeds(seeds, adaptive_in_turn, record_property, what, size="large", seconds=120.0)
