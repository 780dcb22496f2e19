"""Values that users pass by mistake, and what a public function must do with each: take it, or say what it required.

A refusal is an error of Tidegate, or a TypeError, ValueError or LookupError that a `raise` of ours made. Anything else
(an AttributeError, an AssertionError, the `TypeError: '<' not supported` of some inner line) is a riddle.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

import tidegate as tg

PACKAGE = Path(tg.__file__).parent


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0


@tg.table(key=("shop", "day"))
class Sales:
    shop: str
    day: int
    total: float = 0.0


@tg.transaction
def deposit(dst: Account, amount: int) -> int:
    dst.balance += amount
    return dst.balance


@tg.transaction
def sell(sales: Sales, price: float, item: str) -> None:
    sales.total += price


@tg.transaction
def share(accounts: list[Account], amounts: list[int]) -> None:
    for account in accounts:
        account.balance += amounts[0]


booked = tg.stream("booked", amount=int)
passed = tg.stream("passed", amount=int)
recent = tg.window(booked, rows=2)


@tg.transaction(on=booked, emits=[passed])
def check(amount: int) -> None:
    tg.emit(passed, amount=amount)


flow = tg.dataflow([check])


class NoTable:
    pass


def no_transaction() -> None:
    pass


EVENT = {"dst": 1, "amount": 2}

VALUES: dict[str, Any] = {
    "pandas": pd.DataFrame([EVENT]),
    "arrow": pa.table({"dst": [1], "amount": [2]}),
    "record batch": pa.RecordBatch.from_pylist([EVENT]),
    "dicts": [EVENT],
    "dict of lists": {"dst": [1], "amount": [2]},
    "Path": Path("folder"),
    "text": "text",
    "empty text": "",
    "bytes": b"bytes",
    "one": 1,
    "zero": 0,
    "negative": -1,
    "huge": 1 << 70,
    "float": 1.5,
    "NaN": math.nan,
    "bool": True,
    "None": None,
    "class": NoTable,
    "object": NoTable(),
    "function": no_transaction,
    "lambda": lambda: 1,
    "empty list": [],
    "empty tuple": (),
    "empty dict": {},
    "[None]": [None],
    "['text']": ["text"],
    "{'a': 1}": {"a": 1},
    "table": Account,
    "row": Account(1),
    "transaction": deposit,
    "stream": booked,
    "window": recent,
    "dataflow": flow,
}

Call = Callable[[Any], Any]


def answers(call: Call) -> tuple[set[str], list[str]]:
    """The names of the values that a call takes, and those that it refuses in no words of ours, with the error."""
    taken, riddles = set(), []
    for name, value in VALUES.items():
        try:
            call(value)
        except Exception as error:
            if not _is_told(error):
                riddles.append(f"{name}: {type(error).__name__}: {error}")
        else:
            taken.add(name)
    return taken, riddles


def _is_told(error: Exception) -> bool:
    if isinstance(error, tg.TidegateError):
        return len(str(error)) > 10
    if not isinstance(error, TypeError | ValueError | LookupError | tg.Abort):
        return False
    raised = traceback.extract_tb(error.__traceback__)[-1]
    line = linecache_text(raised)
    return Path(raised.filename).is_relative_to(PACKAGE) and "raise " in line


def linecache_text(frame: traceback.FrameSummary) -> str:
    """The whole statement that a frame stands at."""
    lines = Path(frame.filename).read_text(encoding="utf-8").splitlines() if Path(frame.filename).exists() else []
    return " ".join(lines[(frame.lineno or 1) - 1 : (frame.end_lineno or frame.lineno or 1)])
