"""Cutting a batch changes no answer, and the estimated interval follows from what batches took."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.engine.adaptation.punctuation import EVENTS_MAX, EVENTS_MIN, Punctuation
from tidegate.operations.decision import Strategy

from ...strategies import STRATEGIES


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0


@tg.transaction
def move(src: Account, dst: Account, value: int) -> int:
    tg.require(src.balance >= value, "insufficient funds")
    src.balance -= value
    dst.balance += value
    return dst.balance


def events(count: int) -> pa.Table:
    rng = np.random.default_rng(count)
    ts = rng.permutation(count)
    return pa.table(
        {
            "ts": ts,
            "src": rng.integers(0, 9, count),
            "dst": rng.integers(0, 9, count),
            "value": rng.integers(0, 9, count),
        }
    )


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("interval", [1, 7, 50, 1000])
def test_any_interval_gives_the_same_answers(strategy: Strategy, interval: int) -> None:
    batch, opening = events(120), pa.table({"id": np.arange(9), "balance": np.full(9, 10)})
    found = []
    for engine in (
        tg.Engine([move], strategy="serial"),
        tg.Engine([move], strategy=strategy, workers=2, punctuation=interval),
    ):
        with engine:
            engine.load(Account, opening)
            found.append((engine.run(batch, order_by="ts"), engine.scan(Account)))
    assert found[0] == found[1]


def test_the_report_joins_the_pieces() -> None:
    with tg.Engine([move], strategy="mvlk", workers=2, punctuation=100) as engine:
        engine.run(events(250))
        assert engine.last_batch is not None
        assert engine.last_batch.properties["pieces"] == 3 and engine.last_batch.events == 250


def test_an_interval_below_one_is_refused() -> None:
    with pytest.raises(tg.DefinitionError, match="punctuation: required a whole number of at least 1"):
        tg.Engine([move], punctuation=0)


class TestEstimate:
    def fed(self, fixed: float, each: float, *sizes: int) -> Punctuation:
        found = Punctuation()
        for size in sizes:
            found.add(size, fixed + each * size)
        return found

    def test_it_recovers_what_batches_cost(self) -> None:
        fixed, each = self.fed(1e-3, 2e-6, 100, 1000, 10_000).fit()
        assert fixed == pytest.approx(1e-3) and each == pytest.approx(2e-6)

    def test_for_throughput_the_fixed_part_becomes_a_twentieth(self) -> None:
        assert self.fed(1e-3, 2e-6, 100, 1000, 10_000).best() == pytest.approx(10_000, rel=0.01)

    def test_for_latency_a_batch_takes_no_longer_than_the_target(self) -> None:
        best = self.fed(1e-3, 2e-6, 100, 1000, 10_000).best(latency_seconds=5e-3)
        assert best == pytest.approx(2000, rel=0.01)

    def test_batches_of_one_size_give_an_estimate_too(self) -> None:
        best = self.fed(0.0, 10e-6, 1000, 1000).best()
        assert best is not None and EVENTS_MIN <= best <= EVENTS_MAX

    def test_nothing_was_run_yet(self) -> None:
        assert Punctuation().best() is None
        with tg.Engine([move]) as engine:
            assert engine.best_punctuation() is None
            engine.run(events(1000))
            engine.run(events(100))
            assert engine.best_punctuation(latency_ms=1.0) is not None
