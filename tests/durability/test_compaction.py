"""Snapshots made from files in the background: the same rows as by replay, whatever happens meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from tests.simulation.disk import SimulatedCrash, SimulatedDisk

from tidegate.durability import files
from tidegate.durability.compaction import Stopped, compact
from tidegate.durability.evolution import change_schema
from tidegate.durability.stored_rows import rows_at
from tidegate.durability.versions import VersionInfo, VersionStore
from tidegate.foundation.errors import RecoveryImpossible, StateDiverged
from tidegate.foundation.storage import Bytes, LocalStorage, Storage, open_storage
from tidegate.operations.layout import Column, Kind, TableLayout

if TYPE_CHECKING:
    from tests.durability.conftest import History

# --- any history ------------------------------------------------------------------------------------------------

ID, BALANCE, LIMIT = Column("id", Kind.INT, 0), Column("balance", Kind.INT, 0), Column("limit", Kind.INT, 10)
PLAIN = TableLayout("Account", (ID, BALANCE), ("id",))
GROWN = TableLayout("Account", (LIMIT, ID, BALANCE), ("id",))
PAIR = TableLayout(
    "tidegate_pair",
    (Column("name", Kind.STR, ""), Column("share", Kind.FLOAT, 0.0), Column("open", Kind.BOOL, False)),
    ("share", "name"),
)
LATE = TableLayout("Late", (Column("flag", Kind.BOOL, False), Column("text", Kind.STR, "")), ("flag",))
LAYOUTS = ((PLAIN,), (PLAIN, PAIR), (GROWN, PAIR), (GROWN, PAIR, LATE))

VALUES = {
    Kind.INT: some.integers(-3, 3) | some.sampled_from([-(2**63), 2**63 - 1]),
    Kind.FLOAT: some.sampled_from([0.0, -0.0, 1.5, -2.0]),
    Kind.BOOL: some.booleans(),
    Kind.STR: some.sampled_from(["", "a", "ab", "\N{SNOWMAN}", "x" * 100]),
}


@some.composite
def changes(draw: some.DrawFn, layout: TableLayout) -> pa.Table:
    """A change table: each key at most once, as an engine writes it."""
    row = some.tuples(*(VALUES[column.kind] for column in layout.columns), some.booleans())
    places = [layout.columns.index(column) for column in layout.key_columns]
    found = draw(some.lists(row, max_size=6, unique_by=lambda values: tuple(values[place] for place in places)))
    schema = change_schema(layout)
    columns = [[values[place] for values in found] for place in range(len(schema))]
    return pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


@some.composite
def histories(draw: some.DrawFn) -> list[tuple[tuple[TableLayout, ...], dict[str, pa.Table], bool]]:
    """Versions: the layouts, which only grow, the changes, and whether the version is compacted at once."""
    stages = sorted(draw(some.lists(some.integers(0, len(LAYOUTS) - 1), min_size=1, max_size=10)))
    return [
        (
            LAYOUTS[stage],
            {layout.name: draw(changes(layout)) for layout in LAYOUTS[stage] if draw(some.booleans())},
            draw(some.sampled_from([False, False, True])),
        )
        for stage in stages
    ]


def applied(state: dict[str, dict[Any, dict[str, Any]]], layouts: Iterable[TableLayout], tables: Any) -> None:
    """The changes of a version, on plain dictionaries."""
    for layout in layouts:
        rows = state.setdefault(layout.name, {})
        for row in tables[layout.name].to_pylist() if layout.name in tables else []:
            exists = row.pop("exists")
            key = tuple(row[name] for name in layout.key)
            rows.pop(key, None)
            if exists:
                rows[key] = row


@settings(max_examples=80, deadline=None)
@given(histories(), some.sampled_from([40, 200, 10_000]))
def test_a_compacted_snapshot_holds_the_rows_that_replay_gives(history: Any, section_bytes: int) -> None:
    storage = LocalStorage("/state", SimulatedDisk(0))
    store = VersionStore(storage)
    state: dict[str, dict[Any, dict[str, Any]]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "SECTION_BYTES", section_bytes)
        for version, (layouts, tables, now) in enumerate(history, start=1):
            info = VersionInfo(version, "change", "q", version, version - 1, 0.0, 1, 1, None, layouts, {}, 0)
            store.commit(info, tables)
            applied(state, layouts, tables)
            if now:
                compact(VersionStore(storage), version)
        newest = len(history)
        written = compact(VersionStore(storage), newest)
    assert written.rows == {name: len(rows) for name, rows in state.items()}
    for name in storage.list():
        if name != f"{newest:012d}.snapshot":
            storage.delete(name)
    alone = VersionStore(storage)
    info = alone.info(newest)
    assert {layout.name: layout for layout in info.layouts} == {layout.name: layout for layout in history[-1][0]}
    for layout in info.layouts:
        defaults = {column.name: column.default for column in layout.columns}
        expected = [{**defaults, **row} for row in state.get(layout.name, {}).values()]
        found = rows_at(alone, layout).to_pylist()
        order = [column.name for column in layout.key_columns]
        assert sorted(map(repr, ({k: row[k] for k in (*order, *row)} for row in found))) == sorted(
            map(repr, ({k: {**defaults, **row}[k] for k in (*order, *defaults)} for row in expected))
        )


# --- what is written beside the rows -------------------------------------------------------------------------------


def test_it_says_of_the_version_what_a_snapshot_from_memory_says(storage: Storage, history: History) -> None:
    writer = VersionStore(storage)
    history.commit(writer, 1, 3)
    writer.snapshot(history.info(3), history.whole(3))
    for version in range(4, 9):
        writer.commit(history.info(version, query=f"q{version % 2}", batch=version), history.changes(version))
    compacted = compact(VersionStore(storage), 8)
    served = VersionStore(storage).served_in(8).lines()
    change = VersionStore(storage).info(8)
    storage.delete("000000000008.snapshot")
    again = VersionStore(storage).snapshot(history.info(8), history.whole(8))
    fields = {name: getattr(again, name) for name in again.__slots__ if name != "size"}
    assert {name: getattr(compacted, name) for name in again.__slots__ if name != "size"} == fields
    assert compacted.commit == compacted.hash == change.hash and compacted.state == change.state
    assert served == VersionStore(storage).served_in(8).lines() and set(served) == {"query", "q0", "q1"}
    assert history.loaded(VersionStore(storage)) == history.state(8)
    history.commit(VersionStore(storage), 9, 9)
    assert history.loaded(VersionStore(storage)) == history.state(9)


def test_what_is_left_out_leaves_no_small_sections_behind(
    storage: Storage, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SECTION_BYTES", 1600)
    store = VersionStore(storage)
    rows = history.rows(history.account, ((number, number) for number in range(1000)), change=False)
    store.snapshot(history.info(1), {"Account": rows})
    for version in range(2, 30):
        ids = [number for number in range(1000) if number % 28 == version - 2]
        store.commit(history.info(version), {"Account": history.rows(history.account, ((i, -i, True) for i in ids))})
        compact(VersionStore(storage), version)
    header = files.read_header(storage, "000000000029.snapshot")
    sizes = [section.rows for section in header.sections if section.kind == "table"]
    assert sum(sizes) == 1000 and len(sizes) <= 20 and min(sizes[:-1]) >= 50
    assert {row[1] for row in history.loaded(VersionStore(storage))["Account"].values()} == {-i for i in range(1000)}


def test_a_snapshot_that_is_there_stays_and_the_loser_takes_it_over(storage: Storage, history: History) -> None:
    history.commit(VersionStore(storage), 1, 5)
    first = compact(VersionStore(storage), 5)
    assert compact(VersionStore(storage), 5) == first
    storage.delete("000000000005.snapshot")
    rival: list[VersionInfo] = []

    def overtaken() -> None:
        if not rival:
            rival.append(compact(VersionStore(storage), 5))

    assert compact(VersionStore(storage), 5, overtaken) == rival[0]
    assert history.loaded(VersionStore(storage)) == history.state(5)


def test_a_version_that_cannot_be_rebuilt_is_refused(storage: Storage, history: History) -> None:
    store = VersionStore(storage)
    history.commit(store, 1, 5)
    with pytest.raises(RecoveryImpossible, match="no version 6"):
        compact(store, 6)
    storage.delete("000000000003.change")
    with pytest.raises(RecoveryImpossible, match=r"0{11}3\.change is missing"):
        compact(store, 5)
    assert not [name for name in storage.list() if name.endswith("snapshot")]


def test_a_state_that_was_replaced_meanwhile_gets_no_rows_of_the_old_one(tmp_path: Path, history: History) -> None:
    storage = ReplacedStorage(str(tmp_path / "state"))
    history.commit(VersionStore(storage), 1, 5)
    other = open_storage(str(tmp_path / "other"))
    history.commit(VersionStore(other), 1, 5)
    storage.replacement = other
    with pytest.raises(StateDiverged, match="replaced while a snapshot of it was written"):
        compact(VersionStore(storage), 5)
    assert not [name for name in os.listdir(tmp_path / "state") if "snapshot" in name or "temporary" in name]


class ReplacedStorage(LocalStorage):
    """A folder whose files are exchanged when a snapshot is half written."""

    replacement: Storage | None = None

    def write(self, name: str, parts: Iterable[Bytes], *, exclusive: bool) -> None:
        super().write(name, self._exchanging(parts), exclusive=exclusive)

    def _exchanging(self, parts: Iterable[Bytes]) -> Iterator[Bytes]:
        for number, part in enumerate(parts):
            if number == 2 and self.replacement is not None:  # all rows were read
                other, self.replacement = self.replacement, None
                for name in other.list():
                    super().write(name, [other.read(name)], exclusive=False)
            yield part


# --- bad days ---------------------------------------------------------------------------------------------------


def test_a_crash_at_any_call_leaves_a_history_that_loads_and_can_be_compacted(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SECTION_BYTES", 64)
    deaths = 0
    while True:
        disk = SimulatedDisk(("compaction", deaths))
        storage = LocalStorage("/state", disk)
        store = VersionStore(storage, keep_versions=2)
        history.commit(store, 1, 2)
        store.snapshot(history.info(2), history.whole(2))
        history.commit(store, 3, 6)
        disk.crash_at = disk.calls + deaths
        try:
            compact(VersionStore(storage, keep_versions=2), 6)
            VersionStore(storage, keep_versions=2).collect()
            disk.crash_at = None
        except SimulatedCrash:
            deaths += 1
        disk.restart()
        found = VersionStore(storage, keep_versions=2)
        tip, newest = found.tip(), found.newest()
        assert tip is not None and newest is not None and tip.hash == newest.hash, disk.describe()
        for version in found.refresh():
            assert history.loaded(found, version) == history.state(version), disk.describe()
        assert 6 in found.refresh(), disk.describe()
        compact(found, 6)
        found.collect()
        assert history.loaded(VersionStore(storage)) == history.state(6), disk.describe()
        if not disk.describe().count("crash"):
            break
    assert deaths > 100


def test_an_interruption_while_it_writes_removes_the_half_file(tmp_path: Path, history: History) -> None:
    storage = open_storage(str(tmp_path))
    history.commit(VersionStore(storage), 1, 6)
    before = sorted(os.listdir(tmp_path))

    def pause() -> None:
        if any(name.startswith(".") for name in os.listdir(tmp_path)):
            raise Stopped

    with pytest.raises(Stopped):
        compact(VersionStore(storage), 6, pause)
    assert sorted(os.listdir(tmp_path)) == before
