from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.compiler.program import build_program
from tidegate.durability import ownership
from tidegate.durability.adoption import add_table
from tidegate.durability.compaction import compact
from tidegate.durability.copying import back_up, restore
from tidegate.durability.recovery import recover
from tidegate.durability.reshaping import Reshaping
from tidegate.durability.rollback import roll_back
from tidegate.durability.served import Line, stream_applicant
from tidegate.durability.stored_rows import rows_at
from tidegate.durability.verification import check_state
from tidegate.durability.version_info import Owner
from tidegate.durability.versioned import VersionedEngine
from tidegate.durability.versions import VersionStore
from tidegate.foundation.errors import (
    DefinitionError,
    InputError,
    RecoveryImpossible,
    StateOwned,
)
from tidegate.foundation.storage import LocalStorage, Storage, open_storage
from tidegate.operations.layout import Column, Kind, TableLayout
from tidegate.workloads.written import load_source

from ..simulation.disk import SimulatedCrash, SimulatedDisk

if TYPE_CHECKING:
    from tests.durability.conftest import History


@pytest.fixture
def state(tmp_path: Path, history: History) -> Storage:
    storage = open_storage(str(tmp_path / "state"))
    history.commit(VersionStore(storage), 1, 3)
    return storage


def with_field(layout: TableLayout, old: str, new: str | None) -> TableLayout:
    columns = [replace(c, name=new) if c.name == old and new else c for c in layout.columns if new or c.name != old]
    return replace(layout, columns=tuple(columns), key=tuple(new if k == old and new else k for k in layout.key))


def tables(storage: Storage, version: int | None = None) -> dict[str, list[dict[str, object]]]:
    """All rows of a version, in the layouts that it says."""
    store = VersionStore(storage)
    return {layout.name: rows_at(store, layout, version).to_pylist() for layout in store.locate(version).layouts}


class TestWhatItDoes:
    def test_a_table_gets_another_name_and_nothing_is_left_of_the_old_one(self, state: Storage) -> None:
        before = tables(state)
        done = Reshaping(state).rename_table("Account", "Konto")
        assert (done.version.version, done.below, done.rows) == (4, 3, len(before["Account"]))
        assert tables(state) == {"Konto": before["Account"], "Vote": before["Vote"]}
        assert tables(state, 3) == before, "earlier versions are as they were"

    def test_a_field_gets_another_name(self, state: Storage, history: History) -> None:
        before = tables(state)["Vote"]
        done = Reshaping(state).rename_field("Vote", "weight", "factor")
        assert done.rows == 3
        assert tables(state)["Vote"] == [
            {"factor" if name == "weight" else name: value for name, value in row.items()} for row in before
        ]
        assert done.version.layouts == (history.account, with_field(history.vote, "weight", "factor"))

    def test_a_field_of_the_key_gets_another_name(self, state: Storage) -> None:
        Reshaping(state).rename_field("Vote", "phone", "number")
        assert VersionStore(state).locate().layouts[1].key == ("number",)
        assert len(tables(state)["Vote"]) == 3

    def test_a_field_goes_with_its_values(self, state: Storage, history: History) -> None:
        before = tables(state)["Vote"]
        done = Reshaping(state).drop_field("Vote", "weight")
        assert tables(state)["Vote"] == [{"phone": r["phone"], "counted": r["counted"]} for r in before]
        assert done.version.layouts[1] == with_field(history.vote, "weight", None)

    def test_earlier_states_of_its_rows_go_with_a_table_and_its_fields(self, tmp_path: Path, history: History) -> None:
        storage = open_storage(str(tmp_path))
        columns = (Column("number", Kind.INT, 0), Column("key_id", Kind.INT, 0), Column("of_balance", Kind.INT, 0))
        past = TableLayout("tidegate_history_Account", columns, ("number",))
        rows = {
            "Account": history.rows(history.account, [(1, 1, True)]),
            past.name: history.rows(past, [(9, 1, 0, True)]),
        }
        VersionStore(storage).commit(history.info(1, layouts=(history.account, past)), rows)
        Reshaping(storage).rename_table("Account", "Konto")
        Reshaping(storage).rename_field("Konto", "id", "nummer")
        Reshaping(storage).rename_field("Konto", "balance", "saldo")
        assert tables(storage) == {
            "Konto": [{"nummer": 1, "saldo": 1}],
            "tidegate_history_Konto": [{"number": 9, "key_nummer": 1, "of_saldo": 0}],
        }
        Reshaping(storage).drop_field("Konto", "saldo")
        assert tables(storage)["tidegate_history_Konto"] == [{"number": 9, "key_nummer": 1}]

    def test_an_empty_table_of_the_new_name_may_be_there(self, state: Storage) -> None:
        before = tables(state)
        add_table(state, "Konto", "Account")
        Reshaping(state).rename_table("Account", "Konto")
        assert tables(state) == {"Konto": before["Account"], "Vote": before["Vote"]}

    def test_what_was_applied_stays_applied(self, state: Storage) -> None:
        Reshaping(state).rename_table("Account", "Konto")
        store = VersionStore(state)
        store.tip()
        assert store.served.lines() == {"query": Line(2, 3)}

    def test_it_is_undone_by_a_rollback_and_that_again(self, state: Storage) -> None:
        before = tables(state)
        Reshaping(state).rename_table("Account", "Konto")
        Reshaping(state).rename_field("Konto", "balance", "saldo")
        Reshaping(state).drop_field("Vote", "weight")
        after = tables(state)
        assert roll_back(state, 3).whole and tables(state) == before
        assert roll_back(state, 6).whole and tables(state) == after
        assert check_state(state, deep=True).sound

    def test_the_history_goes_on_and_snapshots_backups_and_recoveries_are_right(
        self, state: Storage, history: History, tmp_path: Path
    ) -> None:
        Reshaping(state).rename_table("Account", "Konto")
        store = VersionStore(state)
        konto = replace(history.account, name="Konto")
        changes = {"Konto": history.rows(konto, [(1, 77, True), (3, 0, False)])}
        store.commit(history.info(5, batch=3, layouts=(konto, history.vote)), changes)
        expected = tables(state)
        assert expected["Konto"] == [{"id": 0, "balance": 1}, {"id": 1, "balance": 77}, {"id": 2, "balance": 1}]
        copy, again, new = (open_storage(str(tmp_path / name)) for name in ("copy", "again", "new"))
        back_up(state, copy)
        restore(copy, again)
        recover(state, new)
        compact(VersionStore(state), 5)
        assert [tables(place) for place in (state, again, new)] == [expected] * 3
        assert all(check_state(place, deep=True).sound for place in (state, copy, again, new))
        kept = VersionStore(state, keep_versions=1)
        kept.collect()
        assert tables(state) == expected

    def test_tuples_that_wait_in_an_engines_state_wait_on(self, tmp_path: Path) -> None:
        with tg.Engine([graph], directory=str(tmp_path)) as engine:
            engine.run(pa.table({"dst": [1, 2], "amount": [5, 7]}))
        Reshaping(open_storage(str(tmp_path))).rename_field("Account", "balance", "saldo")
        roll_back(open_storage(str(tmp_path)), 2)
        with tg.Engine([graph], directory=str(tmp_path)) as engine:
            assert engine.take(told).column("amount").to_pylist() == [5, 7]


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0


paid = tg.stream("paid", dst=int, amount=int)
told = tg.stream("told", amount=int)


@tg.transaction
def pay(dst: Account, amount: int) -> int:
    dst.balance += amount
    return dst.balance


@tg.transaction(on=paid, emits=[told])
def tell(dst: Account, amount: int) -> None:
    dst.balance += amount
    tg.emit(told, amount=amount)


graph = tg.dataflow([tell])


def renamed_program(field: str = "saldo", table: str = "Konto", more: str = "") -> tuple[type, object]:
    source = f"""
import tidegate as tg

@tg.table(key="id")
class {table}:
    id: int
    {field}: int = 0
    {more}

@tg.transaction
def pay(dst: {table}, amount: int) -> int:
    dst.{field} += amount
    return dst.{field}
"""
    module = load_source(f"renamed_{field}_{table}_{len(more)}", source)
    return getattr(module, table), module.pay


class TestPrograms:
    def test_one_with_the_new_names_goes_on_and_one_with_the_old_is_told_how(self, tmp_path: Path) -> None:
        path = str(tmp_path)
        konto, pay_konto = renamed_program()
        with tg.Engine([pay], directory=path) as engine:
            engine.execute(pay, dst=1, amount=100)
        Reshaping(open_storage(path)).rename_table("Account", "Konto")
        with pytest.raises(DefinitionError, match=f"tidegate state rename-field {path} Konto balance saldo"):
            tg.Engine([pay_konto], directory=path)
        Reshaping(open_storage(path)).rename_field("Konto", "balance", "saldo")
        with tg.Engine([pay_konto], directory=path) as engine:
            assert engine.execute(pay_konto, dst=1, amount=30).result == 130
            assert engine.read(konto, 1) == {"id": 1, "saldo": 130}
        Reshaping(open_storage(path)).rename_field("Konto", "saldo", "balance")
        with pytest.raises(DefinitionError, match=f"tidegate state rename-table {path} Konto Account"):
            tg.Engine([pay], directory=path)

    def test_a_versioned_engine_goes_on_with_the_next_batch_and_says_why_the_last_cannot_be_repeated(
        self, tmp_path: Path
    ) -> None:
        path = str(tmp_path)
        events = pa.table({"dst": [1], "amount": [100]})

        def process(program: object, batch: int) -> list[int]:
            engine = VersionedEngine(build_program([program]), path)
            out = engine.process(stream_applicant("q", batch), events, order_by=None, late="run", owner=None)
            return list(out.column("result").to_pylist())

        assert process(pay, 0) == [100]
        Reshaping(open_storage(path)).rename_field("Account", "balance", "saldo")
        Reshaping(open_storage(path)).rename_table("Account", "Konto")
        _, pay_konto = renamed_program()
        with pytest.raises(RecoveryImpossible, match=r"does not come out the same.*adopt .* --query q --batch 1"):
            process(pay_konto, 0)
        assert process(pay, 0) == [100], "the program of then can"
        assert process(pay_konto, 1) == [200]
        assert process(pay_konto, 1) == [200], "the batch after it is repeated as ever"
        Reshaping(open_storage(path)).rename_field("Konto", "saldo", "balance")
        with pytest.raises(RecoveryImpossible, match="the program's tables are not those of then"):
            process(renamed_program("balance")[1], 1)

    def test_one_that_still_has_a_dropped_field_is_told_until_the_field_is_there_again(self, tmp_path: Path) -> None:
        path, storage = str(tmp_path), open_storage(str(tmp_path))
        older = renamed_program("balance", "Account", "bonus: int = 0")[1]
        newer = renamed_program("bonus", "Account")[1]
        with tg.Engine([older], directory=path) as engine:
            engine.execute(older, dst=1, amount=100)
        Reshaping(storage).drop_field("Account", "balance")
        with tg.Engine([newer], directory=path) as engine:  # versions that know nothing of it follow
            engine.execute(newer, dst=1, amount=1)
        with pytest.raises(DefinitionError, match=r"Account.balance, which was dropped.*rename-field .* OTHER balance"):
            tg.Engine([older], directory=path)
        with pytest.raises(DefinitionError, match="which was dropped"):
            VersionedEngine(build_program([older]), path).process(
                stream_applicant("q", 0), pa.table({"dst": [1], "amount": [1]}), order_by=None, late="run", owner=None
            )
        Reshaping(storage).rename_table("Account", "Konto")
        with pytest.raises(DefinitionError, match=r"Konto.balance, which was dropped"):
            tg.Engine([renamed_program("balance", "Konto", "bonus: int = 0")[1]], directory=path)
        Reshaping(storage).rename_field("Konto", "bonus", "balance")
        pay_konto = renamed_program("balance")[1]
        with tg.Engine([pay_konto], directory=path) as engine:
            assert engine.execute(pay_konto, dst=1, amount=1).result == 2

    def test_a_rollback_to_before_a_field_was_dropped_lets_programs_have_it(self, tmp_path: Path) -> None:
        path, storage = str(tmp_path), open_storage(str(tmp_path))
        with tg.Engine([pay], directory=path) as engine:
            engine.execute(pay, dst=1, amount=100)
        dropped = Reshaping(storage).drop_field("Account", "balance")
        with pytest.raises(DefinitionError, match="which was dropped"):
            tg.Engine([pay], directory=path)
        roll_back(storage, dropped.below)
        with tg.Engine([pay], directory=path) as engine:
            assert engine.execute(pay, dst=1, amount=1).result == 101

    def test_an_engine_that_holds_an_older_version_loads_the_new_one(self, tmp_path: Path) -> None:
        path, events = str(tmp_path), pa.table({"dst": [1], "amount": [1]})
        engine = VersionedEngine(build_program([pay]), path)
        for batch in (0, 1):
            engine.process(stream_applicant("q", batch), events, order_by=None, late="run", owner=None)
        storage = open_storage(path)
        Reshaping(storage).rename_field("Account", "balance", "saldo")
        Reshaping(storage).rename_field("Account", "saldo", "balance")
        out = engine.process(stream_applicant("q", 2), events, order_by=None, late="run", owner=None)
        assert out.column("result").to_pylist() == [3]


class TestRefused:
    def test_rows_never_get_into_a_table_that_has_some_or_that_they_do_not_fit(
        self, state: Storage, history: History
    ) -> None:
        store, konto = VersionStore(state), replace(history.account, name="Konto")
        changes = {"Konto": history.rows(konto, [(1, 1, True)])}
        store.commit(history.info(4, layouts=(history.account, history.vote, konto)), changes)
        with pytest.raises(InputError, match="it has rows"):
            Reshaping(state).rename_table("Account", "Konto")
        with pytest.raises(DefinitionError, match="do not fit"):
            Reshaping(state).rename_table("Account", "Vote")
        assert VersionStore(state).refresh() == [1, 2, 3, 4]

    @pytest.mark.parametrize("names", [("Acount", "Konto"), ("tidegate_flow", "Konto")])
    def test_an_unknown_table_names_those_that_there_are(self, state: Storage, names: tuple[str, str]) -> None:
        with pytest.raises(InputError, match="This state has: Account, Vote"):
            Reshaping(state).rename_table(*names)

    @pytest.mark.parametrize("new", ["", "two words", "Account", "tidegate_flow", "class"])
    def test_a_name_that_no_table_can_have(self, state: Storage, new: str) -> None:
        with pytest.raises(InputError, match="required"):
            Reshaping(state).rename_table("Account", new)

    @pytest.mark.parametrize("new", ["", "two words", "exists", "_hidden", "id", "balance", "lambda"])
    def test_a_name_that_no_field_can_have(self, state: Storage, new: str) -> None:
        with pytest.raises(InputError, match=r"required the name of a field|has a field"):
            Reshaping(state).rename_field("Account", "balance", new)

    def test_unknown_fields_and_keys(self, state: Storage) -> None:
        with pytest.raises(InputError, match="its fields are: id, balance"):
            Reshaping(state).rename_field("Account", "saldo", "x")
        with pytest.raises(InputError, match=r"belongs to the key.*can be: balance"):
            Reshaping(state).drop_field("Account", "id")

    def test_a_state_that_somebody_works_on(self, state: Storage, history: History) -> None:
        VersionStore(state).commit(history.info(4, owner=Owner("q", "ledger", "living")), {})
        ownership.stay_alive(state, "living")
        with pytest.raises(StateOwned, match="query 'q'"):
            Reshaping(state)

    def test_an_engine_that_is_open_and_one_that_was_not_closed(self, tmp_path: Path) -> None:
        storage = open_storage(str(tmp_path))
        engine = tg.Engine([pay], directory=str(tmp_path))
        engine.execute(pay, dst=1, amount=100)
        with pytest.raises(StateOwned, match=r"a tg.Engine has this state open"):
            Reshaping(storage)
        log = next(tmp_path.glob("*.log")).read_bytes()
        engine.close()
        for file in tmp_path.glob("*2.*"):
            file.unlink()
        (tmp_path / "head").unlink()
        (tmp_path / "000000000001.log").write_bytes(log)
        with pytest.raises(RecoveryImpossible, match="close it: that writes a checkpoint"):
            Reshaping(storage)

    def test_events_in_place_of_rows(self, tmp_path: Path) -> None:
        engine = VersionedEngine(build_program([pay]), str(tmp_path), log="commands")
        events = pa.table({"dst": [1], "amount": [1]})
        engine.process(stream_applicant("q", 0), events, order_by=None, late="run", owner=None)
        with pytest.raises(RecoveryImpossible, match=r'run one batch with the program .* log="changes"'):
            Reshaping(open_storage(str(tmp_path))).rename_table("Account", "Konto")

    def test_no_state(self, tmp_path: Path) -> None:
        with pytest.raises(RecoveryImpossible, match="there is no state here"):
            Reshaping(open_storage(str(tmp_path / "nothing")))

    def test_a_batch_that_was_committed_meanwhile_wins(self, state: Storage, history: History) -> None:
        reshaping = Reshaping(state)
        VersionStore(state).commit(history.info(4), history.changes(4))
        with pytest.raises(StateOwned, match="somebody else made version 4"):
            reshaping.rename_table("Account", "Konto")
        assert VersionStore(state).refresh() == [1, 2, 3, 4]
        assert history.loaded(VersionStore(state)) == history.state(4)


def test_a_crash_at_any_call_leaves_the_old_tables_or_the_new_ones(history: History) -> None:
    done, deaths = False, 0
    seen = set()
    while not done:
        disk = SimulatedDisk(("reshaping", deaths))
        storage = LocalStorage("/data/state", disk=disk)
        history.commit(VersionStore(storage), 1, 3)
        before = tables(storage)
        disk.crash_at = disk.calls + deaths
        try:
            Reshaping(storage).rename_table("Account", "Konto")
            done = True
        except SimulatedCrash:
            deaths += 1
        disk.restart(power_failure=True)
        found = tables(storage)
        assert found in (before, {"Konto": before["Account"], "Vote": before["Vote"]}), disk.describe()
        seen.add(frozenset(found))
        assert check_state(storage).sound
    assert len(seen) == 2 and deaths > 10
