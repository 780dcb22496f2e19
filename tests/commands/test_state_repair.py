"""`tidegate state adopt` and `rollback` on real files: what they do, what they say, what they refuse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.durability import ownership
from tidegate.durability.served import Line
from tidegate.durability.stored_rows import rows_at
from tidegate.durability.version_info import Owner
from tidegate.durability.versions import VersionStore
from tidegate.foundation.storage import open_storage

from ..test_cli import tidegate, told
from .stored import ACCOUNT, SEAT, info, make_state

KNOWN = "0123456789abcdef"


@pytest.fixture
def store(tmp_path: Path) -> VersionStore:
    return make_state(tmp_path / "state")


@pytest.fixture
def path(store: VersionStore) -> str:
    return store.storage.path


class TestAdopt:
    def test_a_query_goes_on_and_what_to_do_next_is_said(self, path: str) -> None:
        shown = tidegate("state", "adopt", path, "--query", "5b1f", "--batch", "7").stdout
        assert f"{path}: version 4: query 5b1f goes on with batch 7" in shown
        assert "batches 0 to 6 count as applied" in shown and shown.rstrip().endswith("Start the query again.")
        store = VersionStore(open_storage(path))
        store.tip()
        assert store.served.lines()["5b1f"] == Line(6, 0)

    def test_json(self, path: str) -> None:
        done = told("state", "adopt", path, "--query", "5b1f", "--batch", "7")["done"]
        assert done == [{"query": "5b1f", "batch": 7, "version": 4, "new_state": False}]

    def test_without_a_state_a_new_one_is_made_and_its_emptiness_is_said(self, tmp_path: Path) -> None:
        place = str(tmp_path / "new")
        shown = tidegate("state", "adopt", place, "--query", "5b1f", "--batch", "1").stdout
        assert "version 1" in shown and "Its batch 0 counts as applied" in shown and "initial={...} is not" in shown
        assert VersionStore(open_storage(place)).refresh() == [1]

    def test_a_second_time_there_is_nothing_to_do(self, path: str) -> None:
        for expected in ("version 4", "nothing to do"):
            assert expected in tidegate("state", "adopt", path, "--query", "5b1f", "--batch", "7").stdout

    def test_a_batch_that_was_applied_is_refused(self, path: str) -> None:
        result = tidegate("state", "adopt", path, "--query", KNOWN, "--batch", "2")
        assert result.exit_code == 1 and "would be applied twice" in result.stderr

    def test_lost_versions_and_a_query_in_one_go(self, path: str) -> None:
        (Path(path) / "000000000003.change").unlink()
        result = tidegate("state", "adopt", path, "--lost", "--query", KNOWN, "--batch", "3")
        assert result.exit_code == 0, result.output
        assert "version 3 counts as lost: the state goes on from version 2" in result.stdout
        assert "version 3: query 0123456789abcdef goes on with batch 3" in result.stdout
        assert tidegate("state", "verify", path).exit_code == 0

    def test_all_versions_lost_and_a_query_in_one_go_make_a_new_state(self, path: str) -> None:
        for file in Path(path).glob("0*"):
            file.unlink()
        options = ["--query", KNOWN, "--batch", "3"]
        refused = tidegate("state", "adopt", path, *options)
        assert refused.exit_code == 1 and f"tidegate state adopt {path} --lost" in refused.stderr
        shown = tidegate("state", "adopt", path, "--lost", *options).stdout
        assert "no version is left" in shown and "version 1: query" in shown
        assert tidegate("state", "verify", path).exit_code == 0

    def test_nothing_lost_is_said(self, path: str) -> None:
        assert "nothing is known to be lost" in tidegate("state", "adopt", path, "--lost").stdout
        assert told("state", "adopt", path, "--lost")["done"] == [{"lost": None, "newest": 3}]

    def test_a_renamed_and_another_table(self, path: str) -> None:
        shown = tidegate("state", "adopt", path, "--rename", "Account=Konto", "--new-table", "Sitz=Seat").stdout
        assert "version 4: Konto has the 2 rows that Account had" in shown
        assert "version 5: there is a table Sitz, without rows; Seat keeps its own" in shown
        store = VersionStore(open_storage(path))
        assert rows_at(store, replace(ACCOUNT, name="Konto")).num_rows == 2
        assert rows_at(store, SEAT).num_rows == 1 and rows_at(store, replace(SEAT, name="Sitz")).num_rows == 0

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ([], "say what to adopt"),
            (["--query", "q"], "--query and --batch go together"),
            (["--batch", "1"], "--query and --batch go together"),
            (["--rename", "Account"], "as Old=New"),
            (["--new-table", "=Account"], "as Old=New"),
        ],
    )
    def test_half_an_order_is_none(self, path: str, options: list[str], expected: str) -> None:
        result = tidegate("state", "adopt", path, *options)
        assert result.exit_code == 2 and expected in result.output
        assert VersionStore(open_storage(path)).refresh() == [1, 2, 3]

    def test_a_running_query_is_not_disturbed(self, store: VersionStore, path: str) -> None:
        store.commit(replace(info(4, ACCOUNT, SEAT), owner=Owner("q", "ledger", "living")), {})
        ownership.stay_alive(store.storage, "living")
        orders = (["--query", "5b1f", "--batch", "7"], ["--lost"], ["--rename", "Account=A"], ["--new-table", "A=Seat"])
        for options in orders:
            result = tidegate("state", "adopt", path, *options)
            assert result.exit_code == 1 and "owned by query 'q'" in result.stderr
        refused = tidegate("state", "rollback", path, "--to", "1")
        assert refused.exit_code == 1 and "owned by query 'q'" in refused.stderr
        assert VersionStore(open_storage(path)).refresh() == [1, 2, 3, 4]


class TestRollback:
    def test_the_rows_are_those_of_the_earlier_version(self, path: str) -> None:
        shown = tidegate("state", "rollback", path, "--to", "1").stdout
        assert f"{path}: version 4 has the rows of version 1: 4 rows changed (Account 3, Seat 1)" in shown
        assert told("state", "diff", path, "1", "4") == []
        assert told("state", "show", path, "--table", "Account") == [
            {"id": 1, "balance": 100},
            {"id": 2, "balance": 50},
        ]

    def test_json(self, path: str) -> None:
        done = told("state", "rollback", path, "--to", "2")
        assert done == {"path": path, "from": 3, "to": 2, "rows": {"Account": 1, "Seat": 1}, "version": 4}

    def test_what_was_served_stays_served(self, path: str) -> None:
        tidegate("state", "rollback", path, "--to", "1")
        assert told("state", "served", path)["served"] == [{"applicant": KNOWN, "batch": 2, "version": 3}]

    def test_a_version_that_is_not_earlier_is_refused(self, path: str) -> None:
        result = tidegate("state", "rollback", path, "--to", "3")
        assert result.exit_code == 1 and "the newest is version 3" in result.stderr
