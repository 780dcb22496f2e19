"""The benchmark of mixed programs verifies what it times."""

from __future__ import annotations

from unittest import mock

import pytest

from tidegate import Engine
from tidegate.benchmarks import mixed
from tidegate.foundation.jit import uncompiled
from tidegate.workloads.mixed import PROGRAM, Truth, mixed_events


def declared() -> mixed.Experiment:
    return mixed.experiment(events=400, cost_us=0.1, pace=10.0, workers=2, seed=3)


def test_both_ways_come_to_what_plain_python_comes_to() -> None:
    with uncompiled():
        for variant in declared().variants:
            engine = variant.prepare()
            variant.verify(engine, variant.run(engine))


def test_a_wrong_row_is_found() -> None:
    with uncompiled(), mock.patch.object(Truth, "rows", return_value=[]):
        variant = declared().variants[0]
        engine = variant.prepare()
        with pytest.raises(AssertionError, match="plain Python"):
            variant.verify(engine, variant.run(engine))


def test_the_strategies_run_the_plain_part() -> None:
    batch = mixed_events(500, accounts=100, rounds=1, seed=1)
    with uncompiled(), Engine(PROGRAM, strategy="lock", workers=2) as engine:
        engine.run(batch)
        assert engine.last_batch is not None
        assert (engine.last_batch.strategy, engine.last_batch.workers) == ("lock, serial", 2)
