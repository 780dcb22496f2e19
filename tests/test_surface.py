"""The public surface, used exactly as it is promised: the part that needs no Spark."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate import ordering, testing

from .strategies import STRATEGIES


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0  # cents; the default is what an absent row reads as


@tg.transaction
def transfer(src: Account, dst: Account, amount: int) -> int:
    tg.require(src.balance >= amount, "insufficient funds")
    src.balance -= amount
    dst.balance += amount
    return src.balance


@tg.transaction
def deposit(dst: Account, amount: int) -> int:
    dst.balance += amount
    return dst.balance


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_engine_as_the_design_writes_it(strategy: str) -> None:
    engine = tg.Engine([transfer, deposit], strategy=strategy, workers=2, directory=None)
    engine.load(Account, pa.table({"id": [1, 2], "balance": [100, 0]}))
    outcomes = engine.run(
        pa.table(
            {
                "transaction": ["transfer", "deposit", "transfer"],
                "src": [1, None, 2],
                "dst": [2, 1, 1],
                "amount": [60, 5, 1000],
            }
        ),
        order_by=None,
    )
    assert outcomes.to_pydict() == {
        "transaction": ["transfer", "deposit", "transfer"],
        "src": [1, None, 2],
        "dst": [2, 1, 1],
        "amount": [60, 5, 1000],
        "committed": [True, True, False],
        "reason": [None, None, "insufficient funds"],
        "result": [40, 45, None],
    }
    outcome = engine.execute(transfer, src=1, dst=2, amount=30)
    assert outcome == tg.Outcome(committed=True, reason=None, result=15)
    assert engine.execute(transfer, src=1, dst=2, amount=30) == tg.Outcome(False, "insufficient funds", None)
    assert engine.read(Account, 1) == {"id": 1, "balance": 15}
    assert engine.read(Account, 3) is None
    assert engine.scan(Account).to_pydict() == {"id": [1, 2], "balance": [15, 90]}
    assert engine.last_batch is not None


def test_the_engine_may_be_called_from_several_threads() -> None:
    """Each call is a whole: money is conserved in every scan, and no transfer is lost."""
    engine = tg.Engine([transfer, deposit])
    engine.load(Account, pa.table({"id": list(range(8)), "balance": [1000] * 8}))
    events = pa.table({"transaction": ["transfer"] * 4, "src": [0, 1, 2, 3], "dst": [4, 5, 6, 7], "amount": [1] * 4})

    def work(number: int) -> set[int]:
        totals = set()
        for step in range(20):
            engine.execute(transfer, src=number, dst=(number + step) % 8, amount=step)
            engine.run(events)
            totals.add(sum(engine.scan(Account)["balance"].to_pylist()))
        return totals

    with ThreadPoolExecutor(4) as pool:
        assert set().union(*pool.map(work, range(4))) == {8000}
    assert sum(engine.read(Account, number)["balance"] for number in range(8)) == 8000


def test_the_default_strategy_is_adaptive() -> None:
    engine = tg.Engine([deposit])
    assert engine.run(pa.table({"dst": [1], "amount": [5]}))["result"].to_pylist() == [5]


def test_a_strategy_that_does_not_exist_is_refused_with_the_choices() -> None:
    with pytest.raises((tg.TidegateError, ValueError), match=r"(?s)fastest.*serial") as error:
        tg.Engine([deposit], strategy="fastest")
    assert "adaptive" in str(error.value)


@pytest.mark.parametrize("workers", [0, -1])
def test_workers_must_be_positive(workers: int) -> None:
    with pytest.raises((tg.TidegateError, ValueError), match="workers"):
        tg.Engine([deposit], workers=workers)


@pytest.mark.parametrize(
    "name",
    [
        "table", "transaction", "require", "abort", "exists", "delete", "Abort", "Engine", "Outcome", "Decision",
        "Transaction", "BatchReport", "TidegateError", "DefinitionError", "InputError", "LimitExceeded",
        "OperatorFailed", "StorageCorrupted", "RecoveryImpossible", "StateOwned",
    ],
)  # fmt: skip
def test_the_names_are_public(name: str) -> None:
    assert hasattr(tg, name)
    assert name in tg.__all__


def test_what_a_program_gives_and_takes_is_of_the_public_types() -> None:
    engine = tg.Engine([deposit])
    assert isinstance(deposit, tg.Transaction)
    assert isinstance(engine.execute(deposit, dst=1, amount=5), tg.Outcome)
    engine.run(pa.table({"dst": [1], "amount": [5]}))
    assert isinstance(engine.last_batch, tg.BatchReport)


@pytest.mark.parametrize("name", ["DeadLetter", "Observed", "Pipeline", "merge", "pipeline"])
def test_the_names_of_ordered_pipelines_are_public(name: str) -> None:
    assert name in ordering.__all__ and hasattr(ordering, name)


@pytest.mark.parametrize("name", ["absent", "collecting", "looking_up", "remembering", "rows"])
def test_what_only_tests_need_is_in_the_test_kit(name: str) -> None:
    assert name in testing.__all__ and hasattr(testing, name)
    assert not hasattr(tg, name)


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(tg.__file__).parent / "py.typed").exists()


@pytest.mark.parametrize("compiled", [True, False])
def test_exists_is_what_the_attribute_says(compiled: bool) -> None:
    """Compiled, interpreted and as a plain function."""

    @tg.transaction(compiled=compiled)
    def reopen(row: Account, other: Account) -> int:
        before = tg.exists(row)
        tg.require(before == row.exists, "they differ")  # type: ignore[attr-defined]
        tg.delete(row)
        tg.require(not tg.exists(row), "it is still there")
        row.balance += 1
        tg.require(tg.exists(row) and not tg.exists(other), "it is not there")
        return int(before)

    engine = tg.Engine([reopen])
    engine.load(Account, pa.table({"id": [1], "balance": [100]}))
    outcomes = engine.run(pa.table({"row": [1, 1, 2, 1], "other": [3, 3, 3, 2]}))
    assert outcomes["result"].to_pylist() == [1, 1, 0, None]
    assert outcomes["reason"].to_pylist() == [None, None, None, "it is not there"]
    assert engine.scan(Account).to_pydict() == {"id": [1, 2], "balance": [1, 1]}, "asking creates nothing"

    row, other = Account(1, balance=100), testing.absent(Account, 3)
    assert (reopen(row, other), row.balance, tg.exists(other)) == (1, 1, False)
    assert reopen(testing.absent(Account, 2), other) == 0
    with pytest.raises(tg.Abort, match="it is not there"):
        reopen(row, Account(4))


def test_an_absent_row_has_the_whole_key() -> None:
    @tg.table(key=("shop", "day"))
    class Sales:
        day: int
        shop: str
        total: int = 3

    assert repr(testing.absent(Sales, "north", 7)) == "Sales(day=7, shop='north', total=3, exists=False)"
    with pytest.raises(TypeError, match=r"the key of Sales is \(shop, day\), got 1 values"):
        testing.absent(Sales, "north")
    with pytest.raises(TypeError, match="is not a table"):
        testing.absent(int, 7)


def test_all_is_sorted_and_true() -> None:
    assert list(tg.__all__) == sorted(tg.__all__)
    assert all(hasattr(tg, name) for name in tg.__all__)


def test_different_return_types_give_a_struct_with_one_field_per_transaction() -> None:
    @tg.transaction
    def look(src: Account) -> float:
        return src.balance / 2

    @tg.transaction
    def touch(src: Account) -> None:
        src.balance += 0

    engine = tg.Engine([deposit, look, touch])
    events = {
        "transaction": ["deposit", "look", "touch", "look"],
        "dst": [1, None, None, None],
        "src": [None, 1, 1, None],
        "amount": [5, None, None, None],
    }
    outcomes = engine.run(pa.table(events))
    assert outcomes.schema.field("result").type == pa.struct([("deposit", pa.int64()), ("look", pa.float64())])
    assert outcomes["result"].to_pylist() == [
        {"deposit": 5, "look": None},
        {"deposit": None, "look": 2.5},
        None,
        None,
    ]
    assert outcomes["committed"].to_pylist() == [True, True, True, False]
