"""What an engine does between batches to keep its state quick to open and small: snapshots, collections, sweeps.

    after every commit    a small state that is due:   write a snapshot and collect, here and now
                          a large state that is due:   request one in the background (compactor.py)
                          one was finished there:      learn of it
    every 20 versions     remove the versions that are no longer kept
    every 1,000           look, in the background, for leftovers of other processes

A state is small when its rows take up to 1 MB. Its snapshot then takes a few milliseconds, like some commits, and no
work is needed in the background: what happens to its files follows from its batches alone.

Where versions hold events instead of rows (version_log.py), only the engine has the rows, so it writes the snapshot
itself, of any size. It is due when the events since the last one weigh as much, and as soon as a version is logged as
changes: from then on the state needs no program.

Invariant: the work for a batch depends neither on the size of the state nor on the number of kept versions, except for
those snapshots, whose bytes stay within a constant factor of the rows that events changed. Nothing here fails a batch.
"""

from __future__ import annotations

import logging

from tidegate.durability.compactor import Compactor
from tidegate.durability.versions import VersionInfo, VersionStore
from tidegate.engine.core import EngineCore

COLLECT_EVERY = 20
SWEEP_EVERY = 50 * COLLECT_EVERY
"""How many versions pass between two collections, and between two that also look for what others left behind."""

SMALL_BYTES = 1 << 20

_log = logging.getLogger(__name__)


class Housekeeping:
    """The snapshots and collections of one engine's state."""

    def __init__(self, store: VersionStore) -> None:
        self._store = store
        self.compactor = Compactor(store.storage, store.keep_versions)

    def after(self, written: VersionInfo, core: EngineCore) -> None:
        """Does what is due after a commit; what fails is logged, and tried again later."""
        try:
            self._do(written, core)
        except Exception:
            _log.warning("%s: a snapshot or a collection failed", self._store.storage.path, exc_info=True)

    def close(self) -> None:
        """Ends what runs in the background."""
        self.compactor.close()

    def _do(self, written: VersionInfo, core: EngineCore) -> None:
        store = self._store
        finished = self.compactor.take_finished()
        if finished is not None:
            store.learn(finished)
            store.forget_collected()
        only_here = store.runs_events()
        if store.wants_snapshot() or (only_here and not written.program):
            size = rows_size(core)
            if only_here or size <= SMALL_BYTES:
                store.snapshot(written, {name: core.rows(name) for name in core.tables})
                store.collect(look_again=False)
            else:
                store.postpone_snapshot()
                self.compactor.request(written.version, size)
        elif written.version % SWEEP_EVERY == 0:
            self.compactor.sweep(written.epoch)
        elif written.version % COLLECT_EVERY == 0:
            store.collect(look_again=False)


def rows_size(core: EngineCore) -> int:
    """About what the rows take, without the bytes of strings."""
    return sum(8 * table.count * len(table.layout.columns) for table in core.tables.values())
