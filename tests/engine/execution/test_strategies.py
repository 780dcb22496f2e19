"""Every strategy on contended batches, what released systems got wrong, and what happens when a run is cut short."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.engine.execution import runner
from tidegate.operations.decision import DECISIONS, Decision, Families, Strategy

from ...accounts import Account, Asset, close, deposit, multiply, swap, transfer
from ...strategies import CONFIGURATIONS, STRATEGIES


@tg.table(key="id")
class Item:
    id: int
    price: int = 0
    quantity: int = 0


@tg.transaction
def bid(item: Item, price: int, quantity: int) -> int:
    tg.require(price >= item.price, "price too low")
    tg.require(item.quantity >= quantity, "not enough left")
    item.quantity -= quantity
    return item.quantity


@tg.transaction(compiled=False)
def note(dst: Account, value: int) -> int:
    dst.notes += int(str(value))
    return dst.notes


LEDGER = [deposit, transfer, swap, close]


def contended(count: int, keys: int, seed: int) -> pa.Table:
    """Events over few keys, most of which abort."""
    rng = np.random.default_rng(seed)
    names = np.array([transaction.__name__ for transaction in LEDGER])

    def key() -> Any:
        return (keys * rng.random(count) ** 3).astype(np.int64)

    return pa.table(
        {
            "transaction": names[rng.choice(4, count, p=[0.02, 0.45, 0.5, 0.03])],
            "src": key(),
            "dst": key(),
            "have": key(),
            "want": key(),
            "value": rng.integers(0, 900, count),
            "count": rng.integers(0, 50, count),
        }
    )


def run(strategy: Strategy, workers: int, program: list[Any], batches: list[pa.Table], **rows: pa.Table) -> list[Any]:
    """Outcomes of all batches, and the tables afterwards."""
    tables = {"accounts": Account, "assets": Asset, "items": Item}
    with tg.Engine(program, strategy=strategy, workers=workers) as engine:
        for name, given in rows.items():
            engine.load(tables[name], given)
        outcomes = [engine.run(batch) for batch in batches]
        used = {name for transaction in program for name in transaction.classes}
        return [*outcomes, *(engine.scan(table) for table in tables.values() if table.__name__ in used)]


@pytest.mark.parametrize(("strategy", "workers"), CONFIGURATIONS, ids=str)
@pytest.mark.parametrize("keys", [1, 3, 40])
def test_contended_batches_equal_the_serial_run(strategy: Strategy, workers: int, keys: int) -> None:
    batches = [contended(1500, keys, seed) for seed in range(3)]
    opening = pa.table({"id": np.arange(keys), "balance": np.full(keys, 120)})
    expected = run("serial", 1, LEDGER, batches, accounts=opening)
    assert run(strategy, workers, LEDGER, batches, accounts=opening) == expected
    aborted = 1 - np.mean(expected[0]["committed"].to_numpy())
    assert aborted > (0.5 if keys > 1 else 0.05)  # the batch is what its name says


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_any_number_of_workers_and_any_piece(strategy: Strategy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers up to four times the processors; graphs of 97 events at most."""
    monkeypatch.setattr(runner, "PIECE_EVENTS", 97)
    batches = [contended(400, 12, 7)]
    expected = run("serial", 1, LEDGER, batches)
    for workers in (1, 2, 3, 5, 8):
        assert run(strategy, workers, LEDGER, batches) == expected


def test_unsafe_nolock_is_unsafe() -> None:
    """An upper bound that loses updates: if it never does, the others are not tested hard enough."""
    opening = pa.table({"id": [0], "balance": [0]})
    batch = pa.table({"dst": np.zeros(200_000, np.int64), "value": np.ones(200_000, np.int64)})
    for _ in range(50):
        *_, accounts = run("unsafe-nolock", 4, [deposit], [batch], accounts=opening)
        if accounts["balance"].to_pylist() != [200_000]:
            return
    pytest.fail("200,000 unprotected additions by four threads lost none in 50 runs")


class TestMistakesOfReleasedSystems:
    """Each was seen in a released system; here they are wrong outcomes by name."""

    @pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
    def test_the_target_of_a_transfer_grows_from_its_own_balance_so_that_money_is_conserved(
        self, strategy: Strategy
    ) -> None:
        batch = pa.table({"src": [1, 2, 3] * 200, "dst": [2, 3, 1] * 200, "value": [7, 11, 13] * 200})
        opening = pa.table({"id": [1, 2, 3], "balance": [1000, 10, 500]})
        *_, accounts = run(strategy, 2, [transfer], [batch], accounts=opening)
        assert sum(accounts["balance"].to_pylist()) == 1510

    @pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
    def test_a_bid_needs_the_price_and_the_quantity(self, strategy: Strategy) -> None:
        batch = pa.table({"item": [1, 1, 1, 1], "price": [9, 10, 9, 10], "quantity": [1, 6, 6, 5]})
        opening = pa.table({"id": [1], "price": [10], "quantity": [5]})
        outcomes, items = run(strategy, 2, [bid], [batch], items=opening)
        reasons = ["price too low", "not enough left", "price too low", None]
        assert outcomes["reason"].to_pylist() == reasons
        assert items["quantity"].to_pylist() == [0]

    @pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
    def test_an_abort_leaves_none_of_the_transactions_writes(self, strategy: Strategy) -> None:
        """The last check fails: three rows were written, and later transactions read them."""
        swaps = {"transaction": ["swap"] * 3, "src": [1, 2, 2], "dst": [2, 3, 3], "have": [1, 2, 3], "want": [2, 3, 1]}
        batch = pa.table({**swaps, "value": [10, 5, 1], "count": [1, 1, 0]})
        opening = pa.table({"id": [1], "balance": [10]})
        outcomes, accounts, assets = run(strategy, 2, LEDGER, [batch], accounts=opening)
        assert outcomes["reason"].to_pylist() == ["insufficient assets", "insufficient funds", "insufficient funds"]
        assert accounts["balance"].to_pylist() == [10] and assets.num_rows == 0

    @pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
    def test_a_rollback_goes_through_every_level(self, strategy: Strategy) -> None:
        """Money that an aborted swap never moved is passed on 60 times: none of it may arrive."""
        count = 60
        names = ["swap"] + ["transfer"] * count
        batch = pa.table(
            {
                "transaction": names,
                "src": [0, *range(1, count + 1)],
                "dst": [1, *range(2, count + 2)],
                "have": [0] * (count + 1),
                "want": [1] * (count + 1),
                "value": [50] * (count + 1),
                "count": [1] * (count + 1),
            }
        )
        opening = pa.table({"id": [0], "balance": [50]})
        outcomes, accounts, _ = run(strategy, 3, LEDGER, [batch], accounts=opening)
        assert outcomes["reason"].to_pylist() == ["insufficient assets"] + ["insufficient funds"] * count
        assert accounts.to_pylist() == [{"id": 0, "balance": 50, "notes": 0, "rate": 1.0}]

    @pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
    def test_a_read_never_sees_what_comes_later(self, strategy: Strategy) -> None:
        """Every deposit's result is the balance at its own time, whatever ran first."""
        batch = pa.table({"dst": [1] * 500, "value": list(range(500))})
        outcomes, _ = run(strategy, 4, [deposit], [batch])
        assert outcomes["result"].to_pylist() == list(np.cumsum(range(500)))


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_an_abort_frees_a_later_transaction_to_commit(strategy: Strategy) -> None:
    """The first swap aborts at its last check, so the money is still there for the transfer behind it."""
    names = ["swap", "transfer", "transfer"]
    keys = {"src": [1, 1, 1], "dst": [2, 3, 4], "have": [9, 0, 0], "want": [8, 0, 0]}
    batch = pa.table({"transaction": names, **keys, "value": [10, 10, 10], "count": [5, 0, 0]})
    opening = pa.table({"id": [1], "balance": [10]})
    outcomes, accounts, _ = run(strategy, 2, LEDGER, [batch], accounts=opening)
    assert outcomes["reason"].to_pylist() == ["insufficient assets", None, "insufficient funds"]
    assert accounts.select(["id", "balance"]).to_pylist() == [{"id": 1, "balance": 0}, {"id": 3, "balance": 10}]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_an_operation_that_needs_plain_python_gives_pythons_answer(strategy: Strategy) -> None:
    """An overflow in the middle of a batch: the events before and after it commit as usual."""
    program = [deposit, multiply]
    names = ["deposit"] * 100 + ["multiply"] * 3 + ["deposit"] * 100
    batch = pa.table({"transaction": names, "dst": [1] * 203, "value": [1] * 100 + [2**40] * 3 + [1] * 100})
    outcomes, _, accounts = run(strategy, 2, program, [batch, batch])
    assert outcomes["reason"].to_pylist()[100:103] == [None, "overflow", "overflow"]
    with tg.Engine(program, strategy=strategy, workers=2) as engine:
        engine.run(batch)
        assert engine.last_batch is not None
        assert engine.last_batch.interpreted >= 2
    assert accounts.to_pylist() == run("serial", 1, program, [batch, batch])[-1].to_pylist()


@tg.transaction
def wind(dst: Account, value: int) -> int:
    dst.balance = dst.balance * 2**40 // 2**40 + value  # leaves 64 bits on the way
    return dst.balance


@tg.transaction
def unwind(dst: Account) -> int:
    rounds = 0
    while dst.balance != 7:  # ends only if the transaction before it happened
        rounds += 1
    dst.notes += 1
    return rounds


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_nothing_runs_on_what_a_transaction_left_that_needs_plain_python(strategy: Strategy, workers: int) -> None:
    """The loop of the second would not end on rows where the first never happened."""
    batch = pa.table(
        {"transaction": ["wind", "unwind"] * 50, "dst": np.repeat(range(50), 2), "value": [-(10**9) + 7] * 100}
    )
    opening = pa.table({"id": np.arange(50), "balance": np.full(50, 10**9)})
    outcomes, accounts = run(strategy, workers, [wind, unwind], [batch], accounts=opening)
    assert outcomes["result"].to_pylist() == [7, 0] * 50
    assert accounts["notes"].to_pylist() == [1] * 50


def test_an_interpreted_transaction_runs_serially_with_a_warning_that_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    batch = pa.table({"transaction": ["deposit", "note"], "dst": [1, 1], "value": [5, 6]})
    with tg.Engine([deposit, note], strategy=Decision(), workers=2) as engine:
        engine.run(batch)
        engine.run(batch)
        assert engine.read(Account, 1) == {"id": 1, "balance": 10, "notes": 12, "rate": 1.0}
        assert engine.last_batch is not None and engine.last_batch.strategy == "serial"
        assert "note" in engine.last_batch.why
        engine.run(batch.slice(0, 1))  # without such a transaction the strategy is what was asked for
        assert engine.last_batch.strategy == "ns/operation/eager"
    assert sum("'note' is interpreted" in record.message for record in caplog.records) == 1


@pytest.mark.parametrize("strategy", ["lock", "partitioned", "mvlk", "chains", *DECISIONS[:4]], ids=str)
def test_an_interrupted_run_changes_nothing_and_the_engine_goes_on(strategy: Strategy) -> None:
    """Ctrl-C while workers run: KeyboardInterrupt, rows as before, and the next run is right."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore it
    try:
        interrupt_a_run(strategy)
    finally:
        signal.signal(signal.SIGINT, previous)


def interrupt_a_run(strategy: Strategy) -> None:
    opening = pa.table({"id": [1, 2], "balance": [10**6, 0]})
    big = pa.table({"src": [1] * 100_000, "dst": [2] * 100_000, "rounds": [20_000] * 100_000})
    small = big.slice(0, 3)
    with tg.Engine([slow_transfer], strategy=strategy, workers=2) as engine:
        engine.load(Account, opening)
        engine.run(small.set_column(2, "rounds", pa.array([1, 1, 1])))
        before = engine.scan(Account)
        interrupter = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
        interrupter.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            engine.run(big)
        assert time.monotonic() - began < 60
        assert engine.scan(Account) == before
        engine.run(small.set_column(2, "rounds", pa.array([1, 1, 1])))
        assert engine.read(Account, 2) == {"id": 2, "balance": 6, "notes": 0, "rate": 1.0}


@pytest.mark.parametrize("strategy", ["adaptive", Families(), "mvlk", Decision()], ids=str)
def test_a_run_that_gets_no_threads_changes_nothing_and_the_engine_goes_on(
    strategy: Strategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the strategy would run some events first, to learn what they cost."""
    batch, start, started = contended(500, 20, 3), threading.Thread.start, []

    def refuse_the_second(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    with tg.Engine(LEDGER, strategy=strategy, workers=2) as engine, tg.Engine(LEDGER, strategy="serial") as serial:
        before = engine.scan(Account)
        with monkeypatch.context() as patch, pytest.raises(tg.LimitExceeded, match="required 2 threads, got 1"):
            patch.setattr(threading.Thread, "start", refuse_the_second)
            engine.run(batch)
        assert engine.scan(Account) == before
        assert engine.run(batch) == serial.run(batch)
        assert engine.scan(Account) == serial.scan(Account)


@tg.transaction
def slow_transfer(src: Account, dst: Account, rounds: int) -> int:
    total = 0
    for step in range(rounds):
        total = (total * 31 + step) % 1_000_003
    src.balance -= 1
    dst.balance += 1
    return total


def test_last_batch_says_what_was_done() -> None:
    batch = contended(500, 20, 3)
    with tg.Engine(LEDGER, strategy=Decision("bfs", "operation", "lazy"), workers=2) as engine:
        engine.run(batch)
        found = engine.last_batch
        assert found is not None
        assert found.decision == Decision("bfs", "operation", "lazy") and found.workers == 2
        assert found.properties["transactions"] == 500 and found.properties["operations"] > 500
        assert {"construct", "explore", "install"} <= set(found.seconds)
        assert found.events == 500 and found.committed + sum(found.aborted.values()) == 500
