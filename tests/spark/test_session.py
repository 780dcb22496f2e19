"""`session`: a Spark that works at once; and Spark Connect, which needs none of its internals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tidegate.spark import session
from tidegate.spark.session import ARROW_BATCH_ROWS

from .ledgers import Books, Inbox, move, put

PROGRAMS = Path(__file__).parent / "programs"


def test_an_active_session_is_returned_as_it_is(spark: SparkSession) -> None:
    assert session("another name", config={"spark.sql.shuffle.partitions": "77"}) is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_a_new_session_has_the_settings_asked_for_and_those_that_tidegate_wants(spark: SparkSession) -> None:
    """The tests' own session came from `session`."""
    assert spark.conf.get("spark.app.name") == "tidegate-tests"
    assert spark.conf.get("spark.master") == "local[2]"
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == str(ARROW_BATCH_ROWS)
    assert spark.conf.get("spark.ui.showConsoleProgress") == "false"


def test_workers_run_the_python_that_runs_the_driver(spark: SparkSession) -> None:
    def executable(batches: object) -> object:
        import pyarrow as pa

        list(batches)  # type: ignore[call-overload]
        yield pa.RecordBatch.from_pydict({"python": [sys.executable]})

    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    rows = spark.range(0, 1, 1, 1).mapInArrow(executable, "python string").collect()  # type: ignore[arg-type]
    assert [row.python for row in rows] == [sys.executable]


def test_the_ledger_runs_over_spark_connect(tmp_path: Path) -> None:
    inbox, books = Inbox(tmp_path / "in"), Books({1: 1000})
    for batch in ([move(1, 1, 2, 300), put(2, 3, 5)], [move(3, 2, 1, 500), move(4, 2, 3, 300)]):
        inbox.add(batch)
        books.run(batch)
    with open(tmp_path / "log", "wb") as log:
        command = [sys.executable, str(PROGRAMS / "connect.py"), str(tmp_path)]
        code = subprocess.run(command, stdout=log, stderr=log, timeout=300, check=False).returncode
    assert code == 0, (tmp_path / "log").read_text(errors="replace")[-6000:]
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["session"].startswith("pyspark.sql.connect") and not report["jvm"]
    assert {row[0]: tuple(row[1:]) for row in report["outcomes"]} == books.outcomes
    assert len(report["outcomes"]) == len(books.outcomes)
    assert dict(report["balances"]) == books.balances
    assert report["batch"] == [1, books.balances.get(1, 0) + 5, books.balances.get(1, 0) + 5]
    assert report["released"], "the listener released the state when the query ended"
    assert "column 'amount' is missing" in report["refused"]
