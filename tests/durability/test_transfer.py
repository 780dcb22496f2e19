from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import parquet

import tidegate as tg
from tidegate.durability import ownership, transfer
from tidegate.durability.stored_rows import rows_at
from tidegate.durability.transfer import export_table, import_table, read_parquet
from tidegate.durability.version_info import Owner
from tidegate.durability.versions import VersionStore
from tidegate.foundation.errors import InputError, RecoveryImpossible, StateOwned
from tidegate.foundation.storage import LocalStorage, Storage, open_storage

from ..simulation.disk import SimulatedCrash, SimulatedDisk

if TYPE_CHECKING:
    from tests.durability.conftest import History


@pytest.fixture
def state(tmp_path: Path, history: History) -> Storage:
    storage = open_storage(str(tmp_path / "state"))
    history.commit(VersionStore(storage), 1, 4)
    return storage


def accounts(storage: Storage, version: int | None = None) -> dict[int, int]:
    store = VersionStore(storage)
    layout = next(layout for layout in store.locate(version).layouts if layout.name == "Account")
    return {row["id"]: row["balance"] for row in rows_at(store, layout, version).to_pylist()}


class TestExport:
    @pytest.mark.parametrize("version", [None, 2])
    @pytest.mark.parametrize("group", [1, 32 << 20])
    def test_a_file_has_the_rows_of_the_version(
        self,
        state: Storage,
        history: History,
        tmp_path: Path,
        version: int | None,
        group: int,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(transfer, "ROW_GROUP_BYTES", group)
        for layout in (history.account, history.vote):
            target = str(tmp_path / f"{layout.name}.parquet")
            done = export_table(state, layout.name, target, version)
            written = parquet.read_table(target)
            expected = rows_at(VersionStore(state), layout, version)
            assert written.sort_by(layout.key[0]).equals(expected) and done.rows == expected.num_rows
            assert done.version.version == (version or 4)
        assert sorted(file.name for file in tmp_path.glob("*.parquet*")) == ["Account.parquet", "Vote.parquet"]

    def test_an_empty_table_is_a_file_with_its_columns(self, history: History, tmp_path: Path) -> None:
        storage = open_storage(str(tmp_path / "state"))
        VersionStore(storage).commit(history.info(1), {})
        export_table(storage, "Vote", str(tmp_path / "v.parquet"))
        assert parquet.read_table(tmp_path / "v.parquet").schema.equals(history.vote.arrow_schema)

    def test_nothing_is_left_of_an_export_that_failed(self, state: Storage, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"there is no table 'Acount' in version 4. This state has: Account, Vote"):
            export_table(state, "Acount", str(tmp_path / "a.parquet"))
        with pytest.raises(InputError, match="could not write it: No such file or directory"):
            export_table(state, "Account", str(tmp_path / "no" / "a.parquet"))
        with pytest.raises(InputError, match="could not write it: Is a directory"):
            export_table(state, "Account", str(tmp_path))
        with pytest.raises(RecoveryImpossible, match="there is no version 9"):
            export_table(state, "Account", str(tmp_path / "a.parquet"), 9)
        assert [file.name for file in tmp_path.iterdir()] == ["state"]
        assert not list(tmp_path.parent.glob(f"{tmp_path.name}.*"))


class TestImport:
    def test_rows_replace_those_with_their_keys(self, state: Storage) -> None:
        before = accounts(state)
        done = import_table(state, "Account", pa.table({"id": [1, 99], "balance": [-5, 7]}))
        assert accounts(state) == {**before, 1: -5, 99: 7} and accounts(state, 4) == before
        assert done.version is not None and (done.version.version, done.below, done.rows) == (5, 4, 2)

    def test_replacing_the_table_removes_the_others(self, state: Storage) -> None:
        before = accounts(state)
        rows = pa.table({"id": [99, 1], "balance": [7, before[1]]})
        done = import_table(state, "Account", rows, replace=True)
        assert accounts(state) == {99: 7, 1: before[1]}
        assert done.removed == len(before) - 1 and done.version is not None
        again = import_table(state, "Account", rows, replace=True)
        assert again.version is None and VersionStore(state).refresh() == [1, 2, 3, 4, 5]

    def test_fields_that_the_file_lacks_take_their_defaults(self, state: Storage, history: History) -> None:
        import_table(state, "Vote", pa.table({"phone": pa.array(["x"], pa.large_string())}))
        rows = {row["phone"]: row for row in rows_at(VersionStore(state), history.vote).to_pylist()}
        assert rows["x"] == {"phone": "x", "weight": 1.0, "counted": False}

    @pytest.mark.parametrize(
        ("rows", "expected"),
        [
            ({"id": ["1"], "balance": [1]}, "'id' has type string, required: int"),
            ({"id": [1, None]}, "'id' is null in row 1"),
            ({"id": [1], "balance": [1.5]}, "'balance' has type double, required: int"),
            ({"id": [1], "saldo": [1]}, "'saldo' is not a field; fields are: id, balance"),
            ({"balance": [1]}, "the key column 'id' is missing"),
            ({"id": [1, 2, 1]}, r"\{'id': 1\} is in row 0 and again in row 2"),
        ],
    )
    @pytest.mark.parametrize("replace", [False, True])
    def test_rows_that_do_not_fit_change_nothing(
        self, state: Storage, rows: dict[str, list[object]], expected: str, replace: bool
    ) -> None:
        with pytest.raises(InputError, match=expected):
            import_table(state, "Account", pa.table(rows), replace)
        assert VersionStore(state).refresh() == [1, 2, 3, 4]

    def test_a_new_state_of_an_exported_file_goes_on_in_an_engine(
        self, state: Storage, tmp_path: Path, history: History
    ) -> None:
        @tg.table(key="phone")
        class Vote:
            phone: str
            weight: float = 1.0
            counted: bool = False

        @tg.transaction
        def count(vote: Vote) -> float:
            vote.counted = True
            return vote.weight

        file, new = str(tmp_path / "votes.parquet"), tmp_path / "new"
        export_table(state, "Vote", file)
        done = import_table(open_storage(str(new)), "Vote", read_parquet(file))
        assert done.version is not None and done.version.layouts == (history.vote,) and done.below == 0
        with tg.Engine([count], directory=new) as engine:
            assert engine.execute(count, vote="+2 \N{SNOWMAN}").result == 2 / 3
            assert engine.scan(Vote).num_rows == 4

    def test_a_new_table_is_made_only_where_its_key_is_said(self, state: Storage, tmp_path: Path) -> None:
        rows = pa.table({"id": [1], "name": ["a"], "when": [1.5], "seen": [True]})
        new = open_storage(str(tmp_path / "new"))
        for place in (new, state):
            with pytest.raises(InputError, match="say which of them are its key: --key id"):
                import_table(place, "Guest", rows)
            with pytest.raises(InputError, match="not among the columns: id, name, when, seen"):
                import_table(place, "Guest", rows, key=["nummer"])
            done = import_table(place, "Guest", rows, key=["id", "name"])
            assert done.version is not None
            layout = done.version.layouts[-1]
            assert layout.key == ("id", "name") and [c.kind.value for c in layout.columns] == [
                "int", "str", "float", "bool",
            ]  # fmt: skip
            assert rows_at(VersionStore(place), layout).to_pylist() == rows.to_pylist()
        with pytest.raises(InputError, match=r"the key of Account is \(id\), got \(balance\)"):
            import_table(state, "Account", rows, key=["balance"])
        with pytest.raises(InputError, match="'x' has type list"):
            import_table(state, "Other", pa.table({"id": [1], "x": [[1]]}), key=["id"])

    def test_a_state_that_somebody_works_on_is_left_alone(self, state: Storage, history: History) -> None:
        VersionStore(state).commit(history.info(5, owner=Owner("q", "ledger", "living")), {})
        ownership.stay_alive(state, "living")
        with pytest.raises(StateOwned, match="query 'q'"):
            import_table(state, "Account", pa.table({"id": [1]}))

    def test_a_file_that_is_none(self, tmp_path: Path) -> None:
        (tmp_path / "text").write_text("id,balance")
        for name in ("text", "."):
            with pytest.raises(InputError, match="required a Parquet file"):
                read_parquet(str(tmp_path / name))
        with pytest.raises(InputError, match="there is no such file"):
            read_parquet(str(tmp_path / "nothing"))

    def test_a_crash_at_any_call_leaves_the_old_rows_or_the_new_ones(self, history: History) -> None:
        done, deaths, seen = False, 0, set()
        while not done:
            disk = SimulatedDisk(("import", deaths))
            storage = LocalStorage("/data/state", disk=disk)
            history.commit(VersionStore(storage), 1, 3)
            before = accounts(storage)
            disk.crash_at = disk.calls + deaths
            try:
                import_table(storage, "Account", pa.table({"id": [7], "balance": [7]}), replace=True)
                done = True
            except SimulatedCrash:
                deaths += 1
            disk.restart(power_failure=True)
            found = accounts(storage)
            assert found in (before, {7: 7}), disk.describe()
            seen.add(len(found))
        assert len(seen) == 2 and deaths > 10
