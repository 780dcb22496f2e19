from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tidegate.durability import scrubbing
from tidegate.durability.scrubbing import Scrubber
from tidegate.durability.versions import VersionStore
from tidegate.foundation.disk import OsDisk
from tidegate.foundation.storage import LocalStorage, Storage, open_storage

from .test_verification import flip, make, name

if TYPE_CHECKING:
    from tests.durability.conftest import History


def one_pass(scrubber: Scrubber, bytes_max: int = 1 << 30) -> list[str]:
    number, found = scrubber.passes, []
    while scrubber.passes == number:
        found += scrubber.step(bytes_max)
    return found


def test_a_sound_state_is_read_in_circles(storage: Storage, history: History) -> None:
    history.commit(VersionStore(storage), 1, 5)
    scrubber = Scrubber(storage)
    size = sum(storage.size(file) for file in storage.list() if file.startswith("0"))
    for number in (1, 2, 3):
        assert one_pass(scrubber) == []
        assert (scrubber.passes, scrubber.files, scrubber.bytes) == (number, 5 * number, size * number)


@pytest.mark.parametrize("bytes_max", [1, 500, 5000])
def test_a_step_reads_little_and_the_next_goes_on_where_it_was(
    tmp_path: Path, history: History, monkeypatch: pytest.MonkeyPatch, bytes_max: int
) -> None:
    monkeypatch.setattr(scrubbing, "PIECE_SIZE", 256)
    storage = make(tmp_path, history, 4, 4)
    header = max(len(file.read_bytes().split(b"ARROW")[0]) for file in tmp_path.glob("0*")) + 4096
    scrubber, steps = Scrubber(storage), 0
    while scrubber.passes == 0:
        before = scrubber.bytes
        assert scrubber.step(bytes_max) == []
        assert scrubber.bytes - before < bytes_max + header
        steps += 1
    assert scrubber.files == 5
    assert scrubber.bytes == sum(file.stat().st_size for file in tmp_path.glob("0*"))
    assert steps > scrubber.bytes / (bytes_max + header)


def test_damage_is_logged_and_told_in_every_pass_and_the_rest_is_read_as_well(
    tmp_path: Path, history: History, caplog: pytest.LogCaptureFixture
) -> None:
    storage = make(tmp_path, history, 4)
    flip(tmp_path / name(2))
    (tmp_path / name(3)).write_bytes(b"")
    scrubber = Scrubber(storage)
    for _ in range(2):
        found = one_pass(scrubber, 700)
        assert len(found) == 2 and f"{tmp_path}/{name(2)}: damaged" in found[0] and name(3) in found[1]
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 4 and name(2) in caplog.text
    assert scrubber.files == 4


def test_a_renamed_file_is_not_believed(tmp_path: Path, history: History) -> None:
    storage = make(tmp_path, history, 2)
    (tmp_path / name(2)).rename(tmp_path / name(3))
    assert "renamed or copied" in one_pass(Scrubber(storage))[0]


def test_damage_that_comes_later_is_found_in_a_later_pass(tmp_path: Path, history: History) -> None:
    storage = make(tmp_path, history, 3)
    scrubber = Scrubber(storage)
    assert one_pass(scrubber) == []
    flip(tmp_path / name(1))
    assert len(one_pass(scrubber)) == 1


def test_files_that_are_collected_or_come_while_it_goes_on_are_no_damage(tmp_path: Path, history: History) -> None:
    storage = make(tmp_path, history, 5, 4)
    scrubber = Scrubber(storage)
    scrubber.step(1)
    for version in (1, 2, 3):
        (tmp_path / name(version)).unlink()
    history.commit(VersionStore(storage), 6, 6)
    assert one_pass(scrubber) == [] and one_pass(scrubber) == []
    assert scrubber.files == (3 + 4)


def test_no_state_is_no_endless_loop(tmp_path: Path) -> None:
    scrubber = Scrubber(open_storage(str(tmp_path / "nothing")))
    assert scrubber.step(1000) == [] and scrubber.passes == 1


class BadSectors(OsDisk):
    def read(self, descriptor: int, buffer: memoryview, offset: int) -> int:
        if offset > 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().read(descriptor, buffer, offset)


def test_what_the_disk_does_not_give_back_is_damage_and_not_an_exception(tmp_path: Path, history: History) -> None:
    make(tmp_path, history, 1)
    found = one_pass(Scrubber(LocalStorage(str(tmp_path), BadSectors())))
    assert len(found) == 1 and name(1) in found[0] and "Input/output error" in found[0]
