"""Online bidding (OB): bids take stock if the price is right and enough is left.

The real job: an auction or shop where sellers change prices and refill stock of many items at once while
buyers bid on single ones. A bid that saw yesterday's price, or the last piece sold twice, is a refund.

    table   key   fields
    Item    id    price, quantity, seal

    bid     1 row written: less of it is left      a = "price too low" or "not enough left"
    alter   l rows written: new prices             a = "no such price"
    top     l rows written: more is left           a = "no such quantity"

Bids, alters and tops come 6 : 1 : 1; alter and top take lists of l = 20 items, all different. Every item that is
written has a seal, on which the cost C is spent before any condition is checked. A bid is accepted only if the
price is high enough *and* the quantity suffices.

Promise: what is left is what there was, plus what was topped up, minus what was sold; never below zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import tidegate as tg
from tidegate.workloads.cost import burn
from tidegate.workloads.workload import PLENTY, TOO_MUCH, Run, Settings, Tables, Workload, lists_column, names_column

PRICE_MIN, PRICE_MAX = 100, 200  # what sellers ask; buyers offer more, unless their bid is planted to fail
BID, ALTER, TOP = 0, 1, 2
SHARES = (6, 1, 1)


@tg.table(key="id")
class Item:
    """Something for sale."""

    id: int
    price: int = 0
    quantity: int = 0
    seal: int = 0


@tg.transaction
def bid(item: Item, price: int, quantity: int, rounds: int) -> int:
    """Buy some of an item; the answer is what is left."""
    seal = burn(item.seal + quantity, rounds)
    tg.require(price >= item.price, "price too low")
    tg.require(item.quantity >= quantity, "not enough left")
    item.quantity -= quantity
    item.seal = seal
    return item.quantity


@tg.transaction
def alter(items: list[Item], prices: list[int], rounds: int) -> int:
    """Change the prices of several items; the answer is how many."""
    for item, price in zip(items, prices, strict=True):
        item.seal = burn(item.seal + price, rounds)
    for item, price in zip(items, prices, strict=True):
        tg.require(price > 0, "no such price")
        item.price = price
    return len(items)


@tg.transaction
def top(items: list[Item], quantities: list[int], rounds: int) -> int:
    """Refill several items; the answer is how many."""
    for item, more in zip(items, quantities, strict=True):
        item.seal = burn(item.seal + more, rounds)
    for item, more in zip(items, quantities, strict=True):
        tg.require(item.quantity + more >= 0, "no such quantity")
        item.quantity += more
    return len(items)


@dataclass(frozen=True, slots=True, kw_only=True)
class BiddingSettings(Settings):
    """The knobs of online bidding: `length` is l, the items of an alter or a top."""

    theta: float = 0.6
    length: int = 20
    keys: int = 10_000

    def least(self) -> dict[str, int]:
        """Every item of a list is another one."""
        return {"batch_events": 1, "length": 1, "keys": self.length}


TSTREAM = BiddingSettings(theta=0.6, abort_ratio=0.0, cost_us=0.0, batch_events=500)
"""As in TStream's evaluation."""


class Bidding(Workload):
    """Bids beside sellers who change prices and stock."""

    name: ClassVar[str] = "online bidding"
    tables: ClassVar[tuple[type, ...]] = (Item,)
    program = (bid, alter, top)
    settings: BiddingSettings

    def opening(self) -> Tables:
        """Items 0, 1, 2, ... with plenty of each."""
        keys = self.settings.keys
        prices = self.random().integers(PRICE_MIN, PRICE_MAX + 1, keys)
        return {Item: pa.table({"id": np.arange(keys), "price": prices, "quantity": np.full(keys, PLENTY)})}

    def batch(self, number: int) -> pa.Table:
        """A batch; a planted list fails at an element somewhere in it."""
        settings, random = self.settings, self.random(number)
        count = settings.batch_events
        kinds = random.choice(3, count, p=np.array(SHARES) / sum(SHARES))
        aborts = random.random(count) < settings.abort_ratio
        bids, alters, tops = (kinds == kind for kind in (BID, ALTER, TOP))
        too_cheap = aborts & (random.random(count) < 0.5)
        lists = self.zipf.draw_distinct(random, count, settings.length)
        prices = random.integers(PRICE_MIN, PRICE_MAX + 1, lists.shape)
        more = random.integers(1, 100, lists.shape)
        wrong = np.flatnonzero(aborts), random.integers(0, settings.length, int(aborts.sum()))
        prices[wrong] = 0
        more[wrong] = -TOO_MUCH
        price = np.where(too_cheap, PRICE_MIN - 1, random.integers(PRICE_MAX, 2 * PRICE_MAX, count))
        quantity = np.where(aborts & ~too_cheap, TOO_MUCH, random.integers(1, 10, count))
        return pa.table(
            {
                "transaction": names_column(kinds, ["bid", "alter", "top"]),
                "item": pa.array(self.zipf.draw(random, count), mask=~bids),
                "price": pa.array(price, mask=~bids),
                "quantity": pa.array(quantity, mask=~bids),
                "items": lists_column(lists, ~bids),
                "prices": lists_column(prices, alters),
                "quantities": lists_column(more, tops),
                "rounds": np.full(count, self.rounds),
            }
        )

    def broken_promises(self, opening: Tables, events: pa.Table, run: Run) -> list[str]:
        """Stock is conserved and never below zero."""
        done = events.filter(pa.concat_tables(run.outcomes)["committed"])
        topped, sold = (
            pc.sum(column).as_py() or 0 for column in (pc.list_flatten(done["quantities"]), done["quantity"])
        )
        before, after = (pc.sum(rows[Item]["quantity"]).as_py() for rows in (opening, run.rows))
        problems = []
        if after != before + topped - sold:
            problems.append(f"stock not conserved: {after - before - topped + sold:+d}")
        if pc.min(run.rows[Item]["quantity"]).as_py() < 0:
            problems.append("an item was sold that was not there")
        return problems
