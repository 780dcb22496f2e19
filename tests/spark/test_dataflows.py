"""Dataflow graphs in `transact`: rounds over micro-batches, waiting events, plain requests beside them, restarts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import tidegate as tg
from tidegate.durability.version_log import Log
from tidegate.spark import read_state, transact

SCHEMA = "event long, transaction string, account long, amount long, note string"


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0
    seen: int = 0


payments = tg.stream("payments", account=int, amount=int)
booked = tg.stream("booked", account=int, amount=int)


@tg.transaction(on=payments, emits=[booked])
def book(account: Account, amount: int) -> int:
    tg.require(amount != 13, "bad luck")
    account.balance += amount
    tg.emit(booked, account=account.id, amount=amount)
    return account.balance


@tg.transaction(on=booked)
def watch(account: Account, recent: tg.window(booked, rows=4, slide=2)) -> None:  # type: ignore[valid-type]
    account.seen += recent.sum("amount")


@tg.transaction
def balance_of(account: Account) -> int:
    return account.balance


GRAPH = tg.dataflow([book, watch], nested=[(book, watch)], atomic_batch=2, name="payments")


def event(number: int, account: int, amount: int | None = None) -> dict[str, Any]:
    name = "balance_of" if amount is None else "payments"
    return {"event": number, "transaction": name, "account": account, "amount": amount, "note": f"note {number}"}


EVENTS = [
    event(1, 1, 10),
    event(2, 2, 5),
    event(3, 1),
    event(4, 1, 7),  # waits for the next micro-batch
    event(5, 2, 13),  # and aborts there, with 4
    event(6, 1),
    event(7, 3, 1),
    event(8, 3, 2),
    event(9, 3, 4),  # waits for ever
]


def write(folder: Path, number: int, events: list[dict[str, Any]]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{number}.json").write_text("".join(json.dumps(found) + "\n" for found in events))


def drain(outcomes: DataFrame, folder: Path) -> None:
    query = (
        outcomes.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "out"))
    )
    query.awaitTermination()


@pytest.mark.parametrize("log", ["changes", "commands"])
def test_a_graph_goes_on_over_micro_batches_and_restarts(spark: SparkSession, tmp_path: Path, log: Log) -> None:
    with tg.Engine([GRAPH, balance_of]) as engine:
        wanted = engine.run(pa.Table.from_pylist(EVENTS)).to_pylist()
        rows = engine.scan(Account).to_pylist()
    for number, cut in enumerate([EVENTS[:4], EVENTS[4:7], EVENTS[7:]]):  # a query for each: a restart in between
        write(tmp_path / "in", number, cut)
        stream = spark.readStream.schema(SCHEMA).json(str(tmp_path / "in"))
        drain(transact(stream, [GRAPH, balance_of], state=tmp_path / "state", order_by="event", log=log), tmp_path)
    found = spark.read.parquet(str(tmp_path / "out")).orderBy("event").collect()
    assert [row.asDict() for row in found] == wanted
    assert [(row["event"], row["committed"], row["result"]) for row in wanted] == [
        (1, True, 10),
        (2, True, 5),
        (3, True, 10),
        (4, False, None),
        (5, False, None),
        (6, True, 10),
        (7, True, 1),
        (8, True, 3),
    ]
    kept = read_state(spark, str(tmp_path / "state"), Account).orderBy("id").collect()
    assert [row.asDict() for row in kept] == rows
