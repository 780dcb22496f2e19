from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tidegate.durability.listing import parse_name
from tidegate.durability.soundness import SoundReader, check_file
from tidegate.durability.version_info import VersionInfo
from tidegate.foundation.errors import StorageCorrupted, TidegateError
from tidegate.foundation.storage import LocalStorage

from .test_verification import flip, make, name

if TYPE_CHECKING:
    from tests.durability.conftest import History


@pytest.mark.parametrize(
    ("file", "parsed"),
    [
        ("000000000007.change", (7, "change")),
        ("000000000007.snapshot", (7, "snapshot")),
        ("00000000007.change", None),
        ("000000000007.change.bak", None),
        ("00000000000٧.change", None),
        ("head", None),
    ],
)
def test_only_version_files_are_taken_for_ones(file: str, parsed: tuple[int, str] | None) -> None:
    assert parse_name(file) == parsed


def test_all_bytes_of_a_file_are_read(tmp_path: Path, history: History) -> None:
    storage = make(tmp_path, history, 1)
    read: list[int] = []
    assert check_file(storage, name(1), read.append).version == 1
    assert sum(read) == (tmp_path / name(1)).stat().st_size


def test_a_file_is_checked_once_and_only_when_it_is_needed(
    tmp_path: Path, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = make(tmp_path, history, 6, 4)
    opened: list[str] = []
    read = LocalStorage.read

    def noted(self: LocalStorage, file: str, offset: int = 0, length: int | None = None) -> object:
        opened.append(file)
        return read(self, file, offset, length)

    monkeypatch.setattr(LocalStorage, "read", noted)
    reader = SoundReader(storage, storage.list())
    assert reader.start_of(5) == 4 and set(opened) == {name(4, "snapshot"), name(5)}
    opened.clear()
    assert reader.start_of(5) == 4 and not opened


def test_a_file_that_is_left_out_counts_as_missing(tmp_path: Path, history: History) -> None:
    storage = make(tmp_path, history, 6, 4)
    reader = SoundReader(storage, storage.list())
    reader.leave_out(name(3))
    assert reader.refresh() == [1, 2, 4, 5, 6] and reader.start_of(3) is None and reader.start_of(6) == 4


def test_damage_is_remembered(tmp_path: Path, history: History) -> None:
    storage = make(tmp_path, history, 2)
    flip(tmp_path / name(2))
    reader = SoundReader(storage, storage.list())
    assert isinstance(reader.check(1, "change"), VersionInfo)
    found = reader.check(2, "change")
    assert isinstance(found, TidegateError) and reader.damage == [str(found)]
    with pytest.raises(StorageCorrupted):
        check_file(storage, name(2))
