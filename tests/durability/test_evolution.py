from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tidegate.durability import evolution
from tidegate.durability.versions import VersionStore
from tidegate.foundation.errors import DefinitionError
from tidegate.foundation.storage import Storage
from tidegate.operations.layout import Column, Kind, TableLayout

if TYPE_CHECKING:
    from tests.durability.conftest import History

ID, BALANCE = Column("id", Kind.INT, 0), Column("balance", Kind.INT, 0)
LIMIT, OWNER = Column("limit", Kind.FLOAT, 2.5), Column("owner", Kind.STR, "nobody")
ACCOUNT = TableLayout("Account", (ID, BALANCE), ("id",))
WIDER = TableLayout("Account", (OWNER, BALANCE, LIMIT, ID), ("id",))
NARROWER = TableLayout("Account", (ID,), ("id",))
RETYPED = TableLayout("Account", (ID, Column("balance", Kind.FLOAT, 0.0)), ("id",))
REKEYED = TableLayout("Account", (ID, BALANCE), ("id", "balance"))
OTHER = TableLayout("Other", (ID,), ("id",))


def test_new_fields_moved_fields_and_new_defaults_are_no_difference() -> None:
    defaults = TableLayout("Account", (ID, Column("balance", Kind.INT, 100)), ("id",))
    for new in (ACCOUNT, WIDER, defaults):
        assert evolution.difference([ACCOUNT], [new]) == []
    reordered = TableLayout("Account", REKEYED.columns, ("balance", "id"))
    assert evolution.difference([REKEYED], [reordered]) == []


def test_tables_that_come_or_go_are_no_difference() -> None:
    assert evolution.difference([ACCOUNT], [OTHER]) == []
    assert evolution.difference([], [OTHER]) == []


def test_removed_and_retyped_fields_and_changed_keys_are_listed() -> None:
    assert evolution.difference([ACCOUNT], [NARROWER]) == ["Account.balance: was int, is removed"]
    assert evolution.difference([OTHER, ACCOUNT], [RETYPED, OTHER]) == ["Account.balance: was int, is float"]
    assert evolution.difference([ACCOUNT], [REKEYED]) == ["Account: the key was (id), is (id, balance)"]
    renamed = TableLayout("Account", (Column("number", Kind.INT, 0), BALANCE), ("number",))
    assert evolution.difference([ACCOUNT], [renamed]) == [
        "Account: the key was (id), is (number)",
        "Account.id: was int, is removed",
    ]


def test_upgraded_rows_have_the_layouts_order_types_and_defaults() -> None:
    changes = pa.table({"id": [1, 2], "balance": [5, 0], "exists": [True, False]})
    upgraded = evolution.upgrade(changes, WIDER)
    assert upgraded.schema.equals(evolution.change_schema(WIDER))
    assert upgraded.to_pydict() == {
        "owner": ["nobody", "nobody"],
        "balance": [5, 0],
        "limit": [2.5, 2.5],
        "id": [1, 2],
        "exists": [True, False],
    }
    assert evolution.upgrade(changes.drop_columns("exists"), ACCOUNT)["exists"].to_pylist() == [True, True]
    assert evolution.upgrade(changes.slice(0, 0), WIDER).equals(evolution.empty_changes(WIDER))


def committed(storage: Storage, history: History) -> VersionStore:
    """Version 1 loaded and version 2 changed with the narrow layout, version 3 with the wide one."""
    store = VersionStore(storage)
    infos = {version: history.info(version, layouts=(ACCOUNT, OTHER)) for version in (1, 2)}
    rows = history.rows
    store.snapshot(infos[1], {"Account": rows(ACCOUNT, [(1, 10), (2, 20)], change=False)})
    store.commit(infos[2], {"Account": rows(ACCOUNT, [(2, 0, False)]), "Other": rows(OTHER, [(9, True)])})
    wide = history.info(3, layouts=(WIDER,))
    store.commit(wide, {"Account": rows(WIDER, [("me", 30, 1.0, 3, True)])})
    return VersionStore(storage)


def test_a_history_of_several_layouts_loads_in_the_programs_layout(storage: Storage, history: History) -> None:
    store = committed(storage, history)
    for layouts in ((WIDER,), None):  # None: the layouts that the version asked for has
        steps = list(store.load(3, layouts=layouts)[1])
        accounts = pa.concat_tables(step["Account"] for step in steps if "Account" in step)
        assert accounts.schema.equals(evolution.change_schema(WIDER))
        assert accounts.to_pylist() == [
            {"owner": "nobody", "balance": 10, "limit": 2.5, "id": 1, "exists": True},
            {"owner": "nobody", "balance": 20, "limit": 2.5, "id": 2, "exists": True},
            {"owner": "nobody", "balance": 0, "limit": 2.5, "id": 2, "exists": False},
            {"owner": "me", "balance": 30, "limit": 1.0, "id": 3, "exists": True},
        ]


def test_tables_that_the_program_does_not_declare_keep_their_rows(storage: Storage, history: History) -> None:
    store = committed(storage, history)
    steps = list(store.load(3, layouts=(WIDER,))[1])
    assert [step["Other"].to_pylist() for step in steps if "Other" in step] == [[{"id": 9, "exists": True}]]
    assert store.read_contents(2, layouts=()).changes["Account"].column_names == ["id", "balance", "exists"]


def test_state_that_does_not_fit_is_refused_before_anything_is_read(storage: Storage, history: History) -> None:
    store = committed(storage, history)
    attempts = [
        lambda layout: store.load(2, layouts=(layout,)),
        lambda layout: store.read_contents(2, layouts=(layout,)),
    ]
    for layout, line in [(NARROWER, "balance: was int, is removed"), (RETYPED, "balance: was int, is float")]:
        for attempt in attempts:
            with pytest.raises(DefinitionError) as caught:
                attempt(layout)
            message = str(caught.value)
            assert message.startswith(storage.path) and line in message
            assert "Declare these fields" in message and "new state path" in message
    with pytest.raises(DefinitionError, match=r"owner: was str, is removed\n.*limit: was float, is removed"):
        store.load(None, layouts=(ACCOUNT,))
