"""A name from outside a body that changes after the declaration is refused: plain function and engine would differ."""

from __future__ import annotations

import dataclasses
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.compiler.program import build_program
from tidegate.testing import PlainProgram

EVENTS = pa.table({"dst": [1], "amount": [70]})


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0


SOURCE = """
import tidegate as tg
from accounts_of_outside import Account, config

LIMIT = 100

def fee(amount):
    return amount // RATE

RATE = 10

class Settings:
    most = 5

@tg.transaction
def pay(dst: Account, amount: int) -> int:
    tg.require(amount <= LIMIT, "too much")
    dst.balance += amount - fee(amount) + config.BONUS + Settings.most
    return dst.balance
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A user's module, loaded from a file, and another one that it takes constants from."""
    others: Any = types.ModuleType("accounts_of_outside")
    others.Account, others.config = Account, types.ModuleType("config")
    others.config.BONUS = 1
    monkeypatch.setitem(sys.modules, "accounts_of_outside", others)
    file = tmp_path / "shop.py"
    file.write_text(SOURCE)
    module: Any = types.ModuleType("shop")
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "shop", module)
    exec(compile(SOURCE, str(file), "exec"), module.__dict__)
    yield module


CHANGES = {
    "a constant of the module": ("LIMIT", 50, r"shop.py:17: transaction 'pay': LIMIT was 100 .*, and is 50 now"),
    "another type of the same value": ("LIMIT", 100.0, "LIMIT was 100 .* is 100.0 now"),
    "a constant in a helper": ("RATE", 20, "helper 'fee' of transaction 'pay': RATE was 10 .* is 20 now"),
    "a constant of another module": ("config.BONUS", 2, "config.BONUS was 1 .* is 2 now"),
    "a constant of a class": ("Settings.most", 6, "Settings.most was 5 .* is 6 now"),
    "a helper": ("fee", lambda amount: 0, r"fee was fee\(\) of .*shop.py:7 .* is <lambda>\(\) of"),
    "a verb": ("tg", types.ModuleType("tg"), r"tg.require was require\(\) of .* is not defined now"),
}


@pytest.mark.parametrize(("name", "value", "message"), CHANGES.values(), ids=CHANGES)
def test_a_name_that_changed_after_the_declaration_is_refused(shop: Any, name: str, value: Any, message: str) -> None:
    *owners, last = name.split(".")
    owner = shop
    for part in owners:
        owner = getattr(owner, part)
    setattr(owner, last, value)
    for take in (lambda: tg.Engine([shop.pay]), lambda: build_program([shop.pay]), lambda: PlainProgram([shop.pay])):
        with pytest.raises(tg.DefinitionError, match=f"(?s){message}.*declare the transaction"):
            take()


def test_a_constant_that_is_gone_is_refused(shop: Any) -> None:
    del shop.LIMIT
    with pytest.raises(tg.DefinitionError, match=r"LIMIT was 100 .* is not defined now"):
        tg.Engine([shop.pay])


def test_a_constant_that_changes_under_a_running_engine_is_refused_at_the_next_batch(shop: Any) -> None:
    engine = tg.Engine([shop.pay])
    assert engine.run(EVENTS)["result"].to_pylist() == [69]
    shop.LIMIT = 50
    with pytest.raises(tg.DefinitionError, match=r"(?s)LIMIT was 100 .* is 50 now.*pass it as a parameter"):
        engine.run(EVENTS)
    shop.LIMIT = 100
    assert engine.run(EVENTS)["result"].to_pylist() == [138]


def test_what_nobody_reads_may_change(shop: Any) -> None:
    shop.UNUSED = shop.amount = 1  # amount is a parameter: the body never sees the module's
    assert tg.Engine([shop.pay]).run(EVENTS)["committed"].to_pylist() == [True]


def test_a_cell_that_runs_again_unchanged_is_no_change(shop: Any) -> None:
    pay = shop.pay
    exec(compile(SOURCE, shop.__file__, "exec"), shop.__dict__)
    assert shop.pay is not pay
    assert tg.Engine([pay]).run(EVENTS)["committed"].to_pylist() == [True]


def test_a_variable_of_an_enclosing_function_is_compared_too() -> None:
    limit = 100

    @tg.transaction
    def pay(dst: Account, amount: int) -> None:
        tg.require(amount <= limit, "too much")
        dst.balance += amount

    tg.Engine([pay])
    limit = 50
    with pytest.raises(tg.DefinitionError, match=r"limit was 100 .* is 50 now"):
        tg.Engine([pay])


def test_a_transaction_in_plain_python_reads_names_when_it_runs(shop: Any) -> None:
    @tg.transaction(compiled=False)
    def pay(dst: Account, amount: int) -> None:
        tg.require(amount <= shop.LIMIT, "too much")

    engine = tg.Engine([pay])
    shop.LIMIT = 50
    assert engine.run(EVENTS)["reason"].to_pylist() == ["too much"]


def test_names_do_not_travel_with_the_plan(shop: Any) -> None:
    assert shop.pay.outside
    assert "outside" not in {field.name for field in dataclasses.fields(shop.pay.plan)}
