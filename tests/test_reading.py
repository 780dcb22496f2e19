"""`tidegate.read`: the row that an engine would give, from the files alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.compiler.program import build_program
from tidegate.durability.served import stream_applicant
from tidegate.durability.versioned import VersionedEngine


@tg.table(key=("row", "number"))
class Seat:
    row: str
    number: int
    taken: bool = False
    price: float = 1.5


@tg.transaction
def take(seat: Seat, price: float) -> None:
    seat.taken, seat.price = True, price


@tg.transaction
def leave(seat: Seat) -> None:
    tg.delete(seat)


KEYS: list[Any] = [("row B", -7), {"row": "", "number": 2**63 - 1}, ("ü", 0), ("gone", 1), ("never", 1)]


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """A state folder of an engine that was closed, and what the engine said of the keys."""
    path = tmp_path_factory.mktemp("states") / "cinema"
    with tg.Engine([take, leave], directory=path) as engine:
        for key in KEYS[:-1]:
            engine.execute(take, seat=key, price=2.25)
        engine.execute(leave, seat=("gone", 1))
        return path, [engine.read(Seat, key) for key in KEYS]


def test_the_row_is_what_the_engine_reads(state: tuple[Path, list[Any]]) -> None:
    path, expected = state
    assert [tg.read(path, Seat, key) for key in KEYS] == expected
    assert tg.read(str(path), Seat, KEYS[0]) == {"row": "row B", "number": -7, "taken": True, "price": 2.25}
    assert expected[3] is None and expected[4] is None


def test_earlier_versions_and_fields_that_came_later(state: tuple[Path, list[Any]]) -> None:
    path, _ = state
    wider = tg.table(key=("row", "number"))(
        type("Seat", (), {"__annotations__": {**Seat.__annotations__, "note": str}, "note": "none", "price": 1.5})
    )
    assert (tg.read(path, wider, KEYS[0]) or {})["note"] == "none"
    with pytest.raises(tg.RecoveryImpossible, match="there is no version 99"):
        tg.read(path, Seat, KEYS[0], version=99)


def test_beside_a_writer_that_collects(tmp_path: Path) -> None:
    engine = VersionedEngine(build_program([take, leave]), str(tmp_path), keep_versions=1)
    for batch in range(5):
        events = pa.table({"transaction": ["take"], "seat": [{"row": "A", "number": batch}], "price": [float(batch)]})
        engine.process(stream_applicant("q", batch), events, order_by=None, late="run", owner=None)
        assert (tg.read(tmp_path, Seat, ("A", batch)) or {})["price"] == batch


@pytest.mark.parametrize(
    ("table", "key", "expected"),
    [
        (Seat, 7, r"the key is \(row, number\), got 7"),
        (Seat, ("A",), r"the key is \(row, number\)"),
        (Seat, ("A", "7"), "row: str, number: int"),
        (Seat, ("A", None), "never null"),
        (Seat, {"row": "A"}, "never null"),
        (Seat, ("A", 2**64), "row: str, number: int"),
        (int, 1, "required a class declared with @tg.table"),
        ("Seat", 1, "required a class declared with @tg.table"),
    ],
)
def test_a_wrong_key_and_a_wrong_table(state: tuple[Path, list[Any]], table: Any, key: Any, expected: str) -> None:
    with pytest.raises(tg.InputError, match=expected):
        tg.read(state[0], table, key)


def test_a_wrong_path_and_a_table_that_is_not_there(state: tuple[Path, list[Any]], tmp_path: Path) -> None:
    @tg.table(key="id")
    class Account:
        id: int

    with pytest.raises(tg.InputError, match=r"there is no table 'Account' in version 2. This state has: Seat"):
        tg.read(state[0], Account, 1)
    with pytest.raises(tg.RecoveryImpossible, match="there is no state here"):
        tg.read(tmp_path / "nothing", Account, 1)
    for path, version in ((None, None), (tmp_path, "1"), (tmp_path, True)):
        with pytest.raises(tg.InputError, match="required a"):
            tg.read(path, Account, 1, version)  # type: ignore[arg-type]


def test_what_an_open_engine_did_is_not_there_to_be_read(tmp_path: Path) -> None:
    with tg.Engine([take], directory=tmp_path) as engine:
        engine.execute(take, seat=("A", 1), price=1.0)
        with pytest.raises(tg.RecoveryImpossible, match="Or read the newest checkpoint as it is: version 1"):
            tg.read(tmp_path, Seat, ("A", 1))
    assert (tg.read(tmp_path, Seat, ("A", 1)) or {})["taken"]


def test_it_needs_no_spark_and_is_imported_when_it_is_used() -> None:
    code = (
        "import sys, tidegate as tg; assert 'tidegate.reading' not in sys.modules; "
        "tg.read; print('pyspark' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
