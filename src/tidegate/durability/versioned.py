"""An engine whose state is a history of versions on disk: every batch makes one, exactly once.

    an applicant asks for its batch b
      |  what has this state applied for it? (served.py)
      |     not b yet:   run it on the newest version n, write version n + 1
      |     b, as n:     its outcomes were lost: run it again on version n - 1, change nothing, check that it came out
      |                  the same
      |     not even what must have come before b: refuse
      v
    outcomes

A batch that is requested again (by a retried task, a speculative twin, a restarted query) finds the same base, runs the
same events in the same order, and gives the same outcomes; the state changes once. When two attempts run at once, both
try to create version n + 1 and the file system lets one of them win; the other takes the second path. Nothing else
coordinates them. A call in a foreachBatch is given its stored outcomes when it asks again, because users may compute
its rows with random numbers or the time of day.

The rows stay in memory between batches. An engine that fell behind applies the changes that it missed; one whose rows
may be halfway through a failed batch drops them and loads again. What a version keeps of its batch is told in
version_log.py.

Events run by `order_by`. Ties keep the source's order, and since a source need not repeat that order, the order of the
first execution is logged with the version.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
import pyarrow as pa

from tidegate.durability import log_segments, ownership
from tidegate.durability.batch_facts import facts_of
from tidegate.durability.evolution import require_fit, require_no_renaming, require_none_dropped
from tidegate.durability.fingerprint import fingerprint, require_repeatable
from tidegate.durability.housekeeping import Housekeeping
from tidegate.durability.records import OUTCOMES, ROWS, outcome_record, output_record
from tidegate.durability.result_types import recorded_type
from tidegate.durability.served import Applicant
from tidegate.durability.version_info import Owner
from tidegate.durability.version_log import Log, executed_events, order_again, play, tracking
from tidegate.durability.versions import VersionInfo, VersionStore
from tidegate.engine.arrival import Arrival, content_hashes
from tidegate.engine.core import EngineCore
from tidegate.engine.faults import OnError
from tidegate.foundation.errors import (
    DefinitionError,
    InputError,
    RecoveryImpossible,
    StateDiverged,
    StateOwned,
)
from tidegate.foundation.storage import Storage, open_storage
from tidegate.operations.decision import Strategy
from tidegate.operations.layout import TableLayout
from tidegate.operations.plan import Program

Late = Literal["run", "refuse"]
CATCH_UP_MAX = 20
"""Versions that an engine applies one by one when it fell behind; beyond it, it loads."""

RACES_MAX = 20
INITIAL = "initial"

_log = logging.getLogger(__name__)


class VersionedEngine:
    """A program on a state folder."""

    def __init__(
        self,
        program: Program,
        path: str | Storage,
        keep_versions: int = 100,
        strategy: Strategy = "adaptive",
        workers: int = 1,
        punctuation: int | None = None,
        record: bool = False,
        log: Log = "changes",
        on_error: OnError = "abort",
    ) -> None:
        self._storage = open_storage(path) if isinstance(path, str) else path
        if log == "commands":
            require_repeatable(program, self._storage.path)
        self.program, self._log = program, log
        self._fingerprint = fingerprint(program)
        self._strategy, self._workers, self._punctuation = strategy, workers, punctuation
        self._record, self._on_error = record, on_error
        self._store = VersionStore(self._storage, keep_versions)
        self._housekeeping = Housekeeping(self._store)
        self._core: EngineCore | None = None
        self.version = 0
        self._hash = ""
        self._owner: Owner | None = None
        self._epoch = 1

    @property
    def core(self) -> EngineCore:
        """The rows in memory, at `version`."""
        if self._core is None:
            self._go_to(self._store.tip())
        assert self._core is not None
        return self._core

    def use_workers(self, count: int) -> None:
        """Run the next batches on this many workers; what they compute does not depend on it."""
        self._workers = count
        if self._core is not None:
            self._core.runner.workers.resize(count)

    # --- batches of a query -----------------------------------------------------------------------------

    def process(
        self,
        applicant: Applicant,
        events: pa.Table,
        *,
        order_by: str | None,
        late: Late,
        owner: Owner | None,
        requests: str | None = None,
    ) -> pa.Table:
        """Run a batch, or run it again: its events and their outcomes.

        With `requests`, a column of ids, the version keeps the outcomes of the events that have one.
        """
        for _ in range(RACES_MAX):
            newest = self._store.tip()
            self._require_planned(applicant, newest)
            verdict = self._store.served.judge(self._storage.path, applicant)
            try:
                if verdict == "given up":
                    return self._without_outcomes(applicant, events, newest)
                if verdict != "new":
                    return self._repeat(self._version_of(applicant, verdict), applicant, events, order_by, late)
                self._epoch = ownership.admit(self._storage, newest, owner)
                return self._advance(applicant, events, order_by, late, owner, requests, newest)
            except FileExistsError:  # another attempt, or another applicant, committed first
                self._forget()
            except InputError:  # found before anything was changed
                raise
            except BaseException:
                self._forget()
                raise
        raise StateOwned(f"{self._storage.path}: several queries are changing this state at once. Run again.")

    def _require_planned(self, applicant: Applicant, newest: VersionInfo | None) -> None:
        """That the state is the one that the plan was made on, and not older."""
        if not applicant.planned_state:
            return
        if newest is None or newest.state != applicant.planned_state:
            found = "there is none" if newest is None else f"there is state {newest.state}"
            raise StateDiverged(
                f"{self._storage.path}: transact was called on state {applicant.planned_state}, and now {found}. The "
                "state was deleted, is not mounted here, or was replaced. Put it back, or call transact again to go on "
                "with what is there."
            )
        if newest.version < applicant.planned_version:
            raise StateDiverged(
                f"{self._storage.path}: transact was called when the state was at version {applicant.planned_version}, "
                f"and now it is at version {newest.version}: it was replaced by an older copy. Put the newest one "
                "back, or call transact again to go on with what is there."
            )

    def _version_of(self, applicant: Applicant, verdict: str) -> VersionInfo:
        """The version that a batch made which was applied before."""
        line = self._store.served.line(applicant.name)
        assert line is not None
        self._store.refresh()  # another process may have collected versions meanwhile
        if verdict == "again":
            if self._store.can_rebuild(line.version):
                return self._store.info(line.version)
            raise self._unrepeatable(applicant, line.version)
        known = self._store.find(applicant.name, applicant.batch)
        if known is None:
            raise RecoveryImpossible(
                f"{self._storage.path}: query {applicant.query} asks for batch {applicant.batch}, but the state is at "
                f"its batch {line.batch} (version {line.version}) and batch {applicant.batch} is not among the kept "
                "versions. The checkpoint is older than the state: restore the checkpoint that belongs to it, or start "
                "a new query with a new checkpoint, which goes on from the newest version"
            )
        return known

    def _unrepeatable(self, applicant: Applicant, version: int) -> RecoveryImpossible:
        told = (
            f"{self._storage.path}: batch {applicant.batch} of {applicant.name} was applied, as version {version}. It "
            "is not applied again, and its outcomes cannot be given again: the versions that they follow from are no "
            "longer kept."
        )
        if applicant.form == "once":
            return RecoveryImpossible(
                f"{told} Run one action on what transact returns: write it out, or persist() it, and read that. "
                "A larger keep_versions keeps versions for longer."
            )
        following = applicant.batch + 1
        return RecoveryImpossible(
            f"{told} To let the query go on without the outcomes of this batch: tidegate state adopt "
            f"{self._storage.path} --query {applicant.query} --batch {following}. A larger keep_versions keeps "
            "versions for longer."
        )

    def _advance(
        self,
        applicant: Applicant,
        events: pa.Table,
        order_by: str | None,
        late: Late,
        owner: Owner | None,
        requests: str | None,
        before: VersionInfo | None,
    ) -> pa.Table:
        self._go_to(before)
        arrival = self._arrange(events, order_by, late, before)
        core = self.core
        result = core.run(events, arrival.order, arrival.refused, arrival.times, collect=True)
        records = {output_record(name): tuples for name, tuples in result.outputs.items()}
        if requests is not None:
            by_transaction = core.plan.result_by_transaction
            records[OUTCOMES] = outcome_record(result.outcomes, requests, result.ranks, by_transaction)
        order = kept = None
        if applicant.form == "call":
            records[ROWS] = result.outcomes
        has_ties = applicant.form != "call" and not arrival.total and events.num_rows > 1
        if self._log == "commands":
            kept = executed_events(core.plan, events, arrival, whole=has_ties)
        elif has_ties:
            order = content_hashes(events)[arrival.order]
        high = before.high if before is not None else None
        if arrival.high is not None:
            high = arrival.high if high is None or type(high) is not type(arrival.high) else max(high, arrival.high)
        self._owner = owner
        info = self._info(applicant.name, applicant.batch)
        info = replace(info, events=events.num_rows, committed=result.report.committed, high=high)
        info = replace(info, report=facts_of(result.report))
        if kept is not None:
            info = replace(info, program=self._fingerprint, weight=result.written_bytes)
        written = self._store.commit(info, result.changes, order, records, kept)
        self.version, self._hash = written.version, written.hash
        self._housekeeping.after(written, core)
        return result.outcomes

    def _arrange(self, events: pa.Table, order_by: str | None, late: Late, before: VersionInfo | None) -> Arrival:
        return self.core.arrange(events, order_by, before.high if before is not None and late == "refuse" else None)

    def _repeat(
        self, known: VersionInfo, applicant: Applicant, events: pa.Table, order_by: str | None, late: Late
    ) -> pa.Table:
        if ROWS in known.records:
            kept = self._store.read_record(known.version, ROWS)
            return events.slice(0, 0) if kept is None else kept
        if known.program not in ("", self._fingerprint):
            raise self._changed(known, "another program than this one ran it")
        if not self._store.can_rebuild(known.base):
            raise self._unrepeatable(applicant, known.version)
        before = self._store.info(known.base) if known.base else None
        if before is not None and self._store.program_of(before) not in ("", self._fingerprint):
            raise self._changed(known, "it ran on rows that only another program can rebuild")
        try:
            require_fit(self._storage.path, known.layouts, self.program.plan.tables)
            require_no_renaming(self._storage.path, known.layouts, self.program.plan.tables)
        except DefinitionError as error:
            raise self._changed(known, "the program's tables are not those of then") from error
        self._go_to(before)
        arrival = self._arrange(events, order_by, late, before)
        stored = self._store.read_contents(known.version, self.core.plan.tables)
        order = order_again(stored, events, arrival)
        if order is None or events.num_rows != known.events:
            raise self._changed(known, f"{known.events} events then, others now ({events.num_rows})")
        with tracking(self.core, stored.events is None), self.core.faults.forgiven():
            result = self.core.run(events, order, arrival.refused, arrival.times, collect=True)
        if stored.events is None and not _same(result.changes, stored.changes):
            raise self._changed(known, "the same number of events, but they changed other rows")
        self.version, self._hash = known.version, known.hash
        return result.outcomes

    def _without_outcomes(self, applicant: Applicant, events: pa.Table, newest: VersionInfo | None) -> pa.Table:
        """No rows, with the columns that outcomes have."""
        _log.warning(
            "%s: batch %d of %s was applied; its outcomes are not known",
            self._storage.path,
            applicant.batch,
            applicant.name,
        )
        self._go_to(newest)
        outcomes = self.core.run(events.slice(0, 0)).outcomes.slice(0, 0)
        self._forget()
        return outcomes

    def _changed(self, known: VersionInfo, found: str) -> RecoveryImpossible:
        return RecoveryImpossible(
            f"{self._storage.path}: batch {known.batch} of query {known.query} was applied as version {known.version} "
            f"and is asked for again, but does not come out the same: {found}. Either the source did not replay the "
            "same events, or the transactions were changed in between: run it once more with the source and "
            "the program of the first time, then continue. The state is unharmed. To let the query go on without the "
            f"outcomes of this batch: tidegate state adopt {self._storage.path} --query {known.query} --batch "
            f"{known.batch + 1}"
        )

    def close(self) -> None:
        """End what runs in the background."""
        self._housekeeping.close()
        if self._core is not None:
            self._core.runner.workers.close()

    # --- the first version --------------------------------------------------------------------------------

    def initialise(self, tables: Mapping[str, pa.Table]) -> bool:
        """Fill tables before the first batch; False, and nothing happens, when the state has versions already."""
        if self._store.tip() is not None:
            return False
        self._go_to(None)
        with tracking(self.core, True):
            for name, rows in tables.items():
                self.core.load(name, rows)
        try:  # as a change, so that a first batch elsewhere wants the same name
            self._store.commit(self._info(INITIAL, 0), self.core.take_changes())
        except FileExistsError:
            return False
        finally:
            self._forget()
        return True

    # --- inside ---------------------------------------------------------------------------------------------

    def _info(self, query: str, batch: int) -> VersionInfo:
        """The version above the one in memory, before it is known what its batch did."""
        return VersionInfo(
            version=self.version + 1,
            kind="change",
            query=query,
            batch=batch,
            base=self.version,
            created_at=time.time(),
            layouts=tuple(table.layout for table in self.core.tables.values()),
            epoch=self._epoch,
            owner=self._owner,
            result=recorded_type(self.program.plan),
        )

    def _new_core(self, layouts: tuple[TableLayout, ...]) -> EngineCore:
        core = EngineCore(
            self.program,
            layouts,
            track_changes=True,
            strategy=self._strategy,
            workers=self._workers,
            punctuation=self._punctuation,
            record=self._record,
            on_error=self._on_error,
        )
        core.tracking = self._log == "changes"
        return core

    def _forget(self) -> None:
        """Know nothing any more, neither the rows nor what the storage holds."""
        self._core = None
        self.version, self._hash = 0, ""
        self._store.forget()

    def _go_to(self, target: VersionInfo | None) -> None:
        """Bring the rows in memory to a version; None is the empty state."""
        version, name = (0, "") if target is None else (target.version, target.hash)
        if self._core is not None and self.version == version and self._hash == name:
            return
        layouts = self.program.plan.tables
        near = target is not None and target.whole <= self.version < version <= self.version + CATCH_UP_MAX
        if self._core is not None and near and self._catch_up(version):
            return
        self._core = None
        log_segments.require_covered(self._storage, target)
        if target is None:
            self._core, self.version, self._hash = self._new_core(()), 0, ""
            return
        info, steps = self._store.load_contents(version, layouts, self._fingerprint)
        require_no_renaming(self._storage.path, info.layouts, layouts)
        require_none_dropped(self._storage.path, info.dropped, layouts)
        core = self._new_core(info.layouts)
        core.reserve(self._store.snapshot_rows(version))
        for step in steps:
            play(core, step)
        self._core, self.version, self._hash = core, version, name

    def _catch_up(self, version: int) -> bool:
        """Go on to a version; False when it does not follow from what is here, is gone, or is another program's."""
        assert self._core is not None
        known = set(self._core.tables)
        try:
            for number in range(self.version + 1, version + 1):
                found = self._store.read_contents(number, self.program.plan.tables)
                info = found.info
                if (
                    info.program not in ("", self._fingerprint)
                    or info.parent != self._hash
                    or not known.issuperset(layout.name for layout in info.layouts)
                ):
                    return False
                play(self._core, found)
                self.version, self._hash = number, info.hash
        except RecoveryImpossible:  # collected meanwhile: load as a whole
            return False
        return True


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
