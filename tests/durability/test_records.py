"""Records: what a version gives out beside its changes is in its file, as sound as the rest, and goes with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidegate.durability.records import outcome_in, outcome_record, output_record, output_streams, row_of
from tidegate.durability.verification import check_state
from tidegate.durability.versions import VersionStore
from tidegate.foundation.errors import RecoveryImpossible, StorageCorrupted
from tidegate.foundation.storage import open_storage
from tidegate.operations.outcomes import Outcome

NAME = output_record("alerts")


def tuples(version: int) -> pa.Table:
    return pa.table({"place": [{"city": f"c{version}"}] * 3, "batch": [version] * 3})


def committed(history: Any, path: Path, versions: range, keep_versions: int = 100) -> VersionStore:
    store = VersionStore(open_storage(str(path)), keep_versions)
    for version in versions:
        records = {NAME: tuples(version), output_record("quiet"): tuples(version).slice(0, 0)}
        store.commit(history.info(version), history.changes(version), None, records)
    return store


def test_a_record_is_read_back_and_the_changes_are_what_they_were(history: Any, tmp_path: Path) -> None:
    committed(history, tmp_path, range(1, 4))
    store = VersionStore(open_storage(str(tmp_path)))
    for version in range(1, 4):
        assert store.read_record(version, NAME).equals(tuples(version))  # type: ignore[union-attr]
        assert store.read_record(version, output_record("quiet")) is None
        read = store.read_contents(version)
        assert read.changes == history.changes(version)
        assert read.info.records == {NAME: 3, output_record("quiet"): 0}
        assert output_streams(read.info.records) == ["alerts", "quiet"]
    assert history.apply(store.load()[1]) == history.state(3)


def test_a_version_that_is_not_there_is_refused(history: Any, tmp_path: Path) -> None:
    store = committed(history, tmp_path, range(1, 3))
    with pytest.raises(RecoveryImpossible, match="no version 3"):
        store.read_record(3, NAME)


def test_snapshots_hold_no_records_and_collecting_takes_those_of_old_versions(history: Any, tmp_path: Path) -> None:
    store = committed(history, tmp_path, range(1, 7), keep_versions=2)
    tables = {
        "Account": history.rows(history.account, [(1, 5)], change=False),
        "Vote": history.rows(history.vote, [], change=False),
    }
    assert store.snapshot(store.info(4), tables).records == {}
    store.collect()
    assert store.refresh() == [4, 5, 6]
    assert store.read_record(4, NAME) is None and store.info(4).records == {}
    assert [store.read_record(version, NAME).num_rows for version in (5, 6)] == [3, 3]  # type: ignore[union-attr]


def test_a_damaged_record_is_reported_by_who_reads_it_and_by_verify(history: Any, tmp_path: Path) -> None:
    store = committed(history, tmp_path, range(1, 2))
    header = store._read_header(1, "change")
    (section,) = (section for section in header.sections if section.kind == "record")
    file = tmp_path / "000000000001.change"
    data = bytearray(file.read_bytes())
    data[section.offset + section.size // 2] ^= 1
    file.write_bytes(bytes(data))
    with pytest.raises(StorageCorrupted, match="record output alerts"):
        VersionStore(open_storage(str(tmp_path))).read_record(1, NAME)
    assert not check_state(open_storage(str(tmp_path))).sound


def test_of_several_outcomes_with_one_id_the_last_in_order_is_kept() -> None:
    rng = np.random.default_rng(7)
    for _ in range(100):
        count = int(rng.integers(0, 12))
        ids = [None if rng.random() < 0.2 else f"r{rng.integers(4)}" for _ in range(count)]
        ranks = rng.permutation(count)
        events = pa.table(
            {
                "id": pa.array(ids, pa.string()),
                "committed": pa.array([True] * count, pa.bool_()),
                "reason": pa.nulls(count, pa.string()),
                "result": pa.array(range(count), pa.int64()),
            }
        )
        record = outcome_record(events, "id", ranks, by_transaction=False)
        wanted: dict[str, int] = {}
        for place in np.argsort(ranks):
            if ids[place] is not None:
                wanted[str(ids[place])] = int(place)
        found = {name: outcome_in(record, row_of(record, name)) for name in wanted}
        assert record.num_rows == len(wanted)
        assert found == {name: Outcome(True, None, place) for name, place in wanted.items()}
        assert row_of(record, "r9") == -1 and row_of(record, 1) == -1
