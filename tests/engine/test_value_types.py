"""Values of every type in the engine: execute, read, streams, windows, histories, restarts and replayed logs."""

from __future__ import annotations

import enum
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import pyarrow as pa
import pytest

import tidegate as tg
import tidegate.embedding  # before `uncompiled`: kernels are compiled or not when they are imported
from tidegate.foundation.jit import uncompiled

Money = Annotated[Decimal, tg.digits(12, 2)]
Instant = Annotated[datetime, UTC]


class State(enum.Enum):
    OPEN = "open"
    PAID = "paid"


@tg.table(key=("id", "day"))
class Order:
    id: UUID
    day: date
    total: Money = Decimal(0)
    state: State = State.OPEN
    paid_at: Instant | None
    note: str | None
    share: float | None
    data: bytes = b""
    wait: timedelta = timedelta(0)
    size: Literal["s", "l"] = "s"


paid = tg.stream("paid", order=Order, amount=Money, at=Instant | None, note=str | None, state=State)


@tg.transaction
def pay(order: Order, amount: Money, at: Instant, note: str | None, share: float | None, wait: timedelta) -> Money:
    tg.require(amount > 0, "nothing")
    order.total += amount
    order.state = State.PAID
    order.paid_at = at
    order.note = note
    order.share = share
    order.wait = wait
    order.data = b"\xff\x00"
    return order.total


@tg.transaction(compiled=False)
def pay_slowly(order: Order, amount: Money, at: Instant | None) -> State:
    order.total = order.total + amount
    order.paid_at = at
    return order.state


KEY = (UUID(int=5), date(2026, 1, 2))
NOW = datetime(2026, 1, 2, 3, 4, 5, 6, UTC)
ARGUMENTS: dict[str, Any] = {"at": NOW, "note": None, "share": None, "wait": timedelta(seconds=-1)}
ROW = {
    "id": KEY[0],
    "day": KEY[1],
    "total": Decimal("3.50"),
    "state": State.PAID,
    "paid_at": NOW,
    "note": None,
    "share": None,
    "data": b"\xff\x00",
    "wait": timedelta(seconds=-1),
    "size": "s",
}


@pytest.fixture(autouse=True)
def plain() -> Any:
    with uncompiled():
        yield


def test_execute_and_read_speak_python() -> None:
    engine = tg.Engine([pay, pay_slowly])
    assert engine.execute(pay, order=KEY, amount=Decimal("3.5"), **ARGUMENTS) == tg.Outcome(True, None, Decimal("3.50"))
    assert engine.read(Order, KEY) == ROW
    assert engine.execute(pay_slowly, order=KEY, amount=1, at=None).result is State.PAID
    assert engine.read(Order, KEY) == {**ROW, "total": Decimal("4.50"), "paid_at": None}
    assert engine.execute(pay, order=KEY, amount=Decimal("0.00"), **ARGUMENTS).reason == "nothing"
    for wrong in (Decimal("0.001"), 1.5, "1", Decimal(10) ** 11):
        with pytest.raises(tg.InputError, match="amount"):
            engine.execute(pay, order=KEY, amount=wrong, **ARGUMENTS)
    with pytest.raises(tg.InputError, match="'at'"):
        engine.execute(pay, order=KEY, amount=1, **{**ARGUMENTS, "at": NOW.replace(tzinfo=None)})


def test_rows_and_columns_that_do_not_fit() -> None:
    engine = tg.Engine([pay])
    rows = {"id": [str(KEY[0])], "day": [KEY[1]]}
    with pytest.raises(tg.InputError, match="'gone' in row 0"):
        engine.load(Order, pa.table({**rows, "state": ["gone"]}))
    engine.load(Order, pa.table({**rows, "state": ["paid"], "note": pa.nulls(1)}))
    found = engine.scan(Order).to_pylist()[0]
    assert (found["state"], found["note"], found["paid_at"]) == ("paid", None, None)
    key = pa.array([{"id": str(KEY[0]), "day": KEY[1]}])
    event = {"order": key, "amount": [1], "note": ["x"], "share": [1.0], "wait": [timedelta(1)]}
    with pytest.raises(tg.InputError, match="the column has no zone"):
        engine.run(pa.table({**event, "at": pa.array([NOW.replace(tzinfo=None)], pa.timestamp("us"))}))


def test_a_restart_and_a_replayed_log_bring_everything_back(tmp_path: Path) -> None:
    with tg.Engine([pay, pay_slowly], directory=tmp_path) as engine:
        for number in range(70):
            arguments = {**ARGUMENTS, "note": None if number % 2 else "n"}
            engine.execute(pay, order=(UUID(int=number), KEY[1]), amount=Decimal("0.5"), **arguments)
        engine.execute(pay, order=KEY, amount=Decimal("3"), idempotency_key="a", **ARGUMENTS)
        assert engine.execute(pay_slowly, "b", order=KEY, amount=0, at=NOW).result is State.PAID
        rows = engine.scan(Order)
    with tg.Engine([pay, pay_slowly], directory=tmp_path) as engine:
        assert engine.scan(Order).equals(rows)
        assert engine.read(Order, KEY) == ROW
        again = engine.execute(pay, order=KEY, amount=Decimal("3"), idempotency_key="a", **ARGUMENTS)
        assert again.result == Decimal("3.50")
        assert engine.execute(pay_slowly, "b", order=KEY, amount=0, at=NOW).result is State.PAID
        assert engine.read(Order, KEY) == ROW


@tg.transaction(on=paid)
def count(
    order: Order,
    amount: Money,
    at: Instant | None,
    note: str | None,
    recent: Annotated[tg.WindowRows, tg.window(paid, rows=3, slide=1)],
) -> int:
    missing = 0
    for row in recent:
        if row.note is None:
            missing += 1
        if row.at is not None and row.amount > order.total:
            order.total = row.amount
            order.paid_at = row.at
    order.note = note
    return missing


def test_streams_and_windows_carry_them(tmp_path: Path) -> None:
    flow = tg.dataflow([count])
    key = {"id": str(KEY[0]), "day": KEY[1]}
    events = pa.table(
        {
            "order": pa.array([key] * 4),
            "amount": pa.array(
                [Decimal("1.50"), Decimal("0.50"), Decimal("2.50"), Decimal("9.00")], pa.decimal128(5, 2)
            ),
            "at": pa.array([NOW, None, NOW, None], pa.timestamp("us", "UTC")),
            "note": pa.array(["a", None, None, "b"]),
            "state": ["open", "paid", "open", "paid"],
        }
    )
    engine = tg.Engine([flow])
    assert engine.run(events)["result"].to_pylist() == [0, 1, 2, 2]
    expected = engine.read(Order, KEY)
    assert expected is not None and expected["total"] == Decimal("2.50") and expected["note"] == "b"
    for recovery in ("weak", "strong"):
        folder = tmp_path / recovery
        with tg.Engine([flow], directory=folder, recovery=recovery) as kept:  # type: ignore[arg-type]
            kept.run(events.slice(0, 2))
        with tg.Engine([flow], directory=folder, recovery=recovery) as kept:  # type: ignore[arg-type]
            assert kept.run(events.slice(2))["result"].to_pylist() == [2, 2]
            assert kept.read(Order, KEY) == expected


def test_none_survives_a_new_string_pool() -> None:
    engine = tg.Engine([pay])
    engine.execute(pay, order=KEY, amount=1, **ARGUMENTS)
    engine.execute(pay, order=(UUID(int=6), KEY[1]), amount=1, **{**ARGUMENTS, "note": "text"})
    before = engine.scan(Order)
    engine._core._collect_strings()
    assert engine.scan(Order).equals(before)
