"""Random ids that come from a simulation's seed, and from nothing else that happens in the same process.

`uuid.uuid4` is one function for the whole process, and a simulation replaces it. Others call it as well: threads
that earlier tests left behind, and the cache of compiled kernels, which names its files by random ids. If one of
them took an id from the seed, all later ids of the simulation would be different, and its story with them. So only
the simulation draws from the seed:

    thread                   calls uuid4 for                gets
    of the simulation        state files, locks             an id from the seed
    of the simulation        a kernel compiled just now     a real random id
    any other                anything                       a real random id

A thread belongs to the simulation if it runs in its context: the thread that started it, and those that were given
a copy of that context.
"""

from __future__ import annotations

import contextlib
import contextvars
import random
import types
import uuid
from collections.abc import Iterator
from unittest import mock

from tidegate.foundation import jit

_ids: contextvars.ContextVar[random.Random | None] = contextvars.ContextVar("ids of the simulation", default=None)


@contextlib.contextmanager
def seeded_ids(ids: random.Random) -> Iterator[None]:
    """Inside this block, the simulation's calls of `uuid.uuid4` draw from `ids`."""
    real = uuid.uuid4

    def uuid4() -> uuid.UUID:
        own = _ids.get()
        return real() if own is None else uuid.UUID(int=own.getrandbits(128), version=4)

    token = _ids.set(ids)
    with mock.patch.object(uuid, "uuid4", uuid4), mock.patch.object(jit, "uuid", types.SimpleNamespace(uuid4=real)):
        try:
            yield
        finally:
            _ids.reset(token)
