"""The functions for Spark with every wrong argument, and what users see of an error in a worker."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import tidegate as tg
from tidegate import spark as tidegate_spark
from tidegate.ordering import pipeline
from tidegate.spark import await_outcome, ordered, read_batches, read_state, session, transact
from tidegate.spark.java import ensure_java

from ..wrong_values import Account, answers, booked, deposit

EVERY_TEXT = {"text", "Path"}
CALLABLES = {"class", "function", "lambda", "table", "transaction"}


@dataclass
class Booking:
    dst: int
    amount: int


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(1, 2)], "dst long, amount long")


@pytest.fixture
def state(spark: SparkSession, frame: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    transact(frame, [deposit], state=tmp_path / "state").collect()
    return tmp_path / "state"


def verify(call: Callable[[Any], Any], expected: set[str]) -> None:
    taken, riddles = answers(call)
    assert riddles == []
    assert taken == expected


def test_transact_says_what_it_requires(spark: SparkSession, frame: DataFrame, state: Path) -> None:
    new = (state.parent / str(number) for number in range(10_000))
    verify(lambda v: transact(v, [deposit], state=state), set())
    verify(lambda v: transact(frame, v, state=next(new)), {"transaction", "dataflow"})
    verify(lambda v: transact(frame, [deposit], state=v), EVERY_TEXT)
    verify(lambda v: transact(frame, [deposit], state=state, order_by=v), {"None"})
    verify(lambda v: transact(frame, [deposit], state=state, requests=v), {"None"})
    verify(lambda v: transact(frame, [deposit], state=state, late=v), set())
    verify(lambda v: transact(frame, [deposit], state=state, log=v), set())
    verify(lambda v: transact(frame, [deposit], state=state, strategy=v), set())
    verify(lambda v: transact(frame, [deposit], state=state, workers=v), {"None", "one"})
    verify(lambda v: transact(frame, [deposit], state=state, keep_versions=v), {"one", "huge"})
    verify(lambda v: transact(frame, [deposit], state=next(new), initial=v), {"None", "empty dict"})
    verify(lambda v: transact(frame, [deposit], state=next(new), initial={Account: v}), set())


def test_ordered_says_what_it_requires(spark: SparkSession, frame: DataFrame) -> None:
    made = pipeline(Booking)
    verify(lambda v: ordered(v, made), set())
    verify(lambda v: ordered(frame, v), set())
    verify(lambda v: ordered(frame, made, order_by=v), {"None"})
    verify(lambda v: ordered(frame, made, workers=v), {"None", "one"})
    verify(lambda v: ordered(frame, made, heuristic=v), CALLABLES)
    verify(lambda v: ordered(frame, made, reorder=v), set())
    verify(lambda v: ordered(frame, made, partitioning=v), set())
    verify(lambda v: ordered(frame, made, mode=v), set())
    verify(lambda v: ordered(frame, made, capacity=v), {"one"})


def test_reading_back_says_what_it_requires(spark: SparkSession, state: Path) -> None:
    verify(lambda v: read_state(v, state, Account), set())
    verify(lambda v: read_state(spark, v, Account), set())  # no other folder is a state
    verify(lambda v: read_state(spark, state, v), {"table"})
    verify(lambda v: read_state(spark, state, Account, version=v), {"None", "one"})
    verify(lambda v: read_batches(v, state), set())
    verify(lambda v: read_batches(spark, v), set())
    verify(lambda v: await_outcome(v, 1, timeout=0), set())
    verify(lambda v: await_outcome(state, v, timeout=0), set())
    verify(lambda v: await_outcome(state, 1, timeout=0.1 if isinstance(v, int | float) and v > 0 else v), set())


def test_session_says_what_it_requires(spark: SparkSession) -> None:
    verify(lambda v: session(v), {"text"})
    mappings = {"None", "empty dict", "{'a': 1}", "dict of lists"}
    verify(lambda v: session(config=v), mappings)


def test_every_public_function_for_spark_is_called_here() -> None:
    told = Path(__file__).read_text(encoding="utf-8")
    assert all(f"{name}(" in told for name in tidegate_spark.__all__)


@pytest.mark.parametrize("form", [pd.DataFrame, lambda rows: rows])
def test_initial_rows_may_be_of_pandas_or_dicts(
    spark: SparkSession, frame: DataFrame, tmp_path: Path, form: Callable[[Any], Any]
) -> None:
    rows = [{"id": 1, "balance": 40}, {"id": 2, "balance": 1}]
    outcomes = transact(frame, [deposit], state=tmp_path / "state", initial={Account: form(rows)})
    assert [row["result"] for row in outcomes.collect()] == [42]


class TestWhatUsersSee:
    """Of an error that a worker raises: the message, and no lines of ours but one."""

    def shown(self, message: str) -> list[str]:
        python = message[message.index("Traceback (most recent call last)") :]
        return [line for line in python.splitlines() if "tidegate" in line and line.lstrip().startswith("File")]

    def test_a_batch_ends_with_the_message(self, spark: SparkSession, frame: DataFrame, state: Path) -> None:
        planned = transact(frame, [deposit], state=state)
        shutil.rmtree(state)
        with pytest.raises(PythonException) as caught:
            planned.collect()
        assert "StateDiverged: " in str(caught.value) and "direct cause" not in str(caught.value)
        assert len(self.shown(str(caught.value))) <= 2

    def test_a_stream_ends_with_the_message(self, spark: SparkSession, tmp_path: Path, state: Path) -> None:
        (tmp_path / "in").mkdir()
        (tmp_path / "in" / "1.json").write_text('{"dst": 1, "amount": 5}')
        events = spark.readStream.schema("dst long, amount long").json(str(tmp_path / "in"))
        planned = transact(events, [deposit], state=state)
        shutil.rmtree(state)
        query = planned.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "check"))
        with pytest.raises(StreamingQueryException) as caught:
            query.trigger(availableNow=True).start().awaitTermination()
        assert "StateDiverged: " in str(caught.value)
        assert len(set(self.shown(str(caught.value)))) <= 2


PROGRAM = """
    import os, sys
    os.environ.pop("SPARK_HOME", None)
    from pyspark.sql import SparkSession
    import tidegate as tg
    from tidegate.spark import transact
    from tests.wrong_values import deposit

    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    events = spark.createDataFrame([(1, 2)], "dst long, amount long")
    try:
        transact(events, [deposit], state=sys.argv[1]).collect()
    except Exception as error:
        print(type(error).__name__, "|", error)
"""


def bare_python(folder: Path) -> str:
    """A Python that has PySpark's own needs, and no tidegate."""
    wrapper = folder / "python3"
    hidden = folder / "hidden"
    (hidden / "tidegate").mkdir(parents=True)
    (hidden / "tidegate" / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'tidegate'\")\n")
    wrapper.write_text(f'#!/bin/sh\nexport PYTHONPATH="{hidden}:$PYTHONPATH"\nexec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    return str(wrapper)


def answer_with(python: str, folder: Path) -> str:
    environment = {
        **os.environ,
        "JAVA_HOME": str(ensure_java()),
        "PYSPARK_PYTHON": python,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    root = Path(__file__).parents[2]
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(tg.__file__).parents[1]), str(root)])
    (folder / "program.py").write_text(textwrap.dedent(PROGRAM))
    command = [sys.executable, str(folder / "program.py"), str(folder / "state")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_a_python_without_the_packages_is_told_before_the_first_batch(
    frame: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's own Python, as it is found where PYSPARK_PYTHON is not set."""
    system = "/usr/bin/python3"
    asked = [system, "-I", "-c", "import pyarrow"]
    if not Path(system).exists() or subprocess.run(asked, capture_output=True, check=False).returncode == 0:
        pytest.skip("there is no second Python that lacks the packages")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", system)
    with pytest.raises(tg.InputError) as caught:
        transact(frame, [deposit], state=tmp_path / "state")
    told = str(caught.value)
    assert told.startswith("transact: Spark's Python workers on this machine run /usr/bin/python3")
    assert "has no" in told and "pyarrow" in told and f"os.environ['PYSPARK_PYTHON'] = {sys.executable!r}" in told
    assert not (tmp_path / "state").exists()


def test_a_worker_that_cannot_import_tidegate_says_so(tmp_path: Path) -> None:
    """As on a cluster, where the driver cannot ask."""
    told = answer_with(bare_python(tmp_path), tmp_path)
    assert told.startswith("PythonException | ")
    assert "cannot import tidegate (No module named 'tidegate')" in told and "PYSPARK_PYTHON" in told
    assert "unpickl" not in told.lower() and "direct cause" not in told


def test_streams_are_not_read_as_tables_of_others(spark: SparkSession, state: Path) -> None:
    with pytest.raises(tg.InputError, match="keeps no tuples of the stream 'booked'"):
        read_state(spark, state, booked)
