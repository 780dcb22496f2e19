"""What a sample says of a batch: the share of the hottest row, and how often neighbours meet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidegate.compiler.program import build_program
from tidegate.engine.adaptation.sampling import sample_hottest, sample_neighbours
from tidegate.engine.core import EngineCore

from ...accounts import deposit, transfer
from ..example_graphs import look, share


def hottest(program: list[Any], events: pa.Table, start: int = 0, order: Any = None) -> float:
    core = EngineCore(build_program(program))
    batch = core._take_in(events, {})
    return sample_hottest(core.plan, batch, np.arange(batch.size) if order is None else order, start)


def neighbours(program: list[Any], events: pa.Table, workers: int = 2) -> float:
    core = EngineCore(build_program(program))
    batch = core._take_in(events, {})
    shapes = core.runner._builder.shapes(batch)
    return sample_neighbours(shapes, batch, np.arange(batch.size), 0, workers)


def deposits(keys: Any) -> pa.Table:
    return pa.table({"dst": keys, "value": np.ones(len(keys), np.int64)})


@pytest.mark.parametrize("share_of_hot", [0.0, 0.05, 0.3, 0.9])
@pytest.mark.parametrize("count", [1000, 50_000])
def test_the_share_of_the_hottest_row(share_of_hot: float, count: int) -> None:
    rng = np.random.default_rng(count)
    keys = np.where(rng.random(count) < share_of_hot, 7, rng.permutation(count) + 100)
    assert hottest([deposit], deposits(keys)) == pytest.approx(share_of_hot, abs=0.05)
    assert neighbours([deposit], deposits(keys)) == pytest.approx(share_of_hot**2, abs=0.05)


def test_rows_that_differ_are_cold() -> None:
    assert hottest([deposit], deposits(np.arange(5000))) == 0.0


def test_few_rows_are_hot_by_chance() -> None:
    assert hottest([deposit], deposits(np.arange(8000) % 11)) == pytest.approx(1 / 11, abs=0.02)


class TestNeighbours:
    def test_neighbours_on_different_rows_never_meet(self) -> None:
        assert neighbours([deposit], deposits(np.arange(5000))) == 0.0

    @pytest.mark.parametrize("count", [600, 60_000])
    def test_events_that_belong_together_stand_together(self, count: int) -> None:
        """Each row comes three times in a row, and never again: no row is hot, and yet two of three have to wait."""
        assert neighbours([deposit], deposits(np.arange(count) // 3)) == pytest.approx(2 / 3, abs=0.05)
        assert hottest([deposit], deposits(np.arange(count) // 3)) < 0.05

    def test_more_workers_look_farther(self) -> None:
        keys = np.arange(6000) % 4  # the same row comes again after four events
        assert [neighbours([deposit], deposits(keys), workers) for workers in (2, 4, 5)] == [0.0, 0.0, 1.0]

    def test_what_is_only_read_makes_nobody_wait(self) -> None:
        assert neighbours([look], pa.table({"src": np.zeros(500, np.int64), "have": np.zeros(500, np.int64)})) == 0.0

    def test_refused_events_make_nobody_wait(self) -> None:
        keys = pa.array([3 if n % 2 else None for n in range(1000)], pa.int64())
        assert neighbours([deposit], pa.table({"dst": keys, "value": np.ones(1000, np.int64)})) == 0.0


def test_the_whole_batch_is_sampled_and_not_its_beginning() -> None:
    keys = np.concatenate([np.arange(50_000), np.zeros(50_000, np.int64)])
    assert hottest([deposit], deposits(keys)) == pytest.approx(0.5, abs=0.05)
    assert hottest([deposit], deposits(keys), start=50_000) == pytest.approx(1.0, abs=0.01)
    assert hottest([deposit], deposits(keys), order=np.arange(100_000)[::-1], start=50_000) == 0.0


def test_what_is_only_read_is_not_hot() -> None:
    events = pa.table({"src": np.zeros(500, np.int64), "have": np.zeros(500, np.int64)})
    assert hottest([look], events) == 0.0


def test_a_row_is_hot_in_whatever_parameter_it_comes() -> None:
    count = 2000
    events = pa.table(
        {
            "src": np.where(np.arange(count) % 4 == 0, 5, np.arange(count) + 10),
            "dst": np.where(np.arange(count) % 4 == 1, 5, np.arange(count) + 10_000),
            "value": np.ones(count, np.int64),
        }
    )
    assert hottest([transfer], events) == pytest.approx(0.5, abs=0.05)


def test_rows_of_lists_count() -> None:
    count = 800
    lists = [[1, 1000 + n] if n % 2 else [] for n in range(count)]
    events = pa.table(
        {
            "src": np.arange(count) + 5000,
            "others": pa.array(lists, pa.list_(pa.int64())),
            "value": np.ones(count, np.int64),
        }
    )
    assert hottest([share], events) == pytest.approx(0.5, abs=0.02)


def test_refused_events_do_not_count() -> None:
    keys = pa.array([3 if n % 2 else None for n in range(1000)], pa.int64())
    events = pa.table({"dst": keys, "value": np.ones(1000, np.int64)})
    assert hottest([deposit], events) == pytest.approx(1.0, abs=0.01)


def test_of_one_event_nothing_is_known_and_the_worst_assumed() -> None:
    assert hottest([deposit], deposits(np.zeros(1, np.int64))) == 1.0
    assert hottest([deposit], deposits(np.zeros(0, np.int64))) == 1.0


def test_a_share_is_at_most_one() -> None:
    """A transfer from a row to itself touches it twice, and is still one transaction."""
    events = pa.table({name: np.zeros(300, np.int64) for name in ("src", "dst")} | {"value": np.ones(300, np.int64)})
    assert hottest([transfer], events) == 1.0
