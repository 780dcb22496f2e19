from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tidegate.durability import ownership
from tidegate.durability.rollback import roll_back
from tidegate.durability.served import Line
from tidegate.durability.stored_rows import rows_at
from tidegate.durability.version_info import Owner
from tidegate.durability.versions import VersionStore
from tidegate.foundation.errors import InputError, RecoveryImpossible, StateOwned
from tidegate.foundation.storage import Storage, open_storage
from tidegate.operations.layout import Column, Kind

if TYPE_CHECKING:
    from tests.durability.conftest import History


@pytest.mark.parametrize("to", range(1, 9))
def test_the_rows_of_an_earlier_version_are_there_again(storage: Storage, history: History, to: int) -> None:
    history.commit(VersionStore(storage), 1, 9)
    result = roll_back(storage, to)
    store = VersionStore(storage)
    assert result.version is not None and result.version.version == 10 and result.newest == 9
    assert history.loaded(store) == history.state(to)
    assert history.loaded(store, 9) == history.state(9), "what is undone can still be seen"
    now, then = history.state(9), history.state(to)
    different = {
        name: sum(now[name].get(key) != then[name].get(key) for key in now[name].keys() | then[name].keys())
        for name in now
    }
    assert result.rows == {name: count for name, count in different.items() if count}


def test_what_was_applied_stays_applied(tmp_path: Path, history: History) -> None:
    storage = open_storage(str(tmp_path))
    history.commit(VersionStore(storage), 1, 5)
    roll_back(storage, 2)
    store = VersionStore(storage)
    store.tip()
    assert store.served.lines() == {"query": Line(4, 5)}


def test_the_highest_order_value_goes_back_with_the_rows(tmp_path: Path, history: History) -> None:
    storage = open_storage(str(tmp_path))
    store = VersionStore(storage)
    for version in (1, 2, 3):
        store.commit(history.info(version, high=10 * version), history.changes(version))
    result = roll_back(storage, 2)
    assert result.version is not None and result.version.high == 20


def test_tables_that_the_engine_keeps_for_itself_go_back_too(tmp_path: Path, history: History) -> None:
    storage = open_storage(str(tmp_path))
    store, hidden = VersionStore(storage), replace(history.account, name="tidegate_flow")
    for version in (1, 2):
        rows = {"tidegate_flow": history.rows(hidden, [(7, version, True)])}
        store.commit(history.info(version, layouts=(history.account, hidden)), rows)
    assert roll_back(storage, 1).rows == {"tidegate_flow": 1}
    assert rows_at(VersionStore(storage), hidden).to_pylist() == [{"id": 7, "balance": 1}]


def test_rows_of_a_time_before_a_field_and_a_table_came_are_read_as_today(tmp_path: Path, history: History) -> None:
    storage = open_storage(str(tmp_path))
    store = VersionStore(storage)
    store.commit(
        history.info(1, layouts=(history.account,)), {"Account": history.rows(history.account, [(1, 5, True)])}
    )
    wide = replace(history.account, columns=(*history.account.columns, Column("limit", Kind.INT, 10)))
    changes = {
        "Account": history.rows(wide, [(1, 6, 99, True)]),
        "Vote": history.rows(history.vote, [("x", 1.0, True, True)]),
    }
    store.commit(history.info(2, layouts=(wide, history.vote)), changes)
    roll_back(storage, 1)
    assert rows_at(VersionStore(storage), wide).to_pylist() == [{"id": 1, "balance": 5, "limit": 10}]
    assert rows_at(VersionStore(storage), history.vote).num_rows == 0


def test_a_rollback_can_be_rolled_back(tmp_path: Path, history: History) -> None:
    storage = open_storage(str(tmp_path))
    history.commit(VersionStore(storage), 1, 5)
    roll_back(storage, 2)
    roll_back(storage, 5)
    assert history.loaded(VersionStore(storage)) == history.state(5)


def test_where_nothing_differs_nothing_is_written(tmp_path: Path, history: History) -> None:
    storage = open_storage(str(tmp_path))
    store = VersionStore(storage)
    history.commit(store, 1, 1)
    store.commit(history.info(2), {})
    assert roll_back(storage, 1).version is None
    assert VersionStore(storage).refresh() == [1, 2]


def test_a_version_that_is_not_earlier_or_not_there_is_refused(tmp_path: Path, history: History) -> None:
    storage = open_storage(str(tmp_path))
    with pytest.raises(InputError, match="there is no state here"):
        roll_back(storage, 1)
    history.commit(VersionStore(storage), 1, 3)
    for version in (3, 4):
        with pytest.raises(InputError, match="the newest is version 3"):
            roll_back(storage, version)
    with pytest.raises(RecoveryImpossible, match="version 0 is the empty state"):
        roll_back(storage, 0)
    store = VersionStore(storage)
    newest = store.tip()
    assert newest is not None
    tables: dict[str, pa.Table] = history.whole(3)
    store.snapshot(newest, tables)
    for version in (1, 2):
        (tmp_path / f"{version:012d}.change").unlink()
    with pytest.raises(RecoveryImpossible, match="version 2 cannot be rebuilt"):
        roll_back(storage, 2)


def test_a_live_owner_keeps_its_state(tmp_path: Path, history: History) -> None:
    storage = open_storage(str(tmp_path))
    store = VersionStore(storage)
    history.commit(store, 1, 1)
    store.commit(history.info(2, owner=Owner("q", "ledger", "living")), history.changes(2))
    ownership.stay_alive(storage, "living")
    with pytest.raises(StateOwned, match="still running"):
        roll_back(storage, 1)
    assert VersionStore(storage).refresh() == [1, 2]
