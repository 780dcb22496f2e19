"""A compiled program with the types of the standard library: on every strategy, what the plain functions give."""

from __future__ import annotations

import enum
import random
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
import pytest

import tidegate as tg

Money = Annotated[Decimal, tg.digits(18, 2)]
Instant = Annotated[datetime, UTC]


class Status(enum.Enum):
    OPEN = "open"
    PAID = "paid"
    LATE = "late"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


VAT = Decimal("0.19")


@tg.table(key="id")
class Invoice:
    id: uuid.UUID
    total: Money = Decimal("0.00")
    due: date = date(2026, 1, 1)
    at: Instant | None = None
    status: Status = Status.OPEN
    level: Level = Level.LOW
    kind: Literal["b2b", "b2c"] = "b2b"
    grace: timedelta = timedelta(days=14)
    payload: bytes = b""
    note: str | None = None
    count: int | None = None


@tg.table(key="name")
class Clerk:
    name: str
    bonus: Money | None = None


@tg.transaction
def bill(inv: Invoice, clerk: Clerk, amount: Money, due: date, note: str | None, n: int | None, level: Level) -> Money:
    tg.require(inv.status == Status.OPEN, "not open")
    inv.total += amount
    inv.due = due
    if note is not None:
        inv.note = note
    inv.count = None if n is None else (inv.count if inv.count is not None else 0) + n
    inv.level = level
    if amount > 500:
        clerk.bonus = round(amount * VAT, 2) if clerk.bonus is None else clerk.bonus + 1
    return inv.total


@tg.transaction
def tax(inv: Invoice, payload: bytes) -> Money:
    charged = round(inv.total * VAT, 2)
    inv.total += charged
    inv.payload = max(payload, inv.payload)
    tg.require(inv.total < 10_000, "too much")
    return charged


@tg.transaction
def pay(inv: Invoice, at: Instant, on: date) -> timedelta | None:
    inv.status = Status.LATE if on > inv.due + inv.grace else Status.PAID
    if inv.level is Level.HIGH:
        inv.status = Status.OPEN
        inv.kind = "b2c"
    before = inv.at
    inv.at = at
    return None if before is None else at - before


PROGRAM: list[tg.Transaction] = [bill, tax, pay]
SCHEMA = pa.schema(
    [
        ("transaction", pa.string()),
        ("inv", pa.string()),
        ("clerk", pa.string()),
        ("amount", pa.decimal128(18, 2)),
        ("due", pa.date32()),
        ("note", pa.string()),
        ("n", pa.int64()),
        ("level", pa.int64()),
        ("payload", pa.binary()),
        ("at", pa.timestamp("us", "Europe/Berlin")),
        ("on", pa.date32()),
    ]
)


@cache
def events(count: int = 600) -> pa.Table:
    chance = random.Random(7)
    ids = [str(uuid.UUID(int=chance.randrange(1 << 128))) for _ in range(40)]

    def event() -> dict[str, Any]:
        return {
            "transaction": chance.choice(["bill", "bill", "tax", "pay"]),
            "inv": chance.choice(ids),
            "clerk": chance.choice(["ann", "bob", "é"]),
            "amount": Decimal(chance.randrange(-(10**5), 10**6)).scaleb(-2),
            "due": date(2026, 1, 1) + timedelta(days=chance.randrange(400)),
            "note": chance.choice([None, "", "x"]),
            "n": chance.choice([None, 1, 2]),
            "level": chance.choice([1, 1, 2, 3]),
            "payload": chance.choice([b"", b"\xff", b"a\x00b"]),
            "at": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=chance.randrange(10**15)),
            "on": date(2026, 1, 1) + timedelta(days=chance.randrange(500)),
        }

    return pa.Table.from_pylist([event() for _ in range(count)], SCHEMA)


@cache
def expected() -> tuple[list[tuple[bool, str | None, Any]], dict[uuid.UUID, Any], dict[str, Any]]:
    """Outcomes and rows by the plain functions, one by one; copies of rows undo an abort."""
    invoices: dict[uuid.UUID, Any] = {}
    clerks: dict[str, Any] = {}
    outcomes: list[tuple[bool, str | None, Any]] = []
    for event in events().to_pylist():
        if event["transaction"] == "bill" and event["level"] == 3:
            outcomes.append((False, "no Level in column 'level'", None))
            continue
        key = uuid.UUID(event["inv"])
        invoice = invoices.setdefault(key, Invoice(key, exists=False))  # type: ignore[call-arg]
        clerk = clerks.setdefault(event["clerk"], Clerk(event["clerk"], exists=False))  # type: ignore[call-arg]
        before = dict(invoice.__dict__), dict(clerk.__dict__)
        try:
            if event["transaction"] == "bill":
                rest = (event[name] for name in ("amount", "due", "note", "n"))
                result: Any = bill(invoice, clerk, *rest, Level(event["level"]))
            elif event["transaction"] == "tax":
                result = tax(invoice, event["payload"])
            else:
                result = pay(invoice, event["at"].astimezone(UTC), event["on"])
            outcomes.append((True, None, result))
        except tg.Abort as aborted:
            invoice.__dict__.update(before[0])
            clerk.__dict__.update(before[1])
            outcomes.append((False, aborted.reason, None))
    return outcomes, invoices, clerks


def require_right(engine: tg.Engine, outcomes: pa.Table) -> None:
    wanted, invoices, clerks = expected()
    names = events().column("transaction").to_pylist()
    found = [
        (row["committed"], row["reason"], row["result"] and row["result"][name])
        for name, row in zip(names, outcomes.select(["committed", "reason", "result"]).to_pylist(), strict=True)
    ]
    assert found == wanted
    for table, rows in ((Invoice, invoices), (Clerk, clerks)):
        for key, row in rows.items():
            fields = engine.read(table, key)
            assert fields == ({name: getattr(row, name) for name in fields} if fields and row.exists else None)


@pytest.mark.parametrize(
    ("strategy", "workers"),
    [
        ("serial", 1),
        ("lock", 2),
        ("adaptive", 3),
        (tg.Decision("ns", "operation", "eager"), 2),
    ],
    ids=str,
)
def test_every_strategy_gives_what_the_plain_functions_give(strategy: Any, workers: int) -> None:
    reasons = {reason for _, reason, _ in expected()[0]}
    assert reasons == {None, "not open", "too much", "no Level in column 'level'"}, "the events meet every case"
    engine = tg.Engine(PROGRAM, strategy=strategy, workers=workers)
    require_right(engine, engine.run(events()))


def test_a_restart_in_the_middle_changes_nothing(tmp_path: Path) -> None:
    """The first part is in the log alone when the process is gone; the second runs on what was recovered."""
    parts = []
    for start in (0, 250):
        engine = tg.Engine(PROGRAM, directory=tmp_path / "state")
        parts.append(engine.run(events().slice(start, 250 if start == 0 else None)))
        if start == 0:
            engine.execute(pay, inv=uuid.UUID(int=5), at=datetime(2026, 1, 1, tzinfo=UTC), on=date(2026, 1, 1))
            engine.close()
    require_right(engine, pa.concat_tables(parts))
    assert engine.read(Invoice, uuid.UUID(int=5))["at"] == datetime(2026, 1, 1, tzinfo=UTC)  # type: ignore[index]
    engine.close()
