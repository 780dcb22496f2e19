"""Accounts and assets, with the transactions on them that tests of several packages share."""

from __future__ import annotations

import tidegate as tg


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0
    notes: int = 0
    rate: float = 1.0


@tg.table(key="id")
class Asset:
    id: int
    amount: int = 0


@tg.transaction
def deposit(dst: Account, value: int) -> int:
    dst.balance += value
    return dst.balance


@tg.transaction
def transfer(src: Account, dst: Account, value: int) -> int:
    tg.require(src.balance >= value, "insufficient funds")
    src.balance -= value
    dst.balance += value
    return src.balance


@tg.transaction
def swap(src: Account, dst: Account, have: Asset, want: Asset, value: int, count: int) -> int:
    """Writes four rows of two tables before it checks any of them."""
    src.balance -= value
    dst.balance += value
    have.amount -= count
    want.amount += count
    tg.require(src.balance >= 0, "insufficient funds")
    tg.require(have.amount >= 0, "insufficient assets")
    return want.amount


@tg.transaction
def close(src: Account, dst: Account) -> int:
    """Deletes a row. Divides by zero after it has written, if the balance is a multiple of five."""
    tg.require(src.exists, "no such account")
    dst.balance += src.balance
    dst.notes = dst.notes + 100 // (src.balance % 5)
    dst.rate = dst.rate / (1 + src.notes)
    tg.delete(src)
    return dst.notes


@tg.transaction
def collect(dst: Account, others: list[Account], value: int) -> int:
    """The list may hold a row twice, or the target, or nothing."""
    for other in others:
        tg.require(other.balance >= value, "a poor one")
        other.balance -= value
        dst.balance += value
    return dst.balance


@tg.transaction
def multiply(dst: Account, value: int) -> int:
    """Leaves 64 bits if the value is large: then it runs as plain Python."""
    dst.balance = dst.balance * value
    return dst.balance
