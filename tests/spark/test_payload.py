"""Programs travel to workers that cannot import what the driver imported."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import tidegate as tg
from tidegate.compiler.program import build_program
from tidegate.foundation.errors import DefinitionError
from tidegate.spark.payload import digest, pack, unpack

RULES = """
import threading
LOCK = threading.Lock()      # cannot be pickled, and nothing of the program uses it
FEE = 2
class Tariff:
    def __init__(self, part: int) -> None:
        self.part = part
    def of(self, amount: int) -> int:
        return amount // self.part + extra()
def extra() -> int:
    return FEE
def fee(amount: int) -> int:
    return Tariff(10).of(amount)
"""

PROGRAM = """
import threading
from typing import NamedTuple
import tidegate as tg
import shop.rules as rules
LOCK = threading.Lock()

class Paid(NamedTuple):
    left: int
    fee: int

@tg.table(key="id")
class Account:
    id: int
    balance: int = 0

@tg.transaction(compiled=False)
def pay(src: Account, amount: int) -> Paid:
    cost = rules.fee(amount)
    tg.require(src.balance >= amount + cost, "insufficient funds")
    src.balance -= amount + cost
    return Paid(src.balance, cost)
"""

WORKER = """
import sys
from tidegate.spark.payload import unpack
program = unpack(open(sys.argv[1], "rb").read())
row = program.classes["Account"](1, 100)
print(tuple(program.functions[0](row, 30)), row.balance, program.plan.names, "shop" in sys.modules)
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A package of the user's, importable here and nowhere else."""
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "rules.py").write_text(RULES)
    (package / "program.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(str(tmp_path))
    import shop.program  # type: ignore[import-not-found]

    yield shop
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]


def test_a_worker_runs_functions_whose_modules_it_cannot_import(shop: Any, tmp_path: Path) -> None:
    payload = pack(build_program([shop.program.pay]))
    (tmp_path / "payload").write_bytes(payload)
    (tmp_path / "elsewhere").mkdir()
    command = [sys.executable, "-c", WORKER, str(tmp_path / "payload")]
    told = subprocess.run(command, cwd=tmp_path / "elsewhere", capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "(65, 5) 65 ('pay',) False"


def test_packing_changes_nothing_for_others(shop: Any) -> None:
    before = set(cloudpickle.list_registry_pickle_by_value())
    pack(build_program([shop.program.pay]))
    assert set(cloudpickle.list_registry_pickle_by_value()) == before


def test_the_same_program_gives_the_same_digest(shop: Any) -> None:
    program = build_program([shop.program.pay])
    assert digest(pack(program)) == digest(pack(program))
    assert digest(pack(build_program([shop.program.pay]))) == digest(pack(program))


def test_installed_packages_travel_by_name() -> None:
    from tidegate.workloads import ledger

    payload = pack(build_program(ledger.PROGRAM))
    assert b"tidegate.workloads.ledger" in payload
    assert unpack(payload).classes["Account"] is ledger.Account


@tg.table(key="id")
class Counter:
    id: int
    value: int = 0


LOCK = threading.Lock()


def test_a_program_that_needs_what_cannot_travel_is_refused_by_name() -> None:
    @tg.transaction(compiled=False)
    def count(counter: Counter) -> int:
        with LOCK:
            counter.value += 1
        return counter.value

    with pytest.raises(DefinitionError, match=r"\(count\) cannot be sent to Spark's workers: .*lock"):
        pack(build_program([count]))


def test_values_captured_by_a_closure_travel() -> None:
    step = 7

    @tg.transaction(compiled=False)
    def count(counter: Counter) -> int:
        counter.value += step
        return counter.value

    program = unpack(pack(build_program([count])))
    assert program.functions[0](program.classes["Counter"](1)) == 7
