from __future__ import annotations

import errno
import os
import pickle
import re
import subprocess
import sys
import textwrap
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fsspec.implementations.local import LocalFileSystem

from tidegate.foundation import leftovers
from tidegate.foundation.disk import OsDisk
from tidegate.foundation.errors import InputError, StorageFailed, StorageUncertain
from tidegate.foundation.remote_storage import RemoteStorage
from tidegate.foundation.storage import LocalStorage, Storage, open_storage

DEAD_WRITER = "~".join([*leftovers.temporary_name().split("~")[:3], "999999999", "1.00", "0123456789ab"])


class RefusingRename(LocalFileSystem):
    """A file system of fsspec without atomic put, whose rename does not replace (as HDFS's does not)."""

    protocol = "refusing"
    cachable = False

    def mv(self, path1: str, path2: str, **_options: Any) -> None:
        os.link(path1, path2)
        os.unlink(path1)


@pytest.fixture(params=["path", "file URL", "memory URL", "s3 URL", "fsspec without atomic put"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    folder = tmp_path / "state" / "ledger"
    if request.param == "path":
        return open_storage(str(folder))
    if request.param == "file URL":
        return open_storage(f"file://{folder}")
    if request.param == "memory URL":
        return open_storage(f"memory://{uuid.uuid4().hex}/ledger")
    if request.param == "s3 URL":
        return open_storage(request.getfixturevalue("s3").new_bucket() + "/state/ledger")
    return RemoteStorage(RefusingRename(), str(folder), f"refusing://{folder}", atomic_put=False)


@pytest.mark.parametrize("path", ["~", "~/state"])
def test_a_home_folder_that_nobody_expanded_is_refused(path: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"give {os.path.expanduser(path)!r}")):
        open_storage(path)


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("dbfs:/ledger", "give '/dbfs/ledger', where Databricks mounts it, or 'dbfs:///ledger'"),
        ("s3:/bucket/ledger", "give 's3://bucket/ledger'"),
        ("hdfs:/user/ledger", "give 'hdfs:///user/ledger'"),
        ("memory:/ledger", "give 'memory://ledger'"),
    ],
)
def test_a_url_with_one_slash_is_refused(
    path: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=re.escape(advice)):
        open_storage(path)
    assert names_in(tmp_path) == []
    assert open_storage(f"./{path}").path == str(tmp_path / path)  # a folder of that name can still be had


def names_in(path: Path) -> list[str]:
    return sorted(os.listdir(path)) if path.exists() else []


def test_a_storage_that_was_never_written_is_empty(storage: Storage) -> None:
    assert storage.list() == []
    assert storage.sweep() == []
    assert not storage.exists("a")
    with pytest.raises(FileNotFoundError):
        storage.read("a")
    with pytest.raises(FileNotFoundError):
        storage.size("a")


def test_parts_of_any_kind_of_bytes_are_written_one_after_the_other(storage: Storage) -> None:
    parts = [b"ab", bytearray(b"cd"), memoryview(b"ef"), pa.py_buffer(b"gh"), b""]
    storage.write("a", iter(parts), exclusive=True)
    assert bytes(storage.read("a")) == b"abcdefgh"
    assert storage.size("a") == 8
    assert storage.exists("a")
    assert storage.list() == ["a"]


def test_a_read_gives_a_range_and_less_where_the_file_ends(storage: Storage) -> None:
    storage.write("a", [b"0123456789"], exclusive=False)
    assert bytes(storage.read("a", 2, 3)) == b"234"
    assert bytes(storage.read("a", 7)) == b"789"
    assert bytes(storage.read("a", 7, 100)) == b"789"
    assert bytes(storage.read("a", 0, 0)) == b""
    assert bytes(storage.read("a", 10)) == b""
    assert bytes(storage.read("a", 11, 5)) == b""


def test_an_empty_file_is_a_file(storage: Storage) -> None:
    storage.write("a", [], exclusive=True)
    assert bytes(storage.read("a")) == b""
    assert bytes(storage.read("a", 0, 10)) == b""


def test_an_exclusive_write_leaves_what_is_there(storage: Storage) -> None:
    storage.write("a", [b"first"], exclusive=True)
    with pytest.raises(FileExistsError, match="a"):
        storage.write("a", [b"second"], exclusive=True)
    assert bytes(storage.read("a")) == b"first"


def test_a_write_that_is_not_exclusive_replaces(storage: Storage) -> None:
    if not storage.path.startswith("refusing:"):
        storage.write("a", [b"first"], exclusive=True)
    storage.write("a", [b"second"], exclusive=False)
    assert bytes(storage.read("a")) == b"second"


def test_settling_tells_whether_a_file_is_there(storage: Storage) -> None:
    assert storage.settle("a") is False
    storage.write("a", [b"x"], exclusive=True)
    assert storage.settle("a") is True
    storage.delete("a")
    assert storage.settle("a") is False


def test_a_hint_replaces_the_one_before(storage: Storage) -> None:
    for data in (b"first", b"second") if not storage.path.startswith("refusing:") else (b"second",):
        storage.hint("a", data)
    assert bytes(storage.read("a")) == b"second"
    assert storage.list() == ["a"]
    if os.path.isdir(storage.path):
        assert names_in(Path(storage.path)) == ["a"]


def test_deleting_twice_is_fine_and_names_are_sorted(storage: Storage) -> None:
    for name in ("b", "c", "a"):
        storage.write(name, [b""], exclusive=True)
    storage.delete("b")
    storage.delete("b")
    assert storage.list() == ["a", "c"]


def test_a_writer_that_fails_while_it_makes_its_bytes_leaves_nothing(storage: Storage) -> None:
    def parts() -> Iterator[bytes]:
        yield b"half"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        storage.write("a", parts(), exclusive=True)
    assert storage.list() == []
    if os.path.isdir(storage.path):
        assert names_in(Path(storage.path)) == []


def test_sweeping_removes_dead_writers_files_and_no_others(storage: Storage) -> None:
    live = leftovers.temporary_name()
    for name in ("a", DEAD_WRITER, live):
        storage.write(name, [b"x"], exclusive=False)
    assert storage.list() == ["a"]
    assert storage.sweep() == [DEAD_WRITER]
    assert not storage.exists(DEAD_WRITER)
    assert storage.exists("a")
    assert storage.exists(live)


def test_an_old_file_of_a_writer_on_another_machine_is_swept(tmp_path: Path) -> None:
    (tmp_path / ".temporary~far~1~1~1.00~ab").write_bytes(b"x")
    (tmp_path / ".temporary~far~1~2~1.00~ab").write_bytes(b"x")
    os.utime(tmp_path / ".temporary~far~1~2~1.00~ab", (1, 1))
    assert LocalStorage(str(tmp_path)).sweep() == [".temporary~far~1~2~1.00~ab"]


def test_of_many_exclusive_writers_one_wins(tmp_path: Path) -> None:
    storages = [LocalStorage(str(tmp_path / "state")) for _ in range(8)]
    start = threading.Barrier(len(storages))
    won: list[int] = []

    def write(number: int) -> None:
        start.wait()
        try:
            storages[number].write("a", [str(number).encode() * 10_000], exclusive=True)
            won.append(number)
        except FileExistsError:
            pass

    threads = [threading.Thread(target=write, args=(number,)) for number in range(len(storages))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert bytes(storages[0].read("a")) == str(won[0]).encode() * 10_000
    assert names_in(tmp_path / "state") == ["a"]


@pytest.mark.parametrize("prefix", ["file://", "file:", "local://", ""])
def test_spellings_of_a_local_path_mean_the_same_folder(tmp_path: Path, prefix: str) -> None:
    storage = open_storage(f"{prefix}{tmp_path}")
    assert isinstance(storage, LocalStorage)
    assert storage.path == str(tmp_path)


def test_a_relative_path_does_not_move_with_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    storage = open_storage("state")
    monkeypatch.chdir("/")
    storage.write("a", [b""], exclusive=True)
    assert names_in(tmp_path / "state") == ["a"]


def test_a_path_under_a_regular_file_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    for path in (tmp_path / "file", tmp_path / "file" / "state" / "deep"):
        storage = open_storage(str(path))
        with pytest.raises(StorageFailed, match=r"Not a directory.*Nothing was committed.*choose a path"):
            storage.write("a", [b""], exclusive=True)
        for refused in (storage.list, storage.sweep, lambda s=storage: s.read("a")):
            with pytest.raises(StorageFailed, match="Not a directory"):
                refused()
    assert (tmp_path / "file").read_text() == "not a folder"


def test_an_unknown_kind_of_path_is_refused_with_what_to_install() -> None:
    with pytest.raises(StorageFailed, match=r"nosuch://bucket/state: no file system.*[Ii]nstall"):
        open_storage("nosuch://bucket/state")


def test_errors_of_a_storage_cross_processes(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageFailed) as caught:
        open_storage(str(tmp_path / "file")).list()
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def require_refusal_and_recovery(storage: Storage, reason: str) -> None:
    """Fills the storage until it refuses; what was written must stand, and small files still fit after."""
    storage.write("before", [b"x" * 1000], exclusive=True)
    with pytest.raises(StorageFailed, match=rf"after: could not write it: {reason}.*Nothing was committed"):
        storage.write("after", (b"x" * 4096 for _ in range(100)), exclusive=True)
    assert storage.list() == ["before"]
    assert names_in(Path(storage.path)) == ["before"]
    assert bytes(storage.read("before")) == b"x" * 1000
    storage.write("after", [b"y"], exclusive=True)
    assert bytes(storage.read("after")) == b"y"


def test_a_full_disk_is_refused_and_leaves_no_trace(small_disk: Path) -> None:
    require_refusal_and_recovery(open_storage(str(small_disk / "state")), "No space left on device")


def test_a_file_over_the_size_limit_is_refused_and_leaves_no_trace(tmp_path: Path) -> None:
    """The same by RLIMIT_FSIZE, in a process of its own: this one runs everywhere."""
    script = textwrap.dedent(
        """
        import resource, sys
        from tidegate.foundation.errors import StorageFailed
        from tidegate.foundation.storage import open_storage
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
        storage = open_storage(sys.argv[1])
        storage.write("before", [b"x" * 1000], exclusive=True)
        try:
            storage.write("after", (b"x" * 4096 for _ in range(100)), exclusive=True)
        except StorageFailed as error:
            sys.stdout.write(str(error))
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "state")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "after: could not write it: File too large" in done.stdout
    assert "Nothing was committed; what was committed before stands." in done.stdout
    assert names_in(tmp_path / "state") == ["before"]
    assert (tmp_path / "state" / "before").read_bytes() == b"x" * 1000


class FailingDisk(OsDisk):
    """The real disk, on which one call fails: before its effect, or after it."""

    def __init__(self, call: str, *, number: int = errno.EIO, after: bool = False) -> None:
        self._call, self._number, self._after = call, number, after

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_") or name != self._call:
            return found

        def failing(*arguments: Any, **named: Any) -> Any:
            if self._after:
                found(*arguments, **named)
            raise OSError(self._number, os.strerror(self._number))

        return failing


def storage_failing_at(tmp_path: Path, call: str, **options: Any) -> LocalStorage:
    (tmp_path / "state").mkdir()
    storage = LocalStorage(str(tmp_path / "state"), FailingDisk(call, **options))
    storage._rooted = True  # the folder's own sync is another matter
    return storage


@pytest.mark.parametrize("call", ["open_new", "write", "sync"])
def test_a_write_that_fails_before_the_link_left_nothing_and_says_so(tmp_path: Path, call: str) -> None:
    storage = storage_failing_at(tmp_path, call)
    with pytest.raises(StorageFailed, match="Nothing was committed") as caught:
        storage.write("a", [b"x"], exclusive=True)
    assert not isinstance(caught.value, StorageUncertain)
    assert names_in(tmp_path / "state") == []


@pytest.mark.parametrize(
    ("call", "exclusive"), [("link", True), ("replace", False), ("sync_folder", True), ("sync_folder", False)]
)
@pytest.mark.parametrize("after", [False, True], ids=["without effect", "with effect"])
def test_a_write_that_fails_from_the_link_on_is_in_doubt(
    tmp_path: Path, call: str, exclusive: bool, after: bool
) -> None:
    storage = storage_failing_at(tmp_path, call, after=after)
    with pytest.raises(StorageUncertain, match=r"/a: .*Input/output error.*may be written or not") as caught:
        storage.write("a", [b"x"], exclusive=exclusive)
    assert "Nothing was committed" not in str(caught.value)
    visible = after or call == "sync_folder"
    assert names_in(tmp_path / "state") == (["a"] if visible else [])
    assert LocalStorage(storage.path).settle("a") is visible


def test_a_link_that_says_taken_although_it_is_ours_is_a_success(tmp_path: Path) -> None:
    storage = storage_failing_at(tmp_path, "link", number=errno.EEXIST, after=True)
    storage.write("a", [b"x"], exclusive=True)
    assert names_in(tmp_path / "state") == ["a"]


def test_a_link_that_says_taken_and_is_anothers_is_not(tmp_path: Path) -> None:
    class Overtaken(OsDisk):
        def link(self, source: str, target: str) -> None:
            Path(target).write_bytes(b"x")  # the same bytes, another inode
            super().link(source, target)

    with pytest.raises(FileExistsError, match="/a'"):
        LocalStorage(str(tmp_path), Overtaken()).write("a", [b"x"], exclusive=True)


def test_a_temporary_name_that_cannot_be_removed_does_no_harm(tmp_path: Path) -> None:
    storage = storage_failing_at(tmp_path, "unlink")
    storage.write("a", [b"x"], exclusive=True)
    assert storage.list() == ["a"]


@pytest.mark.parametrize("call", ["sync", "sync_folder", "open_existing"])
def test_what_cannot_be_made_certain_is_not_settled(tmp_path: Path, call: str) -> None:
    storage = storage_failing_at(tmp_path, call)
    (tmp_path / "state" / "a").write_bytes(b"x")
    with pytest.raises(StorageFailed, match=r"/a: could not (read|sync) it"):
        storage.settle("a")


@pytest.mark.parametrize("call", ["write", "replace"])
def test_a_hint_that_fails_leaves_the_old_one_and_no_trace(tmp_path: Path, call: str) -> None:
    storage = storage_failing_at(tmp_path, call)
    (tmp_path / "state" / "a").write_bytes(b"old")
    with pytest.raises(StorageFailed, match="could not replace it"):
        storage.hint("a", b"new")
    assert names_in(tmp_path / "state") == ["a"]
    assert (tmp_path / "state" / "a").read_bytes() == b"old"


def test_a_large_file_is_synced_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.foundation.storage.SYNC_EVERY_BYTES", 1000)

    class Counting(OsDisk):
        synced = 0

        def sync_data(self, descriptor: int) -> None:
            self.synced += 1
            super().sync_data(descriptor)

    disk = Counting()
    storage = LocalStorage(str(tmp_path), disk)
    storage.write("small", [b"x" * 999], exclusive=True)
    assert disk.synced == 0
    storage.write("large", [b"x" * 400] * 10, exclusive=True)
    assert disk.synced == 3 and bytes(storage.read("large")) == b"x" * 4000


def test_a_hint_is_not_synced(tmp_path: Path) -> None:
    storage = storage_failing_at(tmp_path, "sync")
    storage.hint("a", b"x")
    assert bytes(storage.read("a")) == b"x"


def test_a_read_that_ends_before_the_file_does_is_an_error_not_a_short_answer(tmp_path: Path) -> None:
    class Ending(OsDisk):
        def read(self, descriptor: int, buffer: memoryview, offset: int) -> int:
            return 0 if offset >= 5 else super().read(descriptor, buffer[:5], offset)

    (tmp_path / "a").write_bytes(b"0123456789")
    storage = LocalStorage(str(tmp_path), Ending())
    with pytest.raises(StorageFailed, match=r"/a: required 10 bytes at 0, got 5"):
        storage.read("a")
    assert bytes(storage.read("a", 0, 5)) == b"01234"


def test_reads_and_writes_that_the_system_splits_are_put_together(tmp_path: Path) -> None:
    class Short(OsDisk):
        def read(self, descriptor: int, buffer: memoryview, offset: int) -> int:
            return super().read(descriptor, buffer[:3], offset)

        def write(self, descriptor: int, data: memoryview, offset: int) -> int:
            return super().write(descriptor, data[:3], offset)

    storage = LocalStorage(str(tmp_path), Short())
    storage.write("a", [b"01234", b"56789"], exclusive=True)
    assert bytes(LocalStorage(str(tmp_path)).read("a")) == b"0123456789"
    assert bytes(storage.read("a", 1, 8)) == b"12345678"


def test_a_folder_of_another_user_that_cannot_be_synced_is_taken_as_it_is(tmp_path: Path) -> None:
    class Forbidding(OsDisk):
        def sync_folder(self, path: str) -> None:
            if path == str(tmp_path):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            super().sync_folder(path)

    (tmp_path / "state").mkdir()
    LocalStorage(str(tmp_path / "state"), Forbidding()).write("a", [b"x"], exclusive=True)
    with pytest.raises(StorageFailed, match=r"Permission denied.*Nothing was committed"):
        LocalStorage(str(tmp_path / "other"), Forbidding()).write("a", [b"x"], exclusive=True)
