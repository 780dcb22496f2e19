"""New strings in results: put together after the run, and exactly what the plain functions return."""

from __future__ import annotations

import itertools
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, NamedTuple
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidegate as tg
from tidegate.testing import PlainProgram

from ..engine.graphs.test_walk import outcomes as outcomes_of

RATE = 3


@tg.table(key="name")
class Item:
    name: str
    stock: int = 0
    price: float = 0.0
    note: str | None = None


@tg.transaction
def tells(item: Item, count: int, share: float, label: str | None, yes: bool) -> str:
    item.stock += count
    item.price = share
    tg.require(count != 3, f"never {count}")
    if count == 1:
        return f"{item.name}: {item.stock} à {item.price:.2f}{{}} {yes} {label} {item.note!r} {RATE * 2}"
    if count == 2:
        return "a\n'\"" + item.name.upper() + str(item.price) + f"{'x' + str(count):>5}|{item.stock:+05d}"
    if count == 4:
        item.note = item.name  # what is kept stays as it was when it was read
        return item.name + item.name
    if count == 5:
        return f"{label:>5}" if label is not None else str(label)
    return item.name if yes else f"{count / (count - 6):g}"


class Both(NamedTuple):
    first: str
    amount: int
    second: str | None


@tg.transaction
def gives(item: Item, count: int, label: str | None) -> Both:
    item.stock -= count
    return Both(f"{count}{item.stock}", count, None if label is None else item.name + label)


@tg.transaction
def dated(item: Item, day: date, at: Annotated[datetime, UTC], wait: timedelta, who: UUID, raw: bytes) -> str:
    item.stock += 1
    return f"{day} {at} {wait} {who} {raw} {item.stock}"


@tg.transaction
def priced(item: Item, cost: Annotated[Decimal, tg.digits(9, 2)]) -> str:
    item.stock += 1
    return f"{cost} {max(cost, 1)}"


PROGRAM = [tells, gives, dated, priced]
SCHEMA = pa.schema(
    [
        ("transaction", pa.string()),
        ("item", pa.string()),
        ("count", pa.int64()),
        ("share", pa.float64()),
        ("label", pa.string()),
        ("yes", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("wait", pa.duration("us")),
        ("who", pa.string()),
        ("raw", pa.binary()),
        ("cost", pa.decimal128(9, 2)),
    ]
)


def events() -> pa.Table:
    shares = [0.0, -0.0, 0.1 + 0.2, 1e300, math.inf, math.nan, 1e16]
    chosen = itertools.product(["tea", "käse", ""], range(1, 8), shares, [None, "", "é😀"], [True, False])
    rows = [
        {
            "transaction": [t.__name__ for t in PROGRAM][number % 4 if number % 5 else 0],
            **dict(zip(["item", "count", "share", "label", "yes"], values, strict=True)),
            "day": date(1 + number % 9998, 2, 3),
            "at": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=number * 10**5),
            "wait": timedelta(days=number - 100, microseconds=number % 2),
            "who": str(UUID(int=number)),
            "raw": bytes([number % 256, 39]),
            "cost": Decimal(number).scaleb(-2),
        }
        for number, values in enumerate(chosen)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def require_equal(engine: tg.Engine, table: pa.Table, parts: list[pa.Table]) -> None:
    plain = PlainProgram(PROGRAM)
    found = pa.concat_tables([engine.run(part) for part in parts]).select(["committed", "reason", "result"])
    for row, name, wanted in zip(found.to_pylist(), table["transaction"].to_pylist(), plain.run(table), strict=True):
        result = row["result"][name] if row["result"] is not None else None
        assert (row["committed"], row["reason"], result) == (wanted.committed, wanted.reason, wanted.result)


@pytest.mark.parametrize("strategy", ["serial", "chains", tg.Decision()], ids=str)
def test_they_are_those_of_the_functions_on_any_strategy(strategy: Any) -> None:
    table = events()
    engine = tg.Engine(PROGRAM, strategy=strategy, workers=2)
    require_equal(engine, table, [table])
    certain = pc.and_(pc.is_in(table["count"], pa.array([1, 2, 4])), pc.not_equal(table["transaction"], "priced"))
    makes_none = pc.or_(pc.not_equal(table["transaction"], "gives"), table["label"].is_null())
    engine.run(table.filter(pc.and_(certain, makes_none)))
    assert engine.last_batch is not None and engine.last_batch.events > 200
    assert engine.last_batch.interpreted == 0, "they are made without leaving compiled code"


@pytest.mark.usefixtures("plainly")
def test_they_are_so_in_small_batches_and_alone() -> None:
    table = events().slice(0, 200)
    require_equal(tg.Engine(PROGRAM), table, [table.slice(start, 7) for start in range(0, 200, 7)])
    engine, plain = tg.Engine(PROGRAM), PlainProgram(PROGRAM)
    for row in table.to_pylist():
        transaction = next(t for t in PROGRAM if t.__name__ == row["transaction"])
        arguments = {name: row[name] for name in row if name in transaction.__wrapped__.__annotations__}
        typed = {name: UUID(value) if name == "who" else value for name, value in arguments.items()}
        found = engine.execute(transaction, **typed)
        assert found == plain.execute({**arguments, "transaction": transaction.__name__})


told = tg.stream("told", item=str, count=int)


@tg.transaction(on=told)
def hears(item: Item, count: int) -> str:
    tg.require(count != 2, "two")
    item.stock += count
    return f"{item.name} {item.stock}"


@pytest.mark.usefixtures("plainly")
def test_they_are_so_in_graphs() -> None:
    engine = tg.Engine([tg.dataflow([hears])])
    found = engine.run(pa.table({"item": ["a", "b", "a"], "count": [1, 2, 3]}))
    assert outcomes_of(found) == [(True, None, "a 1"), (False, "two", None), (True, None, "a 4")]


def test_programs_that_say_it_differently_are_different_programs() -> None:
    from tidegate.compiler.program import build_program
    from tidegate.durability.fingerprint import fingerprint

    def declared(text: str) -> tg.Transaction:
        from tidegate.workloads.written import load_source

        source = f"""
import tidegate as tg

@tg.table(key="id")
class Item:
    id: int

@tg.transaction
def say(item: Item, count: int) -> str:
    return f"{text} {{count}}"
"""
        return load_source(f"say_{text}", source).say  # type: ignore[no-any-return]

    assert fingerprint(build_program([declared("a")])) != fingerprint(build_program([declared("b")]))
