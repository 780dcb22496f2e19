"""When snapshots are made and old versions removed, and what that costs the batches."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.compiler.program import build_program
from tidegate.durability import housekeeping, versions
from tidegate.durability.compactor import Compactor
from tidegate.durability.ownership import process_token
from tidegate.durability.served import stream_applicant
from tidegate.durability.version_info import Owner
from tidegate.durability.versioned import VersionedEngine
from tidegate.durability.versions import CHANGE_BYTES_MIN, VersionStore
from tidegate.foundation.storage import LocalStorage, open_storage


@tg.table(key="id")
class Account:
    id: int
    owner: str = ""
    balance: int = 0


@tg.transaction
def deposit(dst: Account, amount: int, owner: str) -> int:
    dst.balance += amount
    dst.owner = owner
    if dst.balance % 7 == 0:
        tg.delete(dst)
    return amount


PROGRAM = build_program([deposit])


def batch(number: int) -> pa.Table:
    ids = [(number * 31 + place * 7) % 97 for place in range(20)]
    return pa.table({"dst": ids, "amount": [number % 5 + 1] * 20, "owner": [f"{number % 11}"] * 20})


def opened(path: Path | LocalStorage, keep_versions: int = 100) -> VersionedEngine:
    return VersionedEngine(PROGRAM, path if isinstance(path, LocalStorage) else str(path), keep_versions=keep_versions)


def run(engine: VersionedEngine, events: pa.Table) -> pa.Table:
    owner = Owner("q", "test", process_token())
    applicant = stream_applicant("q", engine.version)
    return engine.process(applicant, events, order_by=None, late="run", owner=owner)


def advance(engine: VersionedEngine, batches: int) -> None:
    for _ in range(batches):
        run(engine, batch(engine.version))


def names(path: Path, kind: str) -> list[int]:
    return sorted(int(name[:12]) for name in os.listdir(path) if name.endswith(kind))


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every state counts as large, and snapshots are due after seven small changes."""
    monkeypatch.setattr(housekeeping, "SMALL_BYTES", 0)
    monkeypatch.setattr(versions, "SNAPSHOT_AFTER_BYTES", 7 * CHANGE_BYTES_MIN)
    yield
    assert "tidegate-compaction" not in [thread.name for thread in threading.enumerate()]


def test_a_small_state_is_snapshotted_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "SNAPSHOT_AFTER_BYTES", 7 * CHANGE_BYTES_MIN)
    monkeypatch.setattr(Compactor, "request", lambda *_: pytest.fail("a thread for a small state"))
    engine = opened(tmp_path)
    advance(engine, 20)
    assert names(tmp_path, "snapshot") == [7, 14]


@pytest.mark.usefixtures("large")
def test_a_large_state_is_snapshotted_in_the_background_and_the_engine_learns_of_it(tmp_path: Path) -> None:
    engine = opened(tmp_path, keep_versions=3)
    advance(engine, 7)
    assert engine._housekeeping.compactor.wait(30)
    assert names(tmp_path, "snapshot") == [7]
    advance(engine, 6)  # 6 changes after the snapshot
    assert engine._housekeeping.compactor.wait(30)
    assert names(tmp_path, "snapshot") == [7]
    advance(engine, 1)
    assert engine._housekeeping.compactor.wait(30)
    assert names(tmp_path, "snapshot") == [7, 14]
    advance(engine, 7)
    assert engine._housekeeping.compactor.wait(30)
    assert names(tmp_path, "snapshot") == [14, 21] and names(tmp_path, "change") == list(range(15, 22))
    advance(engine, 1)
    assert engine._store.refresh() == list(range(14, 23))
    assert opened(tmp_path).core.rows("Account").equals(engine.core.rows("Account"))
    engine.close()


@pytest.mark.usefixtures("large")
def test_an_engine_goes_on_committing_and_collecting_while_snapshots_are_made(tmp_path: Path) -> None:
    engine, plain = opened(tmp_path, keep_versions=4), tg.Engine([deposit])
    for number in range(300):
        events = batch(number)
        assert run(engine, events).equals(plain.run(events))
        if number % 30 == 0:
            assert opened(tmp_path).core.rows("Account").equals(plain.scan(Account))
    assert engine._housekeeping.compactor.wait(30)
    advance(engine, 0)
    assert len(names(tmp_path, "snapshot")) <= 3 and names(tmp_path, "snapshot")[-1] > 200
    engine.close()
    assert opened(tmp_path).core.rows("Account").equals(plain.scan(Account))
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


@pytest.mark.usefixtures("large")
def test_a_compaction_that_fails_is_tried_again_when_as_much_was_changed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[int] = []

    def failing(store: VersionStore, version: int, pause: object) -> None:
        asked.append(version)
        raise tg.StorageFailed("no space")

    engine = opened(tmp_path)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr("tidegate.durability.compactor.compact", failing)
        for _ in range(60):
            advance(engine, 1)
            assert engine._housekeeping.compactor.wait(30)
    assert asked == [7, 14, 28, 56] and caplog.text.count("no space") >= 4
    advance(engine, 52)
    assert engine._housekeeping.compactor.wait(30)
    assert names(tmp_path, "snapshot") == [112]
    engine.close()


class CountingStorage(LocalStorage):
    """Counts what is asked of a real folder, by the engine's own thread."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.calls: dict[str, int] = {}
        self._owner = threading.get_ident()

    def count(self, what: str) -> None:
        if threading.get_ident() == self._owner:
            self.calls[what] = self.calls.get(what, 0) + 1

    def list(self) -> list[str]:
        self.count("list")
        return super().list()

    def read(self, name: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
        self.count("read")
        return super().read(name, offset, length)

    def delete(self, name: str) -> None:
        self.count("delete")
        super().delete(name)

    def sweep(self) -> list[str]:
        self.count("sweep")
        return super().sweep()


def test_what_a_batch_asks_of_the_storage_does_not_depend_on_how_many_versions_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "SMALL_BYTES", 0)
    monkeypatch.setattr(housekeeping, "SWEEP_EVERY", 100)
    monkeypatch.setattr(versions, "SNAPSHOT_AFTER_BYTES", 45 * CHANGE_BYTES_MIN)
    found = {}
    for kept in (10, 300):
        storage = CountingStorage(str(tmp_path / str(kept)))
        engine = opened(storage, keep_versions=kept)
        advance(engine, 301)
        assert engine._housekeeping.compactor.wait(30)
        storage.calls.clear()
        advance(engine, 200)
        assert engine._housekeeping.compactor.wait(30)
        found[kept] = storage.calls
        engine.close()
    assert found[10].get("list", 0) == found[300].get("list", 0) == 0
    assert found[10].get("sweep", 0) == found[300].get("sweep", 0) == 0
    assert abs(found[10].get("read", 0) - found[300].get("read", 0)) <= 5
    assert max(calls.get("delete", 0) for calls in found.values()) <= 250


def test_closing_an_engine_ends_what_runs_in_the_background(
    tmp_path: Path, large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()

    def endless(store: VersionStore, version: int, pause: object) -> None:
        begun.set()
        assert callable(pause)
        while True:
            pause()

    monkeypatch.setattr("tidegate.durability.compactor.compact", endless)
    engine = VersionedEngine(PROGRAM, str(tmp_path))
    advance(engine, 7)
    assert begun.wait(30)
    engine.close()
    assert VersionStore(open_storage(str(tmp_path))).refresh() == list(range(1, 8))
