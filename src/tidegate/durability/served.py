"""Which batches a state has applied: the last one of every applicant, even when all else of it is forgotten.

An applicant asks for batches to be applied, one after the other, each exactly once:

    stream   the one `transact` in the plan of a streaming query     batches 0, 1, 2, ... without a gap
    call     the n-th `transact` that a foreachBatch makes           batches grow, some may be left out
    once     a batch DataFrame                                       one batch, number 0

    applicant        batch   version
    query a             41       107      asks for 42: new. Asks for 41: run before, as version 107.
    query a, call 1     41       108
    batch b              0        93      asks for 0 again: run before, as version 93
                                          query c asks for 7: refused, its batches 0 to 6 are not known

Every version adds the line of its applicant, and every snapshot holds all lines. So a batch is not applied again after
its version was collected, and a state that was deleted, exchanged, or replaced by an older copy is refused, because it
does not know batches that its query has completed.

No one can say when the last action on a batch DataFrame has run, so the newest `ONCE_MAX` are remembered; `horizon` is
the newest version that was forgotten. An unknown DataFrame that was planned before the horizon is refused.

Invariant: a batch at or below the line of its applicant is never `NEW`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from tidegate.durability.version_info import VersionInfo
from tidegate.foundation.errors import StateDiverged

Form = Literal["stream", "call", "once"]
Verdict = Literal["new", "again", "earlier", "given up"]

ONCE_MAX = 10_000
"""Batch DataFrames that are remembered; each takes about 60 bytes of every snapshot."""

_ONCE = "batch-"
_HORIZON = "horizon"
_SCHEMA = pa.schema([("applicant", pa.string()), ("batch", pa.int64()), ("version", pa.int64())])


@dataclass(frozen=True, slots=True)
class Applicant:
    """Who asks for which batch.

    `query` is the query that it belongs to; a batch DataFrame is its own. `planned_state` and `planned_version` are
    what the plan was made on: the state's id and newest version then, empty and 0 when there was no state yet.
    """

    name: str
    batch: int
    form: Form
    query: str
    planned_state: str = ""
    planned_version: int = 0


@dataclass(frozen=True, slots=True)
class Line:
    """The last batch of an applicant that was applied, and the version that it made; 0: its outcomes are given up."""

    batch: int
    version: int


def stream_applicant(query: str, batch: int, state: str = "", version: int = 0) -> Applicant:
    """The `transact` in the plan of a streaming query."""
    return Applicant(query, batch, "stream", query, state, version)


def call_applicant(query: str, batch: int, number: int, state: str = "", version: int = 0) -> Applicant:
    """The n-th `transact` that a foreachBatch of a query made in a micro-batch, from 0."""
    return Applicant(f"{query}/{number}", batch, "call", query, state, version)


def once_applicant(name: str, state: str = "", version: int = 0) -> Applicant:
    """A batch DataFrame, under a name that nothing else has."""
    return Applicant(f"{_ONCE}{name}", 0, "once", f"{_ONCE}{name}", state, version)


class Served:
    """The lines of all applicants, up to the newest version."""

    def __init__(self) -> None:
        self._lines: dict[str, Line] = {}
        self._of_query: dict[str, dict[str, None]] = {}  # the applicants of each query
        self._once: dict[str, None] = {}
        self.horizon = 0

    def line(self, name: str) -> Line | None:
        """The last batch of an applicant that was applied; None if there is none."""
        return self._lines.get(name)

    def lines(self) -> dict[str, Line]:
        """All of them, by applicant."""
        return dict(self._lines)

    def add(self, info: VersionInfo) -> None:
        """Take over what a version says; versions come in their order."""
        if info.query:
            self._put(info.query, Line(info.batch, info.version))
        for name, batch in info.adopted.items():
            self._put(name, Line(batch, 0))

    def judge(self, path: str, applicant: Applicant) -> Verdict:
        """Whether a batch is new, the applicant's last one, or an earlier one; raises StateDiverged when it cannot be.

        "given up" is a batch that counts as applied because a person said so: its outcomes are unknown.
        """
        line = self._lines.get(applicant.name)
        if line is None:
            self._require_first(path, applicant)
            return "new"
        if applicant.batch > line.batch:
            if applicant.form == "stream" and applicant.batch > line.batch + 1:
                raise StateDiverged(_gap(path, applicant, line))
            return "new"
        if line.version == 0:
            return "given up"
        return "again" if applicant.batch == line.batch else "earlier"

    def pinned(self, query: str) -> int:
        """The first version that the last batch of a query made: asked for again, it needs the version below. Or 0."""
        own = [self._lines[name] for name in self._of_query.get(query, ())]
        last = max((line.batch for line in own), default=0)
        return min((line.version for line in own if line.batch == last), default=0)

    def to_table(self) -> pa.Table:
        """All lines, as a snapshot holds them."""
        rows = [(name, line.batch, line.version) for name, line in self._lines.items()]
        columns = list(zip(*rows, (_HORIZON, 0, self.horizon), strict=True))
        return pa.table([pa.array(column) for column in columns], schema=_SCHEMA)

    @classmethod
    def from_table(cls, table: pa.Table) -> Served:
        """What `to_table` gave."""
        found = cls()
        for name, batch, version in zip(*(column.to_pylist() for column in table.columns), strict=True):
            if name == _HORIZON:
                found.horizon = version
            else:
                found._put(name, Line(batch, version))
        return found

    def _put(self, name: str, line: Line) -> None:
        self._lines.pop(name, None)
        self._lines[name] = line
        self._of_query.setdefault(_query_of(name), {})[name] = None
        if name.startswith(_ONCE):
            self._once.pop(name, None)
            self._once[name] = None
            while len(self._once) > ONCE_MAX:
                oldest = next(iter(self._once))
                self.horizon = max(self.horizon, self._lines.pop(oldest).version)
                self._of_query[_query_of(oldest)].pop(oldest)
                if not self._of_query[_query_of(oldest)]:
                    del self._of_query[_query_of(oldest)]
                del self._once[oldest]

    def _require_first(self, path: str, applicant: Applicant) -> None:
        """That an applicant that is not known may begin with this batch."""
        if applicant.form == "once":
            if applicant.planned_version < self.horizon:
                raise StateDiverged(
                    f"{path}: this batch DataFrame was planned at version {applicant.planned_version} and is not among "
                    f"the newest {ONCE_MAX:,} that were applied: it may have been applied before them. Call transact "
                    "again if it was not."
                )
        elif applicant.batch > 0 and applicant.query not in self._of_query:
            raise StateDiverged(_unknown(path, applicant))


def _query_of(name: str) -> str:
    return name.split("/", 1)[0]


def _unknown(path: str, applicant: Applicant) -> str:
    query, batch = applicant.query, applicant.batch
    message = (
        f"{path}: query {query} asks for its batch {batch}, but this state has applied no batch of that query, and "
        f"batches 0 to {batch - 1} must have come before. The state was deleted or is not mounted, or its path is not "
        f"the one that the query had before (a relative path depends on the folder that the program is started in). "
        "Put the state back in its place and start the query again. To begin with an empty state, start the query "
        f"with a new checkpoint."
    )
    why = "the query did not use this state until now"
    if applicant.form == "call":
        why += ", or its foreachBatch left the first batches out"
    return f"{message} If {why}: tidegate state adopt {path} --query {query} --batch {batch}"


def _gap(path: str, applicant: Applicant, line: Line) -> str:
    missing = (
        f"batch {line.batch + 1} is"
        if applicant.batch == line.batch + 2
        else f"batches {line.batch + 1} to {applicant.batch - 1} are"
    )
    return (
        f"{path}: query {applicant.query} asks for its batch {applicant.batch}, but the last one that this state has "
        f"applied is {line.batch}: {missing} missing. The state is an older copy, or the query ran for a while without "
        "it. Put the newest state back in its place and start the query again. To go on without what is missing: "
        f"tidegate state adopt {path} --query {applicant.query} --batch {applicant.batch}"
    )
