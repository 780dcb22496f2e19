"""What each micro-batch did: as a DataFrame, and one line in the driver's log."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import tidegate as tg
from tidegate.cli import app
from tidegate.foundation.processors import processors
from tidegate.spark import read_batches, transact

from .ledgers import deposit


@tg.table(key="id")
class Purse:
    id: int
    coins: int = 0


@tg.transaction
def take(purse: Purse, coins: int) -> int:
    tg.require(coins > 0, "nothing to take")
    purse.coins += coins
    return purse.coins


def lines(caplog: pytest.LogCaptureFixture, state: Path) -> list[str]:
    """What was logged of a state; listeners may still be told of other tests' streams."""
    return [line for line in caplog.messages if str(state) in line]


def test_a_stream_tells_what_each_micro_batch_did(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state, source = tmp_path / "state", tmp_path / "in"
    source.mkdir()
    events = spark.readStream.schema("purse long, coins long").json(str(source))
    outcomes = transact(events, [take], state=state)
    with caplog.at_level(logging.INFO, "tidegate.spark.batches"):
        for number, coins in enumerate((5, 0)):
            (source / f"{number}.json").write_text(f'{{"purse": 1, "coins": {coins}}}\n{{"purse": 2, "coins": 1}}')
            writer = outcomes.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "check"))
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
        deadline = time.monotonic() + 20
        while len(lines(caplog, state)) < 2 and time.monotonic() < deadline:  # listeners are told a little later
            time.sleep(0.05)
    rows = read_batches(spark, state).orderBy("version").collect()
    assert [(row["batch"], row["events"], row["committed"], row["aborted"]) for row in rows] == [
        (0, 2, 2, {}),
        (1, 2, 1, {"nothing to take": 1}),
    ]
    assert {row["query"] for row in rows} == {str(query.id)}
    assert all(row["strategy"] == "serial" and row["seconds"]["execute"] > 0 and row["bytes"] > 0 for row in rows)
    found = lines(caplog, state)
    assert len(found) == 2, "one for each micro-batch"
    assert f"version 2, batch 1 of {query.id}: 2 events, 1 committed, aborted: nothing to take 1; serial" in found[1]


def test_a_query_that_goes_on_behind_another_one_is_warned_of(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a checkpoint was deleted: its events are applied again."""
    state, source = tmp_path / "state", tmp_path / "in"
    source.mkdir()
    (source / "1.json").write_text('{"purse": 1, "coins": 5}')
    queries = []
    for checkpoint in ("lost", "new", "new"):
        events = spark.readStream.schema("purse long, coins long").json(str(source))
        writer = transact(events, [take], state=state).writeStream.format("noop").trigger(availableNow=True)
        queries.append(writer.option("checkpointLocation", str(tmp_path / checkpoint)).start())
        queries[-1].awaitTermination()
        (source / f"{len(queries) + 1}.json").write_text('{"purse": 1, "coins": 1}')
    deadline = time.monotonic() + 20
    while not lines(caplog, state) and time.monotonic() < deadline:
        time.sleep(0.05)
    (told,) = lines(caplog, state)
    assert f"query {queries[1].id} is new to this state, which has served query {queries[0].id}" in told
    assert f"tidegate state rollback {state} --to 1" in told


@pytest.mark.parametrize(("asked", "got"), [(None, min(2, processors())), (1, 1), (3, 3)])
def test_a_batch_runs_on_the_cores_of_its_executor_unless_told_otherwise(
    spark: SparkSession, tmp_path: Path, asked: int | None, got: int
) -> None:
    events = spark.createDataFrame([(1, 5), (2, 1)], "purse long, coins long")
    assert transact(events, [take], state=tmp_path / "state", strategy="lock", workers=asked).count() == 2
    (row,) = read_batches(spark, tmp_path / "state").collect()
    assert (row["strategy"], row["workers"]) == ("lock", got)
    printed = CliRunner(env={"COLUMNS": "160"}).invoke(app, ["state", "ls", str(tmp_path / "state")]).stdout
    assert ("lock, " in printed) == (got > 1) and (f"lock, {got} workers" in printed or got == 1)


def test_a_path_without_a_state_is_told(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(tg.InputError, match="read_batches: there is no state at"):
        read_batches(spark, tmp_path / "none")


def test_a_batch_dataframe_is_a_batch_too(spark: SparkSession, tmp_path: Path) -> None:
    events = spark.createDataFrame([(1, 5), (2, 6)], "dst long, amount long")
    transact(events, [deposit], state=tmp_path / "state").collect()
    (row,) = read_batches(spark, tmp_path / "state").collect()
    assert (row["events"], row["committed"], row["committed_at"] is not None) == (2, 2, True)
