"""What type checkers must find: every line that says `mistake`, and no other. It is never run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import tidegate as tg


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0


@tg.transaction
def transfer(src: Account, dst: Account, amount: int) -> int:
    tg.reqire(src.balance >= amount, "insufficient funds")  # mistake: no such name
    src.balance -= amount
    dst.balanse += amount  # mistake: no such field
    return src.balance


@tg.transaction(compiled=False)
def rename(row: Account, name: str) -> None:
    row.balance = name  # mistake: a str in an int field


payments = tg.stream("payments", payer=Account, amount=int)
recent = tg.window(payments, rows=10)


@tg.trigger(on=recent)
def watch(payer: Account, rows: Annotated[tg.WindowRows, recent]) -> str:
    if rows.slides:  # mistake: it is called slid
        payer.balance = 0
    return rows.sum("amount")  # mistake: a sum is an int


def use(call: Callable[[Account, Account, int], int]) -> int:
    return call(Account(1), Account(2), 3)


one, other = Account(1, balance=10), Account(2)
use(transfer)
use(rename)  # mistake: other parameters
transfer(one, other, "ten")  # mistake: a str for an int
transfer(one, other)  # mistake: an argument is missing
transfer(one, other, amonut=10)  # mistake: no such parameter
total: str = transfer(one, other, 10)  # mistake: the result is an int
rename(one, name=7)  # mistake: an int for a str
watch(one, [])  # mistake: a list is no window
Account(1, balance="ten")  # mistake: a str in an int field
tg.lookup(Account, 7).balanse = 5  # mistake: no such field
tg.Engine([transfer, Account])  # mistake: a table is no transaction
tg.Engine(transfer, workers="two")  # mistake: a str for an int
tg.Engine(transfer, keep_versions="all")  # mistake: a str for an int
tg.Engine(transfer).execute(Account)  # mistake: a table is no transaction
tg.dataflow([payments])  # mistake: a stream is no transaction
