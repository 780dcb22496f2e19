"""What a sample says of a batch: the share of the hottest row, and how often neighbours meet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidegate.compiler.program import build_program
from tidegate.engine.adaptation.sampling import sample_conflicts
from tidegate.engine.core import EngineCore

from ..graphs import look, move, put, share


def sampled(program: list[Any], events: pa.Table, start: int = 0, order: Any = None) -> tuple[float, float]:
    core = EngineCore(build_program(program))
    batch = core._take_in(events, {})
    return sample_conflicts(core.plan, batch, np.arange(batch.size) if order is None else order, start)


def puts(keys: Any) -> pa.Table:
    return pa.table({"dst": keys, "value": np.ones(len(keys), np.int64)})


@pytest.mark.parametrize("share_of_hot", [0.0, 0.05, 0.3, 0.9])
@pytest.mark.parametrize("count", [1000, 50_000])
def test_the_share_of_the_hottest_row(share_of_hot: float, count: int) -> None:
    rng = np.random.default_rng(count)
    keys = np.where(rng.random(count) < share_of_hot, 7, rng.permutation(count) + 100)
    conflict, hot = sampled([put], puts(keys))
    assert hot == pytest.approx(share_of_hot, abs=0.05)
    assert conflict == pytest.approx(share_of_hot**2, abs=0.05)


def test_rows_that_differ_do_not_conflict() -> None:
    assert sampled([put], puts(np.arange(5000))) == (0.0, 0.0)


def test_few_rows_conflict_by_chance() -> None:
    conflict, hot = sampled([put], puts(np.arange(8000) % 11))
    assert conflict == pytest.approx(1 / 11, abs=0.02) and hot == pytest.approx(1 / 11, abs=0.02)


def test_the_whole_batch_is_sampled_and_not_its_beginning() -> None:
    keys = np.concatenate([np.arange(50_000), np.zeros(50_000, np.int64)])
    assert sampled([put], puts(keys))[1] == pytest.approx(0.5, abs=0.05)
    assert sampled([put], puts(keys), start=50_000)[1] == pytest.approx(1.0, abs=0.01)
    assert sampled([put], puts(keys), order=np.arange(100_000)[::-1], start=50_000)[1] == 0.0


def test_what_is_only_read_does_not_conflict() -> None:
    events = pa.table({"src": np.zeros(500, np.int64), "have": np.zeros(500, np.int64)})
    assert sampled([look], events) == (0.0, 0.0)


def test_a_row_is_hot_in_whatever_parameter_it_comes() -> None:
    count = 2000
    events = pa.table(
        {
            "src": np.where(np.arange(count) % 4 == 0, 5, np.arange(count) + 10),
            "dst": np.where(np.arange(count) % 4 == 1, 5, np.arange(count) + 10_000),
            "value": np.ones(count, np.int64),
        }
    )
    assert sampled([move], events)[1] == pytest.approx(0.5, abs=0.05)


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
    assert sampled([share], events)[1] == pytest.approx(0.5, abs=0.02)


def test_refused_events_do_not_count() -> None:
    keys = pa.array([3 if n % 2 else None for n in range(1000)], pa.int64())
    conflict, hot = sampled([put], pa.table({"dst": keys, "value": np.ones(1000, np.int64)}))
    assert conflict == pytest.approx(1.0, abs=0.01) and hot == pytest.approx(1.0, abs=0.01)


def test_of_one_event_nothing_is_known_and_the_worst_assumed() -> None:
    assert sampled([put], puts(np.zeros(1, np.int64))) == (1.0, 1.0)
    assert sampled([put], puts(np.zeros(0, np.int64))) == (1.0, 1.0)


def test_shares_are_shares() -> None:
    """A move from a row to itself touches it twice, and is still one transaction."""
    events = pa.table({name: np.zeros(300, np.int64) for name in ("src", "dst")} | {"value": np.ones(300, np.int64)})
    assert sampled([move], events) == (1.0, 1.0)
