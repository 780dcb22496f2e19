from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.durability import head, ownership
from tidegate.durability.adoption import accept_loss, add_table, adopt_query
from tidegate.durability.served import Line, call_applicant, stream_applicant
from tidegate.durability.stored_rows import rows_at
from tidegate.durability.version_info import Owner
from tidegate.durability.versions import VersionStore
from tidegate.foundation.errors import (
    InputError,
    RecoveryImpossible,
    StateDiverged,
    StateOwned,
)
from tidegate.foundation.storage import Storage, open_storage

if TYPE_CHECKING:
    from tests.durability.conftest import History

QUERY = "5b1f"


@pytest.fixture
def state(tmp_path: Path, history: History) -> Storage:
    storage = open_storage(str(tmp_path / "state"))
    history.commit(VersionStore(storage), 1, 3)
    return storage


def file_of(storage: Storage, version: int, kind: str = "change") -> Path:
    return Path(storage.path) / f"{version:012d}.{kind}"


def served(storage: Storage) -> dict[str, Line]:
    store = VersionStore(storage)
    store.tip()
    return store.served.lines()


class TestQueries:
    def test_a_query_that_is_not_known_goes_on_with_the_batch_that_was_named(self, state: Storage) -> None:
        store = VersionStore(state)
        store.tip()
        with pytest.raises(StateDiverged, match=f"--query {QUERY} --batch 7"):
            store.served.judge(state.path, stream_applicant(QUERY, 7))
        adopted = adopt_query(state, QUERY, 7)
        assert adopted.version is not None and adopted.version.version == 4 and not adopted.is_new
        store.tip()
        assert store.served.judge(state.path, stream_applicant(QUERY, 7)) == "new"
        assert store.served.judge(state.path, stream_applicant(QUERY, 6)) == "given up"
        assert store.served.judge(state.path, call_applicant(QUERY, 6, 0)) == "given up"
        assert store.served.judge(state.path, call_applicant(QUERY, 7, 2)) == "new"

    def test_the_version_says_who_it_was_not_and_changes_nothing_else(self, state: Storage, history: History) -> None:
        before = VersionStore(state).newest()
        adopted = adopt_query(state, QUERY, 7).version
        assert adopted is not None and before is not None
        assert (adopted.query, adopted.owner, adopted.events, adopted.rows) == ("", None, 0, {})
        assert (adopted.state, adopted.parent, adopted.layouts) == (before.state, before.hash, before.layouts)
        assert history.loaded(VersionStore(state)) == history.state(3)

    def test_the_highest_order_value_stays(self, tmp_path: Path, history: History) -> None:
        storage = open_storage(str(tmp_path))
        VersionStore(storage).commit(history.info(1, high=77), {})
        adopted = adopt_query(storage, QUERY, 7).version
        assert adopted is not None and adopted.high == 77

    def test_all_calls_of_a_foreach_batch_that_are_known_go_on_together(self, state: Storage, history: History) -> None:
        store = VersionStore(state)
        for version, (name, batch) in enumerate([(f"{QUERY}/0", 4), (f"{QUERY}/1", 4), (f"{QUERY}/2", 2)], 4):
            store.commit(history.info(version, query=name, batch=batch), {})
        adopt_query(state, QUERY, 6)
        lines = served(state)
        assert {name: line for name, line in lines.items() if name.startswith(QUERY)} == {
            name: Line(5, 0) for name in (QUERY, f"{QUERY}/0", f"{QUERY}/1", f"{QUERY}/2")
        }
        assert lines["query"] == Line(2, 3), "other applicants keep their lines"

    @pytest.mark.parametrize("batch", [1, 2])
    def test_a_batch_that_was_applied_is_never_applied_again(self, state: Storage, batch: int) -> None:
        with pytest.raises(InputError, match=r"batches up to 2, and they would be applied twice.*at least 3"):
            adopt_query(state, "query", batch)
        assert VersionStore(state).refresh() == [1, 2, 3]

    def test_the_outcomes_of_the_last_batch_can_be_given_up(self, state: Storage) -> None:
        adopted = adopt_query(state, "query", 3)
        assert adopted.before == {"query": Line(2, 3)} and served(state)["query"] == Line(2, 0)

    def test_saying_it_twice_writes_it_once(self, state: Storage) -> None:
        adopt_query(state, QUERY, 7)
        assert adopt_query(state, QUERY, 7).version is None
        assert VersionStore(state).refresh() == [1, 2, 3, 4]

    @pytest.mark.parametrize("batch", [0, -1])
    def test_batch_zero_needs_nobody(self, state: Storage, batch: int) -> None:
        with pytest.raises(InputError, match="begins with batch 0"):
            adopt_query(state, QUERY, batch)

    @pytest.mark.parametrize("query", ["", "5b1f/0", "embedded", "initial", "batch-5b1f"])
    def test_what_is_no_streaming_query_is_refused(self, state: Storage, query: str) -> None:
        with pytest.raises(InputError, match="required the id of a streaming query"):
            adopt_query(state, query, 3)

    def test_where_there_is_no_state_a_new_and_empty_one_is_made(self, storage: Storage) -> None:
        adopted = adopt_query(storage, QUERY, 7)
        assert adopted.is_new and adopted.version is not None and adopted.version.version == 1
        assert adopted.version.state and served(storage) == {QUERY: Line(6, 0), f"{QUERY}/0": Line(6, 0)}

    def test_a_live_owner_keeps_its_state(self, state: Storage, history: History) -> None:
        VersionStore(state).commit(history.info(4, owner=Owner("q", "ledger", "living")), {})
        ownership.stay_alive(state, "living")
        with pytest.raises(StateOwned, match="still running"):
            adopt_query(state, QUERY, 7)
        with pytest.raises(StateOwned, match="still running"):
            add_table(state, "Konto", "Account")
        with pytest.raises(StateOwned, match="still running"):
            accept_loss(state)
        ownership.release(state, "q")
        adopted = adopt_query(state, QUERY, 7).version
        assert adopted is not None and adopted.epoch == 2

    def test_an_open_engine_keeps_its_state(self, tmp_path: Path) -> None:
        with tg.Engine([pay], directory=str(tmp_path)) as engine:
            engine.run(pa.table({"dst": [1], "amount": [5]}))
            with pytest.raises(StateOwned, match=r"tg\.Engine has this state open"):
                adopt_query(open_storage(str(tmp_path)), QUERY, 7)

    def test_a_version_that_comes_first_is_not_overwritten(
        self, state: Storage, history: History, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        admit = ownership.admit

        def admit_and_lose(storage: Storage, *rest: object) -> int:
            epoch = admit(storage, *rest)  # type: ignore[arg-type]
            history.commit(VersionStore(storage), 4, 4)
            return epoch

        monkeypatch.setattr(ownership, "admit", admit_and_lose)
        with pytest.raises(StateOwned, match="somebody else made version 4"):
            adopt_query(state, QUERY, 7)
        assert served(state)["query"] == Line(3, 4)


class TestLoss:
    def test_what_is_lost_at_the_end_is_accepted_and_nothing_is_deleted(self, state: Storage, history: History) -> None:
        file_of(state, 3).unlink()
        loss = accept_loss(state)
        assert loss.noted is not None and loss.noted.version == 3
        assert loss.newest is not None and loss.newest.version == 2
        store = VersionStore(state)
        history.commit(store, 3, 4)
        assert history.loaded(VersionStore(state)) == history.state(4)

    def test_a_query_ahead_of_what_is_left_goes_on_after_both_were_said(self, state: Storage) -> None:
        file_of(state, 3).unlink()
        with pytest.raises(StateDiverged, match="--lost"):
            adopt_query(state, "query", 4)
        accept_loss(state)
        adopt_query(state, "query", 4)
        assert served(state)["query"] == Line(3, 0)

    def test_when_all_versions_are_lost_the_state_is_empty(self, state: Storage) -> None:
        for version in (1, 2, 3):
            file_of(state, version).unlink()
        assert accept_loss(state).newest is None
        assert VersionStore(state).tip() is None and head.read(state) is None

    def test_nothing_lost_is_said_so(self, state: Storage) -> None:
        before = file_of(state, 3).parent.joinpath("head").read_bytes()
        assert accept_loss(state).noted is None
        assert file_of(state, 3).parent.joinpath("head").read_bytes() == before

    def test_a_hole_in_the_middle_is_no_loss_at_the_end(self, state: Storage) -> None:
        file_of(state, 2).unlink()
        with pytest.raises(
            RecoveryImpossible, match=r"000000000002\.change is missing.*tidegate recover .* --into NEW"
        ):
            accept_loss(state)

    def test_an_older_copy_of_another_state_is_accepted_as_it_is(self, state: Storage, tmp_path: Path) -> None:
        other = VersionStore(open_storage(str(tmp_path / "other")))
        newest = VersionStore(state).newest()
        assert newest is not None
        head.note(other.storage, replace(newest, version=9))
        assert accept_loss(other.storage).newest is None


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0


@tg.transaction
def pay(dst: Account, amount: int) -> int:
    dst.balance += amount
    return dst.balance


class TestTables:
    def test_another_table_that_only_looks_the_same_is_empty(self, state: Storage, history: History) -> None:
        before = rows_at(VersionStore(state), history.account)
        added = add_table(state, "Konto", "Account")
        assert added.rows == {} and [layout.name for layout in added.layouts] == ["Account", "Vote", "Konto"]
        store = VersionStore(state)
        assert rows_at(store, history.account).equals(before)
        assert rows_at(store, replace(history.account, name="Konto")).num_rows == 0
        with pytest.raises(InputError, match="nothing to do"):
            add_table(state, "Konto", "Account")

    @pytest.mark.parametrize("names", [("Acount", "Konto"), ("tidegate_flow", "Konto")])
    def test_an_unknown_table_names_those_that_there_are(self, state: Storage, names: tuple[str, str]) -> None:
        with pytest.raises(InputError, match="This state has: Account, Vote"):
            add_table(state, names[1], names[0])

    @pytest.mark.parametrize("new", ["", "two words", "Account", "tidegate_flow"])
    def test_a_name_that_no_table_can_have_is_refused(self, state: Storage, new: str) -> None:
        with pytest.raises(InputError, match="required the name of another table"):
            add_table(state, new, "Account")
