"""Any program, any strategy, any batch cuts: the engine computes what the plain functions compute.

Each seed gives a program, rows to load and batches of events. The oracle says what must come out, and
the engine is compared with it bit for bit in several configurations. Compiling costs a second or more
per program, so most programs run as the generated code that would be compiled, in plain Python.

A failure prints the seed, what differed, and a program made as small as possible. One seed again:

    TIDEGATE_SEED=1234 pytest tests/truth/test_random_programs.py
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tidegate.engine import core
from tidegate.engine.adaptation.probing import Probe, Prober
from tidegate.foundation.jit import uncompiled
from tidegate.foundation.processors import processors

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


def as_if_functions_took(monkeypatch: pytest.MonkeyPatch, least_ns: float) -> None:
    """Let the adaptive strategy find that functions take at least so long, whatever the clock says."""
    probe = Prober.probe

    def slower(prober: Prober, run: Callable[[int, int], int], events: int) -> Probe:
        found = probe(prober, run, events)
        return replace(found, cost_ns=max(found.cost_ns, least_ns))

    monkeypatch.setattr(Prober, "probe", slower)


@pytest.mark.parametrize("seeds", chunks(0, LARGE, 10), ids=name_of)
def test_so_it_does_in_batches_that_adaptive_shares_among_workers(
    seeds: range, record_property: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it finds functions to cost, and as if they cost so much that it shares what can be shared."""
    expensive = seeds.start // 10 % 2 == 1
    if expensive:
        as_if_functions_took(monkeypatch, 200_000.0)
    with uncompiled():
        shared = run_seeds(seeds, adaptive_in_turn, record_property, "programs with large batches", size="large")
    if expensive and len(seeds) > 1 and processors() > 1:
        assert shared, "no batch met what it is there for"


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
