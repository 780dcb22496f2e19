"""Tables with keys and fields of every type, and a transaction that takes arguments of every type."""

from __future__ import annotations

import tidegate as tg


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0
    rate: float = 0.0
    open: bool = False
    note: str = ""


@tg.table(key=("region", "day", "price"))
class Sale:
    region: str
    day: int
    price: float
    count: int = 0


@tg.transaction
def change(account: Account, amount: int, rate: float, opened: bool, note: str) -> int:
    account.balance += amount
    account.rate = rate
    account.open = opened
    account.note = note
    return account.balance
