from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from tidegate.foundation.disk import Disk, OsDisk


@pytest.fixture
def disk() -> Disk:
    return OsDisk()


def test_files_are_written_read_and_cut_at_offsets(disk: Disk, tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    descriptor = disk.open_new(path)
    assert disk.write(descriptor, memoryview(b"01234"), 0) == 5
    assert disk.write(descriptor, memoryview(b"56789"), 5) == 5
    disk.sync(descriptor)
    disk.sync_data(descriptor)
    buffer = bytearray(6)
    assert disk.read(descriptor, memoryview(buffer), 2) == 6
    assert buffer == b"234567"
    assert disk.read(descriptor, memoryview(buffer), 10) == 0
    disk.truncate(descriptor, 3)
    assert disk.status(descriptor).size == disk.stat(path).size == 3
    disk.close(descriptor)
    with pytest.raises(FileExistsError):
        disk.open_new(path)


def test_names_are_linked_replaced_and_removed(disk: Disk, tmp_path: Path) -> None:
    folder = str(tmp_path / "folder")
    disk.mkdir(folder)
    first, second = os.path.join(folder, "a"), os.path.join(folder, "b")
    disk.close(disk.open_new(first))
    disk.link(first, second)
    assert disk.stat(first).inode == disk.stat(second).inode
    assert disk.stat(first) != disk.stat(folder)
    assert disk.stat(folder).is_folder and not disk.stat(first).is_folder
    with pytest.raises(FileExistsError):
        disk.link(first, second)
    disk.unlink(second)
    disk.replace(first, second)
    disk.sync_folder(folder)
    assert disk.listdir(folder) == ["b"]
    with pytest.raises(FileNotFoundError):
        disk.open_existing(first, writable=True)
    with pytest.raises(FileExistsError):
        disk.mkdir(folder)


def test_descriptors_are_closed_when_another_program_starts(disk: Disk, tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    for descriptor in (disk.open_new(path), disk.open_existing(path, writable=True)):
        assert fcntl.fcntl(descriptor, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
        disk.close(descriptor)


def test_locks_belong_to_descriptors(disk: Disk, tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    first, second = disk.open_new(path), disk.open_existing(path, writable=True)
    disk.lock(first, exclusive=True)
    with pytest.raises(BlockingIOError):
        disk.lock(second, exclusive=False)
    disk.unlock(first)
    disk.lock(second, exclusive=True)
    disk.close(second)
    disk.lock(first, exclusive=True)
    disk.close(first)


def test_allocated_space_reads_as_zeros(disk: Disk, tmp_path: Path) -> None:
    descriptor = disk.open_new(str(tmp_path / "a"))
    disk.write(descriptor, memoryview(b"x"), 0)
    if disk.allocate(descriptor, 0, 5000):
        assert (tmp_path / "a").read_bytes() == b"x" + bytes(4999)
    disk.close(descriptor)


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS])
def test_where_space_cannot_be_allocated_nothing_happens(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def unable(*_arguments: int) -> None:
        raise OSError(number, os.strerror(number))

    descriptor = disk.open_new(str(tmp_path / "a"))
    monkeypatch.setattr(os, "posix_fallocate", unable, raising=False)
    assert disk.allocate(descriptor, 0, 5000) is False
    monkeypatch.delattr(os, "posix_fallocate")
    assert disk.allocate(descriptor, 0, 5000) is False
    disk.close(descriptor)


def test_a_full_disk_refuses_to_allocate(disk: Disk, small_disk: Path) -> None:
    descriptor = disk.open_new(str(small_disk / "a"))
    with pytest.raises(OSError, match="No space left"):
        disk.allocate(descriptor, 0, 1 << 20)
    disk.close(descriptor)


def test_a_folder_that_the_file_system_cannot_sync_is_no_failure_but_a_broken_disk_is(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = [errno.EINVAL, errno.ENOTSUP, errno.EIO]

    def fails(_disk: OsDisk, _descriptor: int) -> None:
        number = numbers.pop(0)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(OsDisk, "sync", fails)
    disk.sync_folder(str(tmp_path))
    disk.sync_folder(str(tmp_path))
    with pytest.raises(OSError, match="Input/output error"):
        disk.sync_folder(str(tmp_path))
