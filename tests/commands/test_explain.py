"""`tidegate explain` tells the operations of a transaction, what they touch, and what they wait for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tidegate.cli import app

from ..terminal import TERMINAL

PROGRAM = """
import tidegate as tg


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0
    closed: bool = False


@tg.transaction
def move(src: Account, dst: Account, rate: Account, amount: int) -> int:
    tg.require(src.balance >= amount, "insufficient funds")
    src.balance -= amount
    if not dst.closed:
        dst.balance += amount * rate.balance
    return src.balance


@tg.transaction
def close(first: Account, second: Account) -> None:
    first.closed = True
    second.closed = first.closed
    tg.delete(second)


@tg.transaction(compiled=False)
def plain(first: Account) -> None:
    first.balance = 1


@tg.transaction
def open_twice(first: Account, second: Account, amount: int) -> None:
    tg.require(not tg.exists(first), "it is there")
    first.balance = amount
    second.balance += 1


def helper(): ...
"""


@pytest.fixture
def program(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    file = tmp_path / f"explained_{abs(hash(request.node.name))}.py"
    file.write_text(PROGRAM)
    return str(file)


def tidegate(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env=TERMINAL)


def told(target: str) -> list[Any]:
    result = tidegate("explain", target, "--json")
    assert result.exit_code == 0, result.output
    found: list[Any] = json.loads(result.stdout)
    return found


def test_the_operations_of_a_transfer_in_a_module() -> None:
    (found,) = told("tidegate.workloads.ledger:transfer")
    first, second = found["operations"]
    assert first["text"].startswith("tg.require(src.balance >= amount")
    assert (first["reads"], first["writes"]) == (["src"], ["src"])
    assert (second["reads"], second["writes"], second["text"]) == (["dst"], ["dst"], "dst.balance += amount")
    assert found["unsplit"] == "" and found["parametric"] == []


def test_rows_conditions_and_dependencies(program: str) -> None:
    (found,) = told(f"{program}:move")
    _, second = found["operations"]
    assert second["reads"] == ["dst", "rate"] and second["writes"] == ["dst"]
    touches = [(touch["row"], touch["field"], touch["action"], touch["conditions"]) for touch in second["touches"]]
    assert ("dst", "closed", "read", []) in touches
    assert ("dst", "balance", "write", ["not dst.closed"]) in touches
    assert found["temporal"] == [
        "operation 1 waits for the previous write of src (Account)",
        "operation 2 waits for the previous write of dst (Account)",
    ]
    assert found["parametric"] == ["operation 2 needs rate (Account) as it was before the transaction"]
    assert found["logical"][0] == "operations 1 and 2 abort together if operation 1 fails"


def test_what_runs_as_one_operation_says_why(program: str) -> None:
    (found,) = told(f"{program}:close")
    assert "reads first.closed, which the transaction may have assigned before" in found["unsplit"]
    (operation,) = found["operations"]
    assert operation["text"].startswith("def close(")
    assert {"row": "second", "field": "", "action": "delete", "conditions": []} in operation["touches"]
    assert found["logical"] == []
    assert "plain Python" in told(f"{program}:plain")[0]["unsplit"]


def test_existence_that_a_function_asks_for_is_a_field_that_is_read(program: str) -> None:
    (found,) = told(f"{program}:open_twice")
    one, other = found["operations"]
    assert one["text"] == "tg.require(not tg.exists(first), 'it is there')\nfirst.balance = amount"
    assert {"row": "first", "field": "exists", "action": "read", "conditions": []} in one["touches"]
    assert other["text"] == "second.balance += 1" and other["reads"] == ["second"]


def test_without_a_function_all_transactions_are_explained(program: str) -> None:
    assert [found["transaction"] for found in told(program)] == ["move", "close", "plain", "open_twice"]


def test_panels_show_slices_and_dependencies(program: str) -> None:
    shown = tidegate("explain", f"{program}:move").stdout
    for text in (
        "2 operations",
        "operation 1: writes src",
        "src.balance -= amount",
        "temporal",
        "parametric",
        "logical",
    ):
        assert text in shown
    assert "not split: " in tidegate("explain", f"{program}:close").stdout


def test_what_runs_as_plain_python_is_listed_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "labels.py"
    file.write_text(
        'import tidegate as tg\n\n\n@tg.table(key="id")\nclass Seat:\n    id: int\n    label: str = ""\n\n\n'
        '@tg.transaction\ndef name(seat: Seat, n: int) -> None:\n    tg.require(n > 0, f"no {n}")\n'
    )
    assert json.loads(tidegate("explain", str(file), "--json").stdout)[0]["in_python"] == ["line 12: f'no {n}'"]
    assert "plain Python, where it gets there: line 12: f'no {n}'" in tidegate("explain", str(file)).stdout


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("no_such_module:f", "there is no module 'no_such_module'"),
        ("no_such_file.py:f", "there is no file 'no_such_file.py'"),
        ("tidegate.workloads.ledger:transfr", "its transactions are: transfer, deposit"),
        ("tidegate.workloads.ledger:EventGenerator", "is not declared with @tg.transaction"),
        ("json", "no transactions; declare a function"),
    ],
)
def test_a_wrong_target_is_a_message(target: str, message: str) -> None:
    result = tidegate("explain", target)
    assert result.exit_code == 1
    assert message in result.stderr and "Traceback" not in result.output


def test_help_shows_examples() -> None:
    shown = tidegate("explain", "--help").stdout
    assert "tidegate explain jobs/ledger.py:transfer" in shown


def test_a_graphs_name_and_the_source_are_shown_to_the_letter(tmp_path: Path) -> None:
    file = tmp_path / "explained_letters.py"
    file.write_text(
        'import tidegate as tg\n\n\n@tg.table(key="id")\nclass Seat:\n    id: int\n    taken: int = 0\n\n\n'
        'asked = tg.stream("asked", seat=int)\n\n\n@tg.transaction(on=asked)\ndef take(seat: Seat):\n'
        '    tg.require(seat.taken == 0, "[/]\x1b[31m\u202e")\n    seat.taken = 1\n\n\n'
        'graph = tg.dataflow([take], name="[/]\\x1b[31mgraph")\n'
    )
    result = tidegate("explain", str(file))
    assert result.exit_code == 0, result.output
    assert r"dataflow [/]\x1b[31mgraph" in result.stdout and r"[/]\x1b[31m\u202e" in result.stdout
    assert "\x1b" not in result.stdout and "\u202e" not in result.stdout
