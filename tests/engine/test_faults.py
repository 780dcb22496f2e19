"""A mistake in a function that runs as plain Python: told in the reason and in the log, or the end of the run."""

from __future__ import annotations

import inspect
import logging
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.embedding import Engine  # at once: what is first imported where nothing is compiled, stays so
from tidegate.testing import assert_same_as_plain

pytestmark = pytest.mark.usefixtures("plainly")


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0


@tg.transaction(compiled=False)
def pay(dst: Account, amount: int) -> int:
    tg.require(amount != 1, "too little")
    if amount == 2:
        dst.balanc += amount  # type: ignore[attr-defined]
    if amount == 3:
        return look(dst)
    if amount == 4:
        raise RuntimeError
    if amount == 5:
        return "five"  # type: ignore[return-value]
    dst.balance += amount
    return dst.balance


def look(dst: Account) -> int:
    return {"a": dst.balance}["b"]


@tg.transaction
def deposit(dst: Account, amount: int) -> int:
    dst.balance += amount
    return 10 // (amount - 7)


def line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def events(*amounts: int, transaction: str = "pay") -> pa.Table:
    return pa.table({"transaction": [transaction] * len(amounts), "dst": [1] * len(amounts), "amount": list(amounts)})


MISSING = "AttributeError: 'Account' object has no attribute 'balanc'"


def test_the_reason_has_the_message_and_a_compiled_one_the_name_alone() -> None:
    table = pa.concat_tables([events(1, 2, 3, 4, 5, 10), events(7, transaction="deposit")])
    with Engine([pay, deposit]) as engine:
        assert engine.run(table)["reason"].to_pylist() == [
            "too little",
            MISSING,
            "KeyError: 'b'",
            "RuntimeError",
            "TypeError: pay.result holds int, got 'five'",
            None,
            "ZeroDivisionError",
        ]
        assert engine.execute(pay, dst=1, amount=2).reason == MISSING
        assert engine.read(Account, 1) == {"id": 1, "balance": 10}


def test_plain_functions_give_the_same_reasons() -> None:
    assert_same_as_plain([pay, deposit], [events(1, 2, 3, 4, 10), events(7, transaction="deposit")])


def test_a_compiled_function_that_plain_python_runs_gives_the_bare_name() -> None:
    with Engine([deposit]) as engine:
        engine.load(Account, pa.table({"id": [1], "balance": [2**63 - 1]}))
        assert engine.run(events(7, transaction="deposit"))["reason"].to_pylist() == ["overflow"]


def test_a_long_message_is_cut() -> None:
    @tg.transaction(compiled=False)
    def fail(dst: Account) -> None:
        raise ValueError("x" * 10_000)

    with Engine([fail]) as engine:
        assert len(engine.execute(fail, dst=1).reason or "") == 500


def test_the_first_traceback_of_each_kind_is_logged_with_its_line(caplog: pytest.LogCaptureFixture) -> None:
    with Engine([pay]) as engine:
        engine.run(events(2, 2, 3, 1))
        engine.run(events(2, 3))
        engine.execute(pay, dst=1, amount=2)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert told[0].startswith(f"{__file__}:{line_of('dst.balanc += amount')}: transaction 'pay' raised {MISSING}")
    assert told[1].startswith(f"{__file__}:{line_of('dst.balance}[')}: transaction 'pay' raised KeyError: 'b'")
    assert "dst.balanc += amount" in caplog.text
    assert "tidegate/engine" not in caplog.text.replace(__file__, "")  # the user's frames alone
    with Engine([pay]) as engine:
        engine.run(events(2))
    assert len(caplog.records) == 3  # another engine tells it again


@pytest.fixture(params=["in memory", "in a folder"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    directory = tmp_path if request.param == "in a folder" else None
    with Engine([pay, deposit], workers=2, directory=directory, on_error="raise") as engine:
        yield engine


def test_with_raise_nothing_of_the_batch_is_committed(engine: Engine) -> None:
    engine.load(Account, pa.table({"id": [1], "balance": [100]}))
    engine.run(events(10, 1))  # tg.require never counts
    some = pa.table({"transaction": ["pay"] * 300, "dst": list(range(300)), "amount": [10] * 299 + [2]})
    with pytest.raises(tg.TransactionFailed) as failed:
        engine.run(some)
    told = str(failed.value)
    where = f"{__file__}:{line_of('dst.balanc += amount')}"
    assert told.startswith(f"{where}: transaction 'pay' raised {MISSING}\nfor event 299 of")
    assert "dst=Account(id=299, balance=0, exists=False), amount=2" in told
    assert isinstance(failed.value.__cause__, AttributeError)
    assert str(pickle.loads(pickle.dumps(failed.value))) == told
    assert engine.scan(Account).to_pylist() == [{"id": 1, "balance": 110}]
    assert engine.run(events(5 + 5))["result"].to_pylist() == [120]  # and it goes on


def test_with_raise_a_single_call_raises_too(engine: Engine) -> None:
    with pytest.raises(tg.TransactionFailed, match="amount=2"):
        engine.execute(pay, dst=7, amount=2)
    assert engine.scan(Account).num_rows == 0
    assert engine.execute(pay, dst=7, amount=9).result == 9


def test_with_raise_a_compiled_transaction_aborts_as_ever(engine: Engine) -> None:
    assert engine.run(events(7, transaction="deposit"))["reason"].to_pylist() == ["ZeroDivisionError"]


def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(tg.DefinitionError, match=r"on_error: required .*got 'ignore'"):
        Engine([pay], on_error="ignore")  # type: ignore[arg-type]


# --- graphs ---------------------------------------------------------------------------------------------------

orders = tg.stream("orders", dst=int, amount=int)
paid = tg.stream("paid", dst=int, amount=int)
receipts = tg.stream("receipts", dst=int)


@tg.transaction(on=orders, emits=[paid])
def order(dst: Account, amount: int) -> None:
    dst.balance += amount
    tg.emit(paid, dst=dst.id, amount=amount)


@tg.transaction(on=paid, emits=[receipts], compiled=False)
def bill(dst: Account, amount: int, seen: Annotated[tg.WindowRows, tg.window(paid, rows=2, slide=1)]) -> None:
    if amount == 2:
        dst.balanc += amount  # type: ignore[attr-defined]
    dst.balance += len(seen)
    tg.emit(receipts, dst=dst.id)


def feed(*amounts: int) -> pa.Table:
    return pa.table({"dst": [1] * len(amounts), "amount": list(amounts)})


def test_a_step_of_a_graph_tells_the_same(caplog: pytest.LogCaptureFixture) -> None:
    with Engine([tg.dataflow([order, bill])], record=True) as engine:
        assert engine.run(feed(2, 3, 2))["committed"].to_pylist() == [True, True, True]
        assert engine.last_batch is not None and engine.last_batch.interior_aborts == {"bill": {MISSING: 2}}
        assert [step.reason for step in engine.history if step.transaction == "bill"] == [MISSING, None, MISSING]
    assert len(caplog.records) == 1


@pytest.mark.parametrize("kept", [False, True])
def test_with_raise_a_graph_is_as_before_the_run(kept: bool, tmp_path: Path) -> None:
    graph = tg.dataflow([order, bill], atomic_batch=2)
    with Engine([graph], directory=tmp_path if kept else None, on_error="raise", record=True) as engine:
        engine.run(feed(5, 6, 7))
        rows, waiting, window = engine.scan(Account), engine.scan(orders), engine.scan(bill.windows["seen"])
        steps = len(engine.history)
        with pytest.raises(tg.TransactionFailed, match=r"(?s)'bill' raised AttributeError.*for event 2, 3 of"):
            engine.run(feed(8, 9, 2, *[1] * 500))
        assert engine.scan(Account) == rows and engine.scan(orders) == waiting
        assert engine.scan(bill.windows["seen"]) == window
        if not kept:
            assert len(engine.history) == steps
        engine.run(feed(8))
        assert engine.take(receipts)["batch"].to_pylist() == [1, 1, 2, 2]


def test_the_log_names_where_the_source_of_the_function_is(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), Engine([pay]) as engine:
        engine.run(events(5))
    first = inspect.getsourcelines(pay.__wrapped__)[1] + 1
    assert f"{__file__}:{first}: transaction 'pay' raised TypeError" in caplog.text  # its result: no line of its own
