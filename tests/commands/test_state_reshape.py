"""`tidegate state rename-table`, `rename-field` and `drop-field` on real files: what they say and what they refuse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.durability import ownership
from tidegate.durability.version_info import Owner
from tidegate.durability.versions import VersionStore
from tidegate.foundation.storage import open_storage

from ..test_cli import tidegate, told
from .stored import ACCOUNT, SEAT, info, make_state, make_state_with_events


@pytest.fixture
def store(tmp_path: Path) -> VersionStore:
    return make_state(tmp_path / "state")


@pytest.fixture
def path(store: VersionStore) -> str:
    return store.storage.path


def test_a_table_is_renamed_and_undone_by_the_command_that_is_told(path: str) -> None:
    before = told("state", "show", path, "--table", "Account")
    shown = tidegate("state", "rename-table", path, "Account", "Konto").stdout
    assert f"{path}: version 4: Account is called Konto (2 rows)" in shown
    assert told("state", "show", path, "--table", "Konto") == before
    undo = next(line for line in shown.splitlines() if line.startswith("To undo it: tidegate "))
    assert tidegate(*undo.removeprefix("To undo it: tidegate ").split()).exit_code == 0
    assert told("state", "show", path, "--table", "Account") == before
    assert "there is no table 'Konto'" in tidegate("state", "show", path, "--table", "Konto").stderr


def test_a_field_is_renamed_and_dropped(path: str) -> None:
    done = told("state", "rename-field", path, "Account", "balance", "saldo")
    assert done == {"path": path, "version": 4, "rows": 2, "undo": f"tidegate state rollback {path} --to 3"}
    assert told("state", "show", path, "--table", "Account")[0] == {"id": 2, "saldo": 80}
    assert "Account has no field saldo any more" in tidegate("state", "drop-field", path, "Account", "saldo").stdout
    assert told("state", "show", path, "--table", "Account")[0] == {"id": 2}
    assert tidegate("state", "verify", path, "--deep").exit_code == 0


ORDERS = (
    ("rename-table", "Account", "Konto"),
    ("rename-field", "Account", "balance", "saldo"),
    ("drop-field", "Account", "balance"),
)


@pytest.mark.parametrize("order", ORDERS)
def test_a_running_query_is_not_disturbed(store: VersionStore, path: str, order: tuple[str, ...]) -> None:
    store.commit(replace(info(4, ACCOUNT, SEAT), owner=Owner("q", "ledger", "living")), {})
    ownership.stay_alive(store.storage, "living")
    result = tidegate("state", order[0], path, *order[1:])
    assert result.exit_code == 1 and "owned by query 'q'" in result.stderr
    assert VersionStore(open_storage(path)).refresh() == [1, 2, 3, 4]


@pytest.mark.parametrize("order", ORDERS)
def test_what_cannot_be_done_is_one_message(tmp_path: Path, order: tuple[str, ...]) -> None:
    nothing = tidegate("state", order[0], str(tmp_path / "nothing"), *order[1:])
    assert nothing.exit_code == 1 and "there is no state here" in nothing.stderr
    events = make_state_with_events(tmp_path / "events").storage.path
    refused = tidegate("state", order[0], events, *order[1:])
    assert refused.exit_code == 1 and "run one batch with the program that wrote them" in refused.stderr
    state = make_state(tmp_path / "state").storage.path
    unknown = tidegate("state", order[0], state, "Acount", *order[2:])
    assert unknown.exit_code == 1 and "This state has: Account, Seat" in unknown.stderr
