"""The smallest bank: what most tests of this folder run."""

from __future__ import annotations

import tidegate as tg


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0


@tg.transaction
def deposit(dst: Account, amount: int) -> int:
    dst.balance += amount
    return dst.balance


@tg.transaction
def withdraw(dst: Account, amount: int) -> int:
    tg.require(dst.balance >= amount, "insufficient funds")
    dst.balance -= amount
    if dst.balance == 0:
        tg.delete(dst)
    return amount
