"""An engine whose state is a history of versions on disk: every batch makes one, exactly once.

    batch (query q, number b)
      |  is there a version made by (q, b)?
      |     no:  run it on the newest version n, write version n + 1
      |     yes: it ran before, and its outcomes were lost on the way: run it again on the version below,
      |          change nothing, check that it came out the same
      v
    outcomes

Whoever asks for a batch again (a retried task, a speculative twin, a restarted query) finds the same base,
runs the same events in the same order, and gets the same outcomes; the state changes once. When two attempts run at
once, both try to create version n + 1 and the file system lets one of them win; the other then takes the
second path. Nothing else coordinates them.

The rows stay warm in memory between batches. An engine that fell behind applies the changes it missed;
one whose memory may be half way through a failed batch forgets it and loads again.

Order: events run by `order_by`. Where that leaves ties, the source decides, and since a source need not repeat
its order, the order of the first execution is logged with the version.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from tidegate.durability import ownership
from tidegate.durability.ownership import Owner
from tidegate.durability.records import OUTCOMES, outcome_record, output_record
from tidegate.durability.versions import VersionInfo, VersionStore
from tidegate.engine.arrival import Arrival, arrange, content_hashes, reorder
from tidegate.engine.core import EngineCore
from tidegate.foundation.errors import RecoveryImpossible
from tidegate.foundation.storage import Storage, open_storage
from tidegate.operations.decision import Strategy
from tidegate.operations.layout import TableLayout
from tidegate.operations.outcomes import Outcome
from tidegate.operations.plan import Program

Late = Literal["run", "refuse"]
COLLECT_EVERY = 20
EMBEDDED = "embedded"
INITIAL = "initial"


class VersionedEngine:
    """A program on a state directory."""

    def __init__(
        self,
        program: Program,
        path: str | Storage,
        keep_versions: int = 100,
        strategy: Strategy = "adaptive",
        workers: int = 1,
        punctuation: int | None = None,
        record: bool = False,
    ) -> None:
        self.program = program
        self._strategy, self._workers, self._punctuation = strategy, workers, punctuation
        self._record = record
        self._storage = open_storage(path) if isinstance(path, str) else path
        self._store = VersionStore(self._storage, keep_versions)
        self._core: EngineCore | None = None
        self.version = 0
        self._owner: Owner | None = None

    @classmethod
    def open_embedded(
        cls,
        program: Program,
        path: str,
        strategy: Strategy = "adaptive",
        workers: int = 1,
        punctuation: int | None = None,
        record: bool = False,
    ) -> VersionedEngine:
        """Open a state for an engine inside this process, at its newest version."""
        engine = cls(program, path, strategy=strategy, workers=workers, punctuation=punctuation, record=record)
        engine._owner = Owner.of_this_process(f"{EMBEDDED}-{uuid.uuid4()}", "tg.Engine")
        ownership.claim(engine._storage, engine._owner)
        engine._store.refresh()
        engine._go_to(engine._newest_version())
        return engine

    @property
    def core(self) -> EngineCore:
        """The rows in memory, at `version`."""
        if self._core is None:
            self._go_to(self._newest_version())
        assert self._core is not None
        return self._core

    # --- batches of a query -----------------------------------------------------------------------------

    def process(
        self,
        query: str,
        batch: int,
        events: pa.Table,
        *,
        order_by: str | None,
        position: str | None,
        late: Late,
        owner: Owner,
        requests: str | None = None,
    ) -> pa.Table:
        """Run a batch of a query, or run it again: its events without `position`, and their outcomes.

        With `requests`, a column of ids, the version keeps the outcomes of the events that have one.
        """
        ownership.claim(self._storage, owner)
        self._store.refresh()
        known = self._store.find(query, batch)
        base = self._base(query, batch) if known is None else known.base
        self._go_to(base)
        before = self._store.info(base) if base else None
        limit = before.high if before is not None and late == "refuse" else None
        arrival = arrange(events, order_by, position, limit)
        plain = events if position is None else events.drop_columns([position])
        try:
            if known is not None:
                return self._repeat(known, plain, arrival)
            return self._advance(query, batch, plain, arrival, before, requests)
        except FileExistsError:  # another attempt of this batch committed first
            self._forget()
            again: dict[str, Any] = {"order_by": order_by, "position": position, "late": late}
            return self.process(query, batch, events, **again, owner=owner, requests=requests)
        except BaseException:
            self._forget()
            raise

    def _base(self, query: str, batch: int) -> int:
        """The version that a new batch builds on: the newest, which must not be past this batch."""
        newest = self._store.newest()
        if newest is None:
            return 0
        if newest.query == query and newest.batch > batch:
            raise RecoveryImpossible(
                f"{self._storage.path}: query {query} asks for batch {batch}, but the state is at its batch "
                f"{newest.batch} (version {newest.version}) and batch {batch} is not among the kept versions. The "
                "checkpoint is older than the state: restore the checkpoint that belongs to it, or start a new "
                "query with a new checkpoint, which goes on from the newest version"
            )
        return newest.version

    def _advance(
        self,
        query: str,
        batch: int,
        events: pa.Table,
        arrival: Arrival,
        before: VersionInfo | None,
        requests: str | None,
    ) -> pa.Table:
        core = self.core
        outcomes = core.run(events, arrival.order, arrival.refused)
        records = {output_record(name): tuples for name, tuples in core.take_outputs().items()}
        if requests is not None:
            by_transaction = core.plan.result_by_transaction
            records[OUTCOMES] = outcome_record(outcomes, requests, core.ranks(), by_transaction)
        assert core.last_batch is not None
        logged = None if arrival.total or events.num_rows < 2 else content_hashes(events)[arrival.order]
        high = before.high if before is not None else None
        if arrival.high is not None:
            high = arrival.high if high is None or type(high) is not type(arrival.high) else max(high, arrival.high)
        self._commit(query, batch, events.num_rows, core.last_batch.committed, high, logged, records)
        return outcomes

    def _repeat(self, known: VersionInfo, events: pa.Table, arrival: Arrival) -> pa.Table:
        _, recorded, logged = self._store.read_changes(known.version, self.core.plan.tables)
        order: Any = arrival.order
        if logged is not None:
            order = reorder(content_hashes(events), np.asarray(logged))
        if order is None or events.num_rows != known.events:
            raise self._changed(known, f"{known.events} events then, others now ({events.num_rows})")
        outcomes = self.core.run(events, order, arrival.refused)
        self.core.take_outputs()  # the version has them
        if not _same(self.core.take_changes(), recorded):
            raise self._changed(known, "the same number of events, but they changed other rows")
        self.version = known.version
        return outcomes

    def _changed(self, known: VersionInfo, found: str) -> RecoveryImpossible:
        return RecoveryImpossible(
            f"{self._storage.path}: batch {known.batch} of query {known.query} was applied as version {known.version} "
            f"and is asked for again, but does not come out the same: {found}. Either the source did not replay the "
            "same events, or the transactions were changed in between: run it once more with the source and "
            "the program of the first time, then continue. The state is unharmed"
        )

    # --- an engine inside this process --------------------------------------------------------------------

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        """Write rows that a user gives, as one version."""
        for name, rows in tables.items():
            self._guarded(lambda name=name, rows=rows: self.core.load(name, rows))  # type: ignore[misc]
        self._guarded(lambda: self._commit_embedded(sum(rows.num_rows for rows in tables.values()), 0))

    def run(self, events: pa.Table, order_by: str | None) -> pa.Table:
        """Run a batch as one version."""
        arrival = arrange(events, order_by, None)
        outcomes: pa.Table = self._guarded(lambda: self.core.run(events, arrival.order, arrival.refused))
        assert self.core.last_batch is not None
        committed = self.core.last_batch.committed
        self._guarded(lambda: self._commit_embedded(events.num_rows, committed))
        return outcomes

    def execute(self, number: int, arguments: Mapping[str, Any]) -> Outcome:
        """Run one transaction as one version."""
        outcome: Outcome = self._guarded(lambda: self.core.execute(number, arguments))
        self._guarded(lambda: self._commit_embedded(1, int(outcome.committed)))
        return outcome

    def close(self) -> None:
        """Let go of the state."""
        if self._core is not None:
            self._core.runner.workers.close()
        if self._owner is not None:
            ownership.release(self._storage, self._owner.query)

    def _commit_embedded(self, events: int, committed: int) -> None:
        assert self._owner is not None
        newest = self._store.info(self.version) if self.version else None
        self._commit(self._owner.query, self.version + 1, events, committed, newest.high if newest else None, None)

    def _guarded(self, action: Callable[[], Any]) -> Any:
        """Run an action; if it fails, what memory holds may be half done, so it is forgotten."""
        try:
            return action()
        except BaseException:
            self._forget()
            raise

    # --- the first version --------------------------------------------------------------------------------

    def initialise(self, tables: Mapping[str, pa.Table]) -> bool:
        """Fill tables before the first batch; False, and nothing happens, when the state has versions already."""
        self._store.refresh()
        if self._store.newest() is not None:
            return False
        self._go_to(0)
        for name, rows in tables.items():
            self.core.load(name, rows)
        loaded = {name: self.core.rows(name) for name in tables}
        try:
            self._store.snapshot(self._info(INITIAL, 0, 0, 0, None), loaded)
        except FileExistsError:
            return False
        finally:
            self._forget()
        return True

    # --- inside ---------------------------------------------------------------------------------------------

    def _commit(
        self,
        query: str,
        batch: int,
        events: int,
        committed: int,
        high: Any,
        logged: Any,
        records: Mapping[str, pa.Table] | None = None,
    ) -> None:
        info = self._info(query, batch, events, committed, high)
        changes = self.core.take_changes()
        self._store.commit(info, changes, logged, records)
        self.version = info.version
        if self._store.wants_snapshot():
            tables = {name: self.core.rows(name) for name in self.core.tables}
            self._store.snapshot(info, tables)
            self._store.collect()
        elif info.version % COLLECT_EVERY == 0:
            self._store.collect()

    def _info(self, query: str, batch: int, events: int, committed: int, high: Any) -> VersionInfo:
        return VersionInfo(
            version=self.version + 1,
            kind="change",
            query=query,
            batch=batch,
            base=self.version,
            created_at=time.time(),
            events=events,
            committed=committed,
            high=high,
            layouts=tuple(table.layout for table in self.core.tables.values()),
            rows={},
            size=0,
        )

    def _new_core(self, layouts: tuple[TableLayout, ...]) -> EngineCore:
        return EngineCore(
            self.program,
            layouts,
            track_changes=True,
            strategy=self._strategy,
            workers=self._workers,
            punctuation=self._punctuation,
            record=self._record,
        )

    def _newest_version(self) -> int:
        newest = self._store.newest()
        return 0 if newest is None else newest.version

    def _forget(self) -> None:
        self._core = None
        self.version = 0

    def _go_to(self, version: int) -> None:
        """Bring the rows in memory to a version."""
        if self._core is not None and self.version == version:
            return
        layouts = self.program.plan.tables
        if self._core is not None and self.version < version <= self.version + COLLECT_EVERY:
            known = set(self._core.tables)
            try:
                for number in range(self.version + 1, version + 1):
                    info, changes, _ = self._store.read_changes(number, layouts)
                    if not known.issuperset(layout.name for layout in info.layouts):
                        break
                    self._core.apply(changes)
                    self.version = number
            except RecoveryImpossible:  # collected meanwhile: load as a whole
                pass
            if self.version == version:
                return
        self._forget()
        if version == 0:
            self._core = self._new_core(())
            return
        info, steps = self._store.load(version, layouts)
        core = self._new_core(info.layouts)
        for changes in steps:
            core.apply(changes)
        self._core, self.version = core, version


def _same(first: Mapping[str, pa.Table], second: Mapping[str, pa.Table]) -> bool:
    """Whether two sets of changes say the same, in whatever order of rows."""
    for name in {*first, *second}:
        before, after = (
            np.sort(content_hashes(tables[name])) if name in tables else np.empty(0, np.int64)
            for tables in (first, second)
        )
        if not np.array_equal(before, after):
            return False
    return True
