"""Rows that expire: any program, any strategy, any batch cuts give what the plain functions give with a clock beside.

The programs of `test_random_programs`, with a time to live for some tables, and a time for every event: a parameter or
`order_by`, rising with late events in between. The oracle never removes a row; it takes expired ones for absent.
"""

from __future__ import annotations

import pytest

from tidegate.engine import core
from tidegate.foundation.jit import uncompiled

from .running import FIRST_COMPILED_SEED, Record, chunks, name_of, run_seeds, some_compiled, some_in_turn


@pytest.mark.parametrize("seeds", chunks(0, 240, 60), ids=name_of)
def test_generated_code_equals_the_plain_functions(
    seeds: range, record_property: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seeds.start // 60 % 2:  # strings are collected before every batch
        monkeypatch.setattr(core, "STRINGS_KEPT", -(10**9))
    with uncompiled():
        run_seeds(seeds, some_in_turn, record_property, "programs with rows that expire", size="expiring")


@pytest.mark.parametrize("seeds", chunks(FIRST_COMPILED_SEED, 4, 2), ids=name_of)
def test_so_does_machine_code(seeds: range, record_property: Record) -> None:
    run_seeds(seeds, some_compiled, record_property, "compiled programs with rows that expire", size="small expiring")
