"""`ordered` on real Spark: each partition gives what `run` gives for its rows, and what cannot run is refused."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

import tidegate as tg
from tidegate.foundation.jit import uncompiled
from tidegate.ordering import Pipeline, merge, pipeline
from tidegate.ordering.pipeline import nodes_of
from tidegate.ordering.records import Rows
from tidegate.ordering.running import Settings, run_batches
from tidegate.ordering.strings import SharedStrings
from tidegate.spark import ordered

from ..ordering.programs import Item, Seen, items, kept, many, raised, rows, summed, table
from ..value_types import TYPES

COUNT = 3_000
CHAIN = pipeline(Item).filter(kept).map(raised).stateful(summed, key="user")


@dataclass
class Click:
    ts: int
    user: int


@dataclass
class Visits:
    count: int = 0


@dataclass
class Visit:
    ts: int
    user: int
    number: int


def counted(state: Visits, click: Click) -> Visit:
    state.count += 1
    return Visit(click.ts, click.user, state.count)


VISITS = pipeline(Click).stateful(counted, key="user")


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    given = table(items(COUNT, 1)).append_column("part", pa.array([number % 3 for number in range(COUNT)]))
    return spark.createDataFrame(given).repartitionByRange(3, "part").cache()


def partitions_of(frame: DataFrame) -> list[pa.Table]:
    """The partitions as they come, those with rows."""
    found: dict[int, list[Any]] = defaultdict(list)
    for row in frame.withColumn("_partition", F.spark_partition_id()).collect():
        found[row["_partition"]].append({**row.asDict(), "_partition": None})
    assert len(found) > 1
    return [pa.Table.from_pylist(found[number], schema=table([]).schema) for number in sorted(found)]


def test_each_partition_gives_what_a_run_of_its_rows_gives(frame: DataFrame) -> None:
    expected = [row for part in partitions_of(frame) for row in rows(CHAIN.run(part, workers=2))]
    found = ordered(frame, CHAIN)
    assert found.columns == CHAIN.schema.names
    assert rows(found.toArrow()) == expected and len(expected) > 1_000
    assert rows(ordered(frame, CHAIN, workers=3, capacity=7, heuristic="queue-size").toArrow()) == expected


def test_branches_keys_by_functions_and_plain_python_travel_to_workers(frame: DataFrame) -> None:
    def first_of_name(state: Seen, item: Item) -> list[Item]:
        state.names[item.name] = state.names.get(item.name, 0) + 1
        return [dataclasses.replace(item, number=state.names[item.name]) for _ in range(state.names[item.name] % 2)]

    with pytest.warns(tg.TidegateWarning, match="first_of_name.*plain Python") as told:
        left, right = pipeline(Item).branch(
            lambda made: made.flat_map(many).filter(lambda item: item.number % 5 == 0),
            lambda made: made.stateful(first_of_name, key=lambda item: item.user % 4),
        )
    assert len(told) == 1
    both = merge(left, right)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the driver has been told
        found = ordered(frame, both, workers=2).toArrow()
        expected = [row for part in partitions_of(frame) for row in rows(both.run(part, workers=1))]
    assert rows(found) == expected


def test_rows_are_sorted_within_their_partition_and_ties_stay_as_they_came(spark: SparkSession) -> None:
    clicks = [(number * 7 % 10, number % 2, number) for number in range(40)]
    given = spark.createDataFrame(clicks, "ts long, user long, place long").coalesce(1)
    places = pipeline(Place).stateful(numbered)
    found = ordered(given, places, order_by="ts").collect()
    expected = sorted(clicks, key=lambda click: click[0])
    assert [(row["place"], row["number"]) for row in found] == [(c[2], n) for n, c in enumerate(expected, 1)]
    named = given.select(F.col("ts").cast("string").alias("the order"), "user", "place")
    assert [row["place"] for row in ordered(named, places, order_by="the order").collect()] == [c[2] for c in expected]


@dataclass
class Place:
    place: int


@dataclass
class Numbered:
    place: int
    number: int


def numbered(state: Visits, given: Place) -> Numbered:
    state.count += 1
    return Numbered(given.place, state.count)


def test_a_state_lives_for_one_partition_of_one_micro_batch(spark: SparkSession, tmp_path: Path) -> None:
    schema = "ts long, user long"
    for number in range(2):
        made = spark.createDataFrame([(9 - ts + 10 * number, ts % 2) for ts in range(10)], schema).coalesce(1)
        made.write.mode("append").parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    visits = ordered(stream, VISITS, order_by="ts")
    assert visits.isStreaming
    writing = visits.writeStream.format("memory").queryName("visits").trigger(availableNow=True)
    query = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    query.awaitTermination(120)
    found = {row["ts"]: row["number"] for row in spark.table("visits").collect()}
    assert found == {ts: ts % 10 // 2 + 1 for ts in range(20)}  # the second micro-batch counts from one again


def test_empty_partitions_and_empty_frames_give_nothing(spark: SparkSession) -> None:
    given = spark.createDataFrame([(1, 1)], "ts long, user long")
    assert [tuple(row) for row in ordered(given.repartition(4), VISITS).collect()] == [(1, 1, 1)]
    assert ordered(given.where("ts > 5"), VISITS, order_by="ts").collect() == []
    assert len(ordered(spark.range(100_000).selectExpr("id ts", "id % 3 user"), VISITS).take(2)) == 2


def test_every_type_comes_and_goes_as_sparks_own(spark: SparkSession) -> None:
    hints = {of.name: of.hint for of in TYPES} | {f"{of.name}none": of.hint | None for of in TYPES}
    record: Any = dataclasses.make_dataclass("Every", hints.items())
    made = pipeline(record).filter(lambda given: True)
    given = _converted(made, [record(*(of.values[0] for of in TYPES), *(of.values[-1] for of in TYPES))])
    nothing = _converted(made, [record(*(of.values[-1] for of in TYPES), *(None for _ in TYPES))])
    both = pa.concat_tables([given, nothing])
    frame = spark.createDataFrame(both, from_arrow_schema(both.schema, prefer_timestamp_ntz=True)).coalesce(1)
    found = ordered(frame, made, workers=1)
    types = {field.name: field.dataType.simpleString() for field in found.schema}
    assert types == {of.name: of.spark for of in TYPES} | {f"{of.name}none": of.spark for of in TYPES}
    assert repr(found.toArrow().to_pylist()) == repr(both.to_pylist())  # NaN equals NaN here


def _converted(made: Pipeline, records: list[Any]) -> pa.Table:
    rows = Rows(nodes_of(made)[0].takes, SharedStrings())
    words = np.zeros((len(records), rows.layout.stride), np.int64)
    for record, row in zip(records, words, strict=True):
        rows.write(record, row, "test")
    return rows.to_arrow(words)


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_record_that_fails_is_told_to_the_driver(spark: SparkSession, tmp_path: Path) -> None:
    failing = pipeline(Click).map(divided)
    given = spark.createDataFrame([(ts, 5 - ts) for ts in range(10)], "ts long, user long").coalesce(1)
    with pytest.raises(PythonException) as error:
        ordered(given, failing).collect()
    told = str(error.value)
    assert "OperatorFailed: operator 'divided'" in told and "ZeroDivisionError" in told
    assert "Click(ts=5, user=0)" in told and "return Click(click.ts // click.user, 1)" in told
    assert "working.py" not in told
    given.write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema("ts long, user long").parquet(str(tmp_path / "in"))
    query = (
        ordered(stream, failing).writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    )
    with pytest.raises(StreamingQueryException, match="operator 'divided'"):
        query.processAllAvailable()
    assert [row["ts"] for row in ordered(given.where("user > 0"), failing).collect()] == [0, 0, 0, 1, 4]


def divided(click: Click) -> Click:
    return Click(click.ts // click.user, 1)


def test_null_where_a_value_is_needed_is_told_with_its_column(spark: SparkSession) -> None:
    given = spark.createDataFrame([(1, 1), (None, 2)], "ts long, user long").coalesce(1)
    with pytest.raises(PythonException, match="ordered: column 'ts' is null in row 1"):
        ordered(given, VISITS).collect()
    named = given.select(F.lit(1).cast("long").alias("ts"), "user", F.col("ts").alias("at"))
    with pytest.raises(PythonException, match=r"null in order column 'at'.*fill the column"):
        ordered(named, VISITS, order_by="at").collect()


@pytest.mark.parametrize(
    ("columns", "options", "told"),
    [
        ("id ts", {}, r"column 'user' is missing: required long \(Click\.user\)"),
        ("id ts, 'a' user", {}, r"column 'user' is string: required long"),
        ("id ts, id User", {}, r"rename 'User'"),
        ("id ts, id user, id ts", {}, r"column 'ts' is there 2 times"),
        ("id ts, id user", {"order_by": "at"}, r"column 'at' is missing: .*\(order_by\)"),
        ("id ts, id user, array(id) at", {"order_by": "at"}, r"column 'at' is array<bigint>"),
    ],
)
def test_rows_that_do_not_fit_are_refused_before_anything_runs(
    spark: SparkSession, columns: str, options: dict[str, Any], told: str
) -> None:
    given = spark.range(3).selectExpr(*columns.split(", "))
    with pytest.raises(tg.InputError, match=told):
        ordered(given, VISITS, **options)


def test_what_cannot_travel_is_refused_with_the_pipeline_named(spark: SparkSession) -> None:
    lock = threading.Lock()

    def locked(click: Click) -> Click:
        with lock:
            return click

    with pytest.warns(tg.TidegateWarning):
        made = pipeline(Click).map(locked)
    with pytest.raises(tg.DefinitionError, match=r"the pipeline \(locked\) cannot be sent to Spark's workers"):
        ordered(spark.range(3).selectExpr("id ts", "id user"), made)


# --- without Spark ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("capacity", [1, 8, 1024])
def test_batches_are_read_only_as_fast_as_the_output_is_taken(capacity: int) -> None:
    read = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal read
        for number in range(60):
            read += 1
            yield pa.record_batch({"ts": range(number * 2_000, (number + 1) * 2_000), "user": [number % 5] * 2_000})

    running = run_batches(nodes_of(VISITS), batches(), Settings(workers=2, capacity=capacity))
    first = next(running)
    assert read < 20  # one piece of the output is eight batches
    found = pa.concat_tables([first, *running])
    assert found["ts"].to_pylist() == list(range(120_000)) and found["number"][-1].as_py() == 24_000


def test_batches_that_end_early_end_the_workers() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"ts": [1], "user": [1]})
        raise OSError("the pipe broke")

    before = threading.active_count()
    with uncompiled(), pytest.raises(OSError, match="the pipe broke"):
        list(run_batches(nodes_of(VISITS), broken(), Settings(workers=2)))
    assert threading.active_count() == before


SCRIPT = """
from dataclasses import dataclass
from tidegate.ordering import pipeline
from tidegate.spark import ordered, session

@dataclass
class Number:
    id: int

FACTOR, LOW = 3, 2
def tripled(given: Number) -> Number:
    return Number(given.id * FACTOR)

if __name__ == "__main__":
    spark = session("script", config={"spark.master": "local[1]", "spark.ui.enabled": "false"})
    found = ordered(spark.range(5).coalesce(1), pipeline(Number).map(tripled).filter(lambda n: n.id > LOW))
    print([row.id for row in found.collect()])
"""


def test_a_pipeline_of_a_script_reaches_the_workers(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    ran = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False, env=os.environ.copy()
    )
    assert ran.stdout.strip() == "[3, 6, 9, 12]", ran.stderr
