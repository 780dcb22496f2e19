"""Any program and any dataflow graph, on an engine whose state is kept: it is the same after any restart.

Each seed gives a program with its events, and calls, checkpoints, ends and openings. One seed again:

    TIDEGATE_SEED=1234 pytest tests/truth/test_logged_programs.py
"""

from __future__ import annotations

import pytest

from tidegate.foundation.jit import uncompiled

from . import comparison, graph_comparison
from .choices import Choices
from .logged_comparison import check_logged, check_logged_graphs
from .random_events import Size, random_case
from .random_graphs import random_graph_case
from .running import FIRST_COMPILED_SEED, FIRST_SOAK_SEED, Record, chunks, name_of

PROGRAMS, EXPIRING, GRAPHS, COMPILED = 60, 40, 40, 3
SOAK_PROGRAMS, SOAK_GRAPHS = 4_000, 2_000


def run_programs(seeds: range, size: Size = "usual") -> int:
    """Compares each seed's program; returns how often engines were opened."""
    opened = 0
    for seed in seeds:
        case = random_case(Choices(seed), size)
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


@pytest.mark.parametrize("seeds", chunks(0, PROGRAMS, 20), ids=name_of)
def test_programs_are_the_same_after_any_restart(seeds: range, record_property: Record) -> None:
    with uncompiled():
        assert run_programs(seeds) > 3 * len(seeds)
    record_property("compared programs with a log", len(seeds))


@pytest.mark.parametrize("seeds", chunks(0, EXPIRING, 20), ids=name_of)
def test_so_are_programs_with_rows_that_expire(seeds: range, record_property: Record) -> None:
    with uncompiled():
        assert run_programs(seeds, "expiring") > 3 * len(seeds)
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
    run_programs(seeds, "small")
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
