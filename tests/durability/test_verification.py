from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tidegate.durability import files, head
from tidegate.durability.adoption import adopt_query
from tidegate.durability.rollback import roll_back
from tidegate.durability.served import Served
from tidegate.durability.verification import StateCheck, check_state
from tidegate.durability.version_info import from_header, to_fields
from tidegate.durability.version_reader import SERVED
from tidegate.durability.versions import VersionStore
from tidegate.foundation.errors import StorageFailed
from tidegate.foundation.storage import LocalStorage, Storage, open_storage

if TYPE_CHECKING:
    from tests.durability.conftest import History


def make(folder: Path, history: History, last: int, *snapshots: int) -> Storage:
    """Versions 1 to `last`, some also as a whole."""
    storage = open_storage(str(folder))
    store = VersionStore(storage)
    for version in range(1, last + 1):
        written = store.commit(history.info(version), history.changes(version))
        if version in snapshots:
            store.snapshot(written, history.whole(version))
    return storage


def name(version: int, kind: str = "change") -> str:
    return f"{version:012d}.{kind}"


def flip(file: Path, place: int = -100) -> None:
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)


def wrong(report: StateCheck) -> list[str]:
    return [file.name for file in report.files if file.problem]


def test_a_sound_state_is_sound(storage: Storage, history: History) -> None:
    store = VersionStore(storage)
    history.commit(store, 1, 4)
    newest = store.tip()
    assert newest is not None
    store.snapshot(newest, history.whole(4))
    history.commit(store, 5, 6)
    for deep in (False, True):
        report = check_state(storage, deep)
        assert report.sound and report.runs == "1 to 6" and report.newest == 6 and report.state == newest.state
        assert len(report.files) == 7 and not report.remarks


def test_versions_that_people_made_and_collected_histories_are_sound(tmp_path: Path, history: History) -> None:
    storage = make(tmp_path, history, 6, 3)
    adopt_query(storage, "other", 4)
    roll_back(storage, 4)
    store = VersionStore(storage, keep_versions=1)
    newest = store.tip()
    assert newest is not None
    store.snapshot(newest, history.whole(4))
    store.commit(history.info(9, batch=6, query="query"), history.changes(9))
    assert check_state(storage, deep=True).sound
    assert store.collect()
    report = check_state(storage, deep=True)
    assert report.sound and report.runs == "8 to 9"


def test_a_flipped_bit_anywhere_is_found(tmp_path: Path, history: History) -> None:
    storage = make(tmp_path, history, 2, 2)
    for file in sorted(tmp_path.glob("0*")):
        original = file.read_bytes()
        for place in range(0, len(original), 37):
            flip(file, place)
            assert wrong(check_state(storage)) == [file.name]
            file.write_bytes(original)
    assert check_state(storage).sound


@pytest.mark.parametrize(
    ("broken", "runs"),
    [
        (name(2), "1, 4 to 6"),
        (name(4), "1 to 6"),
        (name(4, "snapshot"), "1 to 6"),
        (name(5), "1 to 4"),
        (name(1), "4 to 6"),
        (name(6), "1 to 5"),
    ],
)
@pytest.mark.parametrize("how", ["damaged", "missing"])
def test_what_can_be_rebuilt_is_told_as_it_is(
    tmp_path: Path, history: History, broken: str, runs: str, how: str
) -> None:
    storage = make(tmp_path, history, 6, 4)
    if how == "damaged":
        flip(tmp_path / broken)
    else:
        (tmp_path / broken).unlink()
    report = check_state(storage)
    assert report.runs == runs
    assert wrong(report) == ([broken] if how == "damaged" else [])
    if how == "damaged":
        assert not report.sound
    elif broken in (name(2), name(5), name(6)):
        assert any("cannot be rebuilt" in problem or "was committed here" in problem for problem in report.problems)


def test_the_file_that_is_missing_is_named(tmp_path: Path, history: History) -> None:
    storage = make(tmp_path, history, 4)
    (tmp_path / name(2)).unlink()
    report = check_state(storage)
    assert report.problems == ("versions 2 to 4 cannot be rebuilt: 000000000002.change is missing",)


def test_versions_of_which_no_file_is_left_are_missed_unless_the_history_goes_on_at_a_snapshot(
    tmp_path: Path, history: History
) -> None:
    storage = make(tmp_path, history, 5, 4)
    for version in (2, 3):
        (tmp_path / name(version)).unlink()
    report = check_state(storage)
    assert report.problems == ("versions 2 to 3 cannot be rebuilt: 000000000002.change is missing",)
    (tmp_path / name(4)).unlink()
    report = check_state(storage)
    assert report.sound and report.remarks == ("versions 2 to 3 are not here: the history goes on at snapshot 4",)
    assert report.runs == "1, 4 to 5"


def test_a_renamed_file_is_not_believed(tmp_path: Path, history: History) -> None:
    storage = make(tmp_path, history, 3)
    (tmp_path / name(3)).rename(tmp_path / name(4))
    report = check_state(storage)
    assert wrong(report) == [name(4)] and "renamed or copied" in (report.files[-1].problem or "")
    assert report.runs == "1 to 2"


@pytest.mark.parametrize("file", [name(2), name(3, "snapshot")])
def test_a_file_of_another_state_is_found(tmp_path: Path, history: History, file: str) -> None:
    storage = make(tmp_path / "one", history, 4, 3)
    make(tmp_path / "two", history, 4, 3)
    (tmp_path / "one" / file).write_bytes((tmp_path / "two" / file).read_bytes())
    report = check_state(storage)
    assert wrong(report) == [file] and "a file of state" in str(report.files)
    assert report.runs == ("1, 3 to 4" if file == name(2) else "1 to 4")


def test_a_version_from_another_course_of_the_same_state_is_found(tmp_path: Path, history: History) -> None:
    storage = make(tmp_path, history, 2)
    kept = [(tmp_path / name(2)).read_bytes(), (tmp_path / "head").read_bytes()]
    (tmp_path / name(2)).unlink()
    (tmp_path / "head").unlink()
    history.commit(VersionStore(storage), 2, 3)
    (tmp_path / name(2)).write_bytes(kept[0])
    report = check_state(storage)
    assert not report.sound and report.runs == "1 to 2"
    assert "found one on top of" in report.problems[0]
    (tmp_path / name(3)).unlink()
    assert "version 3 of state" in check_state(storage).problems[0], "the head says that it was there"


def test_a_snapshot_that_is_not_that_of_the_change_beside_it_is_found(tmp_path: Path, history: History) -> None:
    storage = make(tmp_path, history, 2)
    older = (tmp_path / name(2)).read_bytes()
    (tmp_path / name(2)).unlink()
    (tmp_path / "head").unlink()
    store = VersionStore(storage)
    written = store.commit(history.info(2), history.changes(2))
    store.snapshot(written, history.whole(2))
    history.commit(store, 3, 3)
    (tmp_path / name(2)).write_bytes(older)
    report = check_state(storage)
    assert wrong(report) == [name(2)], "version 3 stands on the snapshot: the change is the wrong one"
    assert report.runs == "1 to 3"


def rewrite(storage: Storage, version: int, tables: dict[str, pa.Table], served: Served | None = None) -> None:
    """A snapshot with checksums that are right and contents that are not."""
    store, file = VersionStore(storage), name(version, "snapshot")
    info = from_header(file, version, "snapshot", files.read_header(storage, file))
    kept = served or store.served_in(version)
    bodies: list[files.Body] = [("table", table, rows) for table, rows in tables.items()]
    bodies.append((SERVED, "", kept.to_table()))
    info = replace(info, rows={table: rows.num_rows for table, rows in tables.items()})
    storage.write(file, files.encode(to_fields(info), bodies)[1], exclusive=False)


def test_a_snapshot_with_other_rows_is_found_by_rebuilding_it(tmp_path: Path, history: History) -> None:
    storage = make(tmp_path, history, 6, 2, 4)
    rewrite(storage, 4, history.whole(3))
    assert check_state(storage).sound, "its bytes are those that were written"
    report = check_state(storage, deep=True)
    assert wrong(report) == [name(4, "snapshot")]
    assert "snapshot 2 and the changes up to 4" in str(report.files) and "of Account, 1 of Vote" in str(report.files)
    assert report.runs == "1 to 6"


def test_a_snapshot_that_says_that_other_batches_were_served_is_found(tmp_path: Path, history: History) -> None:
    storage = make(tmp_path, history, 6, 4)
    rewrite(storage, 4, history.whole(4), Served())
    assert "says other batches were applied" in check_state(storage).problems[0]


def test_a_batch_that_was_applied_twice_is_found(tmp_path: Path, history: History) -> None:
    storage = make(tmp_path, history, 3)
    VersionStore(storage).commit(history.info(4, batch=1), {})
    assert "version 4 applied batch 1 of query" in check_state(storage).problems[0]


def test_the_head_is_compared(tmp_path: Path, history: History) -> None:
    storage = make(tmp_path, history, 3)
    (tmp_path / name(3)).unlink()
    report = check_state(storage)
    assert report.runs == "1 to 2" and "version 3 of state" in report.problems[0]
    newest = VersionStore(storage).info(2)
    head.note(storage, replace(newest, hash="another"))
    assert "it was exchanged for another copy" in check_state(storage).problems[0]
    for content in (b"", None):
        (tmp_path / "head").unlink() if content is None else (tmp_path / "head").write_bytes(content)
        report = check_state(storage)
        assert report.sound and "nobody would notice" in report.remarks[0]


def test_files_that_are_not_of_the_state_are_noted(tmp_path: Path, history: History) -> None:
    storage = make(tmp_path, history, 2)
    for other in ("000000000002.change.bak", "notes.txt", "token.lock", "000000000001.released"):
        (tmp_path / other).touch()
    report = check_state(storage)
    assert report.sound and report.remarks[0].endswith("000000000002.change.bak, notes.txt")


def test_no_state_and_nothing_but_damage_are_not_sound(tmp_path: Path, history: History) -> None:
    assert "there is no state here" in check_state(open_storage(str(tmp_path / "nothing"))).problems[0]
    storage = make(tmp_path, history, 1)
    (tmp_path / name(1)).write_bytes(b"nothing")
    report = check_state(storage)
    assert not report.sound and report.runs == "none" and wrong(report) == [name(1)]


def collecting(monkeypatch: pytest.MonkeyPatch, collect: Callable[[], None]) -> None:
    """Between the listing and the first read, somebody collects."""
    listed = LocalStorage.list

    def list_and_collect(self: LocalStorage) -> list[str]:
        names = listed(self)
        collect()
        return names

    monkeypatch.setattr(LocalStorage, "list", list_and_collect)


def test_files_that_are_collected_meanwhile_are_no_damage(
    tmp_path: Path, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = make(tmp_path, history, 6, 2, 4)
    collected: list[int] = []

    def collect() -> None:
        for version in (1, 2, 3) if not collected else ():
            for kind in ("change", "snapshot"):
                (tmp_path / name(version, kind)).unlink(missing_ok=True)
        collected.append(1)

    collecting(monkeypatch, collect)
    report = check_state(storage, deep=True)
    assert report.sound and report.runs == "4 to 6" and len(collected) >= 2


def test_a_state_that_never_stands_still_is_given_up(
    tmp_path: Path, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = make(tmp_path, history, 2)
    size = LocalStorage.size

    def gone(self: LocalStorage, file: str) -> int:
        if file == name(1):
            raise FileNotFoundError(file)
        return size(self, file)

    monkeypatch.setattr(LocalStorage, "size", gone)
    with pytest.raises(StorageFailed, match="faster than they could be read"):
        check_state(storage)
