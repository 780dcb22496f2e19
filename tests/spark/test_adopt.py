"""The way out of each refusal is the command in its message: typed as it stands, and the query goes on.

The amounts are small on purpose: an event that is applied twice, or lost where it should not be, shows in the balance.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import tidegate as tg
from tidegate.durability import ownership
from tidegate.foundation.errors import DefinitionError
from tidegate.foundation.storage import open_storage
from tidegate.spark import read_state, transact

from ..test_cli import tidegate, told
from .ledgers import Inbox, balances, deposit, drain, ledger, put


def refused_with(run: Any, error: type[Exception] = StreamingQueryException) -> str:
    """The command that the refusal names first."""
    with pytest.raises(error) as refused:
        run()
    found = re.search(
        r"tidegate (state (?:adopt \S+(?: --?[\w-]+(?: [\w=-]+)?)+|rename-table \S+ \w+ \w+))", str(refused.value)
    )
    assert found, refused.value
    return found[1].rstrip(".")


def typed(command: str, path: Path) -> str:
    """What a command says; Spark tells that a query has ended a moment after it did."""
    deadline = time.monotonic() + 30
    while ownership.current(open_storage(str(path))) is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    result = tidegate(*command.split())
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_state_was_deleted_and_the_query_goes_on_with_an_empty_one(spark: SparkSession, tmp_path: Path) -> None:
    inbox, state = Inbox(tmp_path / "in"), tmp_path / "state"
    for number in range(3):
        inbox.add([put(number, 1, 10)])
    drain(ledger(inbox.stream(spark), state), tmp_path)
    shutil.rmtree(state)
    inbox.add([put(3, 1, 5)])
    command = refused_with(lambda: drain(ledger(inbox.stream(spark), state), tmp_path))
    assert "--batch 3" in command
    assert "this one is new and has no rows" in typed(command, state)
    drain(ledger(inbox.stream(spark), state), tmp_path)
    assert balances(spark, state) == {1: 5}
    inbox.add([put(4, 1, 7)])
    drain(ledger(inbox.stream(spark), state), tmp_path)
    assert balances(spark, state) == {1: 12} and tidegate("state", "verify", str(state)).exit_code == 0


def test_the_newest_version_was_lost_and_the_query_goes_on_without_it(spark: SparkSession, tmp_path: Path) -> None:
    inbox, state = Inbox(tmp_path / "in"), tmp_path / "state"
    for number in range(3):
        inbox.add([put(number, 1, 10)])
    drain(ledger(inbox.stream(spark), state), tmp_path)
    os.unlink(state / "000000000003.change")
    inbox.add([put(3, 1, 5)])
    first = refused_with(lambda: drain(ledger(inbox.stream(spark), state), tmp_path))
    assert first.endswith("--lost")
    assert "goes on from version 2" in typed(first, state)
    second = refused_with(lambda: drain(ledger(inbox.stream(spark), state), tmp_path))
    assert second.endswith("--batch 3")
    typed(second, state)
    drain(ledger(inbox.stream(spark), state), tmp_path)
    assert balances(spark, state) == {1: 25}, "20 of versions 1 and 2, and 5; the 10 of version 3 are lost"
    lines = told("state", "served", str(state))["served"]
    assert {line["batch"] for line in lines if "/" not in line["applicant"]} == {3}


def test_a_foreach_batch_goes_on_with_an_empty_state(spark: SparkSession, tmp_path: Path) -> None:
    inbox, state = Inbox(tmp_path / "in"), tmp_path / "state"

    def run() -> None:
        def apply(frame: DataFrame, batch: int) -> None:
            for _ in range(2):
                ledger(frame, state).collect()

        writer = inbox.stream(spark).writeStream.foreachBatch(apply).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    inbox.add([put(0, 1, 10)])
    run()
    shutil.rmtree(state)
    inbox.add([put(1, 1, 5)])
    typed(refused_with(run), state)
    run()
    assert balances(spark, state) == {1: 10}


@tg.table(key="id")
class Konto:
    id: int
    balance: int = 0


@tg.transaction
def pay(dst: Konto, amount: int) -> int:
    dst.balance += amount
    return dst.balance


def frame(spark: SparkSession, amount: int) -> DataFrame:
    return spark.range(1).selectExpr("1L AS dst", f"{amount}L AS amount")


def test_a_table_was_renamed_and_the_query_goes_on_with_its_rows(spark: SparkSession, tmp_path: Path) -> None:
    inbox, state = Inbox(tmp_path / "in"), tmp_path / "state"

    def run(transaction: tg.Transaction) -> None:
        events = inbox.stream(spark).drop("transaction")
        drain(transact(events, transaction, state=state, order_by="ts"), tmp_path)

    inbox.add([put(0, 1, 5)])
    run(deposit)
    inbox.add([put(1, 1, 7)])
    command = refused_with(lambda: run(pay), DefinitionError)
    assert command == f"state rename-table {state} Account Konto"
    assert "Account is called Konto (1 row)" in typed(command, state)
    run(pay)
    assert [row.balance for row in read_state(spark, state, Konto).collect()] == [12]
    assert refused_with(lambda: run(deposit), DefinitionError) == f"state rename-table {state} Konto Account"
    assert tidegate("state", "verify", str(state), "--deep").exit_code == 0
    typed(f"state rename-table {state} Konto Account", state)
    inbox.add([put(2, 1, 1)])
    run(deposit)
    assert balances(spark, state) == {1: 13}
    assert told("state", "served", str(state))["served"][0]["batch"] == 2, "one query, and no batch was applied twice"


def test_a_table_is_another_one_and_begins_empty(spark: SparkSession, tmp_path: Path) -> None:
    state = tmp_path / "state"
    transact(frame(spark, 5), deposit, state=state).collect()
    with pytest.raises(DefinitionError, match="--new-table Konto=Account"):
        transact(frame(spark, 7), pay, state=state)
    typed(f"state adopt {state} --new-table Konto=Account", state)
    assert [row.result for row in transact(frame(spark, 7), pay, state=state).collect()] == [7]
    assert balances(spark, state) == {1: 5}
