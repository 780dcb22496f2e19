"""Whatever the adaptive strategy chooses, for the whole batch or for families of it, the answers are serial ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.engine.adaptation import attention, model, probing
from tidegate.engine.adaptation.model import CANDIDATES, FAMILIES, Candidate, Choice, Workload, predict
from tidegate.engine.execution import families, runner


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0


@tg.table(key="name")
class Rate:
    name: str
    percent: int = 1


@tg.transaction
def transfer(src: Account, dst: Account, rate: Rate, value: int) -> int:
    fee = value * rate.percent // 100
    src.balance -= value + fee
    dst.balance += value
    tg.require(src.balance >= 0, "insufficient funds")
    return src.balance


@tg.transaction
def settle(accounts: list[Account], value: int) -> int:
    total = 0
    for account in accounts:
        account.balance += value
        total += account.balance
    return total


@tg.transaction
def reprice(rate: Rate, percent: int) -> int:
    before = rate.percent
    rate.percent = percent
    return before


@tg.transaction
def grow(dst: Account, value: int) -> int:
    dst.balance = dst.balance * value + value
    return dst.balance


PROGRAM = [transfer, settle, reprice, grow]


def batch(count: int, keys: int, seed: int, names: tuple[str, ...] = ("transfer", "settle")) -> pa.Table:
    """Transfers within blocks of ten accounts, and a few lists: many families, some of them large."""
    rng = np.random.default_rng(seed)
    block = rng.integers(0, max(keys // 10, 1), count) * 10
    lists = [[int(b + k) for k in rng.integers(0, 10, rng.integers(0, 4))] for b in block]
    return pa.table(
        {
            "transaction": rng.choice(names, count),
            "src": block + rng.integers(0, 10, count),
            "dst": block + rng.integers(0, 10, count),
            "rate": rng.choice(["low", "high", "none"], count),
            "accounts": pa.array(lists, pa.list_(pa.int64())),
            "value": rng.integers(0, 300, count),
            "percent": rng.integers(0, 9, count),
        }
    )


def answers(strategy: Any, batches: list[pa.Table], workers: int = 2) -> list[Any]:
    with tg.Engine(PROGRAM, strategy=strategy, workers=workers) as engine:
        engine.load(Account, pa.table({"id": np.arange(200), "balance": np.full(200, 400)}))
        engine.load(Rate, pa.table({"name": ["low", "high"], "percent": [1, 10]}))
        outcomes = [engine.run(one) for one in batches]
        return [*outcomes, engine.scan(Account), engine.scan(Rate)]


def forced(candidate: Candidate, found: Workload) -> Choice:
    """The choice of a candidate, whatever the model would choose."""
    return Choice(candidate, {str(other): predict(other, found) for other in CANDIDATES}, found)


@pytest.mark.parametrize("candidate", CANDIDATES, ids=str)
@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("names", [("transfer", "settle"), ("transfer", "settle", "reprice")], ids=["apart", "joined"])
def test_every_candidate_gives_the_serial_answers(
    candidate: Candidate, workers: int, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rates that nobody writes relate nobody; once some event writes one, everything that reads it is related."""
    monkeypatch.setattr(runner, "SURE", 0.0)
    monkeypatch.setattr(attention, "UNRELATED_BATCHES_MAX", 0)
    monkeypatch.setattr(model.Model, "choose", lambda self, found, allow_split, batches: forced(candidate, found))
    monkeypatch.setattr(model.Model, "learn", lambda self, choice, seconds, cost_ns: False)
    batches = [batch(count, 200, seed, names) for seed, count in enumerate((900, 100, 2000))]
    assert answers("adaptive", batches, workers) == answers("serial", batches, 1)


def test_a_large_family_and_the_others_get_a_strategy_each(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = next(candidate for candidate in CANDIDATES if candidate.shared)
    monkeypatch.setattr(runner, "SURE", 0.0)
    monkeypatch.setattr(model.Model, "choose", lambda self, found, allow_split, batches: forced(shared, found))
    rng = np.random.default_rng(5)
    hot = rng.random(2000) < 0.5  # half of the events move money between two accounts
    one = batch(2000, 200, 5).set_column(1, "src", pa.array(np.where(hot, 0, 10 + rng.integers(0, 190, 2000))))
    one = one.set_column(2, "dst", pa.array(np.where(hot, 1, one["src"].to_numpy())))
    one = one.set_column(0, "transaction", pa.array(["transfer"] * 2000))
    with tg.Engine(PROGRAM, strategy="adaptive", workers=2) as engine:
        engine.run(one)
        assert engine.last_batch is not None
        assert engine.last_batch.strategy == "families + ns/operation/eager"
    assert answers("adaptive", [one, one]) == answers("serial", [one, one], 1)


@pytest.mark.parametrize("count", [70, 90, 150, 400])
def test_families_that_weighing_used_up_leave_nobody_behind(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small families, of which weighing runs every event: the others have no graph to run beside."""
    shared = [candidate for candidate in CANDIDATES if candidate.shared]
    monkeypatch.setattr(runner, "SURE", 0.0)
    monkeypatch.setattr(attention, "UNRELATED_BATCHES_MAX", 0)
    monkeypatch.setattr(probing, "PROBE_EVENTS_MAX", 16)
    monkeypatch.setattr(families, "WEIGHED", 1)
    monkeypatch.setattr(families, "LARGE_SHARE", 10**6)
    monkeypatch.setattr(model.Model, "learn", lambda self, choice, seconds, cost_ns: False)
    batches = [batch(count, 3_000, seed, ("transfer",)) for seed in range(4)]
    for candidate in shared:
        monkeypatch.setattr(
            model.Model, "choose", lambda self, found, allow_split, batches, c=candidate: forced(c, found)
        )
        assert answers("adaptive", batches, 2) == answers("serial", batches, 1)


def test_plain_python_inside_a_family_gives_pythons_answer() -> None:
    """Overflows on several workers at once: each runs its interpreter in turn."""
    names = ["grow"] * 400
    one = batch(400, 200, 9).set_column(0, "transaction", pa.array(names))
    one = one.set_column(5, "value", pa.array(np.full(400, 2**40)))
    expected = answers("serial", [one, one], 1)
    assert "overflow" in expected[0]["reason"].to_pylist()
    assert answers(tg.Families(), [one, one], 3) == expected


def test_families_are_found_through_other_transactions() -> None:
    """A chain of transfers is one family, in whatever order its links come."""
    chain = pa.table({"src": [2, 0, 1, 50], "dst": [3, 1, 2, 51], "value": [1] * 4, "rate": ["none"] * 4})
    with tg.Engine([transfer], strategy=tg.Families(), workers=2) as engine:
        engine.run(chain)
        assert engine.last_batch is not None
        assert engine.last_batch.properties == {"families": 2, "largest family": 0.75}


def test_cheap_functions_run_serially_and_the_report_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch is probed, the next one is known to be cheap."""
    monkeypatch.setattr(runner, "SURE", 1e9)
    batches = [batch(3000, 200, 1), batch(3000, 200, 2)]
    with tg.Engine(PROGRAM, strategy="adaptive", workers=2) as engine:
        for one, words in zip(batches, ("functions take", "functions took"), strict=True):
            engine.run(one)
            assert engine.last_batch is not None
            assert engine.last_batch.strategy == "serial" and words in engine.last_batch.why
            assert ("probe" in engine.last_batch.seconds) == (words == "functions take")
    assert answers("adaptive", batches) == answers("serial", batches, 1)


def test_the_model_prefers_families_when_they_are_even() -> None:
    even = Workload(10_000, 5_000.0, 2.0, 0.0, 0.0, 2, largest=0.5)
    assert model.Model().choose(even, allow_split=True).candidate is FAMILIES
    uneven = Workload(10_000, 5_000.0, 2.0, 0.001, 0.01, 2, largest=1.0)
    assert model.Model().choose(uneven, allow_split=True).candidate is not FAMILIES
