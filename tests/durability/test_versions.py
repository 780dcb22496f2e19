from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from tidegate.durability import files, versions
from tidegate.durability.versions import VersionStore
from tidegate.foundation import leftovers
from tidegate.foundation.disk import OsDisk
from tidegate.foundation.errors import (
    DefinitionError,
    RecoveryImpossible,
    StorageCorrupted,
    StorageFailed,
    StorageUncertain,
)
from tidegate.foundation.storage import LocalStorage, Storage, open_storage

if TYPE_CHECKING:
    from tests.durability.conftest import History


class CountingStorage(LocalStorage):
    """Counts what is asked of a real folder."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.listings = self.reads = 0

    def list(self) -> list[str]:
        self.listings += 1
        return super().list()

    def read(self, name: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
        self.reads += 1
        return super().read(name, offset, length)


def test_an_empty_state_has_no_versions(storage: Storage) -> None:
    store = VersionStore(storage)
    assert store.refresh() == []
    assert store.newest() is None
    assert store.infos() == []
    assert store.find("query", 0) is None
    assert store.collect() == []
    assert not store.wants_snapshot()
    for version in (None, 0, 1):
        with pytest.raises(RecoveryImpossible, match="there is no state here"):
            store.load(version)


def test_every_committed_version_is_rebuilt_by_another_store(storage: Storage, history: History) -> None:
    history.commit(VersionStore(storage), 1, 12)
    store = VersionStore(storage)
    assert store.refresh() == list(range(1, 13))
    for version in range(1, 13):
        assert history.loaded(store, version) == history.state(version)
    assert history.loaded(store) == history.state(12)


def test_what_a_version_records_is_read_back(storage: Storage, history: History) -> None:
    order = np.array([3, 1, 2], dtype=np.int64)
    for version, high in enumerate([None, -(2**63), 0.1, "\N{SNOWMAN} '\"\\\n"], start=1):
        info = history.info(version, high=high, query="\N{SNOWMAN}", created_at=1e9 + 0.1)
        written = VersionStore(storage).commit(info, history.changes(version), order)
        read = VersionStore(storage).read_contents(version)
        found, changes, logged = read.info, read.changes, read.order
        assert found == written == VersionStore(storage).info(version)
        assert found.high == high and type(found.high) is type(high)
        assert found.query == "\N{SNOWMAN}" and found.created_at == 1e9 + 0.1
        assert found.layouts == info.layouts and found.rows == {"Account": 3, "Vote": 1}
        assert found.size == storage.size(f"{version:012d}.change")
        assert changes["Account"].equals(history.changes(version)["Account"])
        assert changes["Vote"].equals(history.changes(version)["Vote"])
        assert logged is not None and logged.tolist() == [3, 1, 2]


def test_a_version_may_change_nothing(storage: Storage, history: History) -> None:
    store = VersionStore(storage)
    store.commit(history.info(1), {})
    store.commit(history.info(2), {"Account": history.rows(history.account, [])})
    nothing, empty = store.read_contents(1), store.read_contents(2)
    assert nothing.changes == {} and nothing.order is None
    changes, order = empty.changes, empty.order
    assert list(changes) == ["Account"] and changes["Account"].num_rows == 0 and order is None
    assert changes["Account"].column_names == ["id", "balance", "exists"]


def test_a_version_is_committed_once(storage: Storage, history: History) -> None:
    first, second = VersionStore(storage), VersionStore(storage)
    first.refresh()
    second.refresh()
    first.commit(history.info(1), history.changes(1))
    for store in (first, second, VersionStore(storage)):
        with pytest.raises(FileExistsError):
            store.commit(history.info(1), {})
    second.commit(history.info(2), history.changes(2))
    with pytest.raises(FileExistsError):
        first.commit(history.info(2), {})
    with pytest.raises(FileExistsError):  # the history went on: nothing is slipped in below its end
        first.commit(history.info(1), {})
    assert history.loaded(first) == history.state(2)


def test_a_version_that_was_loaded_as_a_whole_is_not_committed_again(storage: Storage, history: History) -> None:
    late = VersionStore(storage)
    late.refresh()
    VersionStore(storage).snapshot(history.info(1), history.whole(1))
    with pytest.raises(FileExistsError):
        late.commit(history.info(1), history.changes(1))
    with pytest.raises(FileExistsError):
        late.snapshot(history.info(1), history.whole(1))


def test_a_version_on_a_base_that_is_not_there_is_refused(storage: Storage, history: History) -> None:
    store = VersionStore(storage)
    with pytest.raises(RecoveryImpossible):
        store.commit(history.info(5), history.changes(5))
    for info in (history.info(0), history.info(3, base=1)):
        with pytest.raises(ValueError, match="base"):
            store.commit(info, {})
    assert storage.list() == []


def test_rows_that_do_not_fit_their_layout_are_refused(storage: Storage, history: History) -> None:
    store = VersionStore(storage)
    for changes in (
        {"Nowhere": history.changes(1)["Account"]},
        {"Account": history.changes(1)["Vote"]},
        {"Account": history.changes(1)["Account"].drop_columns("exists")},
    ):
        with pytest.raises(ValueError, match="version 1"):
            store.commit(history.info(1), changes)
    with pytest.raises(ValueError, match="version 1"):
        store.snapshot(history.info(1), history.changes(1))
    assert storage.list() == []


def test_an_initial_load_is_a_version_of_its_own(storage: Storage, history: History) -> None:
    store = VersionStore(storage)
    written = store.snapshot(history.info(1, events=0, batch=-1), history.whole(1))
    assert written.kind == "snapshot" and store.newest() == written == VersionStore(storage).newest()
    history.commit(store, 2, 3)
    store = VersionStore(storage)
    assert store.refresh() == [1, 2, 3]
    assert history.loaded(store, 1) == history.state(1)
    assert history.loaded(store, 3) == history.state(3)
    with pytest.raises(RecoveryImpossible, match=r"version 1 was loaded as a whole.*Load version 1"):
        store.read_contents(1)


def test_loading_starts_at_the_newest_snapshot_that_helps(
    tmp_path: Path, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SECTION_BYTES", 32)
    storage = open_storage(str(tmp_path))
    store = VersionStore(storage)
    history.commit(store, 1, 4)
    store.snapshot(history.info(4), history.whole(4))
    history.commit(store, 5, 9)
    store.snapshot(history.info(8), history.whole(8))
    for version in range(1, 10):
        assert history.loaded(store, version) == history.state(version)
    os.unlink(tmp_path / "000000000002.change")
    assert store.refresh() == [1, 4, 5, 6, 7, 8, 9]
    os.unlink(tmp_path / "000000000006.change")
    assert store.refresh() == [1, 4, 5, 8, 9]
    assert history.loaded(store, 5) == history.state(5)
    assert history.loaded(store, 9) == history.state(9)
    assert len(list(store.load(8)[1])) > 2  # in pieces of two rows


def test_a_snapshot_of_a_committed_version_may_be_written_twice(storage: Storage, history: History) -> None:
    store = VersionStore(storage)
    history.commit(store, 1, 3)
    first = store.snapshot(history.info(3), history.whole(3))
    assert VersionStore(storage).snapshot(history.info(3), history.whole(3)) == first
    assert store.info(3).kind == "change"
    assert history.loaded(store) == history.state(3)


def test_an_empty_snapshot_loads_as_nothing(storage: Storage, history: History) -> None:
    store = VersionStore(storage)
    store.snapshot(history.info(1), {"Account": history.rows(history.account, [], change=False)})
    info, steps = VersionStore(storage).load()
    assert list(steps) == [] and info.rows == {"Account": 0}


def test_what_is_missing_and_what_can_be_loaded_is_named(tmp_path: Path, history: History) -> None:
    store = VersionStore(open_storage(str(tmp_path)))
    history.commit(store, 1, 9)
    store.snapshot(history.info(7), history.whole(7))
    os.unlink(tmp_path / "000000000004.change")
    store = VersionStore(open_storage(str(tmp_path)))
    with pytest.raises(
        RecoveryImpossible, match=r"version 6 cannot be rebuilt: 0{11}4.change is missing.*loaded: 1-3, 7-9\."
    ):
        store.load(6)
    with pytest.raises(RecoveryImpossible, match=r"there is no version 10, the newest is 9"):
        store.load(10)
    with pytest.raises(RecoveryImpossible, match=r"version 0 is the empty state"):
        store.load(0)
    with pytest.raises(RecoveryImpossible, match=r"0{11}4.change is missing"):
        store.read_contents(4)


def test_a_hole_at_the_end_of_the_history_is_not_papered_over(tmp_path: Path, history: History) -> None:
    store = VersionStore(open_storage(str(tmp_path)))
    history.commit(store, 1, 6)
    os.unlink(tmp_path / "000000000005.change")
    store = VersionStore(open_storage(str(tmp_path)), keep_versions=1)
    assert store.refresh() == [1, 2, 3, 4]
    for going_on in (store.newest, store.load, lambda: store.commit(history.info(7), {})):
        with pytest.raises(RecoveryImpossible, match=r"0{11}5.change is missing.*loaded: 1-4\."):
            going_on()
    with pytest.raises(FileExistsError):
        store.commit(history.info(5), history.changes(5))
    assert store.collect() == []
    assert history.loaded(store, 4) == history.state(4)


def test_a_batch_is_found_by_its_query_and_number(storage: Storage, history: History) -> None:
    store = VersionStore(storage)
    made = [("a", 0), ("a", 2), ("a", 7), ("b", 0), ("b", 1), ("a", 9)]
    for version, (query, batch) in enumerate(made, start=1):
        store.commit(history.info(version, query=query, batch=batch), {})
    store = VersionStore(storage)
    for version, (query, batch) in enumerate(made, start=1):
        found = store.find(query, batch)
        assert found is not None and found.version == version
    for query, batch in [("a", 1), ("a", 3), ("a", 10), ("b", 2), ("c", 0)]:
        assert store.find(query, batch) is None


def test_looking_costs_one_listing_and_headers_are_read_once(tmp_path: Path, history: History) -> None:
    history.commit(VersionStore(open_storage(str(tmp_path))), 1, 20)
    storage = CountingStorage(str(tmp_path))
    store = VersionStore(storage)
    assert store.newest() == store.newest()
    assert (storage.listings, storage.reads) == (1, 1)
    assert store.find("query", 20) is None  # the newest is batch 19 of this query
    assert (storage.listings, storage.reads) == (1, 1)
    store.infos()
    store.infos()
    assert (storage.listings, storage.reads) == (1, 20)
    store.refresh()
    store.newest()
    assert (storage.listings, storage.reads) == (2, 20)
    history.commit(store, 21, 30)  # neither lists nor reads
    assert store.newest() is not None
    assert (storage.listings, storage.reads) == (2, 20)


@pytest.mark.parametrize("kept", [10, 300])
def test_a_writer_that_is_warm_asks_as_little_however_many_versions_are_kept(
    tmp_path: Path, history: History, kept: int
) -> None:
    storage = CountingStorage(str(tmp_path))
    store = VersionStore(storage, keep_versions=kept)
    history.commit(store, 1, kept)
    store.tip()
    storage.listings = storage.reads = 0
    for version in range(kept + 1, kept + 21):
        store.tip()
        history.commit(store, version, version)
        store.wants_snapshot()
        store.collect(look_again=False)
    assert (storage.listings, storage.reads) == (0, 40)  # the newest version, and the one that is not there yet


def test_a_snapshot_is_due_when_replaying_costs_as_much_as_reading_it(
    storage: Storage, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "CHANGE_BYTES_MIN", 1)
    store = VersionStore(storage)
    history.commit(store, 1, 1)
    size = store.info(1).size
    monkeypatch.setattr(versions, "SNAPSHOT_AFTER_BYTES", 3 * size)
    assert not store.wants_snapshot()
    history.commit(store, 2, 4)
    assert store.wants_snapshot() and VersionStore(storage).wants_snapshot()
    store.snapshot(history.info(4), history.whole(4))
    assert not store.wants_snapshot() and not VersionStore(storage).wants_snapshot()


def test_a_small_change_weighs_what_opening_its_file_costs_and_no_number_of_them_outweighs_a_large_state(
    storage: Storage, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "SNAPSHOT_AFTER_BYTES", 1)
    store = VersionStore(storage)
    rows = history.rows(history.account, ((number, number) for number in range(20_000)), change=False)
    snapshot = store.snapshot(history.info(1), {"Account": rows})
    due = -(-snapshot.size // versions.CHANGE_BYTES_MIN)
    assert due > 5
    history.commit(store, 2, due)
    assert not store.wants_snapshot()
    history.commit(store, due + 1, due + 1)
    assert store.wants_snapshot()


def test_a_large_snapshot_waits_for_as_many_bytes_of_changes(
    storage: Storage, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "SNAPSHOT_AFTER_BYTES", 0)
    monkeypatch.setattr(versions, "CHANGE_BYTES_MIN", 0)
    store = VersionStore(storage)
    rows = history.rows(history.account, ((number, number) for number in range(500)), change=False)
    snapshot = store.snapshot(history.info(1), {"Account": rows})
    version, written = 2, 0
    while written < snapshot.size:
        assert not store.wants_snapshot()
        written += store.commit(history.info(version), history.changes(version)).size
        version += 1
    assert store.wants_snapshot()


def test_collecting_keeps_the_newest_versions_and_what_they_stand_on(tmp_path: Path, history: History) -> None:
    storage = open_storage(str(tmp_path))
    store = VersionStore(storage, keep_versions=4)
    history.commit(store, 1, 10)
    assert store.collect() == []  # no snapshot: every version stands on all changes
    store.snapshot(history.info(3), history.whole(3))
    store.snapshot(history.info(5), history.whole(5))
    store.snapshot(history.info(9), history.whole(9))
    deleted = store.collect()
    assert deleted == [
        "000000000001.change",
        "000000000002.change",
        "000000000003.change",
        "000000000003.snapshot",
        "000000000004.change",
        "000000000005.change",
    ]
    for found in (store, VersionStore(storage)):
        assert found.refresh() == [5, 6, 7, 8, 9, 10]
        for version in range(5, 11):
            assert history.loaded(found, version) == history.state(version)
    assert store.collect() == []
    with pytest.raises(RecoveryImpossible, match=r"version 4 .*collected as too old.*loaded: 5-10"):
        store.load(4)


def test_collecting_keeps_the_change_of_a_kept_version_that_has_a_snapshot(storage: Storage, history: History) -> None:
    store = VersionStore(storage, keep_versions=1)
    history.commit(store, 1, 3)
    store.snapshot(history.info(3), history.whole(3))
    assert store.collect() == []  # should batch 2 be asked for again, it runs on version 2
    history.commit(store, 4, 4)
    assert store.collect() == ["000000000001.change", "000000000002.change"]
    assert store.read_contents(3).changes["Account"].num_rows == 3
    history.commit(store, 5, 5)  # version 3 is not kept any more, its snapshot is what 4 and 5 stand on
    assert store.collect() == ["000000000003.change"]
    assert history.loaded(store) == history.state(5)


def test_a_half_finished_collection_leaves_a_history_with_a_later_beginning(tmp_path: Path, history: History) -> None:
    storage = open_storage(str(tmp_path))
    store = VersionStore(storage, keep_versions=2)
    history.commit(store, 1, 8)
    store.snapshot(history.info(6), history.whole(6))
    whole = {name: (tmp_path / name).read_bytes() for name in storage.list()}
    surplus = store.collect()
    for count in range(len(surplus) + 1):
        for name, data in whole.items():
            (tmp_path / name).write_bytes(data)
        for name in surplus[:count]:
            os.unlink(tmp_path / name)
        found = VersionStore(storage, keep_versions=2)
        for version in found.refresh():
            assert history.loaded(found, version) == history.state(version)
        newest = found.newest()
        assert newest is not None and newest.version == 8
        assert found.collect() == surplus[count:]


def test_collecting_sweeps_leftovers_of_dead_writers_only(tmp_path: Path, history: History) -> None:
    store = VersionStore(open_storage(str(tmp_path)))
    history.commit(store, 1, 2)
    alive = leftovers.temporary_name()
    dead = "~".join([*alive.split("~")[:3], "999999999", "1.00", "0123456789ab"])
    for name in (alive, dead):
        (tmp_path / name).write_bytes(b"TIDEGATE and half a header")
    assert store.refresh() == [1, 2]
    assert store.collect() == [dead]
    assert (tmp_path / alive).exists() and not (tmp_path / dead).exists()
    assert history.loaded(store) == history.state(2)


def test_files_of_others_are_left_alone(tmp_path: Path, history: History) -> None:
    store = VersionStore(open_storage(str(tmp_path)), keep_versions=1)
    for name in ("README", "1.change", "000000000001.change.bak", "000000000001.owner"):
        (tmp_path / name).write_text("mine")
    history.commit(store, 1, 3)
    store.snapshot(history.info(3), history.whole(3))
    history.commit(store, 4, 4)
    store.collect()
    assert sorted(os.listdir(tmp_path)) == [
        "000000000001.change.bak",
        "000000000001.owner",
        "000000000003.change",
        "000000000003.snapshot",
        "000000000004.change",
        "1.change",
        "README",
        "head",
    ]


def test_a_file_under_anothers_name_is_not_believed(tmp_path: Path, history: History) -> None:
    store = VersionStore(open_storage(str(tmp_path)))
    history.commit(store, 1, 3)
    os.replace(tmp_path / "000000000003.change", tmp_path / "000000000002.change")
    store = VersionStore(open_storage(str(tmp_path)))
    for reading in (lambda: store.info(2), lambda: store.read_contents(2), lambda: list(store.load(2)[1])):
        with pytest.raises(StorageCorrupted, match=r"expected the change of version 2, found .* version 3"):
            reading()


def test_damage_stops_a_load_and_spares_the_versions_below_it(tmp_path: Path, history: History) -> None:
    store = VersionStore(open_storage(str(tmp_path)))
    history.commit(store, 1, 4)
    file = tmp_path / "000000000003.change"
    data = bytearray(file.read_bytes())
    data[-100] ^= 255
    file.write_bytes(data)
    _, steps = VersionStore(open_storage(str(tmp_path))).load(4)
    with pytest.raises(StorageCorrupted, match=rf"{file}: damaged at offset \d+: expected .*, found "):
        list(steps)
    assert history.loaded(store, 2) == history.state(2)


def test_a_reader_whose_files_are_collected_under_it_is_told(tmp_path: Path, history: History) -> None:
    writer = VersionStore(open_storage(str(tmp_path)), keep_versions=1)
    history.commit(writer, 1, 3)
    reader = VersionStore(open_storage(str(tmp_path)))
    _, steps = reader.load(3)
    next(steps)
    writer.snapshot(history.info(3), history.whole(3))
    history.commit(writer, 4, 4)
    writer.collect()
    with pytest.raises(RecoveryImpossible, match=r"loaded: 3-4\."):
        list(steps)
    assert history.loaded(reader) == history.state(4)


def test_a_writer_whose_snapshot_is_collected_while_it_looks_is_told(
    tmp_path: Path, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = VersionStore(open_storage(str(tmp_path)), keep_versions=1)
    history.commit(writer, 1, 2)
    writer.snapshot(history.info(2), history.whole(2))
    storage = open_storage(str(tmp_path))
    read = storage.read

    def read_late(name: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
        if name == "000000000002.snapshot" and offset:
            (tmp_path / name).unlink(missing_ok=True)
        return read(name, offset, length)

    monkeypatch.setattr(storage, "read", read_late)
    with pytest.raises(RecoveryImpossible):
        VersionStore(storage).tip()


def test_a_commit_that_fails_is_not_there_and_may_be_repeated(tmp_path: Path, history: History) -> None:
    (tmp_path / "state").write_text("in the way")
    store = VersionStore(open_storage(str(tmp_path / "state")))
    with pytest.raises(StorageFailed, match="Not a directory"):
        store.commit(history.info(1), history.changes(1))
    os.unlink(tmp_path / "state")
    history.commit(store, 1, 2)
    assert history.loaded(VersionStore(open_storage(str(tmp_path / "state")))) == history.state(2)


def test_a_commit_that_may_have_happened_and_cannot_be_looked_at_is_in_doubt(
    tmp_path: Path, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = VersionStore(open_storage(str(tmp_path)))
    history.commit(store, 1, 1)
    link = OsDisk.link

    def linked_and_broken(self: OsDisk, source: str, target: str) -> None:
        link(self, source, target)
        monkeypatch.setattr(OsDisk, "read", broken)
        raise OSError(errno.EIO, "the answer was lost")

    def broken(*_arguments: Any) -> int:
        raise OSError(errno.EIO, "not now")

    with monkeypatch.context() as patch:
        patch.setattr(OsDisk, "link", linked_and_broken)
        with pytest.raises(StorageUncertain, match="could not be found out"):
            store.commit(history.info(2), history.changes(2))
    monkeypatch.undo()
    assert history.loaded(VersionStore(open_storage(str(tmp_path)))) == history.state(2)


def test_the_size_of_a_commit_follows_the_rows_changed(storage: Storage, history: History) -> None:
    def accounts(count: int) -> Any:
        return history.rows(history.account, ((number, number, True) for number in range(count)))

    store = VersionStore(storage)
    sizes = [
        store.commit(history.info(version), {"Account": accounts(count)}).size
        for version, count in enumerate((0, 1, 1000, 10_000), start=1)
    ]
    assert sizes[0] < sizes[1] < 3000
    assert 16 * 1000 < sizes[2] < 20 * 1000
    assert 16 * 10_000 < sizes[3] < 18 * 10_000


def test_keeping_no_version_is_refused(storage: Storage) -> None:
    with pytest.raises(DefinitionError, match="keep_versions"):
        VersionStore(storage, keep_versions=0)
