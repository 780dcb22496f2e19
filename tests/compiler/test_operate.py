"""`operate` executes one operation on the slots that it is given, compiled or as plain Python."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tidegate.compiler.program import build_program
from tidegate.engine.generated import load
from tidegate.foundation.jit import uncompiled
from tidegate.operations.plan import ESCAPE, ProgramPlan
from tidegate.workloads import ledger

from .operating import Desk


@tg.table(key=("segment", "weight"))
class Road:
    segment: str
    weight: float
    name: str = "none"
    share: float = 0.5
    open: bool = True
    cars: int = 0


@tg.transaction
def every_kind(
    first: Road, many: list[Road], flags: list[bool], last: Road, others: list[Road], by: float, label: str
) -> str:
    """Touches rows, lists of rows, lists of values, keys and columns of every kind."""
    for road, flag in zip(many, flags, strict=True):
        road.open = flag
        road.cars += 1
        road.share = road.weight * by
    for road in others:
        tg.delete(road)
    last.name = label if first.segment == "north" else "elsewhere"
    tg.require(first.cars < 10, "full")
    first.cars += len(many)
    return last.name


@tg.transaction(compiled=False)
def interpreted(first: Road) -> None:
    """Plain Python only."""
    first.name = first.name.upper()


@pytest.fixture(params=[uncompiled, nullcontext], ids=["plain", "compiled"])
def mode(request: pytest.FixtureRequest) -> Any:
    with request.param():
        yield


def account(number: int, balance: int, exists: bool = True) -> dict[str, Any]:
    return {"id": number, "balance": balance, "exists": exists}


def road(segment: str, weight: float, cars: int = 0) -> dict[str, Any]:
    named = {"segment": segment, "weight": weight, "name": "a", "share": 0.25, "open": True}
    return named | {"cars": cars, "exists": True}


@pytest.fixture(scope="module")
def ledger_plan() -> ProgramPlan:
    return build_program(ledger.PROGRAM).plan


@pytest.fixture(scope="module")
def road_plan() -> ProgramPlan:
    return build_program([every_kind, interpreted]).plan


@pytest.mark.usefixtures("mode")
def test_a_transfer_commits_on_its_slots(ledger_plan: ProgramPlan) -> None:
    desk = Desk(ledger_plan, 0, {"src": account(1, 100), "dst": account(2, 0, exists=False)}, {"amount": 30})
    assert desk.outcome(desk.operate(0)) == ("done", (70,))
    assert desk.row("src") == [{"balance": 70, "exists": True}]
    assert desk.row("dst") == [{"balance": 30, "exists": True}]


@pytest.mark.usefixtures("mode")
def test_an_abort_leaves_nothing_behind(ledger_plan: ProgramPlan) -> None:
    desk = Desk(ledger_plan, 0, {"src": account(1, 100), "dst": account(2, 0, exists=False)}, {"amount": 300})
    assert desk.outcome(desk.operate(0)) == ("aborted", "insufficient funds")
    assert desk.row("src") == [{"balance": 100, "exists": True}]
    assert desk.row("dst") == [{"balance": 0, "exists": False}]


@pytest.mark.usefixtures("mode")
def test_what_leaves_64_bits_escapes_and_is_undone(ledger_plan: ProgramPlan) -> None:
    desk = Desk(ledger_plan, 0, {"src": account(1, 100), "dst": account(2, 2**63 - 1)}, {"amount": 30})
    assert desk.operate(0) == ESCAPE
    assert desk.row("src") == [{"balance": 100, "exists": True}]


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("cars", [3, 10])
def test_lists_keys_and_every_kind_of_column(road_plan: ProgramPlan, cars: int) -> None:
    rows = {
        "first": road("north", 1.5, cars),
        "many": [road("east", 2.0, 7), road("west", 3.0, 8)],
        "last": road("south", 1.0),
        "others": [road("old", 9.0, 9)],
    }
    before = {name: Desk(road_plan, 0, rows, {}).row(name) for name in rows}
    desk = Desk(road_plan, 0, rows, {"flags": [False, True], "by": 0.5, "label": "new"})
    outcome = desk.outcome(desk.operate(0))
    if cars == 10:
        assert outcome == ("aborted", "full")
        assert {name: desk.row(name) for name in rows} == before
        return
    assert outcome == ("done", ("new",))
    assert [(found["open"], found["cars"], found["share"]) for found in desk.row("many")] == [
        (False, 8, 1.0),
        (True, 9, 1.5),
    ]
    assert desk.row("others") == [{"name": "none", "share": 0.5, "open": True, "cars": 0, "exists": False}]
    assert desk.row("last")[0]["name"] == "new"
    assert desk.row("first")[0]["cars"] == 5


@pytest.mark.usefixtures("mode")
def test_what_is_not_compiled_and_what_is_unknown_escapes(road_plan: ProgramPlan) -> None:
    desk = Desk(road_plan, 1, {"first": road("north", 1.0)}, {})
    assert desk.operate(1) == ESCAPE
    entry = load(road_plan).operate
    assert entry.function(0, 99, 0, 0) == ESCAPE


def test_an_exception_in_plain_python_is_kept_for_the_caller(ledger_plan: ProgramPlan) -> None:
    with uncompiled():
        desk = Desk(ledger_plan, 0, {"src": account(1, 100), "dst": account(2, 0)}, {"amount": 30})
        entry = load(ledger_plan).operate
        kept = entry.function
        entry.function = lambda *_: 1 // 0
        try:
            with pytest.raises(ZeroDivisionError):
                desk.operate(0)
        finally:
            entry.function = kept


SCRIPT = """\
from tidegate.compiler.program import build_program
from tidegate.engine.generated import load
from tidegate.workloads import ledger
entry = load(build_program(ledger.PROGRAM).plan).operate
assert "address" not in vars(entry)
assert entry.address
print(entry._compiled.cache_hits)
"""


def test_it_is_compiled_when_asked_for_and_kept_on_disk(tmp_path: Path) -> None:
    environment = dict(os.environ, TIDEGATE_CACHE_DIR=str(tmp_path))
    hits = [
        subprocess.run([sys.executable, "-c", SCRIPT], env=environment, check=True, capture_output=True, text=True)
        for _ in range(2)
    ]
    assert [process.stdout.strip() for process in hits] == ["0", "1"]
