"""A user's program whose values have the types of the standard library, checked strictly."""

from __future__ import annotations

import enum
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Literal, NamedTuple
from uuid import UUID

import tidegate as tg

Money = Annotated[Decimal, tg.digits(12, 2)]
Instant = Annotated[datetime, UTC]


class State(enum.Enum):
    OPEN = "open"
    PAID = "paid"


@tg.table(key="id")
class Order:
    id: UUID
    day: date = date(2026, 1, 1)
    total: Money = Decimal(0)
    state: State = State.OPEN
    paid_at: Instant | None = None
    wait: timedelta = timedelta(0)
    size: Literal["s", "l"] = "s"
    data: bytes = b""


class Receipt(NamedTuple):
    total: Money
    state: State
    paid_at: Instant | None


paid = tg.stream("paid", order=Order, amount=Money, at=Instant | None)


@tg.transaction
def pay(order: Order, amount: Money, at: Instant, note: str | None) -> Receipt:
    tg.require(order.paid_at is None, "paid already")
    tg.require(amount > 0 and note is not None, "nothing")
    order.total += round(amount * Decimal("1.19"), 2)
    order.state = State.PAID
    order.paid_at = at
    if order.total > 100:
        order.size = "l"
    return Receipt(order.total, order.state, order.paid_at)


def test_a_payment() -> None:
    order = Order(UUID(int=1))
    receipt = pay(order, Decimal("10.00"), datetime(2026, 1, 1, tzinfo=UTC), "thanks")
    assert receipt.total == Decimal("11.90") and order.state is State.PAID
