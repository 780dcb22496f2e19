"""`tidegate state get`, `export` and `import` on real files: what they print, and how they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tidegate as tg

from ..test_cli import tidegate, told
from .stored import make_state, make_state_with_events


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0


@tg.transaction
def pay(dst: Account, amount: int) -> None:
    dst.balance += amount


@pytest.fixture
def path(tmp_path: Path) -> str:
    return make_state(tmp_path / "state").storage.path


class TestGet:
    def test_one_row(self, path: str) -> None:
        shown = tidegate("state", "get", path, "Account", "2").stdout
        assert [line.split() for line in shown.rstrip().splitlines()[-2:]] == [["id", "(key)", "2"], ["balance", "80"]]
        assert told("state", "get", path, "Account", "2") == {"id": 2, "balance": 80}

    def test_an_earlier_version(self, path: str) -> None:
        assert told("state", "get", path, "Account", "1", "--version", "2") == {"id": 1, "balance": 100}

    @pytest.mark.parametrize("key", [["B", "7"], ['["B", 7]'], ['{"number": 7, "row": "B"}']])
    def test_a_composite_key(self, path: str, key: list[str]) -> None:
        assert told("state", "get", path, "Seat", *key) == {"row": "B", "number": 7, "taken": True}

    @pytest.mark.parametrize("key", [["1"], ["-1"], ["-9223372036854775808"]])
    def test_a_row_that_is_not_there_is_said_and_ends_with_1(self, path: str, key: list[str]) -> None:
        result = tidegate("state", "get", path, "Account", *key)
        assert result.exit_code == 1 and f"Account has no row with id={key[0]}" in result.stderr
        assert not result.stdout
        assert json.loads(tidegate("state", "get", path, "Account", *key, "--json").stdout) is None

    def test_a_string_with_blanks_and_a_negative_number(self, path: str) -> None:
        result = tidegate("state", "get", path, "Seat", "row B", "-7")
        assert result.exit_code == 1 and "row='row B', number=-7" in result.stderr

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            (["Account", "x"], "key field 'id' holds int, got 'x'"),
            (["Account", "1", "2"], "the key of Account is (id: int): required 1 values"),
            (["Seat", "B"], "the key of Seat is (row: str, number: int): required 2 values"),
            (["Seat", "[1]"], "or one JSON array or object of them"),
            (["Acount", "1"], "there is no table 'Acount' in version 3. This state has: Account, Seat"),
            (["Account", "1", "--version", "9"], "there is no version 9, the newest is 3"),
        ],
    )
    def test_what_cannot_be_asked_is_one_message(self, path: str, arguments: list[str], expected: str) -> None:
        result = tidegate("state", "get", path, *arguments)
        assert result.exit_code == 1 and expected in result.stderr and "Traceback" not in result.output

    def test_what_an_engine_did_behind_its_newest_checkpoint_is_not_kept_quiet(self, tmp_path: Path) -> None:
        state = str(tmp_path / "state")
        with tg.Engine([pay], directory=state) as engine:
            engine.execute(pay, dst=1, amount=5)
        with tg.Engine([pay], directory=state) as engine:
            engine.execute(pay, dst=1, amount=5)
            refused = tidegate("state", "get", state, "Account", "1")
            assert refused.exit_code == 1 and "read the newest checkpoint as it is: version 2" in refused.stderr
            assert told("state", "get", state, "Account", "1", "--version", "2") == {"id": 1, "balance": 5}
            assert "is not shown" in tidegate("state", "show", state).stdout
        assert told("state", "get", state, "Account", "1") == {"id": 1, "balance": 10}
        assert "is not shown" not in tidegate("state", "show", state).stdout

    def test_events_in_place_of_rows_and_no_state(self, tmp_path: Path) -> None:
        events = make_state_with_events(tmp_path / "events").storage.path
        assert "only the program that ran them" in tidegate("state", "get", events, "Account", "1").stderr
        assert told("state", "get", events, "Account", "1", "--version", "1") == {"id": 1, "balance": 5}
        assert "there is no state here" in tidegate("state", "get", str(tmp_path / "no"), "Account", "1").stderr


class TestParquet:
    def test_out_and_in_again(self, path: str, tmp_path: Path) -> None:
        file, new = str(tmp_path / "accounts.parquet"), str(tmp_path / "new")
        shown = tidegate("state", "export", path, "Account", file).stdout
        assert f"{file}: 2 rows of Account, version 3 of {path}" in shown
        refused = tidegate("state", "export", path, "Account", file)
        assert refused.exit_code == 1 and "--overwrite" in refused.stderr
        done = told("state", "export", path, "Account", file, "--overwrite", "--version", "1")
        assert done == {"path": path, "version": 1, "rows": 2, "file": file}
        assert "version 1: 2 rows of Account written" in tidegate("state", "import", new, "Account", file).stdout
        assert told("state", "show", new) == [{"id": 1, "balance": 100}, {"id": 2, "balance": 50}]
        shown = tidegate("state", "import", path, "Account", file, "--replace").stdout
        assert "version 4: 2 rows of Account written, 1 row removed" in shown
        assert f"To undo it: tidegate state rollback {path} --to 3" in shown
        assert told("state", "diff", path, "1", "4", "--table", "Account") == []
        assert "nothing to do" in tidegate("state", "import", path, "Account", file, "--replace").stdout

    def test_what_cannot_be_done_is_one_message(self, path: str, tmp_path: Path) -> None:
        for order, expected in (
            (["import", path, "Account", str(tmp_path / "no.parquet")], "there is no such file"),
            (["import", path, "Account", __file__], "required a Parquet file"),
            (["export", path, "Acount", str(tmp_path / "a.parquet")], "This state has: Account, Seat"),
            (["export", str(tmp_path / "no"), "Account", str(tmp_path / "a.parquet")], "there is no state here"),
        ):
            result = tidegate("state", *order)
            assert result.exit_code == 1 and expected in result.stderr and "Traceback" not in result.output
