from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tidegate.durability import head
from tidegate.durability.recovery import recover
from tidegate.durability.served import Line, stream_applicant
from tidegate.durability.verification import check_state
from tidegate.durability.version_info import Owner
from tidegate.durability.versions import VersionStore
from tidegate.foundation.disk import OsDisk
from tidegate.foundation.errors import InputError, RecoveryImpossible, StateDiverged, StorageFailed
from tidegate.foundation.storage import LocalStorage, Storage, open_storage

from .test_verification import flip, make, name

if TYPE_CHECKING:
    from tests.durability.conftest import History


def target(tmp_path: Path) -> Storage:
    return open_storage(str(tmp_path / "new"))


@pytest.mark.parametrize("version", range(1, 7))
def test_any_version_becomes_a_state_of_its_own(tmp_path: Path, history: History, version: int) -> None:
    source = make(tmp_path / "old", history, 6, 3)
    new = target(tmp_path)
    recovered = recover(source, new, version)
    assert (recovered.version.version, recovered.newest) == (version, 6)
    store = VersionStore(new)
    assert history.loaded(store) == history.state(version)
    newest, old = store.tip(), VersionStore(source).newest()
    assert newest is not None and old is not None
    assert newest.state != old.state and newest.owner is None
    assert store.served.lines() == {"query": Line(version - 1, version)}
    assert new.list() == [name(version, "snapshot"), "head"] and head.read(new) is not None
    assert check_state(new, deep=True).sound


def test_it_goes_on_counting_and_refuses_a_query_that_is_ahead(tmp_path: Path, history: History) -> None:
    source, new = make(tmp_path / "old", history, 6), target(tmp_path)
    recover(source, new, 4)
    store = VersionStore(new)
    store.tip()
    with pytest.raises(StateDiverged, match="batches 4 to 5 are missing"):
        store.served.judge(new.path, stream_applicant("query", 6))
    assert store.served.judge(new.path, stream_applicant("query", 4)) == "new"
    history.commit(store, 5, 7)
    assert history.loaded(VersionStore(new)) == history.state(7)
    assert check_state(new).runs == "4 to 7"


@pytest.mark.parametrize(
    ("broken", "newest", "start"),
    [
        ([name(6)], 5, 4),
        ([name(5)], 4, 4),
        ([name(4, "snapshot")], 6, 2),
        ([name(4, "snapshot"), name(4)], 3, 2),
        ([name(4, "snapshot"), name(2, "snapshot")], 6, 0),
        ([name(1), name(2, "snapshot"), name(3), name(5), name(6)], 4, 4),
    ],
)
def test_the_newest_sound_version_is_found_around_the_damage(
    tmp_path: Path, history: History, broken: list[str], newest: int, start: int
) -> None:
    source, new = make(tmp_path / "old", history, 6, 2, 4), target(tmp_path)
    for file in broken:
        flip(tmp_path / "old" / file)
    recovered = recover(source, new)
    assert (recovered.version.version, recovered.start) == (newest, start)
    store = VersionStore(new)
    assert history.loaded(store) == history.state(newest)
    store.tip()
    assert store.served.lines() == {"query": Line(newest - 1, newest)}


def test_damage_elsewhere_does_not_matter_and_is_not_read(tmp_path: Path, history: History) -> None:
    source = make(tmp_path / "old", history, 6, 4)
    for version in (1, 2, 3, 6):
        (tmp_path / "old" / name(version)).write_bytes(b"")
    (tmp_path / "old" / "head").write_bytes(b"nonsense")
    recover(source, target(tmp_path), 5)
    assert history.loaded(VersionStore(target(tmp_path))) == history.state(5)


def test_a_version_that_is_not_sound_is_refused_with_the_damage(tmp_path: Path, history: History) -> None:
    source, new = make(tmp_path / "old", history, 3), target(tmp_path)
    flip(tmp_path / "old" / name(2))
    with pytest.raises(RecoveryImpossible, match=r"(?s)version 3 cannot be rebuilt.*000000000002.change: damaged at"):
        recover(source, new, 3)
    with pytest.raises(RecoveryImpossible, match="there is no version 9, the newest is 3"):
        recover(source, new, 9)
    flip(tmp_path / "old" / name(1))
    with pytest.raises(RecoveryImpossible, match="no version can be rebuilt"):
        recover(source, new)
    with pytest.raises(RecoveryImpossible, match="there is no state here"):
        recover(open_storage(str(tmp_path / "nothing")), new)
    assert not new.list()


def test_a_foreign_file_in_between_is_not_built_upon(tmp_path: Path, history: History) -> None:
    source = make(tmp_path / "old", history, 3)
    make(tmp_path / "other", history, 3)
    (tmp_path / "old" / name(2)).write_bytes((tmp_path / "other" / name(2)).read_bytes())
    assert recover(source, target(tmp_path)).version.version == 1


def test_what_lies_in_the_target_is_never_touched(tmp_path: Path, history: History) -> None:
    source = make(tmp_path / "old", history, 3)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "file").touch()
    with pytest.raises(InputError, match=r"required a new or an empty folder, found 1 files in it \(file"):
        recover(source, target(tmp_path))
    assert os.listdir(tmp_path / "new") == ["file"]


class FullDisk(OsDisk):
    """A disk with room for so many bytes."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, descriptor: int, data: memoryview, offset: int) -> int:
        if self.room < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= len(data)
        return super().write(descriptor, data, offset)


def test_a_full_disk_leaves_nothing_that_opens(tmp_path: Path, history: History) -> None:
    source = make(tmp_path / "old", history, 3)
    with pytest.raises(StorageFailed, match="No space left"):
        recover(source, LocalStorage(str(tmp_path / "new"), FullDisk(1500)))
    assert os.listdir(tmp_path / "new") == []


def test_a_state_that_somebody_works_on_can_be_recovered_from(tmp_path: Path, history: History) -> None:
    source = open_storage(str(tmp_path / "old"))
    VersionStore(source).commit(history.info(1, owner=Owner("q", "ledger", "t")), history.changes(1))
    hold = source.hold("t.lock")
    assert recover(source, target(tmp_path)).version.owner is None
    assert hold is not None
    hold.release()
