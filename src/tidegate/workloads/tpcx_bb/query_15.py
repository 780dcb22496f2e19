"""TPCx-BB 15: the categories of items whose sales in the stores are flat or falling.

    Sale ─ is_purchase (SL) ─ amount (SL) ─ trend (PS, category) ─ Declining

What a category sold on a day is one point: the number of the day, and the cents. A straight line is laid through the
points of all days that have ended (least squares); if it does not rise, the category is emitted, once a day. Returns
do not count, and a day without a sale of the category is no point. A day has ended for a category when a sale of a
later day is there.

The sums that make the line are integers, so whether it rises is decided exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidegate.workloads.tpcx_bb.events import DAY, Sale


@dataclass
class Amount:
    """What one line of a ticket adds to its category."""

    day: int
    category: int
    cents: int


@dataclass
class Trend:
    """The sales of a category: its current day, and sums over the days that have ended (x is the day, y the cents)."""

    day: int = -1
    cents: int = 0
    days: int = 0
    x: int = 0
    y: int = 0
    xx: int = 0
    xy: int = 0


@dataclass
class Declining:
    """A category that does not grow: its last day that has ended, how many days it had, and cents more a day."""

    day: int
    category: int
    days: int
    slope: float


def is_purchase(sale: Sale) -> bool:
    """Whether something was sold, not brought back."""
    return sale.quantity > 0


def amount(sale: Sale) -> Amount:
    """The day, the category and the price of a sale."""
    return Amount(sale.time // DAY, sale.category, sale.quantity * sale.cents)


def trend(state: Trend, sale: Amount) -> Declining | None:
    """The category, if its line until yesterday does not rise, at the first sale of a day."""
    ended, is_new_day = state.day, sale.day > state.day
    if is_new_day:
        if ended >= 0:
            state.days += 1
            state.x += ended
            state.y += state.cents
            state.xx += ended * ended
            state.xy += ended * state.cents
        state.day = sale.day
        state.cents = 0
    state.cents += sale.cents
    if is_new_day and state.days >= 2:
        rise = state.days * state.xy - state.x * state.y
        if rise <= 0:
            return Declining(ended, sale.category, state.days, rise / (state.days * state.xx - state.x * state.x))
    return None


def query(source: Any) -> Any:
    """The query behind a pipeline of `Sale`."""
    return source.filter(is_purchase).map(amount).stateful(trend, key="category")
