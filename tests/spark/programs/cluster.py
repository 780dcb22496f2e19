"""Tasks that fail, are retried, lose their worker or run twice at once, on a cluster of two machines.

    python cluster.py FOLDER

Runs each accident below on a stream of its own under FOLDER and leaves its outcomes, its state and a
`log` of what the tasks saw there. A file `FOLDER/<accident>/happened` makes an accident happen once.

    retried       the task fails after the state was committed
    worker lost   the Python worker is killed in the middle of the batch
    twice         a slow task is run a second time by speculation, and both get to the end
    moved         the state is warm in one executor, and the next batch runs in the other

The machines are two addresses of this one: Spark never runs a speculative task on the machine of the first.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

import tidegate as tg
from tidegate.spark import session, transact
from tidegate.spark.java import ensure_java


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


def first_time(folder: str) -> bool:
    """Whether the accident has not happened yet; from now on it has."""
    try:
        os.close(os.open(f"{folder}/happened", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def note(folder: str, text: str) -> None:
    context = TaskContext.get()
    batch = context.getLocalProperty("streaming.sql.batchId")
    executor = os.environ.get("SPARK_EXECUTOR_DIRS")
    line = f"{text} batch={batch} attempt={context.attemptNumber()} executor={executor}"
    with open(f"{folder}/log", "a") as log:
        log.write(line + "\n")


def fatal_deposit(folder: str) -> Any:
    """A deposit of 13 kills the worker that runs it, once."""

    @tg.transaction(compiled=False)
    def deposit(dst: Account, amount: int) -> int:
        if amount == 13 and first_time(folder):
            os.kill(os.getpid(), signal.SIGKILL)
        dst.balance += amount
        return dst.balance

    return deposit


def slow_deposit(folder: str) -> Any:
    """A deposit of 13 waits until a second task has run the same batch to its end."""

    @tg.transaction(compiled=False)
    def deposit(dst: Account, amount: int) -> int:
        if amount == 13 and first_time(folder):
            deadline = time.monotonic() + 60
            while not os.path.exists(f"{folder}/second") and time.monotonic() < deadline:
                time.sleep(0.05)
        dst.balance += amount
        return dst.balance

    return deposit


def fail_once(folder: str) -> Any:
    def after(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = list(batches)
        if rows:
            note(folder, "committed")
            if first_time(folder):
                raise RuntimeError("an accident after the commit")
        yield from rows

    return after


def hold_the_second(folder: str) -> Any:
    """The speculative task lets the first one go on, and waits until that has committed or lost too."""

    def after(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = list(batches)
        if rows:
            note(folder, "committed")
            if TaskContext.get().attemptNumber() > 0:
                open(f"{folder}/second", "w").close()
                deadline = time.monotonic() + 20
                while "attempt=0" not in Path(f"{folder}/log").read_text() and time.monotonic() < deadline:
                    time.sleep(0.05)
        yield from rows

    return after


def only_noted(folder: str) -> Any:
    def after(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = list(batches)
        if rows:
            note(folder, "committed")
        yield from rows

    return after


def run(spark: SparkSession, folder: Path, program: list[Any], after: Any) -> None:
    schema = "event long, ts long, transaction string, src long, dst long, amount long"
    events = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(folder / "in"))
    outcomes: DataFrame = transact(events, program, state=folder / "state", order_by="ts")
    query = (
        outcomes.mapInArrow(after, outcomes.schema)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "query.checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "query.out"))
    )
    query.awaitTermination()


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A standalone master and two workers with one core each; gives the master's address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"spark://127.0.0.1:{port}"
    starter = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    part = "org.apache.spark.deploy"
    commands = [[f"{part}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]]
    for host in ("127.0.0.1", "127.0.0.2"):
        options = ["--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0"]
        commands.append([f"{part}.worker.Worker", *options, "--work-dir", str(folder / "work" / host), address])
    java = str(ensure_java())
    environment = {**os.environ, "JAVA_HOME": java, "SPARK_DAEMON_MEMORY": "256m", "SPARK_NO_DAEMONIZE": "1"}
    running = [subprocess.Popen([starter, *command], env=environment) for command in commands]
    try:
        yield address
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait()


def main(folder: Path) -> None:
    with cluster(folder) as address:
        settings = {
            "spark.master": address,
            "spark.driver.host": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.task.duration.threshold": "2s",
            "spark.locality.wait": "0s",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        }
        spark = session("accidents", config=settings)
        place = folder / "retried"
        run(spark, place, [transfer, deposit], fail_once(str(place)))
        place = folder / "worker lost"
        run(spark, place, [transfer, fatal_deposit(str(place))], only_noted(str(place)))
        place = folder / "twice"
        run(spark, place, [transfer, slow_deposit(str(place))], hold_the_second(str(place)))
        place = folder / "moved"
        run(spark, place, [transfer, deposit], only_noted(str(place)))
        spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
