"""TPCx-BB 1: the hundred pairs of items that are sold together most often in the stores, every hour.

    Sale ─ line (SL) ─ sold_together (PS, till) ─ count_pair (PS, pair) ─ top_100 (SF) ─ Ranked

Two items are sold together when they are on one ticket; a pair counts once for a ticket, at the time of the line that
completes it. Returns do not count. Of a ticket with more than twelve different items the first twelve count. A pair
is listed if it was sold together `FREQUENT` times in its hour at least. Larger counts come first, then smaller items.

The list of an hour is emitted when the first frequent pair of a later hour is there.

Tickets are told apart by their number and by their till, which works on one at a time: so the state is as large as
there are tills, and nobody has to guess when a ticket ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidegate.workloads.tpcx_bb.baskets import ITEMS_MAX, PLACES, Pair, holds, item_at, pair_of, word_with
from tidegate.workloads.tpcx_bb.events import HOUR, Sale
from tidegate.workloads.tpcx_bb.top_lists import Counted, top_list

SIZE = 100
FREQUENT = 3


@dataclass
class Line:
    """An item that was sold."""

    time: int
    till: int
    ticket: int
    item: int


@dataclass
class Ticket:
    """The ticket that a till works on: its different items so far."""

    ticket: int = 0
    count: int = 0
    a: int = 0
    b: int = 0
    c: int = 0
    d: int = 0


@dataclass
class PairOfHour:
    """How often a pair was sold in the hour in which it was sold last."""

    hour: int = 0
    count: int = 0


def line(sale: Sale) -> Line | None:
    """What is needed of a sale; nothing of a return, or of an item that a basket cannot hold."""
    if sale.quantity > 0 and 0 < sale.item <= ITEMS_MAX:
        return Line(sale.time, sale.till, sale.ticket, sale.item)
    return None


def sold_together(state: Ticket, line: Line) -> list[Pair]:
    """The pairs of an item with all other items of its ticket until now."""
    out = []
    if line.ticket != state.ticket:
        state.ticket = line.ticket
        state.count = 0
        state.a = 0
        state.b = 0
        state.c = 0
        state.d = 0
    known = holds(state.a, state.b, state.c, state.d, state.count, line.item)
    if not known and state.count < PLACES:
        for place in range(state.count):
            other = item_at(state.a, state.b, state.c, state.d, place)
            out.append(Pair(line.time, pair_of(other, line.item)))
        state.a = word_with(state.a, 0, line.item, state.count)
        state.b = word_with(state.b, 3, line.item, state.count)
        state.c = word_with(state.c, 6, line.item, state.count)
        state.d = word_with(state.d, 9, line.item, state.count)
        state.count += 1
    return out


def count_pair(state: PairOfHour, pair: Pair) -> Counted | None:
    """The count of a pair in this hour, once it is frequent."""
    hour = pair.time // HOUR
    if hour != state.hour:
        state.hour = hour
        state.count = 0
    state.count += 1
    if state.count >= FREQUENT:
        return Counted(hour, pair.pair, state.count)
    return None


top_100 = top_list(SIZE, begins_again=True)


def query(source: Any) -> Any:
    """The query behind a pipeline of `Sale`."""
    return source.map(line).stateful(sold_together, key="till").stateful(count_pair, key="pair").stateful(top_100)
