"""What the protocol's model consists of, and what is decided in it: by the code that ships wherever that is pure.

    question                                   answered by
    which version is the newest?               Listing, require_successor, head.require_reached (protocol_store.py)
    was this batch applied before?             Served.judge, VersionedEngine._require_planned
    may this owner commit?                     ownership.admit, by the locks and marks of that moment
    what is the place of a batch in history?   counted here anew: what ships must not judge itself

Values are named tuples, so that a state is hashed and compared quickly. What happens in which order is told in
protocol.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

from tidegate.durability import ownership
from tidegate.durability.ownership import ENGINE
from tidegate.durability.served import Applicant, Form, call_applicant, once_applicant, stream_applicant
from tidegate.durability.version_info import Owner
from tidegate.durability.versioned import VersionedEngine
from tidegate.foundation.errors import StateDiverged, StateOwned

from . import protocol_store as store
from .protocol_store import Files, Version, Visible, version


@dataclass(frozen=True, slots=True)
class Rules:
    """What the protocol consists of; each can be switched off."""

    exclusive_create: bool = True  # a version's name is created once
    one_name: bool = True  # a version that is loaded as a whole and one that is a change exclude each other
    judge: bool = True  # a batch at or below its applicant's line is not new
    served_lines: bool = True  # snapshots hold the lines of all applicants
    parent_hash: bool = True  # a version must name the one below it
    head_note: bool = True  # a version that the head speaks of must be there
    head_first: bool = True  # the head is read before the files are listed
    settle: bool = True  # whoever opens a state syncs what it finds
    settle_followed: bool = True  # whoever takes over another's version syncs it
    settle_collected: bool = True  # a collection syncs the snapshot that it relies on
    pinned_base: bool = True  # a collection keeps what the last batch needs
    fencing: bool = True  # a living owner keeps others away, and each owner has its epoch


@dataclass(frozen=True, slots=True)
class Asking:
    """A query: how it asks (`Form`), how many batches it has, how many attempts may run at once."""

    name: str
    batches: int = 2
    attempts: int = 1
    form: Form = "stream"
    calls: int = 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may happen: all of it is finite, so that all of it can be searched."""

    queries: tuple[Asking, ...]
    keep_versions: int = 100
    crashes: int = 0
    power_failures: int = 0
    stops: int = 0
    collections: int = 0
    engine_opens: int = 0
    engine_commits: int = 0
    initial: bool = False
    user: tuple[str, ...] = ()  # of "delete newest", "delete all", "restore"; one of them, once
    adoptions: int = 0
    stale_listings: bool = False  # a listing may lack the newest version


class Query(NamedTuple):
    """The driver's side: batches that the checkpoint has as committed, and whether query and process are alive."""

    done: int = 0
    running: bool = True
    alive: bool = True
    token: int = 0
    ending: bool = False  # it has ended, and the state is yet to be released
    refused: str = ""
    planned: tuple[str, int] = ("", 0)


class Attempt(NamedTuple):
    """A task: where it is in its program, and what it knows. `warm` is the version that its engine has in memory."""

    at: str = "idle"
    batch: int = 0
    call: int = 0
    token: int = 0
    warm: int = 0
    since: int = 0
    tip: int = 0
    epoch: int = 0
    seen: tuple[Any, ...] = ()


class Opened(NamedTuple):
    """A `tg.Engine`: where it is, the version and epoch it is in, what it may still do, commits acknowledged."""

    at: str = "closed"
    tip: int = 0
    epoch: int = 0
    opens: int = 0
    commits: int = 0
    acknowledged: int = 0


class State(NamedTuple):
    """Everything, at one moment."""

    queries: tuple[Query, ...]
    attempts: tuple[tuple[Attempt, ...], ...]
    files: Files = ()
    head: int = 0
    marks: tuple[int, ...] = ()
    janitor: tuple[str, tuple[Any, ...]] = ("idle", ())
    engine: Opened = Opened()
    initial: str = ""
    crashes: int = 0
    power_failures: int = 0
    stops: int = 0
    collections: int = 0
    adoptions: int = 0
    user: int = 0
    copy: tuple[Visible, int, tuple[int, ...]] | None = None
    touched: bool = False
    lost: int = 0

    @property
    def visible(self) -> Visible:
        """The files that can be seen."""
        return store.seen(self.files)


class Decisions:
    """What the actors ask, for given bounds and rules."""

    def __init__(self, bounds: Bounds, rules: Rules | None = None) -> None:
        self.bounds, self.rules = bounds, rules or Rules()
        self._deciding: Any = SimpleNamespace(_storage=store.Folder())

    def _new_state(self, maker: str) -> str:
        """The id of a state that begins; where only one can ever begin, who began it makes no difference."""
        return f"state of {maker}" if self.bounds.user or self.bounds.initial else "state"

    def _read(self, visible: Visible) -> store.Found:
        return store.read_chain(visible, self.rules.parent_hash, self.rules.served_lines)

    def _follow(self, visible: Visible, tip: int) -> tuple[int, str]:
        """The newest version that follows from one in memory, as `VersionStore._follow` finds it."""
        changes = {number: identity for number, kind, identity in visible if kind == "change"}
        while (above := changes.get(version(tip).number + 1)) is not None:
            if self.rules.parent_hash and version(above).parent != tip:
                return tip, "the version above is another one's"
            tip = above
        return tip, ""

    def _verdict(self, tip: int, since: int, applicant: Applicant) -> str:
        if not self.rules.judge:
            return "new"
        try:
            VersionedEngine._require_planned(self._deciding, applicant, store.info(tip) if tip else None)
            return store.served(tip, since).judge("state", applicant)
        except StateDiverged:
            return "refused"

    def _admitted(self, state: State, tip: int, owner: Owner | None) -> int | None:
        """The epoch in which an owner may commit; None when it may not."""
        if not self.rules.fencing:
            return max(1, version(tip).epoch)
        folder: Any = store.Folder(held=self._held(state), marks=state.marks)
        try:
            return ownership.admit(folder, store.info(tip) if tip else None, owner)
        except StateOwned:
            return None

    def _held(self, state: State) -> frozenset[str]:
        """The locks of all processes that live."""
        held = {ENGINE} if state.engine.at != "closed" else set()
        for asking, query, attempts in zip(self.bounds.queries, state.queries, state.attempts, strict=True):
            held |= {f"{asking.name}{each.token}" for each in attempts if each.at != "idle"}
            held |= {f"{asking.name}{query.token}"} if query.alive else set()
        return frozenset(held)

    def _wrong_owner(self, state: State, made: Version) -> str:
        below = version(made.parent)
        if below.epoch > made.epoch or (below.epoch == made.epoch and below.owner != made.owner):
            return f"{made.owner or 'nobody'} commits above {below.owner} in epoch {made.epoch}"
        if below.owner in ("", made.owner) or below.token == ENGINE or below.epoch in state.marks:
            return ""
        lives = below.token in self._held(state) and not state.touched
        return f"{made.owner or 'nobody'} commits above {below.owner}, which lives" if lives else ""

    def _owner(self, asking: Asking, attempt: Attempt) -> Owner | None:
        """Who commits; a batch DataFrame owns nothing."""
        return None if asking.form == "once" else Owner(asking.name, asking.name, f"{asking.name}{attempt.token}")

    def _applicant(self, asking: Asking, attempt: Attempt, planned: tuple[str, int]) -> Applicant:
        return _applicant(asking.name, asking.form, attempt.batch, attempt.call, planned)


@cache
def _applicant(name: str, form: Form, batch: int, call: int, planned: tuple[str, int]) -> Applicant:
    if form == "once":
        return once_applicant(name, *planned)
    if form == "call":
        return call_applicant(name, batch, call)
    return stream_applicant(name, batch, *planned)


@cache
def names_of(asking: Asking) -> tuple[str, ...]:
    """The applicants of a query."""
    return tuple(_applicant(asking.name, asking.form, 0, call, ("", 0)).name for call in range(asking.calls))


def is_made_by(made: Version, name: str, batch: int) -> bool:
    return made.query == name and made.batch == batch


@cache
def last_batch(tip: int, name: str) -> int:
    """The last batch of an applicant in a history, by its own count and not by `Served`; -1 when there is none."""
    last = -1
    for each in store.history(tip):
        made = version(each)
        last = made.batch if made.query == name else dict(made.adopted).get(name, last)
    return last


def wrong_batch(made: Version) -> str:
    """What is wrong with the place of a batch in the history."""
    last = last_batch(made.parent, made.query)
    if made.batch == last + 1:
        return ""
    if made.batch <= last:
        return f"batch {made.batch} of {made.query} is applied again"
    return f"batch {made.batch} of {made.query} is applied, and batch {last + 1} is missing"
