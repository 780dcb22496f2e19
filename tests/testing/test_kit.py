"""The public kit: it agrees with the engine, it notices when something differs, and crashes change nothing."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.testing import (
    CRASH,
    CRASH_BEFORE_COMMIT,
    EventSource,
    PlainProgram,
    assert_same_as_plain,
    run_source,
)

from .ledger_program import Account, Receipt, Till, close, transfer

PROGRAM = [transfer, close]
OPENING = {Account: pa.table({"id": [1, 2, 3], "balance": [100, 7, 0]})}
SCHEMA = pa.schema(
    [
        ("ts", pa.int64()),
        ("transaction", pa.string()),
        ("src", pa.int64()),
        ("dst", pa.int64()),
        ("amount", pa.int64()),
        ("till", pa.struct([("branch", pa.string()), ("name", pa.string())])),
    ]
)
TILL = {"branch": "north", "name": "a"}


def events(*rows: tuple[Any, ...]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


FIRST = events(
    (2, "transfer", 1, 2, 30, None),
    (1, "transfer", 1, 2, 80, None),
    (3, "transfer", None, 2, 1, None),
    (4, "nothing", 1, 2, 1, None),
    (None, "transfer", 1, 2, 1, None),
)
SECOND = events((5, "close", 2, None, None, TILL), (6, "transfer", 2, 2, 1, None), (7, "close", 2, None, None, TILL))
THIRD = events((8, "transfer", 1, 1, 2**62, None), (8, "transfer", 1, 3, 5, None))


@pytest.mark.parametrize("order_by", [None, "ts"])
def test_a_right_program_passes(order_by: str | None) -> None:
    assert_same_as_plain(PROGRAM, [FIRST, SECOND, THIRD], initial=OPENING, order_by=order_by)


def test_a_difference_is_shown_with_its_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "__wrapped__", lambda src, dst, amount: amount)
    with pytest.raises(AssertionError, match=r"(?s)event 0 .*plain functions: .*engine: "):
        assert_same_as_plain(PROGRAM, [FIRST], initial=OPENING)


def test_plain_functions_give_outcomes_results_and_rows() -> None:
    plain = PlainProgram(PROGRAM, OPENING)
    outcomes = plain.run(FIRST, "ts")
    assert [(o.committed, o.reason) for o in outcomes] == [
        (False, "insufficient funds"),
        (True, None),
        (False, "null key in column 'src'"),
        (False, "unknown transaction 'nothing'"),
        (False, "null in order column 'ts'"),
    ]
    assert outcomes[1].result == 20
    assert plain.run(SECOND)[0].result == dataclasses.asdict(_receipt(87, 43.5))
    assert plain.rows(Account) == [{"id": 1, "balance": 20}, {"id": 3, "balance": 0}]
    assert plain.rows(Till) == [{"branch": "north", "name": "a", "rate": 15.0}]


def _receipt(left: int, fee: float) -> Any:
    return dataclasses.make_dataclass("Expected", ["left", "fee"])(**Receipt(left, fee)._asdict())


@pytest.mark.parametrize("crashes", [[CRASH], [CRASH_BEFORE_COMMIT], [CRASH, CRASH_BEFORE_COMMIT, CRASH]])
def test_crashes_change_nothing(tmp_path: Path, crashes: list[Any]) -> None:
    calm = run_source(PROGRAM, EventSource([FIRST, SECOND, THIRD]), state=str(tmp_path / "calm"), order_by="ts")
    source = EventSource([FIRST, *crashes, SECOND, *crashes, THIRD, *crashes])
    torn = run_source(PROGRAM, source, state=str(tmp_path / "torn"), order_by="ts")
    assert torn.outcomes == calm.outcomes
    for table in (Account, Till):
        assert torn.rows(table).equals(calm.rows(table))


def test_a_crash_before_any_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="behind the batch"):
        EventSource([CRASH, FIRST])


def test_ties_keep_the_order_of_the_first_execution_when_a_batch_is_replayed_in_another(tmp_path: Path) -> None:
    """The second deposit overdraws unless the first order is kept."""
    from tidegate.compiler.program import build_program
    from tidegate.durability.ownership import process_token
    from tidegate.durability.served import stream_applicant
    from tidegate.durability.version_info import Owner
    from tidegate.durability.versioned import VersionedEngine

    program = build_program([transfer])
    owner = Owner("q", "test", process_token())
    opening = {"Account": pa.table({"id": [1, 2], "balance": [10, 0]})}
    VersionedEngine(program, str(tmp_path)).initialise(opening)
    batch = events((1, "transfer", 1, 2, 10, None), (1, "transfer", 2, 1, 10, None), (1, "transfer", 1, 2, 4, None))
    shuffled = batch.take(pa.array([2, 1, 0]))

    def run(table: pa.Table) -> dict[Any, Any]:
        engine = VersionedEngine(program, str(tmp_path))
        got = engine.process(stream_applicant("q", 0), table, order_by="ts", late="run", owner=owner)
        return {(r["src"], r["amount"]): (r["committed"], r["result"]) for r in got.to_pylist()}

    assert run(batch) == run(shuffled) == {(1, 10): (True, 0), (2, 10): (True, 0), (1, 4): (True, 6)}
    with pytest.raises(tg.RecoveryImpossible, match="does not come out the same"):
        run(batch.slice(0, 2))
