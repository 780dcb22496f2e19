"""A declared transaction stays the function that the user wrote."""

from __future__ import annotations

import inspect
from typing import NamedTuple

import pytest

import tidegate as tg


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0


class Receipt(NamedTuple):
    source: int
    target: int


@tg.transaction
def transfer(src: Account, dst: Account, amount: int) -> Receipt:
    """Moves an amount."""
    tg.require(src.balance >= amount, "insufficient funds")
    src.balance -= amount
    dst.balance += amount
    return Receipt(src.balance, dst.balance)


@tg.transaction(compiled=False)
def rename(src: Account, label: str) -> str:
    return f"{label.upper()} {src.id}"


def test_it_keeps_name_docstring_and_signature() -> None:
    assert transfer.__name__ == "transfer"
    assert transfer.__doc__ == "Moves an amount."
    assert transfer.__module__ == __name__
    assert list(inspect.signature(transfer).parameters) == ["src", "dst", "amount"]
    assert inspect.signature(transfer).parameters["amount"].annotation == "int"


def test_it_is_callable_as_plain_python_on_plain_rows() -> None:
    src, dst = Account(1, 100), Account(2, exists=False)
    assert transfer(src, dst, amount=30) == Receipt(70, 30)
    assert (src.balance, dst.balance, dst.exists) == (70, 30, True)


def test_require_raises_abort_with_the_reason() -> None:
    src = Account(1, 10)
    with pytest.raises(tg.Abort) as abort:
        transfer(src, Account(2), 30)
    assert str(abort.value) == "insufficient funds"
    assert abort.value.reason == "insufficient funds"
    assert src.balance == 10


def test_abort_is_an_exception_and_no_error_of_tidegates() -> None:
    with pytest.raises(tg.Abort, match="stop"):
        tg.abort("stop")
    assert not issubclass(tg.Abort, tg.TidegateError)


def test_require_takes_the_truth_of_anything() -> None:
    tg.require(3, "never")
    tg.require("text", "never")
    with pytest.raises(tg.Abort):
        tg.require(0, "zero")


def test_overflow_aborts_in_plain_python_as_well() -> None:
    with pytest.raises(tg.Abort, match="overflow"):
        transfer(Account(1, 5), Account(2, 2**63 - 1), 5)


def test_an_interpreted_transaction_may_use_any_python() -> None:
    assert rename(Account(3), "abc") == "ABC 3"


def test_a_transaction_declared_inside_a_function_sees_its_closure() -> None:
    def make(limit: int) -> object:
        @tg.transaction
        def check(src: Account) -> int:
            tg.require(src.balance <= limit, "above the limit")
            src.balance = limit
            return limit

        return check

    with pytest.raises(tg.Abort, match="above the limit"):
        make(5)(Account(1, 6))
    row = Account(1, 6)
    assert make(7)(row) == 7
    assert row.balance == 7


def test_it_decorates_functions_only() -> None:
    with pytest.raises(tg.DefinitionError, match="function"):
        tg.transaction(3)
    with pytest.raises(tg.DefinitionError, match="function"):
        tg.transaction(Account)


def test_a_transaction_shows_itself() -> None:
    assert "transfer" in repr(transfer)
