"""Random programs as the machine code that they become: fewer than uncompiled ones, since each takes seconds.

In a file of its own, so that another process can run it beside the others. One seed again:

    TIDEGATE_SEED=1000004 pytest tests/truth/test_compiled_programs.py
"""

from __future__ import annotations

import pytest

from .running import (
    COMPILED,
    FIRST_COMPILED_SEED,
    FIRST_SOAK_SEED,
    SOAK_COMPILED,
    Record,
    chunks,
    everything_in_turn,
    name_of,
    run_seeds,
    some_compiled,
)


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("seeds", chunks(FIRST_COMPILED_SEED, COMPILED, 5), ids=name_of)
def test_compiled_programs_equal_the_plain_functions(seeds: range, record_property: Record) -> None:
    run_seeds(seeds, some_compiled, record_property, "programs compiled", size="small")


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("seeds", chunks(FIRST_SOAK_SEED, SOAK_COMPILED, 50), ids=name_of)
def test_compiled_programs_equal_the_plain_functions_for_an_hour(seeds: range, record_property: Record) -> None:
    run_seeds(seeds, everything_in_turn, record_property, "programs compiled", seconds=120.0)
