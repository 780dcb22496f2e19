"""`transact` on batch DataFrames: the whole DataFrame is one batch, applied once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import tidegate as tg
from tidegate.durability import ownership
from tidegate.durability.versions import VersionStore
from tidegate.foundation.storage import open_storage
from tidegate.operations.decision import Decision, Strategy
from tidegate.spark import transact

from .ledgers import (
    PROGRAM,
    SCHEMA,
    Account,
    Books,
    Event,
    balances,
    collected,
    deposit,
    ledger,
    move,
    put,
)


def frame(spark: SparkSession, events: list[Event], partitions: int = 2) -> DataFrame:
    """Events as a DataFrame, cut into partitions in their order."""
    rows = [tuple(event.get(name) for name in names()) for event in events]
    size = -(-len(rows) // partitions)
    parts = [spark.createDataFrame(rows[i : i + size], SCHEMA) for i in range(0, len(rows), size or 1)]
    whole = spark.createDataFrame([], SCHEMA) if not parts else parts[0].coalesce(1)
    for part in parts[1:]:
        whole = whole.union(part.coalesce(1))
    return whole


def names() -> list[str]:
    return [column.split()[0] for column in SCHEMA.split(", ")]


def count_versions(state: Path) -> int:
    return len(VersionStore(open_storage(str(state))).refresh())


EVENTS: list[Event] = [
    *(put(number, number % 7, 10 + number) for number in range(50)),
    *(move(50 + number, number % 7, (number * 3) % 7, 20 * number) for number in range(50)),
]


def test_a_batch_dataframe_is_applied_once_however_many_actions_run_on_it(spark: SparkSession, tmp_path: Path) -> None:
    outcomes = ledger(frame(spark, EVENTS), tmp_path / "state")
    expected = Books().run(EVENTS)
    assert outcomes.count() == 100
    assert collected(outcomes) == expected.outcomes
    assert collected(outcomes.union(outcomes).distinct()) == expected.outcomes
    outcomes.write.parquet(str(tmp_path / "out"))
    assert collected(spark.read.parquet(str(tmp_path / "out"))) == expected.outcomes
    assert balances(spark, tmp_path / "state") == expected.balances
    assert count_versions(tmp_path / "state") == 1


def test_each_call_of_transact_is_a_batch_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    events = [put(1, 1, 10)]
    for times in (1, 2, 3):
        outcomes = ledger(frame(spark, events), tmp_path / "state")
        assert collected(outcomes) == {1: (True, None, 10 * times)}
    assert balances(spark, tmp_path / "state") == {1: 30}
    assert count_versions(tmp_path / "state") == 3
    assert ownership.current(open_storage(str(tmp_path / "state"))) is None, "a batch job lets go of the state"


def test_an_action_that_needs_a_few_rows_applies_all(spark: SparkSession, tmp_path: Path) -> None:
    outcomes = ledger(frame(spark, EVENTS), tmp_path / "state")
    assert len(outcomes.limit(1).collect()) == 1
    assert outcomes.where("event = 99").select("committed").count() == 1
    assert balances(spark, tmp_path / "state") == Books().run(EVENTS).balances


def test_nothing_runs_before_an_action(spark: SparkSession, tmp_path: Path) -> None:
    ledger(frame(spark, EVENTS), tmp_path / "state")
    assert count_versions(tmp_path / "state") == 0


def test_an_empty_dataframe_makes_no_version(spark: SparkSession, tmp_path: Path) -> None:
    assert ledger(frame(spark, []), tmp_path / "state").collect() == []
    assert count_versions(tmp_path / "state") == 0


def test_without_order_by_partitions_follow_each_other(spark: SparkSession, tmp_path: Path) -> None:
    events = [put(0, 1, 100), *(move(number, 1, 2, number) for number in range(1, 60))]
    outcomes = ledger(frame(spark, events, partitions=5), tmp_path / "state", order_by=None)
    expected = Books().run(events, ordered=False)
    assert collected(outcomes) == expected.outcomes
    assert balances(spark, tmp_path / "state") == expected.balances


def test_one_transaction_needs_no_transaction_column_and_only_its_own_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = spark.createDataFrame([(1, 5), (1, 6)], "dst long, amount long")
    rows = transact(events, [deposit], state=tmp_path / "state").orderBy("result").collect()
    assert [row.result for row in rows] == [5, 11]
    assert transact(events, deposit, state=tmp_path / "state").count() == 2  # type: ignore[arg-type]


def test_batches_and_their_outcomes_can_be_joined_and_chained(spark: SparkSession, tmp_path: Path) -> None:
    """Outcomes are an ordinary DataFrame: those of one program may be the events of another."""
    first = ledger(frame(spark, EVENTS), tmp_path / "first")
    refused = first.where("not committed").drop("committed", "reason", "result")
    second = transact(refused.drop("transaction", "src"), [deposit], state=tmp_path / "second", order_by="ts")
    reasons = first.select("event", "reason").withColumnRenamed("reason", "why")
    joined = second.join(reasons, "event")
    expected = Books().run(EVENTS)
    aborted = {event for event, outcome in expected.outcomes.items() if not outcome[0]}
    assert aborted
    assert {row.event: row.why for row in joined.collect()} == dict.fromkeys(aborted, "insufficient funds")
    assert sum(balances(spark, tmp_path / "second").values()) == sum(
        event["amount"] for event in EVENTS if event["event"] in aborted
    )


def test_two_batch_jobs_on_one_state_in_one_plan_follow_each_other(spark: SparkSession, tmp_path: Path) -> None:
    left = ledger(frame(spark, [put(1, 1, 10)]), tmp_path / "state")
    right = ledger(frame(spark, [put(2, 1, 10)]), tmp_path / "state")
    found = collected(left.union(right))
    assert sorted(result for _, _, result in found.values()) == [10, 20]
    assert balances(spark, tmp_path / "state") == {1: 20}


def test_initial_takes_an_arrow_table_too(spark: SparkSession, tmp_path: Path) -> None:
    rows: Any = pa.table({"id": [1, 2], "balance": [100, 0]})
    outcomes = ledger(frame(spark, [move(1, 1, 2, 30)]), tmp_path / "state", initial={Account: rows})
    assert collected(outcomes) == {1: (True, None, 70)}


@pytest.mark.parametrize("strategy", ["mvlk", Decision("dfs", "group", "lazy")], ids=str)
def test_every_strategy_gives_the_outcomes_and_rows_of_an_engine(
    spark: SparkSession, tmp_path: Path, strategy: Strategy
) -> None:
    outcomes = transact(frame(spark, EVENTS), PROGRAM, state=tmp_path / "state", order_by="ts", strategy=strategy)
    assert collected(outcomes) == Books().run(EVENTS).outcomes
    engine = tg.Engine(PROGRAM, strategy=strategy, directory=tmp_path / "engine", keep_versions=3)
    rows = [{name: event.get(name) for name in names()} for event in EVENTS]
    answers = engine.run(pa.Table.from_pylist(rows), order_by="ts").select(["event", "committed", "reason", "result"])
    assert {event: tuple(rest) for event, *rest in (a.values() for a in answers.to_pylist())} == collected(outcomes)
    assert balances(spark, tmp_path / "state") == {r["id"]: r["balance"] for r in engine.scan(Account).to_pylist()}
    engine.close()


def test_large_batches_come_back_whole(spark: SparkSession, tmp_path: Path) -> None:
    count = 300_000
    events = spark.range(count).selectExpr(
        "id as event", "id as ts", "if(id % 3 = 0, 'transfer', 'deposit') as transaction",
        "id % 1000 as src", "(id * 7) % 1000 as dst", "id % 100 as amount",
    )  # fmt: skip
    outcomes = ledger(events, tmp_path / "state").cache()
    assert outcomes.count() == count
    assert outcomes.select("event").distinct().count() == count
    money = outcomes.where("committed and transaction = 'deposit'").agg({"amount": "sum"}).collect()[0][0]
    assert sum(balances(spark, tmp_path / "state").values()) == money
    outcomes.unpersist()


class Review(NamedTuple):
    score: float


@tg.transaction
def review(dst: Account, amount: int) -> Review:
    return Review(amount / 2)


@pytest.mark.parametrize("form", ["struct", "json"])
def test_parquet_stays_readable_when_a_transaction_of_another_type_is_added(
    spark: SparkSession, tmp_path: Path, form: Any
) -> None:
    def write(program: list[Any], name: str, event: int) -> None:
        row = {"event": event, "transaction": name, "dst": 1, "amount": 5}
        events = spark.createDataFrame([row], "event long, transaction string, dst long, amount long")
        outcomes = transact(events, program, state=tmp_path / "state", result=form)
        outcomes.write.mode("append").parquet(str(tmp_path / "out"))

    write([deposit], "deposit", 1)
    write([deposit, review], "review", 2)
    write([deposit, review], "deposit", 3)
    found = spark.read.option("mergeSchema", True).parquet(str(tmp_path / "out")).orderBy("event")
    results = [row["result"] if form == "json" else row["result"].asDict(True) for row in found.collect()]
    if form == "json":
        assert results == ["5", '{"score": 2.5}', "10"]
        assert found.selectExpr("get_json_object(result, '$.score')").collect()[1][0] == "2.5"
    else:
        no_review = {"deposit": 5, "review": None}
        assert results == [no_review, {"deposit": None, "review": {"score": 2.5}}, {**no_review, "deposit": 10}]


def test_a_result_column_that_changes_its_type_is_warned_of_when_transact_is_called(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = spark.createDataFrame([(1, "deposit", 1, 5)], "event long, transaction string, dst long, amount long")
    transact(events, [deposit], state=tmp_path / "state").collect()
    with pytest.warns(tg.TidegateWarning, match=r"`result` has the type struct<deposit: int64, review.*it had int64"):
        transact(events, [deposit, review], state=tmp_path / "state")
