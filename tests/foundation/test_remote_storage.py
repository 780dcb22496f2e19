from __future__ import annotations

import os
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from tidegate.foundation import leftovers
from tidegate.foundation.errors import StorageFailed, StorageUncertain
from tidegate.foundation.remote_storage import RemoteStorage
from tidegate.foundation.storage import Storage, open_storage

if TYPE_CHECKING:
    from ..s3 import S3Server


@pytest.fixture
def url(s3: S3Server) -> str:
    return s3.new_bucket() + "/state"


def winners(storages: list[Storage], name: str, contents: list[bytes]) -> list[bytes]:
    """Writes all contents under one name at once; those whose writer believes that it succeeded."""
    start, won, failures = threading.Barrier(len(storages)), [], []

    def write(storage: Storage, content: bytes) -> None:
        start.wait()
        try:
            storage.write(name, [content], exclusive=True)
            won.append(content)
        except FileExistsError:
            pass
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=pair) for pair in zip(storages, contents, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    return won


def test_of_racing_exclusive_creators_on_s3_one_wins(url: str) -> None:
    storages = [open_storage(url) for _ in range(4)]
    for storage in storages:
        storage._is_there = lambda _file: False  # type: ignore[attr-defined]  # so that the store alone decides
    for race in range(10):
        contents = [f"{race} {number}".encode() for number in range(len(storages))]
        won = winners(storages, f"{race}", contents)
        assert len(won) == 1
        assert bytes(storages[0].read(f"{race}")) == won[0]


def test_of_racing_exclusive_creators_in_memory_one_wins() -> None:
    class Slow(MemoryFileSystem):
        """As fsspec's, with time for another thread between its look and its write."""

        cachable = False

        def exists(self, path: str, **options: Any) -> bool:
            found = bool(super().exists(path, **options))
            time.sleep(0.002)
            return found

    root = uuid.uuid4().hex
    storages: list[Storage] = [RemoteStorage(Slow(), f"/{root}", f"memory://{root}", atomic_put=True) for _ in range(4)]
    for race in range(10):
        won = winners(storages, f"{race}", [bytes([number]) for number in range(len(storages))])
        assert len(won) == 1
        assert bytes(storages[0].read(f"{race}")) == won[0]


def test_a_store_that_ignores_the_condition_is_refused_before_anything_is_written(s3: S3Server, url: str) -> None:
    s3.ignores_conditions = True
    storage = open_storage(url)
    for _ in range(2):
        with pytest.raises(
            StorageFailed, match=r"s3://.*required .* refuses .*S3FileSystem.*Nothing was committed.*If-None-Match"
        ) as caught:
            storage.write("a", [b"x"], exclusive=True)
        assert not isinstance(caught.value, StorageUncertain)
    assert storage.list() == []
    assert storage._listing() == [], "the probe is gone"  # type: ignore[attr-defined]
    storage.write("a", [b"x"], exclusive=False)
    assert bytes(storage.read("a")) == b"x"


def test_a_store_is_probed_once(s3: S3Server, url: str) -> None:
    open_storage(url).write("a", [b"x"], exclusive=True)
    before = s3.puts
    open_storage(url).write("b", [b"x"], exclusive=True)
    assert s3.puts == before + 1


def test_a_package_that_drops_the_condition_is_refused() -> None:
    class Old(MemoryFileSystem):
        def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
            super().pipe_file(path, value, mode="overwrite", **options)

    root = uuid.uuid4().hex
    storage = RemoteStorage(Old(), f"/{root}", f"s3://{root}", atomic_put=True)
    with pytest.raises(StorageFailed, match=r"replaces it \(s3, Old\)"):
        storage.write("a", [b"x"], exclusive=True)


def test_a_rename_that_replaces_is_refused_for_exclusive_writes_only(tmp_path: Path) -> None:
    storage = RemoteStorage(LocalFileSystem(), str(tmp_path), f"sftp://host{tmp_path}", atomic_put=False)
    with pytest.raises(StorageFailed, match=r"rename replaces it \(sftp, LocalFileSystem\).*Nothing was committed"):
        storage.write("a", [b"x"], exclusive=True)
    assert os.listdir(tmp_path) == []
    storage.write("a", [b"x"], exclusive=False)
    storage.write("a", [b"y"], exclusive=False)
    assert bytes(storage.read("a")) == b"y"
    assert os.listdir(tmp_path) == ["a"]


def test_a_put_whose_answer_was_lost_and_that_was_repeated_is_in_doubt(s3: S3Server, url: str) -> None:
    """The client repeats the put, and the store says that the name is taken: by ourselves."""
    storage = open_storage(url)
    storage.write("probe", [b""], exclusive=True)
    s3.loses = 1
    with pytest.raises(StorageUncertain, match=r"/state/a: the name is taken by exactly these bytes") as caught:
        storage.write("a", [b"mine"], exclusive=True)
    assert "Nothing was committed" not in str(caught.value)
    assert storage.settle("a")


def test_a_repeated_put_that_finds_anothers_bytes_lost_the_race(s3: S3Server, url: str) -> None:
    storage = open_storage(url)
    storage.write("a", [b"theirs"], exclusive=True)
    storage._is_there = lambda _file: False  # type: ignore[attr-defined]
    with pytest.raises(FileExistsError):
        storage.write("a", [b"mine!!"], exclusive=True)


def test_a_put_that_fails_is_in_doubt_and_settling_tells(s3: S3Server, url: str) -> None:
    storage = open_storage(url)
    storage.write("probe", [b""], exclusive=True)
    for name, exclusive in (("a", True), ("b", False)):
        s3.refuses = 1000
        with pytest.raises(StorageUncertain, match=rf"/state/{name}: putting it failed"):
            storage.write(name, [b"x"], exclusive=exclusive)
        s3.refuses = 0
        assert storage.settle(name) is False


def test_a_store_that_cannot_be_asked_does_not_say_that_a_file_is_missing(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_storage(url)

    def lost(*_arguments: Any, **_named: Any) -> Any:
        raise ConnectionError("no route")

    monkeypatch.setattr(storage._file_system, "info", lost)  # type: ignore[attr-defined]
    for question in (storage.exists, storage.settle, storage.size):
        with pytest.raises(StorageFailed, match="no route"):
            question("a")


def test_a_missing_bucket_is_refused_with_nothing_committed(s3: S3Server) -> None:
    storage = open_storage("s3://there-is-no-such-bucket/state")
    assert storage.list() == []
    with pytest.raises(StorageFailed, match="Nothing was committed") as caught:
        storage.write("a", [b"x"], exclusive=True)
    assert not isinstance(caught.value, StorageUncertain)


def test_what_another_client_changes_is_seen_at_once(s3: S3Server, url: str) -> None:
    storage = open_storage(url)
    other = fsspec.filesystem("s3", skip_instance_cache=True, **s3.options())
    storage.write("a", [b"x"], exclusive=True)
    assert storage.list() == ["a"]
    other.rm_file(f"{url}/a")
    assert not storage.exists("a")
    storage.write("a", [b"longer"], exclusive=True)
    assert storage.list() == ["a"]
    other.pipe_file(f"{url}/a", b"y")
    assert storage.size("a") == 1


def test_old_probes_and_temporary_files_are_swept_from_s3(url: str) -> None:
    dead = "~".join([*leftovers.temporary_name().split("~")[:3], "999999999", "1.00", "0123456789ab"])
    storage = open_storage(url)
    storage.write(dead, [b"x"], exclusive=False)
    storage.write("a.lock", [b"x"], exclusive=False)
    assert storage.sweep() == [dead]
    assert storage.list() == ["a.lock"]


@pytest.mark.parametrize("kind", ["memory", "s3"])
def test_there_are_no_locks_and_no_growing_files(kind: str, request: pytest.FixtureRequest) -> None:
    url = f"memory://{uuid.uuid4().hex}" if kind == "memory" else request.getfixturevalue("url")
    storage = open_storage(url)
    assert storage.hold("a.lock", exclusive=True) is None
    assert storage.is_held("a.lock") is None
    assert not storage.appends
    with pytest.raises(StorageFailed, match="local path"):
        storage.append_to("log", None)
    assert storage.list() == []


class Racing(LocalFileSystem):
    """Its rename refuses to replace; another writer takes the name right before it."""

    protocol = "racing"
    cachable = False

    def mv(self, path1: str, path2: str, **_options: Any) -> None:
        if not os.path.basename(path2).startswith(".temporary"):
            Path(path2).write_bytes(b"theirs")
        os.link(path1, path2)
        os.unlink(path1)


def test_a_rename_that_loses_the_race_leaves_the_winners_file(tmp_path: Path) -> None:
    storage = RemoteStorage(Racing(), str(tmp_path), f"racing://{tmp_path}", atomic_put=False)
    with pytest.raises(FileExistsError):
        storage.write("a", [b"mine"], exclusive=True)
    assert (tmp_path / "a").read_bytes() == b"theirs"
    assert os.listdir(tmp_path) == ["a"]


def test_a_rename_that_fails_otherwise_is_in_doubt(tmp_path: Path) -> None:
    class Failing(Racing):
        def mv(self, path1: str, path2: str, **_options: Any) -> None:
            if os.path.basename(path2).startswith(".temporary"):
                raise FileExistsError
            os.rename(path1, path2)
            raise TimeoutError("no answer")

    storage = RemoteStorage(Failing(), str(tmp_path), f"racing://{tmp_path}", atomic_put=False)
    with pytest.raises(StorageUncertain, match="no answer"):
        storage.write("a", [b"mine"], exclusive=True)
    assert storage.settle("a")


@pytest.mark.parametrize(
    ("url", "package"),
    [("gs://bucket/ledger", "pip install gcsfs"), ("abfss://box@account/ledger", "pip install adlfs")],
)
def test_a_file_system_that_is_not_installed_is_named_with_its_package(
    monkeypatch: pytest.MonkeyPatch, url: str, package: str
) -> None:
    for module in ("gcsfs", "adlfs"):
        monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    with pytest.raises(StorageFailed, match=package) as caught:
        open_storage(url)
    assert url in str(caught.value) and "workers" in str(caught.value)


def test_a_hadoop_path_without_hadoop_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_HOME", "ARROW_LIBHDFS_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(StorageFailed, match=r"HADOOP_HOME and JAVA_HOME.*webhdfs"):
        open_storage("hdfs://node/ledger")
