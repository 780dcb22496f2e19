from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidegate.durability import head, ownership
from tidegate.durability.adoption import accept_loss
from tidegate.durability.copying import back_up, restore
from tidegate.durability.verification import check_state
from tidegate.durability.version_info import Owner
from tidegate.durability.versions import VersionStore
from tidegate.foundation.errors import (
    InputError,
    RecoveryImpossible,
    StateDiverged,
    StorageCorrupted,
    StorageFailed,
    TidegateError,
)
from tidegate.foundation.storage import LocalStorage, Storage, open_storage

from ..simulation.disk import SimulatedCrash, SimulatedDisk
from .test_recovery import FullDisk
from .test_verification import flip, make, name

if TYPE_CHECKING:
    from tests.durability.conftest import History


@pytest.fixture(params=["local", "memory"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    local = request.param == "local"
    return open_storage(str(tmp_path / "backup") if local else f"memory://{uuid.uuid4().hex}")


def versions(storage: Storage) -> list[str]:
    return [file for file in storage.list() if file.startswith("0")]


def newest_of(storage: Storage) -> int:
    newest = VersionStore(storage).tip()
    assert newest is not None
    return newest.version


def test_a_backup_is_the_state_at_its_newest_version(tmp_path: Path, history: History, target: Storage) -> None:
    source = make(tmp_path / "state", history, 6, 2, 4)
    sizes: list[int] = []
    copied = back_up(source, target, sizes.append, lambda total: sizes.append(-total))
    assert history.loaded(VersionStore(target)) == history.state(6)
    assert versions(target) == [name(4, "snapshot"), name(5), name(6)]
    assert (copied.version.version, copied.files) == (6, 3)
    assert sum(sizes) == 0, "as much was copied as was announced"
    assert copied.size == sum(source.size(file) for file in versions(target))
    assert head.read(target) == head.read(source)
    for file in versions(target):
        assert bytes(target.read(file)) == bytes(source.read(file))
    assert check_state(target, deep=True).sound


def test_the_last_batch_can_be_asked_for_again_after_a_restore(tmp_path: Path, history: History) -> None:
    """Its version has a snapshot: without the one below, its outcomes could not be given again."""
    source, target = make(tmp_path / "state", history, 6, 3, 6), open_storage(str(tmp_path / "backup"))
    back_up(source, target)
    assert versions(target) == [name(3, "snapshot"), name(4), name(5), name(6), name(6, "snapshot")]
    assert VersionStore(target).can_rebuild(5)


def test_only_what_is_missing_is_copied_the_next_time(tmp_path: Path, history: History, target: Storage) -> None:
    source = make(tmp_path / "state", history, 4)
    assert back_up(source, target).files == 4
    assert back_up(source, target).files == 0
    store = VersionStore(source)
    history.commit(store, 5, 7)
    newest = store.tip()
    assert newest is not None
    store.snapshot(newest, history.whole(7))
    assert back_up(source, target).files == 4
    assert history.loaded(VersionStore(target)) == history.state(7)
    assert check_state(target, deep=True).runs == "1 to 7"


def test_a_backup_outlives_what_the_state_has_collected(tmp_path: Path, history: History) -> None:
    source, target = make(tmp_path / "state", history, 3), open_storage(str(tmp_path / "backup"))
    back_up(source, target)
    store = VersionStore(source, keep_versions=1)
    history.commit(store, 4, 8)
    newest = store.tip()
    assert newest is not None
    store.snapshot(newest, history.whole(8))
    history.commit(store, 9, 10)
    store.collect()
    assert versions(source)[0] == name(8, "snapshot")
    back_up(source, target)
    report = check_state(target, deep=True)
    assert report.sound and report.runs == "1 to 3, 8 to 10", (report.problems, report.remarks)
    assert "versions 4 to 7 are not here" in report.remarks[0]
    assert history.loaded(VersionStore(target)) == history.state(10)
    assert history.loaded(VersionStore(target), 2) == history.state(2)


def test_a_restored_backup_is_the_same_state(tmp_path: Path, history: History, target: Storage) -> None:
    source = make(tmp_path / "state", history, 6, 4)
    back_up(source, target)
    shutil.rmtree(tmp_path / "state")
    again = open_storage(str(tmp_path / "state"))
    restored = restore(target, again)
    before = VersionStore(target).newest()
    assert before is not None and restored.version.state == before.state
    store = VersionStore(again)
    assert history.loaded(store) == history.state(6)
    store.tip()
    assert store.served.lines()["query"].batch == 5
    history.commit(store, 7, 8)
    assert history.loaded(VersionStore(again)) == history.state(8)
    assert back_up(again, target).version.version == 8, "and the backup goes on from it"


def test_a_state_is_restored_into_an_empty_place_only(tmp_path: Path, history: History) -> None:
    source = make(tmp_path / "state", history, 2)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(InputError, match="required a new or an empty folder"):
        restore(source, open_storage(str(tmp_path / "full")))
    assert os.listdir(tmp_path / "full") == ["file"]


def test_what_the_owner_released_stays_released(tmp_path: Path, history: History, target: Storage) -> None:
    source = open_storage(str(tmp_path / "state"))
    VersionStore(source).commit(history.info(1, owner=Owner("q", "ledger", "t"), epoch=4), history.changes(1))
    ownership.release(source, "q")
    back_up(source, target)
    assert ownership.current(target) is None


# --- refused ------------------------------------------------------------------------------------------------


def test_a_backup_of_another_state_is_refused(tmp_path: Path, history: History, target: Storage) -> None:
    one, two = make(tmp_path / "one", history, 3), make(tmp_path / "two", history, 4)
    back_up(one, target)
    before = target.list()
    with pytest.raises(StateDiverged, match="this is a backup of state"):
        back_up(two, target)
    assert target.list() == before and newest_of(target) == 3


def test_a_state_that_took_another_course_does_not_get_into_an_older_backup(tmp_path: Path, history: History) -> None:
    source, target = make(tmp_path / "state", history, 3), open_storage(str(tmp_path / "backup"))
    back_up(source, target)
    (tmp_path / "state" / name(3)).unlink()
    accept_loss(source)
    with pytest.raises(StateDiverged, match=r"this backup is at version 3, and the state at .* only at 2"):
        back_up(source, target)
    history.commit(VersionStore(source), 3, 5)
    with pytest.raises(StateDiverged, match="version 3 of this backup is not the one"):
        back_up(source, target)
    assert newest_of(target) == 3


def test_no_state_a_hole_and_a_loss_are_not_backed_up(tmp_path: Path, history: History) -> None:
    target = open_storage(str(tmp_path / "backup"))
    with pytest.raises(RecoveryImpossible, match="there is no state here"):
        back_up(open_storage(str(tmp_path / "nothing")), target)
    source = make(tmp_path / "state", history, 4)
    (tmp_path / "state" / name(4)).unlink()
    with pytest.raises(StateDiverged, match="version 4 of state"):
        back_up(source, target)
    (tmp_path / "state" / name(2)).unlink()
    with pytest.raises(RecoveryImpossible, match=r"000000000002\.change is missing"):
        back_up(source, target)
    assert not target.list()


@pytest.mark.parametrize("file", [name(4, "snapshot"), name(5), name(6)])
def test_damage_is_found_while_copying_and_nothing_is_left(
    tmp_path: Path, history: History, target: Storage, file: str
) -> None:
    source = make(tmp_path / "state", history, 6, 4)
    flip(tmp_path / "state" / file, -70)
    with pytest.raises(StorageCorrupted, match=file):
        back_up(source, target)
    assert not target.list()


def test_a_foreign_file_in_between_is_not_copied(tmp_path: Path, history: History, target: Storage) -> None:
    source = make(tmp_path / "state", history, 4)
    make(tmp_path / "other", history, 4)
    shutil.copy(tmp_path / "other" / name(3), tmp_path / "state" / name(3))
    with pytest.raises(StorageCorrupted, match="A file of another state was copied here"):
        back_up(source, target)
    assert not target.list()


def test_damage_does_not_harm_the_backup_that_there_was(tmp_path: Path, history: History, target: Storage) -> None:
    source = make(tmp_path / "state", history, 4)
    back_up(source, target)
    history.commit(VersionStore(source), 5, 7)
    flip(tmp_path / "state" / name(6))
    with pytest.raises(StorageCorrupted, match=name(6)):
        back_up(source, target)
    assert history.loaded(VersionStore(target)) == history.state(5), "what could be copied in order was"


# --- interrupted ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", [back_up, restore])
def test_a_full_disk_leaves_nothing_in_a_place_that_was_empty(
    tmp_path: Path, history: History, act: Callable[..., Any]
) -> None:
    source = make(tmp_path / "state", history, 6, 3)
    whole = sum(source.size(file) for file in versions(source))
    for room in range(0, whole // 2, 997):
        with pytest.raises(StorageFailed, match="No space left"):
            act(source, LocalStorage(str(tmp_path / "copy"), FullDisk(room)))
        assert os.listdir(tmp_path / "copy") == []


def test_a_full_disk_leaves_an_older_backup_as_a_backup(tmp_path: Path, history: History) -> None:
    source = make(tmp_path / "state", history, 2)
    place = str(tmp_path / "backup")
    back_up(source, open_storage(place))
    history.commit(VersionStore(source), 3, 6)
    with pytest.raises(StorageFailed, match="No space left"):
        back_up(source, LocalStorage(place, FullDisk(4000)))
    reached = newest_of(open_storage(place))
    assert 2 <= reached < 6 and history.loaded(VersionStore(open_storage(place))) == history.state(reached)
    back_up(source, open_storage(place))
    assert history.loaded(VersionStore(open_storage(place))) == history.state(6)


@pytest.mark.parametrize("snapshots", [(), (4,), (3, 6)])
def test_a_copy_that_is_killed_at_any_moment_opens_whole_or_not_at_all(
    tmp_path: Path, history: History, snapshots: tuple[int, ...]
) -> None:
    """The machine stops at each call in turn, and what was never synced may be gone."""
    source = make(tmp_path / "state", history, 6, *snapshots)
    moment, opened = 0, 0
    while True:
        disk = SimulatedDisk(moment, crash_at=moment)
        target = LocalStorage("/copy", disk)
        try:
            restore(source, target)
            break
        except SimulatedCrash:
            disk.restart()
        try:
            store = VersionStore(LocalStorage("/copy", disk))
            newest = store.tip()
        except TidegateError:
            newest = None
        if newest is not None:
            assert newest.version == 6, f"an older state opens, killed at call {moment}"
            assert history.loaded(store) == history.state(6)
            assert store.can_rebuild(5) or snapshots == (), "the last batch could not be asked for again"
            opened += 1
        again = LocalStorage("/copy", disk)
        back_up(source, again)
        assert history.loaded(VersionStore(LocalStorage("/copy", disk))) == history.state(6)
        moment += 1
    assert moment > 30 and opened > 0


def test_an_older_backup_opens_at_any_moment_while_it_is_brought_up_to_date(tmp_path: Path, history: History) -> None:
    source = make(tmp_path / "state", history, 3)
    older, newer = tmp_path / "older", VersionStore(source, keep_versions=1)
    shutil.copytree(tmp_path / "state", older)
    history.commit(newer, 4, 8)
    newest = newer.tip()
    assert newest is not None
    newer.snapshot(newest, history.whole(8))
    history.commit(newer, 9, 10)
    newer.collect()
    moment = 0
    while True:
        disk = SimulatedDisk(moment)
        back_up(open_storage(str(older)), LocalStorage("/copy", disk))
        disk.crash_at = disk.calls + moment
        try:
            back_up(source, LocalStorage("/copy", disk))
            break
        except SimulatedCrash:
            disk.restart()
        store = VersionStore(LocalStorage("/copy", disk))
        reached = store.tip()
        assert reached is not None and history.loaded(store) == history.state(reached.version)
        moment += 1
    assert moment > 20


# --- a state that goes on -------------------------------------------------------------------------------------


class Meanwhile:
    """Does something when a file is first read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, file: str, act: Callable[[], None]) -> None:
        self.done = False
        read = LocalStorage.read

        def watched(storage: LocalStorage, asked: str, offset: int = 0, length: int | None = None) -> Any:
            if asked == file and offset > 0 and not self.done:
                self.done = True
                act()
            return read(storage, asked, offset, length)

        monkeypatch.setattr(LocalStorage, "read", watched)


def test_versions_that_come_meanwhile_are_left_for_the_next_time(
    tmp_path: Path, history: History, monkeypatch: pytest.MonkeyPatch, target: Storage
) -> None:
    source = make(tmp_path / "state", history, 4)
    meanwhile = Meanwhile(monkeypatch, name(4), lambda: history.commit(VersionStore(source), 5, 6))
    assert back_up(source, target).version.version == 4 and meanwhile.done
    assert history.loaded(VersionStore(target)) == history.state(4)
    assert back_up(source, target).files == 2


def test_files_that_are_collected_meanwhile_make_it_start_again(
    tmp_path: Path, history: History, monkeypatch: pytest.MonkeyPatch, target: Storage
) -> None:
    source = make(tmp_path / "state", history, 6)

    def collect() -> None:
        store = VersionStore(source, keep_versions=1)
        history.commit(store, 7, 8)
        newest = store.tip()
        assert newest is not None
        store.snapshot(newest, history.whole(8))
        history.commit(store, 9, 10)
        assert store.collect()

    meanwhile = Meanwhile(monkeypatch, name(4), collect)
    copied = back_up(source, target)
    assert meanwhile.done and copied.version.version == 10
    assert history.loaded(VersionStore(target)) == history.state(10)
    assert check_state(target, deep=True).sound


def test_a_state_that_collects_faster_than_it_is_copied_is_given_up(
    tmp_path: Path, history: History, monkeypatch: pytest.MonkeyPatch, target: Storage
) -> None:
    source = make(tmp_path / "state", history, 2)
    size = LocalStorage.size

    def gone(self: LocalStorage, file: str) -> int:
        if file == name(1):
            raise FileNotFoundError(file)
        return size(self, file)

    monkeypatch.setattr(LocalStorage, "size", gone)
    with pytest.raises(StorageFailed, match="faster than they could be copied"):
        back_up(source, target)
    assert not target.list()
