from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tidegate.durability import head
from tidegate.durability.versions import VersionStore
from tidegate.foundation.errors import StateDiverged
from tidegate.foundation.storage import LocalStorage, Storage, open_storage

if TYPE_CHECKING:
    from tests.durability.conftest import History


def test_the_newest_version_is_noted(storage: Storage, history: History) -> None:
    assert head.read(storage) is None
    store = VersionStore(storage)
    history.commit(store, 1, 3)
    newest = store.tip()
    assert newest is not None
    assert head.read(storage) == head.Head(newest.state, 3, newest.hash)


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_versions_that_are_lost_at_the_end_are_noticed_and_the_way_out_is_told(
    tmp_path: Path, history: History, lost: int
) -> None:
    history.commit(VersionStore(open_storage(str(tmp_path))), 1, 3)
    for version in range(4 - lost, 4):
        (tmp_path / f"{version:012d}.change").unlink()
    store = VersionStore(open_storage(str(tmp_path)))
    with pytest.raises(StateDiverged, match=rf"version 3 of state .* committed.*state adopt {tmp_path} --lost"):
        store.tip()


def test_versions_of_another_state_are_noticed(tmp_path: Path, history: History) -> None:
    for name in ("a", "b"):
        history.commit(VersionStore(open_storage(str(tmp_path / name))), 1, 2)
    (tmp_path / "a" / "head").write_bytes((tmp_path / "b" / "head").read_bytes())
    with pytest.raises(StateDiverged, match="was committed here"):
        VersionStore(open_storage(str(tmp_path / "a"))).tip()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"head": "x", "check": 1}', b"\0" * 100])
def test_a_note_that_a_power_failure_left_half_says_nothing(tmp_path: Path, history: History, content: bytes) -> None:
    store = VersionStore(open_storage(str(tmp_path)))
    history.commit(store, 1, 2)
    (tmp_path / "head").write_bytes(content)
    newest = VersionStore(open_storage(str(tmp_path))).tip()
    assert newest is not None and newest.version == 2


def test_a_note_that_lags_behind_is_no_loss(tmp_path: Path, history: History) -> None:
    store = VersionStore(open_storage(str(tmp_path)))
    history.commit(store, 1, 1)
    before = (tmp_path / "head").read_bytes()
    history.commit(store, 2, 4)
    (tmp_path / "head").write_bytes(before)
    newest = VersionStore(open_storage(str(tmp_path))).tip()
    assert newest is not None and newest.version == 4


def test_a_version_that_another_commits_while_the_versions_are_listed_is_no_loss(
    tmp_path: Path, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = VersionStore(open_storage(str(tmp_path)))
    history.commit(other, 1, 2)
    storage = open_storage(str(tmp_path))
    listed = storage.list()

    def slow() -> list[str]:
        if other.newest().version == 2:  # type: ignore[union-attr]
            history.commit(other, 3, 3)
            return listed
        return open_storage(str(tmp_path)).list()

    monkeypatch.setattr(storage, "list", slow)
    newest = VersionStore(storage).tip()
    assert newest is not None and newest.version in (2, 3)


def test_a_note_that_cannot_be_written_does_not_fail_the_commit(
    tmp_path: Path, history: History, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(self: LocalStorage, name: str, data: bytes) -> None:
        raise OSError("disk full")

    store = VersionStore(open_storage(str(tmp_path)))
    monkeypatch.setattr(LocalStorage, "hint", full)
    history.commit(store, 1, 2)
    assert history.loaded(VersionStore(open_storage(str(tmp_path)))) == history.state(2)
    assert "could not be noted" in caplog.text


def test_a_version_that_is_committed_while_another_process_opens_the_state_is_no_loss(
    tmp_path: Path, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listing does not have it and the note does: nothing was lost, it came in between."""
    writer = VersionStore(open_storage(str(tmp_path)))
    history.commit(writer, 1, 2)
    listed = LocalStorage.list

    def list_and_let_commit(self: LocalStorage) -> list[str]:
        names = listed(self)
        monkeypatch.setattr(LocalStorage, "list", listed)
        history.commit(writer, 3, 3)
        return names

    monkeypatch.setattr(LocalStorage, "list", list_and_let_commit)
    store = VersionStore(open_storage(str(tmp_path)))
    first, again = store.tip(), store.tip()
    assert first is not None and first.version == 2
    assert again is not None and again.version == 3
