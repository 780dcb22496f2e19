"""The form of the column `result`: by type, always a struct, or JSON text."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.embedding import Engine  # at once: what is first imported where nothing is compiled, stays so
from tidegate.engine.results import encoded

pytestmark = pytest.mark.usefixtures("plainly")


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0


class Review(NamedTuple):
    score: float
    note: str


@tg.transaction
def deposit(dst: Account, amount: int) -> int:
    tg.require(amount > 0, "no amount")
    dst.balance += amount
    return dst.balance


@tg.transaction
def withdraw(dst: Account, amount: int) -> int:
    dst.balance -= amount
    return dst.balance


@tg.transaction
def review(dst: Account, amount: int) -> Review:
    return Review(amount / 2, "fine")


@tg.transaction
def forget(dst: Account) -> None:
    tg.delete(dst)


def events(*names: str) -> pa.Table:
    amounts = [0 if name == "none" else 5 for name in names]
    named = [name if name != "none" else "deposit" for name in names]
    return pa.table({"transaction": named, "dst": [1] * len(names), "amount": amounts})


def results(program: list[Any], form: Any, *names: str) -> pa.ChunkedArray:
    with Engine(program, result=form) as engine:
        return engine.run(events(*names))["result"]


INT, REVIEW = pa.int64(), pa.struct([("score", pa.float64()), ("note", pa.string())])


def test_auto_is_a_plain_column_until_types_differ() -> None:
    assert results([deposit, withdraw], "auto", "deposit").type == INT
    assert results([deposit, review], "auto", "deposit").type == pa.struct([("deposit", INT), ("review", REVIEW)])


def test_struct_has_a_field_for_each_transaction_whatever_they_return() -> None:
    alone = results([deposit], "struct", "deposit", "none")
    assert alone.type == pa.struct([("deposit", INT)]) and alone.to_pylist() == [{"deposit": 5}, None]
    both = results([deposit, withdraw, forget], "struct", "deposit", "withdraw", "forget")
    assert both.type == pa.struct([("deposit", INT), ("withdraw", INT)])
    assert both.to_pylist() == [{"deposit": 5, "withdraw": None}, {"deposit": None, "withdraw": 0}, None]


def test_struct_without_any_result_is_refused() -> None:
    with pytest.raises(tg.DefinitionError, match=r'needs a transaction that returns a value.*"json"'):
        Engine([forget], result="struct")


def test_json_is_text_whatever_they_return() -> None:
    for program in ([deposit], [deposit, withdraw], [deposit, review, forget]):
        found = results(program, "json", *(each.__name__ for each in program), "none")
        assert found.type == pa.string() and found[len(program)].as_py() is None
        assert json.loads(found[0].as_py()) == 5
    assert found.to_pylist()[1:3] == ['{"score": 2.5, "note": "fine"}', None]


def test_a_single_call_returns_the_value_itself() -> None:
    for form in ("auto", "struct", "json"):
        with Engine([deposit, review], result=form, record=True) as engine:  # type: ignore[arg-type]
            assert engine.execute(deposit, dst=1, amount=7).result == 7
            assert engine.execute(review, dst=1, amount=7).result == {"score": 3.5, "note": "fine"}


def test_the_form_changes_no_code() -> None:
    plans = []
    for form in ("auto", "struct", "json"):
        with Engine([deposit, withdraw], result=form) as engine:  # type: ignore[arg-type]
            plans.append((engine._program.plan.source, engine._program.plan.result_arrays))
    assert plans[0] == plans[1] == plans[2]


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(tg.DefinitionError, match=r"result.*'auto', 'struct', 'json'.*'text'"):
        Engine([deposit], result="text")  # type: ignore[arg-type]


MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=datetime.UTC)

VALUES = {
    "float": (pa.array([0.1]), "0.1"),
    "infinity": (pa.array([float("inf")]), "Infinity"),
    "bool": (pa.array([True]), "true"),
    "text": (pa.array(['a "b"']), r'"a \"b\""'),
    "list": (pa.array([[1, None]]), "[1, null]"),
    "timestamp": (pa.array([MOMENT]), json.dumps(MOMENT.isoformat())),
    "date": (pa.array([datetime.date(2026, 1, 2)]), '"2026-01-02"'),
    "duration": (pa.array([datetime.timedelta(seconds=2)]), "2000000"),
    "decimal": (pa.array([decimal.Decimal("1.20")]), '"1.20"'),
    "bytes": (pa.array([b"\xff"]), json.dumps(base64.b64encode(b"\xff").decode())),
}


@pytest.mark.parametrize(("column", "text"), VALUES.values(), ids=VALUES)
def test_values_that_json_has_no_type_for(column: pa.Array, text: str) -> None:
    with Engine([deposit], result="json") as engine:
        assert encoded(engine._program.plan, pa.table({"result": column}))["result"].to_pylist() == [text]
