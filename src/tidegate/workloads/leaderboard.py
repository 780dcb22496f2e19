"""Leaderboard maintenance: a talent show in which viewers vote by phone.

    votes ──> validate ──> valid ──> rank ──> ranked ──> remove_last

    validate       one vote for each phone, for a contestant who is still in the show
    rank           the boards: top 3 and bottom 3 of all votes, and the top 3 of the last 100 (`window`)
    remove_last    at fixed intervals the contestant with the fewest votes leaves, and their voters may vote again

For each vote the three run in sequence, as one nested transaction: `remove_last` must not see votes that came after
the one it was started by, and a vote that came in between must not be counted for a contestant who has left.

No phone is written for that: one whose contestant has left counts as one that has not voted. So removing a contestant
costs the same whatever the number of phones.

`SynchronousClient` is the same work for an engine without graphs: the client calls the procedures one after the
other, waits for each answer, and keeps the window and the order itself.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pyarrow as pa

import tidegate as tg

CONTESTANTS = 25
WINDOW_ROWS = 100


@tg.table(key="id")
class Contestant:
    """A contestant and the votes for them."""

    id: int
    votes: int = 0


@tg.table(key="phone")
class Voter:
    """Whom a phone voted for last."""

    phone: int
    contestant: int = 0


@tg.table(key="id")
class Show:
    """The show itself: how many votes were counted, who has left (one bit each), how often somebody is to leave."""

    id: int
    counted: int = 0
    removed: int = 0
    left: int = 0
    every: int = 20_000


@tg.table(key="id")
class Board:
    """A leaderboard: three places with their votes; -1 where there is nobody."""

    id: int
    first: int = -1
    first_votes: int = 0
    second: int = -1
    second_votes: int = 0
    third: int = -1
    third_votes: int = 0


TOP, BOTTOM, TRENDING = 0, 1, 2

votes = tg.stream("votes", phone=int, contestant=int, show=int)
valid = tg.stream("valid", contestant=int, show=int)
ranked = tg.stream("ranked", show=int, last=int)
removals = tg.stream("removals", contestant=int, votes=int)


def has_left(removed: int, contestant: int) -> bool:
    """Whether a contestant's bit is set."""
    return removed >> contestant & 1 == 1


def count(phone: Voter, contestant: Contestant, show: Show) -> None:
    """Count a vote if its contestant is in the show, and if the phone has not voted before."""
    tg.require(tg.exists(contestant), "no such contestant")
    tg.require(not has_left(show.removed, contestant.id), "the contestant has left")
    voted = tg.exists(phone)
    tg.require(not voted or has_left(show.removed, phone.contestant), "voted before")
    phone.contestant = contestant.id
    contestant.votes += 1
    show.counted += 1


@tg.transaction(on=votes, emits=[valid])
def validate(phone: Voter, contestant: Contestant, show: Show) -> int:
    """Count a vote; the answer is how many the contestant has."""
    count(phone, contestant, show)
    tg.emit(valid, contestant=contestant.id, show=show.id)
    return contestant.votes


def clear(board: Board) -> None:
    """Remove everybody from a board."""
    board.first, board.second, board.third = -1, -1, -1
    board.first_votes, board.second_votes, board.third_votes = 0, 0, 0


def is_ahead(count: int, number: int, other_count: int, other: int, sign: int) -> bool:
    """Who comes first: with sign 1 the one with more votes, or the smaller number; with sign -1 the other way round."""
    if other < 0:
        return True
    return count * sign > other_count * sign or (count == other_count and number * sign < other * sign)


def place(board: Board, number: int, count: int, sign: int) -> None:
    """Put a contestant on a board, if there is a place."""
    if is_ahead(count, number, board.first_votes, board.first, sign):
        board.third, board.third_votes = board.second, board.second_votes
        board.second, board.second_votes = board.first, board.first_votes
        board.first, board.first_votes = number, count
    elif is_ahead(count, number, board.second_votes, board.second, sign):
        board.third, board.third_votes = board.second, board.second_votes
        board.second, board.second_votes = number, count
    elif is_ahead(count, number, board.third_votes, board.third, sign):
        board.third, board.third_votes = number, count


@tg.transaction(on=valid, emits=[ranked])
def rank(show: Show, recent: Annotated[tg.WindowRows, tg.window(valid, rows=WINDOW_ROWS, slide=1)]) -> None:
    """Renew the boards."""
    top, bottom, trending = tg.lookup(Board, TOP), tg.lookup(Board, BOTTOM), tg.lookup(Board, TRENDING)
    clear(top)
    clear(bottom)
    clear(trending)
    for number in range(CONTESTANTS):
        if not has_left(show.removed, number):
            count = tg.lookup(Contestant, number).votes
            place(top, number, count, 1)
            place(bottom, number, count, -1)
    for number in recent.top("contestant", 3):
        place(trending, number, recent.frequency("contestant", number), 1)
    tg.emit(ranked, show=show.id, last=bottom.first)


@tg.transaction(on=ranked, emits=[removals])
def remove_last(show: Show, last: int) -> None:
    """Remove the contestant with the fewest votes, when it is time and more than one is left."""
    if show.counted % show.every == 0 and show.left + 1 < CONTESTANTS:
        leaving = tg.lookup(Contestant, last)
        tg.emit(removals, contestant=leaving.id, votes=leaving.votes)
        show.removed = show.removed | 1 << last
        show.left += 1
        leaving.votes = 0


leaderboard = tg.dataflow([validate, rank, remove_last], nested=[(validate, rank, remove_last)], name="leaderboard")


# --- the same work, driven from outside ---------------------------------------------------------------------


@tg.transaction
def cast(phone: Voter, contestant: Contestant, show: Show) -> int:
    """Count a vote, as `validate` does."""
    count(phone, contestant, show)
    return contestant.votes


@tg.transaction
def renew(
    show: Show,
    everybody: list[Contestant],
    top: Board,
    bottom: Board,
    trending: Board,
    best: list[int],
    best_votes: list[int],
) -> int:
    """Renew the boards, as `rank` does; the client knows who trends. The answer is who is last."""
    clear(top)
    clear(bottom)
    clear(trending)
    for contestant in everybody:
        if not has_left(show.removed, contestant.id):
            place(top, contestant.id, contestant.votes, 1)
            place(bottom, contestant.id, contestant.votes, -1)
    for number, count in zip(best, best_votes):  # noqa: B905
        place(trending, number, count, 1)
    return bottom.first


@tg.transaction
def dismiss(show: Show, last: Contestant) -> bool:
    """Remove the last, as `remove_last` does; the answer is whether it was time."""
    due = show.counted % show.every == 0 and show.left + 1 < CONTESTANTS
    if due:
        show.removed = show.removed | 1 << last.id
        show.left += 1
        last.votes = 0
    return due


PROCEDURES = [cast, renew, dismiss]


class SynchronousClient:
    """Feeds an engine vote by vote: calls a procedure, waits, and decides from the answer what to call next.

    It keeps what the engine does not: the last 100 votes, and how many each contestant has among them.
    """

    def __init__(self, engine: tg.Engine) -> None:
        self._engine = engine
        self._recent: deque[int] = deque()
        self._counts: Counter[int] = Counter()

    def vote(self, phone: int, contestant: int, show: int) -> tg.Outcome:
        """One vote through the three procedures, in their order."""
        execute = self._engine.execute
        outcome = execute(cast, phone=phone, contestant=contestant, show=show)
        if not outcome.committed:
            return outcome
        self._recent.append(contestant)
        self._counts[contestant] += 1
        if len(self._recent) > WINDOW_ROWS:
            oldest = self._recent.popleft()
            self._counts[oldest] -= 1
            if not self._counts[oldest]:
                del self._counts[oldest]
        best = sorted(self._counts, key=lambda number: (-self._counts[number], number))[:3]
        renewed = execute(
            renew,
            show=show,
            everybody=list(range(CONTESTANTS)),
            top=TOP,
            bottom=BOTTOM,
            trending=TRENDING,
            best=best,
            best_votes=[self._counts[number] for number in best],
        )
        execute(dismiss, show=show, last=renewed.result)
        return outcome


# --- events and engines -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderboardSettings:
    """The knobs: `every` is after how many votes somebody leaves."""

    phones: int = 100_000
    every: int = 20_000
    again: float = 0.02
    seed: int = 1


PAPER = LeaderboardSettings()
"""As published: somebody leaves every 20,000 votes."""

FAST = LeaderboardSettings(every=1_000)
"""The same show with a removal every 1,000 votes."""


def opening(settings: LeaderboardSettings = PAPER) -> dict[type, pa.Table]:
    """All contestants without a vote, and the show."""
    return {
        Contestant: pa.table({"id": np.arange(CONTESTANTS)}),
        Show: pa.table({"id": [0], "every": [settings.every]}),
    }


def events(count: int, settings: LeaderboardSettings = PAPER, start: int = 0) -> pa.Table:
    """Votes: contestants are not equally popular, and some phones vote again."""
    random = np.random.default_rng([settings.seed, start])
    weights = 0.85 ** np.arange(CONTESTANTS)
    fresh = start + np.arange(count)
    again = random.random(count) < settings.again
    phones = np.where(again, random.integers(0, max(start + count, 1), count), fresh)
    contestants = random.choice(CONTESTANTS, count, p=weights / weights.sum())
    return pa.table({"phone": phones, "contestant": contestants, "show": np.zeros(count, np.int64)})


def engine(settings: LeaderboardSettings = PAPER, *, graph: bool = True, **options: Any) -> tg.Engine:
    """An engine with the opening state: with the graph, or with the procedures alone."""
    made = tg.Engine([leaderboard] if graph else PROCEDURES, **options)
    for table, rows in opening(settings).items():
        made.load(table, rows)
    return made
