"""Writers that die: between any two calls of the file system, by power failure, and by real SIGKILLs.

Whatever the moment, every version whose commit had returned must load, and the newest version on
disk must be one that loads. The simulated deaths try every call in turn; the real ones are random.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidegate.durability.versions import VersionStore
from tidegate.foundation import storage as storage_module
from tidegate.foundation.storage import open_storage

if TYPE_CHECKING:
    from tests.durability.conftest import History

EFFECTS = ("open", "write", "fsync", "close", "link", "replace", "unlink", "mkdir")


class Death(BaseException):
    """The process is gone: whatever it still tries has no effect."""


class MortalSystem:
    """The real `os`, up to the call with the given number; from then on nothing happens any more.

    With `power_failure`, what was not synced is lost: unsynced bytes are gone from every file, and
    so are the names that were made since their folder was last synced.
    """

    def __init__(self, calls_left: int, *, power_failure: bool) -> None:
        self.calls_left = calls_left
        self.power_failure = power_failure
        self.path = os.path
        self.opened: dict[int, str] = {}
        self.unsynced: set[str] = set()
        self.new_names: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in EFFECTS:
            return real

        def call(*arguments: Any) -> Any:
            if self.calls_left <= 0:
                self.die(name, arguments)
            self.calls_left -= 1
            result = real(*arguments)
            self.record(name, arguments, result)
            return result

        return call

    def record(self, name: str, arguments: tuple[Any, ...], result: Any) -> None:
        """Keeps account of what a power failure would take."""
        if name == "open":
            self.opened[result] = arguments[0]
            if not os.path.isdir(arguments[0]):
                self.new_names.add(arguments[0])
        elif name == "write":
            self.unsynced.add(self.opened[arguments[0]])
        elif name == "fsync":
            target = self.opened[arguments[0]]
            self.unsynced.discard(target)
            self.new_names = {new for new in self.new_names if os.path.dirname(new) != target}
        elif name == "mkdir":
            self.new_names.add(arguments[0])
        elif name in ("link", "replace"):
            self.new_names.add(arguments[1])
            if arguments[0] in self.unsynced:
                self.unsynced.add(arguments[1])

    def die(self, name: str, arguments: tuple[Any, ...]) -> None:
        if self.calls_left == 0:
            self.calls_left = -1
            if name == "write":  # a torn one
                os.write(arguments[0], arguments[1][: len(arguments[1]) // 2])
                self.unsynced.add(self.opened[arguments[0]])
            if self.power_failure:
                for path in filter(os.path.exists, self.unsynced):
                    os.truncate(path, 0)
                for path in filter(os.path.exists, self.new_names):
                    shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        raise Death


@pytest.mark.parametrize("power_failure", [False, True])
def test_death_between_any_two_calls_leaves_the_newest_version_readable(
    tmp_path: Path, history: History, monkeypatch: pytest.MonkeyPatch, power_failure: bool
) -> None:
    survived, deaths = False, 0
    while not survived:
        path = str(tmp_path / str(deaths) / "state")
        store = VersionStore(open_storage(path), keep_versions=2)
        acknowledged = 0
        with monkeypatch.context() as patch:
            patch.setattr(storage_module, "os", MortalSystem(deaths, power_failure=power_failure))
            try:
                for version in range(1, 7):
                    store.commit(history.info(version), history.changes(version))
                    acknowledged = version
                    if version == 4:
                        store.snapshot(history.info(4), history.whole(4))
                        store.collect()
                store.collect()
                survived = True
            except Death:
                deaths += 1
        require_sound(path, history, acknowledged)
    assert deaths > 50


def require_sound(path: str, history: History, acknowledged: int) -> None:
    store = VersionStore(open_storage(path), keep_versions=2)
    newest = store.newest()
    found = 0 if newest is None else newest.version
    assert acknowledged <= found <= acknowledged + 1
    for version in store.refresh():
        assert history.loaded(store, version) == history.state(version)
    store.commit(history.info(found + 1), history.changes(found + 1))  # and the history goes on
    assert history.loaded(store) == history.state(found + 1)


WRITER = textwrap.dedent(
    """
    import sys
    import pyarrow as pa
    from tidegate.durability.versions import VersionInfo, VersionStore
    from tidegate.foundation.storage import open_storage
    from tidegate.operations.layout import Column, Kind, TableLayout

    layout = TableLayout("Account", (Column("id", Kind.INT, 0), Column("balance", Kind.INT, 0)), ("id",))
    store = VersionStore(open_storage(sys.argv[1]), keep_versions=10)
    newest = store.newest()
    version = newest.version if newest else 0
    while True:
        version += 1
        info = VersionInfo(version, "change", "q", version, version - 1, 0.0, 1, 1, None, (layout,), {}, 0)
        ids = [version % 50, 50]
        table = {"id": ids, "balance": [version, version], "exists": [True, True]}
        store.commit(info, {"Account": pa.table(table)})
        sys.stdout.write(f"{version}\\n")
        sys.stdout.flush()
        if version % 7 == 0:
            seen = range(max(1, version - 49), version + 1)
            rows = {"id": [v % 50 for v in seen] + [50], "balance": [*seen, version]}
            store.snapshot(info, {"Account": pa.table(rows)})
            store.collect()
    """
)


def test_killed_writers_lose_nothing_that_was_committed(tmp_path: Path, history: History) -> None:
    seed = random.randrange(2**32)
    moments, path, committed = random.Random(seed), tmp_path / "state", 0
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for _ in range(6):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, env=environment, text=True
        ) as writer:
            assert writer.stdout is not None
            committed = int(writer.stdout.readline())
            time.sleep(moments.uniform(0, 0.3))
            writer.send_signal(signal.SIGKILL)
            committed = max([committed, *map(int, writer.stdout.read().split())])
        store = VersionStore(open_storage(str(path)), keep_versions=10)
        newest = store.newest()
        assert newest is not None and newest.version >= committed, f"seed {seed}"
        for version in store.refresh():
            seen = range(max(1, version - 49), version + 1)
            expected = {(v % 50,): (v % 50, v) for v in seen} | {(50,): (50, version)}
            assert history.loaded(store, version)["Account"] == expected, f"seed {seed}"
        store.collect()
        assert not [name for name in os.listdir(path) if name.startswith(".")], f"seed {seed}"
    assert committed > 20
