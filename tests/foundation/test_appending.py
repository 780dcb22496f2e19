from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tidegate.foundation import appending
from tidegate.foundation.disk import OsDisk
from tidegate.foundation.errors import StorageFailed, StorageUncertain
from tidegate.foundation.storage import LocalStorage


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path / "state"))


def test_what_is_appended_is_read_back_and_the_end_moves(storage: LocalStorage) -> None:
    assert storage.appends
    log = storage.append_to("log", None)
    assert (log.end, storage.size("log")) == (0, 0)
    log.write(b"first")
    log.write(bytearray(b" second"))
    log.sync()
    assert log.end == 12
    assert bytes(storage.read("log")) == b"first second"
    log.close()
    log.close()


def test_a_new_file_needs_a_free_name(storage: LocalStorage) -> None:
    storage.append_to("log", None).close()
    with pytest.raises(FileExistsError, match="log"):
        storage.append_to("log", None)
    with pytest.raises(FileNotFoundError):
        storage.append_to("nothing", 0)


def test_space_is_reserved_in_steps_and_reads_as_zeros(storage: LocalStorage) -> None:
    log = storage.append_to("log", None)
    log.reserve(10)
    if storage.size("log") == 0:
        pytest.skip("this file system cannot allocate ahead")
    assert storage.size("log") == appending.STEP_SIZE
    assert log.end == 0
    log.write(b"0123456789")
    log.reserve(appending.STEP_SIZE - 10)
    assert storage.size("log") == appending.STEP_SIZE, "that much was there already"
    log.reserve(appending.STEP_SIZE - 9)
    assert storage.size("log") == 2 * appending.STEP_SIZE
    log.close()
    content = bytes(storage.read("log"))
    assert len(content) == 2 * appending.STEP_SIZE, "reading gives all of the file, and closing keeps its size"
    assert content.rstrip(b"\0") == b"0123456789"


def test_going_on_cuts_off_what_lies_behind(storage: LocalStorage) -> None:
    log = storage.append_to("log", None)
    log.reserve(100)
    log.write(b"keep|drop")
    log.close()
    log = storage.append_to("log", 5)
    assert log.end == 5
    assert bytes(storage.read("log")) == b"keep|"
    log.write(b"new")
    log.close()
    assert bytes(storage.read("log")) == b"keep|new"


def test_going_on_behind_the_end_is_refused(storage: LocalStorage) -> None:
    storage.append_to("log", None).close()
    with pytest.raises(StorageFailed, match=r"log: required at least 7 bytes .*got 0.*Restore"):
        storage.append_to("log", 7)


def test_writes_that_the_system_splits_are_put_together(tmp_path: Path) -> None:
    class Short(OsDisk):
        def write(self, descriptor: int, data: memoryview, offset: int) -> int:
            return super().write(descriptor, data[:3], offset)

    log = LocalStorage(str(tmp_path), Short()).append_to("log", None)
    log.write(b"0123456789")
    log.close()
    assert (tmp_path / "log").read_bytes() == b"0123456789"


def test_a_full_disk_is_met_by_reserving_and_changes_nothing(small_disk: Path) -> None:
    storage = LocalStorage(str(small_disk / "state"))
    log = storage.append_to("log", None)
    log.reserve(1000)  # a whole step does not fit, this does
    log.write(b"x" * 1000)
    log.sync()
    with pytest.raises(StorageFailed, match="No space left on device") as caught:
        log.reserve(1 << 20)
    assert not isinstance(caught.value, StorageUncertain)
    assert log.end == 1000
    log.reserve(1000)
    log.write(b"y" * 1000)
    log.sync()
    log.close()
    assert bytes(storage.read("log")).rstrip(b"\0") == b"x" * 1000 + b"y" * 1000


class Full(OsDisk):
    """A disk on which so many bytes can be allocated; this one runs everywhere."""

    def __init__(self, room: int) -> None:
        self.room = room

    def allocate(self, descriptor: int, offset: int, length: int) -> bool:
        if offset + length > self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().allocate(descriptor, offset, length)


def test_a_record_fits_although_a_whole_step_does_not(tmp_path: Path) -> None:
    log = LocalStorage(str(tmp_path), Full(1500)).append_to("log", None)
    log.reserve(1000)
    log.write(b"x" * 1000)
    with pytest.raises(StorageFailed, match=r"No space left.*Nothing was committed"):
        log.reserve(1000)
    log.reserve(500)
    log.write(b"y" * 500)
    log.sync()
    log.close()
    assert (tmp_path / "log").read_bytes() == b"x" * 1000 + b"y" * 500


def test_a_file_system_that_cannot_allocate_still_appends(tmp_path: Path) -> None:
    class Unable(OsDisk):
        def allocate(self, descriptor: int, offset: int, length: int) -> bool:
            return False

    log = LocalStorage(str(tmp_path), Unable()).append_to("log", None)
    log.reserve(1000)
    log.write(b"x")
    log.sync()
    log.close()
    assert (tmp_path / "log").read_bytes() == b"x"


class Breaking(OsDisk):
    """A disk whose n-th write or sync fails once."""

    def __init__(self) -> None:
        self.breaks = ""

    def write(self, descriptor: int, data: memoryview, offset: int) -> int:
        self._break("write")
        return super().write(descriptor, data, offset)

    def sync_data(self, descriptor: int) -> None:
        self._break("sync")
        super().sync_data(descriptor)

    def sync_folder(self, path: str) -> None:
        self._break("folder")
        super().sync_folder(path)

    def _break(self, call: str) -> None:
        if self.breaks == call:
            self.breaks = ""
            raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("breaks", ["write", "sync"])
def test_after_a_failure_the_appender_is_dead_and_the_file_is_opened_again_where_it_was_synced(
    tmp_path: Path, breaks: str
) -> None:
    disk = Breaking()
    storage = LocalStorage(str(tmp_path), disk)
    log = storage.append_to("log", None)
    log.write(b"synced|")
    log.sync()
    synced, disk.breaks = log.end, breaks
    with pytest.raises(StorageUncertain, match=r"log: .*failed: Input/output error") as caught:
        log.write(b"lost")
        log.sync()
    assert "Nothing was committed" not in str(caught.value)
    for call in (log.sync, lambda: log.write(b"x"), lambda: log.reserve(1)):
        with pytest.raises(StorageUncertain, match="Input/output error"):
            call()
    log.close()
    log = storage.append_to("log", synced)
    log.write(b"again")
    log.sync()
    log.close()
    assert (tmp_path / "log").read_bytes() == b"synced|again"


def test_a_new_file_whose_folder_cannot_be_synced_is_in_doubt(tmp_path: Path) -> None:
    disk = Breaking()
    storage = LocalStorage(str(tmp_path), disk)
    storage.write("before", [], exclusive=True)
    disk.breaks = "folder"
    with pytest.raises(StorageUncertain, match="log: it was opened, but its folder could not be synced"):
        storage.append_to("log", None)
    assert storage.settle("log")


def test_a_closed_appender_refuses(storage: LocalStorage) -> None:
    log = storage.append_to("log", None)
    log.close()
    with pytest.raises(StorageFailed, match="closed"):
        log.write(b"x")
