"""A small ledger for the tests of the test kit."""

from typing import NamedTuple

import tidegate as tg


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0


@tg.table(key=("branch", "name"))
class Till:
    branch: str
    name: str
    rate: float = 0.5


class Receipt(NamedTuple):
    left: int
    fee: float


@tg.transaction
def transfer(src: Account, dst: Account, amount: int) -> int:
    tg.require(src.balance >= amount, "insufficient funds")
    src.balance -= amount
    dst.balance += amount
    return src.balance


@tg.transaction
def close(src: Account, till: Till) -> Receipt:
    tg.require(src.exists, "no such account")
    fee = src.balance * till.rate
    till.rate = till.rate + fee / 3
    left = src.balance
    tg.delete(src)
    return Receipt(left=left, fee=fee)
