"""TPCx-BB 3: for each item that is bought online, the thirty items that were viewed most often shortly before.

    Click ─ step (SL) ─ viewed_before (PS, user) ─ count_views (PS, bought) ─ ViewsOfDay

A view counts for a purchase if it is among the last five views of that user, is not older than ten days, and is of
another item. Counts are of all time. The list of a bought item is emitted when the first view of a later day counts
for it, and has what was counted until then: larger counts first, then smaller items.

`count_views` counts any items in a dict, so it runs as plain Python; few clicks get that far.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tidegate.workloads.tpcx_bb.events import BUY, DAY, VIEW, Click

SIZE = 30
PAST = 10 * DAY


@dataclass
class Step:
    """A view or a purchase of a known user."""

    time: int
    user: int
    item: int
    bought: bool


@dataclass
class LastViews:
    """The last five views of a user, the newest first; item 0 is no view."""

    item_1: int = 0
    item_2: int = 0
    item_3: int = 0
    item_4: int = 0
    item_5: int = 0
    time_1: int = 0
    time_2: int = 0
    time_3: int = 0
    time_4: int = 0
    time_5: int = 0


@dataclass
class ViewedBefore:
    """An item that was viewed before another one was bought."""

    time: int
    bought: int
    viewed: int


@dataclass
class Views:
    """How often each item was viewed before this one was bought, and the day of the last purchase."""

    day: int = -1
    counts: dict[int, int] = field(default_factory=dict)


@dataclass
class ViewsOfDay:
    """A place in the list of a bought item at the end of a day, from 1 on."""

    day: int
    bought: int
    rank: int
    viewed: int
    count: int


def step(click: Click) -> Step | None:
    """What is needed of a click: views and purchases of users and items that are known."""
    if click.user > 0 and click.item > 0 and (click.action == VIEW or click.action == BUY):
        return Step(click.time, click.user, click.item, click.action == BUY)
    return None


def viewed_before(state: LastViews, step: Step) -> list[ViewedBefore]:
    """The views that count for a purchase, the newest first."""
    out = []
    if step.bought:
        since = step.time - PAST
        if counts(state.item_1, state.time_1, step.item, since):
            out.append(ViewedBefore(step.time, step.item, state.item_1))
        if counts(state.item_2, state.time_2, step.item, since):
            out.append(ViewedBefore(step.time, step.item, state.item_2))
        if counts(state.item_3, state.time_3, step.item, since):
            out.append(ViewedBefore(step.time, step.item, state.item_3))
        if counts(state.item_4, state.time_4, step.item, since):
            out.append(ViewedBefore(step.time, step.item, state.item_4))
        if counts(state.item_5, state.time_5, step.item, since):
            out.append(ViewedBefore(step.time, step.item, state.item_5))
    else:
        state.item_5, state.time_5 = state.item_4, state.time_4
        state.item_4, state.time_4 = state.item_3, state.time_3
        state.item_3, state.time_3 = state.item_2, state.time_2
        state.item_2, state.time_2 = state.item_1, state.time_1
        state.item_1, state.time_1 = step.item, step.time
    return out


def counts(viewed: int, time: int, bought: int, since: int) -> bool:
    """Whether a view counts for a purchase."""
    return viewed != 0 and viewed != bought and time >= since


def count_views(state: Views, view: ViewedBefore) -> list[ViewsOfDay]:
    """The list of a bought item until the day of its last purchase, if a later day has begun for it."""
    out = []
    day = view.time // DAY
    if day > state.day:
        best = sorted(state.counts.items(), key=lambda entry: (-entry[1], entry[0]))[:SIZE]
        for rank, (viewed, count) in enumerate(best, start=1):
            out.append(ViewsOfDay(state.day, view.bought, rank, viewed, count))
        state.day = day
    state.counts[view.viewed] = state.counts.get(view.viewed, 0) + 1
    return out


def query(source: Any) -> Any:
    """The query behind a pipeline of `Click`."""
    return source.map(step).stateful(viewed_before, key="user").stateful(count_views, key="bought")
