"""TPCx-BB 4: how many pages users visit in sessions in which they fill a shopping cart and leave it behind.

    Click ─ page (SL) ─ session (PS, user) ─ is_abandoned (SL) ─ average (SF) ─ Abandonment

A session ends when the user's next click comes more than an hour after the one before; it is known to have ended when
that click is there, and counts at that time. What may still go on does not count. It is abandoned if something was
put into the cart and nothing was bought. Every click is a page, whether it shows an item or not. Clicks of users who
are not logged in do not matter.

The average of all abandoned sessions until then is emitted when one of a later hour is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidegate.workloads.tpcx_bb.events import BUY, CART, HOUR, Click

TIMEOUT = HOUR


@dataclass
class Page:
    """A click of a known user."""

    time: int
    user: int
    carts: bool
    buys: bool


@dataclass
class Visit:
    """The session of a user until now."""

    last: int = 0
    pages: int = 0
    carted: bool = False
    bought: bool = False


@dataclass
class Session:
    """A session, and the time at which it was known to have ended."""

    time: int
    pages: int
    carted: bool
    bought: bool


@dataclass
class Abandoned:
    """All abandoned sessions until now."""

    hour: int = 0
    sessions: int = 0
    pages: int = 0


@dataclass
class Abandonment:
    """How many sessions were abandoned until the end of this hour, and how many pages they had on average."""

    hour: int
    sessions: int
    pages: float


def page(click: Click) -> Page | None:
    """What is needed of a click; nothing if the user is not known."""
    if click.user > 0:
        return Page(click.time, click.user, click.action == CART, click.action == BUY)
    return None


def session(state: Visit, page: Page) -> list[Session]:
    """The session before, if this click begins another one."""
    out = []
    if page.time - state.last > TIMEOUT:
        if state.pages > 0:
            out.append(Session(page.time, state.pages, state.carted, state.bought))
        state.pages = 0
        state.carted = False
        state.bought = False
    state.last = page.time
    state.pages += 1
    state.carted = state.carted or page.carts
    state.bought = state.bought or page.buys
    return out


def is_abandoned(session: Session) -> bool:
    """Whether a cart was left behind."""
    return session.carted and not session.bought


def average(state: Abandoned, session: Session) -> Abandonment | None:
    """The average until the hour before, if this session is the first of a later one."""
    ended, sessions, pages = state.hour, state.sessions, state.pages
    state.hour = session.time // HOUR
    state.sessions += 1
    state.pages += session.pages
    if sessions > 0 and state.hour > ended:
        return Abandonment(ended, sessions, pages / sessions)
    return None


def query(source: Any) -> Any:
    """The query behind a pipeline of `Click`."""
    return source.map(page).stateful(session, key="user").filter(is_abandoned).stateful(average)
