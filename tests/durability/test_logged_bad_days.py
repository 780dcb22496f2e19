"""Engines on a directory when something else goes wrong: what each of these tests shows once lost data, or hung."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.foundation.jit import uncompiled
from tidegate.foundation.storage import LocalStorage


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0


@tg.transaction
def deposit(dst: Account, amount: int) -> int:
    dst.balance += amount
    return dst.balance


orders = tg.stream("orders", account=Account, amount=int)
bills = tg.stream("bills", account=int, amount=int)


@tg.transaction(on=orders, emits=[bills])
def pack(account: Account, amount: int) -> None:
    account.balance += amount
    tg.emit(bills, account=account.id, amount=amount)


@tg.transaction(on=orders, emits=[bills], compiled=False)
def pack_slowly(account: Account, amount: int) -> None:
    account.balance += amount
    tg.emit(bills, account=account.id, amount=amount)


@pytest.fixture(autouse=True)
def plain_python() -> Iterator[None]:
    with uncompiled():
        yield


def engine(path: Path | str, program: Any = deposit, **options: Any) -> tg.Engine:
    return tg.Engine(program, directory=str(path), **options)


def abandoned(opened: tg.Engine) -> None:
    """The end of a process, played: nothing is written any more, the lock is gone."""
    assert opened._kept is not None
    opened._kept._join()
    opened._kept._let_go()


def checkpoint(opened: tg.Engine) -> None:
    assert opened._kept is not None
    opened._kept.checkpoint()


def balances(opened: tg.Engine) -> dict[int, int]:
    rows = opened.scan(Account)
    return dict(zip(rows["id"].to_pylist(), rows["balance"].to_pylist(), strict=True))


def failing(monkeypatch: pytest.MonkeyPatch, error: type[Exception], *, after: bool) -> None:
    """New segments of the log fail: before anything happened, or when nobody knows."""
    write = LocalStorage.write

    def refuse(self: LocalStorage, name: str, parts: Any, *, exclusive: bool) -> None:
        if not name.endswith(".log") or after:
            write(self, name, parts, exclusive=exclusive)
        if name.endswith(".log"):
            raise error("played")

    monkeypatch.setattr(LocalStorage, "write", refuse)


# --- dataflow graphs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sync", ["group", "always"])
def test_graphs_in_plain_python_have_strong_recovery_too(tmp_path: Path, sync: str) -> None:
    program = tg.dataflow([pack_slowly])
    opened = engine(tmp_path, program, recovery="strong", sync=sync)
    opened.run(pa.table({"account": [1, 2], "amount": [5, 7]}))
    abandoned(opened)
    with engine(tmp_path, program, recovery="strong", sync=sync) as again:
        assert balances(again) == {1: 5, 2: 7}
        assert again.take(bills)["amount"].to_pylist() == [5, 7]
