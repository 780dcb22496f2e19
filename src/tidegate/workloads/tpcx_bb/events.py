"""Clicks in a web shop and sales in its stores, made from a seed, as Arrow tables in the order of time.

    Click   one page that was looked at   time, user, item, action
    Sale    one line of a ticket          time, store, till, ticket, item, category, quantity, cents

User 0 did not log in, and item 0 is a page without an item. A return is a sale of a negative quantity.

Times are seconds and never go back; `rate` is how many events there are in one second of that time, so it decides
over how many hours or days a stream of some length goes. Items are drawn by Zipf's law: 1 is the most popular one.

A click belongs to a visit. Visits begin at any time, have some clicks a minute apart, and some of them put an item
into the cart and buy it, or leave it there. Two visits of one user may come close to each other; that is one session
then.

A ticket has up to `ITEMS_OF_TICKET` lines. A till works on one ticket at a time: in the lines of one till, those of a
ticket stand together. Prices of some categories rise over the stream, those of others fall.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.workloads.tpcx_bb.baskets import ITEMS_MAX
from tidegate.workloads.workload import Zipf

VIEW, CART, BUY = 0, 1, 2
"""The actions of a click."""
CATEGORIES = 10
ITEMS_OF_TICKET = 12

MINUTE, HOUR, DAY = 60, 3_600, 86_400
THETA = 0.9
_VISIT_CLICKS = 8.0
_VISIT_GAP = 45.0
_ANONYMOUS, _FRONT_PAGE, _SHOPPERS, _BUYERS = 0.1, 0.3, 0.4, 0.5
_TICKET_ITEMS = 4.0
_RETURNS = 0.02

Integers = npt.NDArray[np.int64]


@dataclass
class Click:
    """One page that was looked at."""

    time: int
    user: int
    item: int
    action: int


@dataclass
class Sale:
    """One line of a ticket."""

    time: int
    store: int
    till: int
    ticket: int
    item: int
    category: int
    quantity: int
    cents: int


def clicks(
    count: int, *, users: int = 2_000, items: int = 1_000, rate: float = 10.0, theta: float = THETA, seed: int = 1
) -> pa.Table:
    """So many clicks, in the order of time."""
    _check(count=count, users=users, items=items, rate=rate)
    random = np.random.default_rng([seed, 1])
    visit, place, length = _groups(random.geometric(1.0 / _VISIT_CLICKS, count), count)
    visits = len(length)
    user = random.integers(1, users + 1, visits)
    user[random.random(visits) < _ANONYMOUS] = 0
    begin = np.floor(np.sort(random.random(visits)) * (count / rate)).astype(np.int64)
    gap = np.where(place == 0, 0, 1 + np.floor(random.exponential(_VISIT_GAP, count))).astype(np.int64)
    walked = np.cumsum(gap)
    time = begin[visit] + walked - walked[place == 0][visit]

    item = Zipf(items, theta).draw(random, count) + 1
    item[(place == 0) & (random.random(count) < _FRONT_PAGE)] = 0
    wanted = Zipf(items, theta).draw(random, visits) + 1
    shops = (random.random(visits) < _SHOPPERS) & (length >= 3)
    buys = shops & (random.random(visits) < _BUYERS)
    carts_now = shops[visit] & (place == length[visit] - 2)
    buys_now = buys[visit] & (place == length[visit] - 1)
    item = np.where(carts_now | buys_now, wanted[visit], item)
    action = np.where(buys_now, BUY, np.where(carts_now, CART, VIEW))

    order = np.argsort(time, kind="stable")
    columns = {"time": time, "user": user[visit], "item": item, "action": action}
    return pa.table({name: column[order].astype(np.int64) for name, column in columns.items()})


def sales(
    count: int,
    *,
    stores: int = 10,
    tills: int = 20,
    items: int = 1_000,
    rate: float = 10.0,
    theta: float = THETA,
    seed: int = 1,
) -> pa.Table:
    """So many lines of tickets, in the order of time; `tills` is their number in each store."""
    _check(count=count, stores=stores, tills=tills, items=items, rate=rate)
    random = np.random.default_rng([seed, 2])
    lengths = np.clip(1 + random.poisson(_TICKET_ITEMS - 1.0, count), 1, ITEMS_OF_TICKET)
    ticket, place, length = _groups(lengths, count)
    all_tills = stores * tills
    till = ticket % all_tills
    # The n-th ticket of a till has a slot of time of its own: it begins in its first tenth and ends within the slot.
    slot = all_tills * _TICKET_ITEMS / rate
    begin = ticket // all_tills + 0.1 * random.random(len(length))[ticket]
    time = np.floor((begin + 0.9 * place / ITEMS_OF_TICKET) * slot).astype(np.int64)

    item = Zipf(items, theta).draw(random, count) + 1
    category = category_of(item)
    trend = np.linspace(-0.5, 0.5, CATEGORIES)[random.permutation(CATEGORIES)][category - 1]
    passed = time / max(1.0, float(time.max(initial=1)))
    cents = np.round((100 + item % 97 * 50) * (1.0 + trend * passed)).astype(np.int64)
    quantity = random.integers(1, 6, count)
    quantity[random.random(count) < _RETURNS] *= -1

    order = np.argsort(time, kind="stable")
    columns = {
        "time": time,
        "store": till // tills + 1,
        "till": till + 1,
        "ticket": ticket + 1,
        "item": item,
        "category": category,
        "quantity": quantity,
        "cents": cents,
    }
    return pa.table({name: column[order].astype(np.int64) for name, column in columns.items()})


def category_of(item: Integers) -> Integers:
    """The category of an item, from 1 to `CATEGORIES`."""
    return item * 7 % CATEGORIES + 1


def _groups(lengths: Integers, count: int) -> tuple[Integers, Integers, Integers]:
    """Groups of these lengths, cut after `count` members: each member's group and place in it, each group's length."""
    ends = np.cumsum(lengths)
    groups = int(np.searchsorted(ends, count)) + 1 if count else 0
    length = np.array(lengths[:groups], np.int64)
    if groups:
        length[-1] -= ends[groups - 1] - count
    group = np.repeat(np.arange(groups), length)
    place = np.arange(count) - (np.cumsum(length) - length)[group]
    return group, place, length


def _check(*, count: int, items: int, **positive: float) -> None:
    if count < 0:
        raise ValueError(f"count is 0 or more; got {count}")
    if not 1 <= items <= ITEMS_MAX:
        raise ValueError(f"items is from 1 to {ITEMS_MAX:,}, so that a basket can hold them; got {items:,}")
    for name, value in positive.items():
        if not value > 0:
            raise ValueError(f"{name} is more than 0; got {value}")
