from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tidegate.durability import compaction_process, compactor
from tidegate.durability.compaction import Stopped
from tidegate.durability.compactor import Compactor
from tidegate.durability.versions import VersionStore
from tidegate.foundation.storage import Storage, open_storage

if TYPE_CHECKING:
    from tests.durability.conftest import History

LARGE = compactor.CHILD_BYTES


def committed(path: Path, history: History) -> Storage:
    storage = open_storage(str(path))
    history.commit(VersionStore(storage), 1, 6)
    return storage


def test_a_child_compacts_and_collects(tmp_path: Path, history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compactor, "compact", lambda *_: pytest.fail("in this process"))
    storage = committed(tmp_path, history)
    VersionStore(storage).snapshot(history.info(3), history.whole(3))
    background = Compactor(storage, keep_versions=2)
    background.request(6, LARGE)
    assert background.wait(60)
    finished = background.take_finished()
    assert finished is not None and finished.version == 6 and finished.kind == "snapshot"
    assert VersionStore(storage).refresh() == [3, 4, 5, 6]
    assert history.loaded(VersionStore(storage)) == history.state(6)


def test_what_a_child_says_when_it_fails_is_logged(
    tmp_path: Path, history: History, caplog: pytest.LogCaptureFixture
) -> None:
    storage = committed(tmp_path, history)
    storage.delete("000000000003.change")
    background = Compactor(storage)
    with caplog.at_level(logging.WARNING):
        background.request(6, LARGE)
        assert background.wait(60)
    assert background.take_finished() is None
    assert "version 6 failed" in caplog.text and "000000000003.change is missing" in caplog.text


def test_closing_ends_the_child(tmp_path: Path, history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = committed(tmp_path, history)
    started, start = threading.Event(), compaction_process.start
    children = []

    def noticed(*arguments: object) -> object:
        children.append(start(*arguments))  # type: ignore[arg-type]
        started.set()
        return children[0]

    monkeypatch.setattr(compaction_process, "start", noticed)
    background = Compactor(storage)
    background.request(6, LARGE)
    assert started.wait(30)
    background.close()
    assert children[0].returncode is not None
    assert not [name for name in os.listdir(tmp_path) if name.endswith("snapshot")]


def test_a_child_without_its_parent_stops(tmp_path: Path, history: History) -> None:
    storage = committed(tmp_path, history)
    before = storage.list()
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "setpriority", lambda *_: None)  # this process goes on as it was
        with pytest.raises(Stopped):
            compaction_process.main(str(tmp_path), 6, 100, parent=-1)
    assert storage.list() == before and os.getpriority(os.PRIO_PROCESS, 0) == nice
