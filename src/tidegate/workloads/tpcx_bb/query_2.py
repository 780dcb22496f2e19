"""TPCx-BB 2: the thirty pairs of items that are viewed together most often in the web shop.

    Click ─ view (SL) ─ session (PS, user) ─ viewed_together (SL) ─ count_pair (PS, pair) ─ top_30 (SF) ─ Ranked

Two items are viewed together when both are clicked in one session of a user. A session ends when the user's next
click comes more than an hour after the one before; it is known to have ended when that click is there, and its pairs
count at that time. What may still go on does not count. A pair counts once for a session. Of a session with more than
twelve different items the first twelve count. Clicks of users who are not logged in, and pages without an item, do
not matter.

Counts are of all time. A pair is listed if it was viewed together `FREQUENT` times at least. The list is emitted when
a frequent pair of a later hour is there: larger counts first, then smaller items.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidegate.workloads.tpcx_bb.baskets import ITEMS_MAX, PLACES, Pair, holds, item_at, pair_of, word_with
from tidegate.workloads.tpcx_bb.events import HOUR, Click
from tidegate.workloads.tpcx_bb.top_lists import Counted, top_list

SIZE = 30
FREQUENT = 5
TIMEOUT = HOUR


@dataclass
class View:
    """An item that a known user clicked."""

    time: int
    user: int
    item: int


@dataclass
class Visit:
    """The session of a user until now: the time of its last click, and its different items."""

    last: int = 0
    count: int = 0
    a: int = 0
    b: int = 0
    c: int = 0
    d: int = 0


@dataclass
class Session:
    """The items of a session, and the time at which it was known to have ended."""

    time: int
    count: int
    a: int
    b: int
    c: int
    d: int


@dataclass
class PairOfAllTime:
    """In how many sessions a pair was viewed."""

    count: int = 0


def view(click: Click) -> View | None:
    """What is needed of a click; nothing if the user or the item is not known."""
    if click.user > 0 and 0 < click.item <= ITEMS_MAX:
        return View(click.time, click.user, click.item)
    return None


def session(state: Visit, view: View) -> list[Session]:
    """The session before, if this click begins another one."""
    out = []
    if view.time - state.last > TIMEOUT:
        if state.count > 0:
            out.append(Session(view.time, state.count, state.a, state.b, state.c, state.d))
        state.count = 0
        state.a = 0
        state.b = 0
        state.c = 0
        state.d = 0
    state.last = view.time
    known = holds(state.a, state.b, state.c, state.d, state.count, view.item)
    if not known and state.count < PLACES:
        state.a = word_with(state.a, 0, view.item, state.count)
        state.b = word_with(state.b, 3, view.item, state.count)
        state.c = word_with(state.c, 6, view.item, state.count)
        state.d = word_with(state.d, 9, view.item, state.count)
        state.count += 1
    return out


def viewed_together(session: Session) -> list[Pair]:
    """All pairs of a session's items."""
    out = []
    for later in range(session.count):
        item = item_at(session.a, session.b, session.c, session.d, later)
        for earlier in range(later):
            other = item_at(session.a, session.b, session.c, session.d, earlier)
            out.append(Pair(session.time, pair_of(other, item)))
    return out


def count_pair(state: PairOfAllTime, pair: Pair) -> Counted | None:
    """The count of a pair, once it is frequent."""
    state.count += 1
    if state.count >= FREQUENT:
        return Counted(pair.time // HOUR, pair.pair, state.count)
    return None


top_30 = top_list(SIZE, begins_again=False)


def query(source: Any) -> Any:
    """The query behind a pipeline of `Click`."""
    return (
        source.map(view)
        .stateful(session, key="user")
        .flat_map(viewed_together)
        .stateful(count_pair, key="pair")
        .stateful(top_30)
    )
