"""The program that the engine is measured against gives what the plain functions give."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tidegate.benchmarks import hand_written
from tidegate.benchmarks.hand_written import HandWrittenLedger
from tidegate.workloads import ledger
from tidegate.workloads.ledger import EventGenerator, LedgerSettings, Truth, verify


@pytest.mark.parametrize("accounts", [1, 3, 100, 5000])
@pytest.mark.parametrize("events", [1, 7, 8, 1001])
def test_it_equals_the_plain_functions(accounts: int, events: int) -> None:
    generator = EventGenerator(LedgerSettings(accounts=accounts, overdraw_ratio=0.3, opening_balance=500))
    opening, batch = generator.opening(), generator.batch(events)
    program = HandWrittenLedger.load(opening, rows_max=accounts)
    outcomes = program.run(batch)
    outcomes.validate(full=True)
    verify(opening, [batch], outcomes, program.state()).require()


def test_accounts_are_opened_on_commit_only() -> None:
    rows = [
        ("transfer", 1, 2, 5, "insufficient funds"),
        ("deposit", None, 3, 5, None),
        ("transfer", 3, 4, 5, None),
        ("deposit", None, 4, 2**63 - 6, None),
        ("transfer", 4, 4, 9, None),
        ("deposit", None, 4, 9, "overflow"),
    ]
    numbers = list(range(len(rows)))
    names, sources, targets, amounts, reasons = (list(column) for column in zip(*rows, strict=True))
    columns = [numbers, numbers, names, sources, targets, amounts]
    batch = pa.table(dict(zip(ledger.ARROW_SCHEMA.names, columns, strict=True)), schema=ledger.ARROW_SCHEMA)
    program = HandWrittenLedger.load(pa.table({"id": [9], "balance": [0]}), rows_max=8)
    outcomes = program.run(batch)
    assert outcomes["reason"].to_pylist() == reasons
    assert program.state()["id"].to_pylist() == [3, 4, 9]
    truth = Truth(pa.table({"id": [9], "balance": [0]}))
    assert truth.run(batch)["result"].to_pylist() == outcomes["result"].to_pylist()


def test_a_null_key_and_an_unknown_name_are_outcomes() -> None:
    batch = pa.table(
        {"event": [0, 1], "ts": [0, 1], "transaction": ["transfer", "steal"], "src": [None, 1], "dst": [1, 1],
         "amount": [1, 1]},
        schema=ledger.ARROW_SCHEMA,
    )  # fmt: skip
    outcomes = HandWrittenLedger.load(pa.table({"id": [1], "balance": [5]}), rows_max=4).run(batch)
    assert outcomes["reason"].to_pylist() == ["null key in column 'src'", "unknown transaction"]


def test_the_loop_over_resolved_rows_gives_the_same_balances() -> None:
    generator = EventGenerator(LedgerSettings(accounts=200, overdraw_ratio=0.2))
    opening, batch = generator.opening(), generator.batch(3000)
    whole, resolved = (HandWrittenLedger.load(opening, rows_max=200) for _ in range(2))
    outcomes = whole.run(batch)
    committed, result = resolved.run_resolved(resolved.resolve(batch))
    assert np.array_equal(committed, outcomes["committed"].to_numpy())
    assert np.array_equal(result[committed], outcomes["result"].drop_null().to_numpy())
    assert resolved.state().equals(whole.state())


def test_kernels_run_as_plain_python_too(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = EventGenerator(LedgerSettings(accounts=20, overdraw_ratio=0.2))
    opening, batch = generator.opening(), generator.batch(200)
    compiled = HandWrittenLedger.load(opening, rows_max=20)
    wanted = compiled.run(batch)
    kernels = [name for name, value in vars(hand_written).items() if hasattr(value, "py_func")]
    assert len(kernels) >= 8
    for name in kernels:
        monkeypatch.setattr(hand_written, name, getattr(hand_written, name).py_func)
    with np.errstate(over="ignore"):  # the hash wraps around, as it does in machine code
        plain = HandWrittenLedger.load(opening, rows_max=20)
        assert plain.run(batch).equals(wanted)
    assert plain.state().equals(compiled.state())
