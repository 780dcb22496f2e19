"""Any program and any dataflow graph, on an engine whose state is kept: it is the same after any restart.

Each seed gives a program with its events, and calls, checkpoints, ends and openings. One seed again:

    TIDEGATE_SEED=1234 pytest tests/truth/test_logged_programs.py
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.engine import stages
from tidegate.engine.graphs import walk
from tidegate.foundation.jit import uncompiled

from . import comparison, graph_comparison
from .choices import Choices
from .logged_comparison import check_logged, check_logged_graphs
from .random_events import random_case
from .random_graphs import random_graph_case
from .running import FIRST_COMPILED_SEED, FIRST_SOAK_SEED, Record, chunks, name_of

PROGRAMS, GRAPHS, COMPILED = 80, 60, 3
SOAK_PROGRAMS, SOAK_GRAPHS = 4_000, 2_000


def run_programs(seeds: range, small: bool = False) -> int:
    """Compares each seed's program; returns how often engines were opened."""
    opened = 0
    for seed in seeds:
        case = random_case(Choices(seed), "small" if small else "usual")
        try:
            opened += check_logged(case, seed)
        except Exception as error:
            error.add_note(f"seed {seed}\n{comparison.explain(case)}")
            raise
    return opened


def run_graphs(seeds: range, small: bool = False) -> int:
    opened = 0
    for seed in seeds:
        case = random_graph_case(Choices(seed), small)
        try:
            opened += check_logged_graphs(case, seed)
        except Exception as error:
            error.add_note(f"seed {seed}\n{graph_comparison.explain(case)}")
            raise
    return opened


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stages run side by side whenever there are several, two events at a time, and threads change often."""
    monkeypatch.setattr(stages, "SIDE_BY_SIDE_EVENTS", 1)
    monkeypatch.setattr(walk, "PIECES", 10_000)
    monkeypatch.setattr(walk, "PIECE_EVENTS", 2)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that nobody will run again stay out of the user's cache."""
    monkeypatch.setenv("TIDEGATE_CACHE_DIR", str(tmp_path))


@pytest.mark.parametrize("seeds", chunks(0, PROGRAMS, 20), ids=name_of)
def test_programs_are_the_same_after_any_restart(seeds: range, record_property: Record) -> None:
    with uncompiled():
        assert run_programs(seeds) > 3 * len(seeds)
    record_property("compared programs with a log", len(seeds))


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("seeds", chunks(0, GRAPHS, 20), ids=name_of)
def test_dataflow_graphs_are_the_same_after_any_restart(seeds: range, record_property: Record) -> None:
    with uncompiled():
        assert run_graphs(seeds) > 4 * len(seeds)
    record_property("compared dataflow programs with a log", len(seeds))


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("seeds", chunks(FIRST_COMPILED_SEED, COMPILED, 1), ids=name_of)
def test_so_they_are_in_machine_code(seeds: range, record_property: Record) -> None:
    run_programs(seeds, small=True)
    run_graphs(seeds, small=True)
    record_property("compared compiled programs with a log", 2 * len(seeds))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seeds", chunks(FIRST_SOAK_SEED, SOAK_PROGRAMS, 500), ids=name_of)
def test_programs_are_the_same_for_an_hour(seeds: range, record_property: Record) -> None:
    with uncompiled():
        run_programs(seeds)
    record_property("compared programs with a log", len(seeds))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("seeds", chunks(FIRST_SOAK_SEED, SOAK_GRAPHS, 250), ids=name_of)
def test_dataflow_graphs_are_the_same_for_an_hour(seeds: range, record_property: Record) -> None:
    with uncompiled():
        run_graphs(seeds)
    record_property("compared dataflow programs with a log", len(seeds))
