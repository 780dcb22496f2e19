"""Transactions with `tg.lookup` and `tg.history`, unit-tested as plain functions on given rows."""

from __future__ import annotations

import doctest

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate import testing
from tidegate.api import control
from tidegate.testing import absent, given, plain, rows


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0
    owner: int = 0


@tg.table(key=("shop", "day"))
class Sales:
    shop: str
    day: int
    total: float = 0.0


@tg.transaction(time="ts")
def pay_owner(account: Account, ts: int, amount: int) -> int:
    """Pays to the account that the row names, unless much was paid lately."""
    before = 0
    for state in tg.history(account, last=60):
        before += state.balance
    tg.require(before < 1000, "too much lately")
    owner = tg.lookup(Account, account.owner)
    account.balance -= amount
    owner.balance += amount
    return before


def test_a_lookup_finds_the_given_row_itself() -> None:
    owner = Account(7, balance=5)
    with rows(owner) as found:
        assert pay_owner(Account(1, balance=100, owner=7), ts=10, amount=30) == 0
    assert owner.balance == 35 and found.find(Account, 7) is owner


def test_a_key_that_no_row_has_finds_an_absent_row_which_is_kept() -> None:
    with rows() as found:
        row = tg.lookup(Account, 3)
        assert not tg.exists(row) and row is tg.lookup(Account, 3)
        pay_owner(Account(1, balance=100, owner=3), ts=10, amount=30)
    assert found.find(Account, 3) == Account(3, balance=30) and list(found) == [row]


def test_a_composite_key_is_a_tuple_and_keys_are_converted_as_in_the_engine() -> None:
    sales = Sales("north", 7, total=2.5)
    with rows(sales):
        assert tg.lookup(Sales, ("north", 7)) is sales
        assert not tg.exists(tg.lookup(Sales, ("north", 8)))


def test_histories_are_cut_at_now_and_newest_first() -> None:
    account = Account(1)
    past = [(5, Account(1, 80)), (50, Account(1, 90)), (65, Account(1, 100)), (70, Account(2, 7)), (99, Account(1))]
    with rows(account, history=past, now=66):
        assert [(s.time, s.balance, s.exists) for s in tg.history(account, last=60)] == [
            (65, 100, True),
            (50, 90, True),
        ]
        assert pay_owner(account, ts=66, amount=1) == 190
    with rows(history=past):
        assert [state.time for state in tg.history(Account(1), last=1000)] == [99, 65, 50, 5], "now is the latest time"


def test_the_plain_call_gives_what_the_engine_gives() -> None:
    engine = tg.Engine([pay_owner])
    engine.load(Account, pa.table({"id": [1, 7], "balance": [100, 5], "owner": [7, 0]}))
    outcome = engine.execute(pay_owner, account=1, ts=10, amount=30)
    account, owner = Account(1, 100, 7), Account(7, 5)
    with rows(owner):
        assert pay_owner(account, 10, 30) == outcome.result
    for row in (account, owner):
        assert engine.read(Account, row.id) == {"id": row.id, "balance": row.balance, "owner": row.owner}


def test_an_absent_row_can_be_made_in_two_ways() -> None:
    assert Account(7, exists=False) == absent(Account, 7)
    assert not tg.exists(absent(Account, 7)) and absent(Account, 7) != Account(7)


def test_what_is_no_row_is_refused_with_an_example() -> None:
    for wrong in ({"id": 1}, 7, Account):
        with pytest.raises(TypeError, match=r"rows: required a row .* such as Account\(1"), rows(wrong):
            pass
    for wrong in ([Account(1)], [(1,)], [("5", Account(1))]):
        with pytest.raises(TypeError, match="pairs of a time and a row"), rows(history=wrong):  # type: ignore[arg-type]
            pass
    with pytest.raises(TypeError, match="second of each pair"), rows(history=[(1, 2)]):
        pass
    with pytest.raises(ValueError, match="two rows have the key"), rows(Account(1), Account(1, 5)):
        pass
    with rows(), pytest.raises(TypeError, match=r"the key of Account is \(id\), got 2 values"):
        tg.lookup(Account, (1, 2))


def test_outside_of_the_block_a_lookup_says_what_to_open() -> None:
    with pytest.raises(LookupError, match=r"tg.lookup\(Account, 3\).*with tidegate.testing.rows"):
        tg.lookup(Account, 3)
    with pytest.raises(LookupError, match=r"tg.history.*with tidegate.testing.rows\(history"):
        tg.history(Account(3), last=5)


@pytest.mark.parametrize("module", [given, plain, control])
def test_the_examples_in_docstrings_run(module: object) -> None:
    result = doctest.testmod(module)  # type: ignore[arg-type]
    assert result.attempted and not result.failed


def test_the_kit_names_it() -> None:
    assert {"absent", "rows", "Rows"} <= set(testing.__all__)
