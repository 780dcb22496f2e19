"""Compactions in the background, beside engines and other compactors, killed and damaged."""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tidegate.durability import files
from tidegate.durability.compaction import compact
from tidegate.durability.compactor import Compactor
from tidegate.durability.versions import VersionStore
from tidegate.foundation.errors import StorageCorrupted
from tidegate.foundation.storage import Bytes, LocalStorage, open_storage

if TYPE_CHECKING:
    from tests.durability.conftest import History


@pytest.mark.parametrize("name", ["000000000003.snapshot", "000000000005.change"])
def test_damage_stops_it_with_a_logged_error_and_no_snapshot(
    tmp_path: Path, history: History, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    storage = open_storage(str(tmp_path))
    store = VersionStore(storage, keep_versions=1)
    history.commit(store, 1, 3)
    store.snapshot(history.info(3), history.whole(3))
    history.commit(store, 4, 6)
    data = bytearray((tmp_path / name).read_bytes())
    section = files.read_header(storage, name).sections[0]
    data[section.offset + section.size // 2] ^= 1
    (tmp_path / name).write_bytes(data)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(StorageCorrupted, match=name):
        compact(VersionStore(storage), 6)
    compactor = Compactor(storage, keep_versions=1)
    with caplog.at_level(logging.WARNING):
        compactor.request(6)
        assert compactor.wait(30)
    assert compactor.take_finished() is None
    assert "the snapshot of version 6 failed" in caplog.text and name in caplog.text
    assert sorted(os.listdir(tmp_path)) == before


KILLED = textwrap.dedent(
    """
    import sys
    from tidegate.durability import files
    from tidegate.durability.compactor import Compactor
    from tidegate.durability.versions import VersionStore
    from tidegate.foundation.storage import open_storage

    files.SECTION_BYTES = 1 << 13
    storage = open_storage(sys.argv[1])
    newest = VersionStore(storage).newest().version
    compactor = Compactor(storage, keep_versions=5)
    compactor.request(newest, size=0)
    sys.stdout.write("begun\\n")
    sys.stdout.flush()
    compactor.wait()
    sys.stdout.write("done\\n")
    """
)


def test_killed_in_the_middle_it_leaves_the_old_snapshot_and_all_changes(tmp_path: Path, history: History) -> None:
    seed = random.randrange(2**32)
    moments, path = random.Random(seed), tmp_path / "state"
    storage = open_storage(str(path))
    store = VersionStore(storage, keep_versions=5)
    rows = history.rows(history.account, ((number, number) for number in range(200_000)), change=False)
    store.snapshot(history.info(1), {"Account": rows})
    expected = {(number,): (number, number) for number in range(200_000)}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    unfinished = 0
    for round_number in range(6):
        newest = store.refresh()[-1]
        for version in range(newest + 1, newest + 4):
            changed = [(moments.randrange(200_000), version, moments.random() < 0.9) for _ in range(50)]
            store.commit(history.info(version), {"Account": history.rows(history.account, changed)})
            for key, value, exists in changed:
                expected.pop((key,), None)
                if exists:
                    expected[(key,)] = (key, value)
        with subprocess.Popen(
            [sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, env=environment, text=True
        ) as child:
            assert child.stdout is not None and child.stdout.readline() == "begun\n", f"seed {seed}"
            time.sleep(moments.uniform(0, 0.6) if round_number else 0.1)
            child.send_signal(signal.SIGKILL)
            unfinished += "done" not in child.stdout.read()
        found = VersionStore(storage, keep_versions=5)
        assert history.loaded(found)["Account"] == expected, f"seed {seed}"
        found.collect()
        assert not [name for name in os.listdir(path) if name.startswith(".")], f"seed {seed}"
    assert unfinished
    compact(VersionStore(storage), store.refresh()[-1])
    assert history.loaded(VersionStore(storage))["Account"] == expected, f"seed {seed}"


# --- in the background --------------------------------------------------------------------------------------------


class SlowStorage(LocalStorage):
    """Waits before a section of a snapshot is read until the test lets it."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.snapshots: list[str] = []

    def read(self, name: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
        if threading.current_thread().name == "tidegate-compaction" and name.endswith("change") and offset > 0:
            self.begun.set()
            assert self.go_on.wait(30)
        return super().read(name, offset, length)

    def write(self, name: str, parts: Iterable[Bytes], *, exclusive: bool) -> None:
        super().write(name, parts, exclusive=exclusive)
        if name.endswith("snapshot"):
            self.snapshots.append(name)


def test_of_requests_that_wait_the_newest_one_wins(tmp_path: Path, history: History) -> None:
    storage = SlowStorage(str(tmp_path))
    history.commit(VersionStore(storage), 1, 6)
    compactor = Compactor(storage)
    compactor.request(2)
    assert storage.begun.wait(30)
    for version in (3, 4, 5):
        compactor.request(version)  # returns though nothing goes on
    assert not compactor.wait(0) and compactor.take_finished() is None
    storage.go_on.set()
    assert compactor.wait(30)
    assert storage.snapshots == ["000000000002.snapshot", "000000000005.snapshot"]
    finished = compactor.take_finished()
    assert finished is not None and finished.version == 5 and compactor.take_finished() is None
    compactor.request(6)
    assert compactor.wait(30) and storage.snapshots[-1] == "000000000006.snapshot"


def test_closing_stops_it_and_leaves_nothing(
    tmp_path: Path, history: History, caplog: pytest.LogCaptureFixture
) -> None:
    storage = SlowStorage(str(tmp_path))
    history.commit(VersionStore(storage), 1, 6)
    before = sorted(os.listdir(tmp_path))
    compactor = Compactor(storage)
    compactor.request(6)
    assert storage.begun.wait(30)
    with caplog.at_level(logging.WARNING):
        compactor.close(seconds=0.01)
        assert "still being written" in caplog.text
    storage.go_on.set()
    compactor.close()
    compactor.request(6)
    assert compactor.wait(30) and compactor.take_finished() is None
    assert sorted(os.listdir(tmp_path)) == before


def test_several_compactors_of_one_version_do_no_harm(tmp_path: Path, history: History) -> None:
    storage = open_storage(str(tmp_path))
    history.commit(VersionStore(storage), 1, 20)
    compactors = [Compactor(open_storage(str(tmp_path)), keep_versions=3) for _ in range(4)]
    for compactor in compactors:
        compactor.request(20)
    assert all(compactor.wait(30) for compactor in compactors)
    finished = [compactor.take_finished() for compactor in compactors]
    assert len({info.size for info in finished if info is not None}) == 1
    assert history.loaded(VersionStore(storage)) == history.state(20)
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


def test_what_others_left_behind_is_removed_in_the_background(tmp_path: Path, history: History) -> None:
    storage = open_storage(str(tmp_path))
    store = VersionStore(storage)
    history.commit(store, 1, 6)
    store.snapshot(history.info(3), history.whole(3))
    (tmp_path / "000000000001.released").write_text("")
    compactor = Compactor(storage, keep_versions=2)
    compactor.sweep(epoch=2)
    assert compactor.wait(30)
    assert VersionStore(storage).refresh() == [3, 4, 5, 6]
    assert not (tmp_path / "000000000001.released").exists()
