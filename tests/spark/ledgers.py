"""A small ledger for the Spark tests: its program, its events as files, and a dict that knows the answer.

`Books` shares no code with the package: it keeps balances in a dict and writes down what must become of
each event. The tests compare what Spark wrote with that.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import tidegate as tg
from tidegate.spark import read_state, transact

SCHEMA = "event long, ts long, transaction string, src long, dst long, amount long"

Event = dict[str, Any]


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0


@tg.transaction
def transfer(src: Account, dst: Account, amount: int) -> int:
    tg.require(src.balance >= amount, "insufficient funds")
    src.balance -= amount
    dst.balance += amount
    return src.balance


@tg.transaction
def deposit(dst: Account, amount: int) -> int:
    dst.balance += amount
    return dst.balance


PROGRAM = [transfer, deposit]


def put(event: int, dst: int, amount: int, ts: int | None = None) -> Event:
    """A deposit."""
    return {
        "event": event,
        "ts": event if ts is None else ts,
        "transaction": "deposit",
        "dst": dst,
        "amount": amount,
    }


def move(event: int, src: int, dst: int, amount: int, ts: int | None = None) -> Event:
    """A transfer."""
    return {**put(event, dst, amount, ts), "transaction": "transfer", "src": src}


class Books:
    """What must be: balances, and for each event (committed, reason, result)."""

    def __init__(self, balances: dict[int, int] | None = None) -> None:
        self.balances = dict(balances or {})
        self.outcomes: dict[int, tuple[bool, str | None, int | None]] = {}

    def run(self, batch: Iterable[Event], ordered: bool = True) -> Books:
        """Book one batch, in the order of `ts` unless it is to run as it stands."""
        for event in sorted(batch, key=lambda event: event["ts"]) if ordered else batch:
            self.outcomes[event["event"]] = self._book(event)
        return self

    def _book(self, event: Event) -> tuple[bool, str | None, int | None]:
        amount, target = event["amount"], event["dst"]
        if event["transaction"] == "deposit":
            self.balances[target] = self.balances.get(target, 0) + amount
            return True, None, self.balances[target]
        source = event["src"]
        if self.balances.get(source, 0) < amount:
            return False, "insufficient funds", None
        self.balances[source] = self.balances.get(source, 0) - amount
        self.balances[target] = self.balances.get(target, 0) + amount
        return True, None, self.balances[source]


class Inbox:
    """A folder of event files. Each file becomes one micro-batch, in the order of writing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._files = 0

    def add(self, batch: Sequence[Event]) -> None:
        """One more file, newer than all before; it appears whole."""
        self.add_text("".join(json.dumps(event) + "\n" for event in batch))

    def add_text(self, text: str) -> None:
        """As `add`, with the lines as they are."""
        hidden = self.folder / f".{self._files}"
        hidden.write_text(text)
        os.utime(hidden, (1_000_000 + self._files, 1_000_000 + self._files))
        hidden.rename(self.folder / f"{self._files:06d}.json")
        self._files += 1

    def stream(self, spark: SparkSession, schema: str = SCHEMA) -> DataFrame:
        """The files as a stream, one micro-batch each."""
        return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(self.folder))


def drain(outcomes: DataFrame, folder: Path, name: str = "query") -> StreamingQuery:
    """Run a stream over everything that is there, into parquet files, and stop."""
    query = (
        outcomes.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / f"{name}.checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / f"{name}.out"))
    )
    query.awaitTermination()
    return query


def written(spark: SparkSession, folder: Path, name: str = "query") -> dict[int, tuple[Any, ...]]:
    """The outcomes that `drain` wrote, by event; fails when an event has more than one."""
    return collected(spark.read.parquet(str(folder / f"{name}.out")))


def collected(outcomes: DataFrame) -> dict[int, tuple[Any, ...]]:
    """The outcomes of a batch DataFrame, by event; fails when an event has more than one."""
    rows = outcomes.select("event", "committed", "reason", "result").collect()
    found = {row.event: (row.committed, row.reason, row.result) for row in rows}
    assert len(found) == len(rows), "an event has more than one outcome"
    return found


def balances(spark: SparkSession, state: Path, version: int | None = None) -> dict[int, int]:
    """The accounts of a state, as a dict."""
    return {row.id: row.balance for row in read_state(spark, str(state), Account, version).collect()}


def ledger(events: DataFrame, state: Path, **options: Any) -> DataFrame:
    """The ledger's program over events, ordered by `ts`."""
    return transact(events, PROGRAM, state=str(state), **{"order_by": "ts", **options})
