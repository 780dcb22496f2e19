"""A source of batches with crashes between them, and a run over it whose result must not depend on the crashes.

    EventSource([first, CRASH, second])

`CRASH` after a batch: its version is on disk, but its outcomes and the memory are lost; the batch is submitted
again, as Spark does after a restart. `CRASH_BEFORE_COMMIT`: everything of the batch is lost.
"""

from __future__ import annotations

import contextlib
import enum
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import pyarrow as pa

from tidegate.api.transaction import Transaction
from tidegate.compiler.program import build_program
from tidegate.durability.ownership import process_token
from tidegate.durability.served import stream_applicant
from tidegate.durability.version_info import Owner
from tidegate.durability.versioned import Late, VersionedEngine
from tidegate.foundation.arguments import items as elements
from tidegate.foundation.arguments import path, refusal
from tidegate.foundation.arrow_tables import RowData, as_table
from tidegate.foundation.errors import InputError
from tidegate.foundation.storage import Bytes, Storage, open_storage
from tidegate.foundation.tracebacks import briefly
from tidegate.operations.plan import Program

QUERY = "test-source"


class Crash(enum.Enum):
    """Where a run crashes; such a marker follows the batch that the crash hits."""

    AFTER_COMMIT = "after commit"
    BEFORE_COMMIT = "before commit"


CRASH = Crash.AFTER_COMMIT
CRASH_BEFORE_COMMIT = Crash.BEFORE_COMMIT


class EventSource:
    """Batches of events; crash markers follow the batch that the crash hits."""

    def __init__(self, items: Iterable[RowData | Crash]) -> None:
        self._batches: list[tuple[pa.Table, list[Crash]]] = []
        for item in elements("EventSource", items, "a list of tables of events, and CRASH markers", InputError):
            if isinstance(item, Crash):
                if not self._batches:
                    raise ValueError("a crash marker stands behind the batch that it hits; got one before any batch")
                self._batches[-1][1].append(item)
            else:
                self._batches.append((as_table("EventSource", item), []))

    def __iter__(self) -> Iterator[tuple[int, pa.Table, list[Crash]]]:
        """Each batch with its number and the crashes that hit it."""
        for number, (batch, crashes) in enumerate(self._batches):
            yield number, batch, crashes


@dataclass(frozen=True, slots=True)
class SourceRun:
    """The result of a run: one table of outcomes per batch, and the engine at the end."""

    outcomes: list[pa.Table]
    engine: VersionedEngine

    def rows(self, table: type) -> pa.Table:
        """The committed rows of a table at the end, sorted by key."""
        return self.engine.core.rows(table.__name__)


@briefly
def run_source(
    transactions: Sequence[Transaction],
    source: EventSource,
    *,
    state: str | os.PathLike[str],
    order_by: str | None = None,
    late: Late = "run",
) -> SourceRun:
    """Run a source's batches over a state folder, with a crash and a restart at every crash marker."""
    program = build_program(transactions)
    if not isinstance(source, EventSource):
        raise refusal("run_source", "an EventSource([...])", source, InputError)
    owner = Owner(QUERY, "tidegate.testing", process_token())
    storage = open_storage(path("run_source: state", state))
    engine = VersionedEngine(program, storage)
    outcomes = []

    def ask(number: int, batch: pa.Table, engine: VersionedEngine) -> pa.Table:
        return engine.process(stream_applicant(QUERY, number), batch, order_by=order_by, late=late, owner=owner)

    for number, batch, crashes in source:
        for crash in crashes:
            _die(program, storage, crash, partial(ask, number, batch))
            engine = VersionedEngine(program, storage)
        outcomes.append(ask(number, batch, engine))
    return SourceRun(outcomes, engine)


def _die(program: Program, storage: Storage, crash: Crash, run: Callable[[VersionedEngine], object]) -> None:
    broken = storage if crash is Crash.AFTER_COMMIT else cast(Storage, _BrokenStorage(storage))
    with contextlib.suppress(_Died):
        run(VersionedEngine(program, broken))


class _Died(BaseException):
    """The simulated end of a process."""


class _BrokenStorage:
    """A storage in which no version can be written: the process dies trying."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def write(self, name: str, parts: Iterable[Bytes], *, exclusive: bool) -> None:
        if name.endswith((".change", ".snapshot")):
            raise _Died
        self._inner.write(name, parts, exclusive=exclusive)
