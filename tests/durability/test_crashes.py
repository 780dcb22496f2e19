"""Writers that die: at any call of the disk, by power failure, and by real SIGKILLs.

Whatever the moment, every version whose commit had returned must load, and the newest version on
disk must be one that loads. The simulated deaths try every call in turn (tests/simulation/disk.py); the real ones
hit a real process on real files: at random moments, and in the middle of a snapshot and of a collection.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tidegate.durability.versions import VersionStore
from tidegate.foundation.storage import LocalStorage, Storage, open_storage

from ..simulation.disk import SimulatedCrash, SimulatedDisk

if TYPE_CHECKING:
    from tests.durability.conftest import History


@pytest.mark.parametrize(("power_failure", "seed"), [(False, 0), (True, 1), (True, 2)])
def test_death_at_any_call_leaves_the_newest_version_readable(history: History, power_failure: bool, seed: int) -> None:
    survived, deaths = False, 0
    while not survived:
        disk = SimulatedDisk((seed, deaths), crash_at=deaths)
        storage = LocalStorage("/data/state", disk=disk)
        acknowledged = 0
        try:
            store = VersionStore(storage, keep_versions=2)
            for version in range(1, 6):
                store.commit(history.info(version), history.changes(version))
                acknowledged = version
                if version == 3:
                    store.snapshot(history.info(3), history.whole(3))
                    store.collect()
            store.collect()
            survived = True
        except SimulatedCrash:
            deaths += 1
        disk.restart(power_failure=power_failure)
        try:
            require_sound(storage, history, acknowledged)
        except Exception as error:
            error.add_note(disk.describe())
            raise
    assert deaths > 80


def require_sound(storage: Storage, history: History, acknowledged: int) -> None:
    store = VersionStore(storage, keep_versions=2)
    newest = store.tip()
    found = 0 if newest is None else newest.version
    assert acknowledged <= found <= acknowledged + 1
    for version in store.refresh():
        assert history.loaded(store, version) == history.state(version)
    store.commit(history.info(found + 1), history.changes(found + 1))  # and the history goes on
    assert history.loaded(store) == history.state(found + 1)


@contextlib.contextmanager
def dying_before_the_folder_is_synced(disk: SimulatedDisk) -> Iterator[None]:
    """A process dies inside, when its file has its name and the name is not yet on the disk."""

    def dies(path: str) -> None:
        if path == "/data/state":
            raise SimulatedCrash

    with pytest.MonkeyPatch.context() as patch, pytest.raises(SimulatedCrash):
        patch.setattr(disk, "sync_folder", dies)
        yield


@pytest.mark.parametrize("seed", range(8))
def test_a_version_that_a_warm_writer_found_survives_although_its_maker_died_before_syncing_it(
    history: History, seed: int
) -> None:
    disk = SimulatedDisk(seed)
    warm = VersionStore(LocalStorage("/data/state", disk=disk))
    history.commit(warm, 1, 1)
    maker = VersionStore(LocalStorage("/data/state", disk=disk))
    maker.tip()
    with dying_before_the_folder_is_synced(disk):
        maker.commit(history.info(2), history.changes(2))
    found = warm.tip()
    disk.restart(power_failure=True)
    after = VersionStore(LocalStorage("/data/state", disk=disk)).tip()
    assert found is not None and found.version == 2
    assert after is not None and after.hash == found.hash


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_collected_for_a_snapshot_that_a_power_failure_may_take_away(history: History, seed: int) -> None:
    disk = SimulatedDisk(seed)
    store = VersionStore(LocalStorage("/data/state", disk=disk), keep_versions=1)
    history.commit(store, 1, 4)
    other = VersionStore(LocalStorage("/data/state", disk=disk))
    other.tip()
    with dying_before_the_folder_is_synced(disk):
        other.snapshot(history.info(3), history.whole(3))
    assert store.collect() != []
    disk.restart(power_failure=True)
    assert history.loaded(VersionStore(LocalStorage("/data/state", disk=disk))) == history.state(4)


WRITER = textwrap.dedent(
    """
    import os
    import signal
    import sys
    import pyarrow as pa
    from tidegate.durability.versions import VersionInfo, VersionStore
    from tidegate.foundation.disk import Disk, OsDisk
    from tidegate.foundation.storage import LocalStorage
    from tidegate.operations.layout import Column, Kind, TableLayout

    path, deadly, calls_left = sys.argv[1], sys.argv[2], int(sys.argv[3])
    phase = "commit"

    class MortalDisk(OsDisk):
        def __getattribute__(self, name):
            global calls_left
            if phase == deadly and not name.startswith("_"):
                calls_left -= 1
                if calls_left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return super().__getattribute__(name)

    layout = TableLayout("Account", (Column("id", Kind.INT, 0), Column("balance", Kind.INT, 0)), ("id",))
    store = VersionStore(LocalStorage(path, disk=MortalDisk()), keep_versions=10)
    newest = store.tip()
    version = newest.version if newest else 0
    while True:
        version += 1
        phase = "commit"
        info = VersionInfo(version, "change", "q", version, version - 1, 0.0, 1, 1, None, (layout,), {}, 0)
        ids = [version % 50, 50]
        table = {"id": ids, "balance": [version, version], "exists": [True, True]}
        store.commit(info, {"Account": pa.table(table)})
        sys.stdout.write(f"{version}\\n")
        sys.stdout.flush()
        if version % 7 == 0:
            seen = range(max(1, version - 49), version + 1)
            rows = {"id": [v % 50 for v in seen] + [50], "balance": [*seen, version]}
            phase = "snapshot"
            store.snapshot(info, {"Account": pa.table(rows)})
            phase = "collection"
            store.collect()
    """
)

MOMENTS = [("any", 0)] * 3 + [("snapshot", calls) for calls in (5, 9)] + [("collection", calls) for calls in (3, 6)]


def test_killed_writers_lose_nothing_that_was_committed(tmp_path: Path, history: History) -> None:
    seed = random.randrange(2**32)
    moments, path, committed = random.Random(seed), tmp_path / "state", 0
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for phase, calls in MOMENTS:
        command = [sys.executable, "-c", WRITER, str(path), phase, str(calls)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as writer:
            assert writer.stdout is not None
            if phase == "any":
                committed = int(writer.stdout.readline())
                time.sleep(moments.uniform(0, 0.3))
                writer.send_signal(signal.SIGKILL)
            committed = max([committed, *map(int, writer.stdout.read().split())])
        assert writer.returncode == -signal.SIGKILL
        told = f"seed {seed}, killed in {phase} at call {calls}"
        store = VersionStore(open_storage(str(path)), keep_versions=10)
        newest = store.tip()
        assert newest is not None and newest.version >= committed, told
        for version in store.refresh():
            seen = range(max(1, version - 49), version + 1)
            expected = {(v % 50,): (v % 50, v) for v in seen} | {(50,): (50, version)}
            assert history.loaded(store, version)["Account"] == expected, told
        store.collect()
        assert not [name for name in os.listdir(path) if name.startswith(".")], told
    assert committed > 20
