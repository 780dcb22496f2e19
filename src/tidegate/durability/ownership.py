"""Which query may add versions to a state, decided without a lock that could be left behind.

The owner is a record in a file. Records are numbered, the one with the highest number counts, and
a number is taken by creating its file exclusively:

    000000000001.owner   {"query": "a", "pid": 310, ...}    process 310 died
    000000000002.owner   {"query": "b", "pid": 522, ...}    query b took over and removed number 1
    000000000003.owner   {}                                 query b released the state

Two processes that find the same dead owner both try to create the same next number, and one of them
succeeds. Replacing a single file would let both believe that they own the state.

Invariant: the highest number only grows, because only lower ones are ever removed. So whoever created
a number and then sees no higher one is the owner, until its process is gone or it releases.

A process of this machine can be asked whether it lives. One of another machine cannot; its claim
stands until someone who knows better releases it. Ownership keeps two queries apart; two tasks of
one query are kept apart by versions, which are created exclusively too.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from tidegate.durability.files import described
from tidegate.foundation import processes
from tidegate.foundation.errors import StateOwned, StorageCorrupted
from tidegate.foundation.storage import Storage

_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class Owner:
    """A query and the process that started it; `started` is when the process did."""

    query: str
    host: str
    pid: int
    started: float
    name: str

    @classmethod
    def of_this_process(cls, query: str, name: str) -> Owner:
        """The owner that this very process is for `query`; `name` is how people know the query."""
        pid = os.getpid()
        return cls(query, processes.host(), pid, processes.started(pid), name)

    def is_same_process(self, other: Owner) -> bool:
        """Whether both were started by one and the same process."""
        same = self.host == other.host and self.pid == other.pid
        return same and abs(self.started - other.started) <= processes.TOLERANCE_SECONDS


def claim(storage: Storage, owner: Owner) -> None:
    """Makes `owner` the owner, or raises StateOwned when another one is, or may be, alive."""
    for _ in range(_ATTEMPTS):
        number, holder = _newest(storage)
        if holder is not None:
            if holder.query == owner.query and holder.is_same_process(owner):
                return
            if not _is_gone(holder):
                raise StateOwned(_refusal(storage, holder))
        if _take(storage, number + 1, owner):
            return
    raise StateOwned(f"{storage.path}: several queries are claiming this state at once. Run again.")


def release(storage: Storage, query: str) -> bool:
    """Gives the state free if `query` owns it, alive or not; says whether it did."""
    for _ in range(_ATTEMPTS):
        number, holder = _newest(storage)
        if holder is None or holder.query != query:
            return False
        if _take(storage, number + 1, None):
            return True
    raise StateOwned(f"{storage.path}: several queries are claiming this state at once. Run again.")


def current(storage: Storage) -> Owner | None:
    """The recorded owner, alive or not; None when there never was one or it released the state."""
    return _newest(storage)[1]


def _is_gone(holder: Owner) -> bool:
    return holder.host == processes.host() and not processes.is_running(holder.pid, holder.started)


def _take(storage: Storage, number: int, owner: Owner | None) -> bool:
    """Whether `number` is now the highest and ours."""
    record = json.dumps(asdict(owner) if owner else {}).encode("ascii")
    try:
        storage.write(_name(number), [record], exclusive=True)
    except FileExistsError:
        return False
    numbers = _numbers(storage)
    if max(numbers) > number:
        storage.delete(_name(number))
        return False
    for lower in numbers:
        if lower < number:
            storage.delete(_name(lower))
    return True


def _newest(storage: Storage) -> tuple[int, Owner | None]:
    for _ in range(_ATTEMPTS):
        number = max(_numbers(storage), default=0)
        if number == 0:
            return 0, None
        try:
            data = bytes(storage.read(_name(number)))
        except FileNotFoundError:
            continue  # a newer one replaced it since we looked
        try:
            record = json.loads(data)
            return number, Owner(**record) if record else None
        except (ValueError, TypeError) as error:
            raise StorageCorrupted(
                f"{described(storage, _name(number))}: expected a record of the state's owner, "
                f"found {data[:80]!r}. Make sure that no query runs on this state, then delete the file."
            ) from error
    raise StateOwned(f"{storage.path}: the owner of this state keeps changing. Run again.")


def _name(number: int) -> str:
    return f"{number:012d}.owner"


def _numbers(storage: Storage) -> list[int]:
    owners = [name for name in storage.list() if name.endswith(".owner")]
    return [int(match[1]) for name in owners if (match := re.fullmatch(r"([0-9]{12})\.owner", name))]


def _refusal(storage: Storage, holder: Owner) -> str:
    since = datetime.fromtimestamp(holder.started, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    if holder.host == processes.host():
        what = "Only one query at a time may change a state. Stop that query first, or use another state path"
    else:
        what = f"Whether that process still runs can be seen on {holder.host} only. Stop it there"
    return (
        f"{storage.path}: this state is owned by query {holder.query!r} ({holder.name}) "
        f"of process {holder.pid} on {holder.host}, running since {since}. {what}. "
        f"If you know that the query has ended: tidegate state release {storage.path}"
    )
