"""Explaining a script executes its declarations once, and nothing of the job that stands beside them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidegate.cli import app
from tidegate.commands.declarations import read_declarations
from tidegate.foundation.errors import DefinitionError

JOB = """
import os
import sys

import tidegate as tg

try:
    import tomllib
except ImportError:
    tomllib = None

print("the job runs")
FEE = int("1") + EXTRA if (EXTRA := 2) else 0
LIMITS = {}
for name in ("low", "high"):
    LIMITS[name] = len(name)
LOW = LIMITS["low"]
state = open(os.environ["SIGN"], "w")  # what a job does


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0


def net(amount):
    return amount - FEE


@tg.transaction
def pay(account: Account, amount: int) -> int:
    state = net(amount)
    tg.require(account.balance >= LOW, "poor")
    account.balance -= state
    return state


paid = tg.stream("paid", account=Account, amount=int)


@tg.transaction(on=paid)
def book(account: Account, amount: int) -> None:
    account.balance += amount


graph = tg.dataflow([book], name="books")

with open(os.environ["SIGN"], "w") as job:
    job.write("started")
sys.exit("the job ended")
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("SIGN", str(tmp_path / "sign"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    file = tmp_path / "job_of_a_user.py"
    file.write_text(JOB)
    yield file
    sys.modules.pop("job_of_a_user", None)


def test_a_script_without_a_main_guard_is_explained_and_does_not_run(job: Path) -> None:
    found = CliRunner().invoke(app, ["explain", str(job)])
    assert found.exit_code == 0, found.output
    assert "pay" in found.output and "books" in found.output and "the job runs" not in found.output
    assert not (job.parent / "sign").exists()


def test_what_declarations_use_is_there(job: Path) -> None:
    module = read_declarations(str(job))
    account = module.Account(1, balance=10)
    assert module.pay(account, 5) == 2 and account.balance == 8
    assert not hasattr(module, "job") and not hasattr(module, "state")


def test_a_name_that_only_the_job_gives_is_told(job: Path) -> None:
    job.write_text(JOB.replace('print("the job runs")', 'globals()["START"] = 3').replace("int = 0", "int = START"))
    with pytest.raises(DefinitionError, match=r"job_of_a_user.py.*not run here .NameError: name 'START'"):
        read_declarations(str(job))


def test_a_file_is_loaded_once(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(JOB.replace("def net", 'class Loud:\n    print("defined")\n\n\ndef net'))
    found = CliRunner().invoke(app, ["explain", f"{job}:pay"])
    assert found.output.count("defined") == 1, found.output


OTHER_FORMS = """
import os
import tidegate as tg

@tg.table(key="id")
class Cell:
    id: int
    n: int = 0

def raise_by(step):
    @tg.transaction
    def raised(cell: Cell) -> int:
        cell.n += step
        return cell.n
    return raised

def plain(cell: Cell) -> None:
    cell.n = 0

by_two = raise_by(2)
clear = tg.transaction(plain)
LARGE = os.environ.get("LARGE")
if LARGE:
    STEP = 100
else:
    STEP = 1
    open(os.environ["SIGN"], "w")

if STEP == 1:
    @tg.transaction
    def one(cell: Cell) -> None:
        cell.n += STEP

if not open(os.environ["SIGN"], "w").closed:
    print("the job")

if __name__ == "__main__":
    open(os.environ["SIGN"], "w")
"""


def test_calls_factories_and_branches_declare_as_well(job: Path) -> None:
    job.write_text(OTHER_FORMS)
    module = read_declarations(str(job))
    cell = module.Cell(1, n=5)
    assert module.by_two(cell) == 7
    module.clear(cell)
    module.one(cell)
    assert cell.n == 1 and not (job.parent / "sign").exists()


def test_the_name_that_is_asked_for_is_bound(job: Path) -> None:
    job.write_text("def make():\n    return 3\n\nfound = make()\nother = make()\n")
    module = read_declarations(str(job), "found")
    assert module.found == 3 and not hasattr(module, "other")


def test_a_file_that_is_not_python_says_where(job: Path) -> None:
    job.write_text("import os\nthis is not\n")
    with pytest.raises(DefinitionError, match=r"job_of_a_user.py:2: invalid syntax"):
        read_declarations(str(job))
