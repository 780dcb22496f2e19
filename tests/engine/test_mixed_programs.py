"""Plain transactions beside dataflow graphs: the strategies run the plain part, and the outcomes are serial ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.compiler.program import build_program
from tidegate.engine import stages
from tidegate.foundation.jit import uncompiled
from tidegate.operations.decision import Strategy


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0
    moves: int = 0


@tg.table(key="id")
class Page:
    id: int
    views: int = 0


clicks = tg.stream("clicks", page=int, weight=int)
counted = tg.stream("counted", page=int, views=int)
popular = tg.stream("popular", page=int)


@tg.transaction(on=clicks, emits=[counted])
def count(page: Page, weight: int) -> int:
    tg.require(weight < 9, "a robot")
    page.views += weight
    tg.emit(counted, page=page.id, views=page.views)
    return page.views


@tg.transaction(on=counted, emits=[popular])
def promote(page: int, views: int) -> None:
    if views % 10 == 0:
        tg.emit(popular, page=page)


@tg.transaction
def transfer(src: Account, dst: Account, amount: int) -> int:
    tg.require(src.balance >= amount, "too little")
    src.balance -= amount
    dst.balance += amount
    src.moves += 1
    return src.balance


@tg.transaction
def leave(src: Account, dst: Account) -> None:
    dst.balance += src.balance
    tg.delete(src)


@tg.transaction
def follow(src: Account, amount: int) -> int:
    """Looks up a row, or makes one, whose key only another row knows."""
    found = tg.lookup(Account, 1_000 + src.balance % 500)
    found.balance += amount
    tg.require(found.balance < 20, "too rich")
    return found.id


PAGES = tg.dataflow([count, promote], name="pages")
WITH_LOOK_UPS = [PAGES, transfer, leave, follow]
STRATEGIES: list[Strategy] = ["lock", "mvlk", "chains", tg.Decision(), "adaptive"]


def events(size: int, seed: int, shares: dict[str, float]) -> pa.Table:
    """Events of some transactions, as often as their shares say."""
    rng = np.random.default_rng(seed)
    names = rng.choice(list(shares), size, p=list(shares.values()))
    columns = {"src": rng.integers(0, 300, size), "dst": rng.integers(0, 300, size), "page": rng.integers(0, 20, size)}
    sources = pa.array(columns["src"], mask=rng.random(size) < 0.01)  # a null key: a refused event
    small = {"amount": rng.integers(0, 9, size), "weight": rng.integers(0, 10, size)}
    return pa.table({"transaction": names, **columns, **small, "src": sources})


def seen(program: Any, batches: list[pa.Table], strategy: Strategy, workers: int) -> tuple[list[Any], list[str]]:
    """Everything that a user can observe of some batches, and the strategy of each."""
    found: list[Any] = []
    ran = []
    with tg.Engine(program, strategy=strategy, workers=workers) as engine:
        engine.load(Account, pa.table({"id": np.arange(300), "balance": np.full(300, 10)}))
        for batch in batches:
            found += [engine.run(batch), engine.scan(Account), engine.scan(Page), engine.take(popular)]
            assert engine.last_batch is not None
            ran.append(engine.last_batch.strategy)
    return found, ran


def test_plain_transactions_without_a_table_of_a_graph_are_one_stage() -> None:
    plan = build_program([PAGES, transfer, leave]).plan
    assert [stage.transactions for stage in plan.flows.stages if not stage.groups] == [(2, 3)]


def test_a_program_without_graphs_is_one_stage() -> None:
    @tg.transaction
    def view(page: Page) -> None:
        page.views += 1

    (stage,) = build_program([transfer, view]).plan.flows.stages
    assert (stage.groups, stage.transactions) == ((), (0, 1))


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_the_strategies_run_what_shares_no_table_with_a_graph(strategy: Strategy) -> None:
    batches = [events(size, size, {"clicks": 0.2, "transfer": 0.7, "leave": 0.1}) for size in (900, 0, 1, 900)]
    wanted, _ = seen([PAGES, transfer, leave], batches, "serial", 1)
    found, ran = seen([PAGES, transfer, leave], batches, strategy, 2)
    assert found == wanted
    assert strategy == "adaptive" or ran[0] == f"{strategy}, serial"


@pytest.mark.parametrize("least", [1, 5])
@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_the_strategies_run_plain_transactions_between_look_ups(
    strategy: Strategy, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that the look-ups make let the table grow between two parts."""
    monkeypatch.setattr(stages, "AROUND_EVENTS", least)
    shares = {"clicks": 0.1, "transfer": 0.7, "leave": 0.1, "follow": 0.1}
    batches = [events(size, size, shares) for size in (300, 1, 300, 300)]
    wanted, _ = seen(WITH_LOOK_UPS, batches, "serial", 1)
    found, ran = seen(WITH_LOOK_UPS, batches, strategy, 3)
    assert found == wanted
    assert strategy == "adaptive" or str(strategy) in ran[0]


def test_short_runs_of_plain_transactions_stay_in_the_walk() -> None:
    shares = {"transfer": 0.5, "follow": 0.5}
    with tg.Engine(WITH_LOOK_UPS, strategy="lock", workers=2) as engine:
        engine.run(events(400, 1, shares))
        assert engine.last_batch is not None and engine.last_batch.strategy == "serial"


def test_one_that_looks_rows_up_does_not_take_the_workers_from_the_others() -> None:
    few = events(3_000, 1, {"transfer": 1.0})
    names = np.array(few["transaction"].to_pylist())
    names[[500, 2_000]] = "follow"
    batch = few.set_column(0, "transaction", pa.array(names))
    with tg.Engine(WITH_LOOK_UPS, strategy="lock", workers=2) as engine:
        engine.run(batch)
        assert engine.last_batch is not None
        assert (engine.last_batch.strategy, engine.last_batch.workers) == ("lock, serial", 2)


def test_a_history_of_one_table_leaves_transactions_on_others_to_the_strategies() -> None:
    @tg.transaction(time="ts")
    def note(page: Page, ts: int) -> int:
        page.views += 1
        return len(tg.history(page, last=5))

    flows = build_program([note, transfer]).plan.flows
    assert [stage.transactions for stage in flows.stages if not stage.groups] == [(1,)]
    rng = np.random.default_rng(1)
    size = 2_000
    batch = pa.table(
        {
            "transaction": rng.choice(["note", "transfer"], size),
            "page": rng.integers(0, 9, size),
            "ts": np.arange(size) // 50,
            "src": rng.integers(0, 300, size),
            "dst": rng.integers(0, 300, size),
            "amount": rng.integers(0, 3, size),
        }
    )
    found = []
    ways: list[tuple[Strategy, int]] = [("serial", 1), ("lock", 2)]
    for strategy, workers in ways:
        with uncompiled(), tg.Engine([note, transfer], strategy=strategy, workers=workers) as engine:
            engine.load(Account, pa.table({"id": np.arange(300), "balance": np.full(300, 10)}))
            found.append([engine.run(batch), engine.scan(Account), engine.scan(Page)])
    assert found[0] == found[1]


def test_plain_python_in_the_plain_part() -> None:
    @tg.transaction(compiled=False)
    def rename(src: Account, amount: int) -> str:
        tg.require(amount != 3, f"not {amount}")
        src.moves += amount
        return f"{src.id}: {src.moves}"

    batches = [events(500, 1, {"clicks": 0.3, "transfer": 0.4, "rename": 0.3})]
    program = [PAGES, transfer, rename]
    with uncompiled():
        assert seen(program, batches, "lock", 2)[0] == seen(program, batches, "serial", 1)[0]


def test_an_integer_that_leaves_64_bits_in_the_plain_part() -> None:
    @tg.transaction
    def grow(src: Account, amount: int) -> int:
        return (src.balance + 1) * 2**61 * amount % 1_000_003

    batches = [events(500, 1, {"clicks": 0.3, "transfer": 0.4, "grow": 0.3})]
    program = [PAGES, transfer, grow]
    with uncompiled():
        assert seen(program, batches, "lock", 2)[0] == seen(program, batches, "serial", 1)[0]


def test_events_that_wait_are_not_forgotten_by_a_batch_that_no_graph_sees() -> None:
    program = [tg.dataflow([count, promote], name="pages", atomic_batch=3), transfer]
    some = events(2, 1, {"clicks": 1.0})
    more = events(1, 2, {"clicks": 1.0})
    plain = events(200, 3, {"transfer": 1.0})
    with uncompiled():
        wanted, _ = seen(program, [some, plain, more, plain], "serial", 1)
        found, _ = seen(program, [some, plain, more, plain], "lock", 2)
    assert found == wanted
    assert [len(outcomes) for outcomes in found[::4]] == [0, 200, 3, 200]


def test_events_that_wait_across_a_restart_beside_batches_that_no_graph_sees(tmp_path: Path) -> None:
    program = [tg.dataflow([count, promote], name="pages", atomic_batch=3), transfer]
    plain = events(200, 3, {"transfer": 1.0})
    with uncompiled(), tg.Engine(program, strategy="lock", workers=2, directory=str(tmp_path / "state")) as engine:
        engine.run(events(2, 1, {"clicks": 1.0}))
    with uncompiled(), tg.Engine(program, strategy="lock", workers=2, directory=str(tmp_path / "state")) as engine:
        assert len(engine.run(plain)) == 200
        assert len(engine.run(events(1, 2, {"clicks": 1.0}))) == 3
        assert len(engine.run(plain)) == 200


def test_few_plain_events_beside_stages_that_run_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adaptive gives so few events to no strategy: the walk runs them, and it must know their transactions."""
    monkeypatch.setattr(stages, "SIDE_BY_SIDE_EVENTS", 1)
    batches = [events(50, seed, {"clicks": 0.5, "transfer": 0.5}) for seed in range(4)]
    program = [tg.dataflow([count, promote], name="pages"), transfer]
    with uncompiled():
        wanted, _ = seen(program, batches, "serial", 1)
        found, ran = seen(program, batches, "adaptive", 2)
    assert found == wanted
    assert {"serial", "stages"} == set(ran)
