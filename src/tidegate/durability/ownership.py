"""Which query may add versions to a state: epochs in the chain decide, locks show which owners are alive.

Every version names the owner of the state when it was made, and the epoch; the newest version counts. An owner commits
the next version in its epoch, a new owner takes over by committing it in the next one:

    version   7        8        9            10           11
    epoch     3        3        4            4            5
    owner     query a  query a  query b      query b      nobody      (a batch DataFrame)

Versions are created exclusively, so of two writers one fails, finds another owner in the newest version, and stops with
an error that names it. Nothing depends on host names, process ids or clocks.

Who may take over:
- the same query, at once: it was restarted, here or elsewhere;
- anybody, after the owner released the state: the file `000000000004.released` says so of epoch 4;
- anybody, when no process of the owner is left. Driver and workers of a query share a lock on `<token>.lock`, which the
  kernel drops with the last of them. Where there are no locks (object stores), the owner counts as alive until it is
  released.

An engine inside a process (`tg.Engine`) holds `engine.lock` exclusively while it is open. Where there are no locks, the
engine that was opened last takes over by its first commit, and the earlier one notices at its next.

Invariant: a version is committed by the owner that it names, and no owner commits after another one has.
"""

from __future__ import annotations

import functools
import os
import re
import uuid
from datetime import UTC, datetime

from tidegate.durability.version_info import Owner, VersionInfo
from tidegate.durability.version_reader import VersionReader
from tidegate.foundation.errors import StateOwned
from tidegate.foundation.holds import Hold
from tidegate.foundation.storage import Storage

ENGINE = "engine"
"""The token of engines inside a process: one at a time."""

EMBEDDED = "embedded"

_holds: dict[tuple[int, str, str], Hold | None] = {}


def admit(storage: Storage, newest: VersionInfo | None, owner: Owner | None) -> int:
    """The epoch in which `owner` may commit the next version; raises StateOwned when another owner is, or may be,
    alive.

    None is nobody: a batch DataFrame, which adds one version and owns nothing.
    """
    embedded = owner is not None and owner.token == ENGINE
    if not embedded and storage.is_held(_lock(ENGINE)):
        raise StateOwned(
            f"{storage.path}: a tg.Engine has this state open. Only one at a time may change a state: close that "
            "engine first, or use another state path."
        )
    if newest is None:
        return 1
    holder = newest.owner
    if holder is None or is_released(storage, newest.epoch):
        return newest.epoch if holder is None and owner is None else newest.epoch + 1
    if owner is not None and owner.query == holder.query:
        return newest.epoch
    if not (embedded and holder.token == ENGINE) and storage.is_held(_lock(holder.token)) is not False:
        raise StateOwned(_refusal(storage, newest, holder))
    return newest.epoch + 1


def release(storage: Storage, query: str) -> bool:
    """Gives the state free if `query` owns it, alive or not; says whether it did."""
    newest = VersionReader(storage).newest()
    if newest is None or newest.owner is None or newest.owner.query != query or is_released(storage, newest.epoch):
        return False
    storage.hint(_marker(newest.epoch), b"{}")
    return True


def is_released(storage: Storage, epoch: int) -> bool:
    """Whether the owner of an epoch has released the state."""
    return storage.exists(_marker(epoch))


def current(storage: Storage) -> Owner | None:
    """The owner that the newest version names, alive or not; None when there is none or it released the state."""
    newest = VersionReader(storage).newest()
    if newest is None or newest.owner is None or is_released(storage, newest.epoch):
        return None
    return newest.owner


def is_alive(storage: Storage, owner: Owner) -> bool | None:
    """Whether any process of an owner still runs; None when nobody can tell."""
    return storage.is_held(_lock(owner.token))


def tidy(storage: Storage, epoch: int) -> None:
    """Removes the marks of epochs before this one, which nobody asks for any more."""
    for name in storage.list():
        match = re.fullmatch(r"([0-9]{12})\.released", name)
        if match and int(match[1]) < epoch:
            storage.delete(name)


@functools.lru_cache(maxsize=4)
def _token(pid: int) -> str:
    return uuid.uuid4().hex


def process_token() -> str:
    """The token of this process; a fork gets another one."""
    return _token(os.getpid())


def stay_alive(storage: Storage, token: str) -> None:
    """Hold a token's lock, together with the owner's other processes, until this process ends."""
    key = (os.getpid(), storage.path, token)
    if key not in _holds or (_holds[key] is not None and not storage.exists(_lock(token))):
        _holds[key] = storage.hold(_lock(token))


def hold_alone(storage: Storage) -> Hold | None:
    """The lock of an engine inside this process; None where there are no locks."""
    try:
        return storage.hold(_lock(ENGINE), exclusive=True)
    except BlockingIOError:
        raise StateOwned(
            f"{storage.path}: another tg.Engine has this state open, in this process or in another one. Only one at a "
            "time may change a state: close that one first, or use another state path."
        ) from None


def taken_over(storage: Storage, newest: VersionInfo | None) -> StateOwned:
    """What to tell an owner that finds that it is no longer one."""
    owner = newest.owner if newest is not None else None
    who = "nobody any more" if owner is None else f"query {owner.query!r} ({owner.name})"
    version = 0 if newest is None else newest.version
    return StateOwned(
        f"{storage.path}: this state was taken over: version {version} belongs to {who}. Nothing of this call was "
        "applied. Close this one, and open the state again if it is to go on here."
    )


def _lock(token: str) -> str:
    return f"{token}.lock"


def _marker(epoch: int) -> str:
    return f"{epoch:012d}.released"


def _refusal(storage: Storage, newest: VersionInfo, holder: Owner) -> str:
    last = datetime.fromtimestamp(newest.created_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    known = (
        "It is still running."
        if storage.is_held(_lock(holder.token))
        else "Whether it still runs cannot be seen here: this file system has no locks."
    )
    return (
        f"{storage.path}: this state is owned by query {holder.query!r} ({holder.name}), which committed version "
        f"{newest.version} at {last}. {known} Only one query at a time may change a state: stop that query first, or "
        f"use another state path. If you know that the query has ended: tidegate state release {storage.path}"
    )
