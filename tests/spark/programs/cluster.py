"""Tasks that fail, are retried, lose their worker or run twice at once, on a cluster of two machines.

    python cluster.py FOLDER

Runs each accident below on a stream of its own under FOLDER and leaves its outcomes, its state and a
`log` of what the tasks saw there. Empty files in FOLDER/<accident> make an accident happen once.

    retried       the task fails after the state was committed
    worker lost   the Python worker is killed in the middle of the batch
    twice         a slow task is run a second time by speculation, and both get to the end
    moved         the state is warm in one executor, and the next batch runs in the other

Deposits of 13 trigger what happens inside a batch. The machines are two addresses of this one: Spark
never runs a speculative task on the machine of the first.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
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


def first_time(folder: str, what: str = "happened") -> bool:
    """Whether something has not happened yet; from now on it has."""
    try:
        os.close(os.open(f"{folder}/{what}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def place_of_task() -> dict[str, str]:
    context = TaskContext.get()
    batch, attempt = context.getLocalProperty("streaming.sql.batchId"), str(context.attemptNumber())
    return {"batch": batch, "attempt": attempt, "executor": os.environ["SPARK_EXECUTOR_DIRS"]}


def note(folder: str, what: str) -> None:
    with open(f"{folder}/log", "a") as log:
        log.write(json.dumps({"what": what, **place_of_task()}) + "\n")


def notes(folder: str, what: str, **wanted: str) -> list[dict[str, str]]:
    lines = Path(f"{folder}/log").read_text().splitlines() if os.path.exists(f"{folder}/log") else []
    found = [json.loads(line) for line in lines]
    return [entry for entry in found if {**entry, "what": what, **wanted} == entry]


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)


def declare_deposit(on_thirteen: Callable[[], None]) -> Any:
    """A deposit that does something else first when the amount is 13."""

    @tg.transaction(compiled=False)
    def deposit(dst: Account, amount: int) -> int:
        if amount == 13:
            on_thirteen()
        dst.balance += amount
        return dst.balance

    return deposit


def die(folder: str) -> None:
    note(folder, "died")
    os.kill(os.getpid(), signal.SIGKILL)


def die_once(folder: str) -> Callable[[], None]:
    return lambda: die(folder) if first_time(folder) else None


def die_where_the_last_batch_ran(folder: str) -> Callable[[], None]:
    """Each batch once: Spark then takes the other executor."""

    def move() -> None:
        here, done = place_of_task(), notes(folder, "committed")
        if done and done[-1]["executor"] == here["executor"] and first_time(folder, f"moved {here['batch']}"):
            die(folder)

    return move


def wait_for_a_twin(folder: str) -> Callable[[], None]:
    return lambda: wait_for(lambda: os.path.exists(f"{folder}/twin")) if first_time(folder) else None


def fail_once(folder: str) -> None:
    if first_time(folder):
        raise RuntimeError("an accident after the commit")


def meet_the_twin(folder: str) -> None:
    """Let the slow task go on, and wait for it: whoever ends first makes Spark kill the other."""
    if (batch := place_of_task()["batch"]) == "1":
        first_time(folder, "twin")
        wait_for(lambda: len({entry["attempt"] for entry in notes(folder, "committed", batch=batch)}) > 1)


def noted(folder: str, then: Callable[[str], None] = lambda folder: None) -> Any:
    """A stage after `transact`: notes that the task has its outcomes, then does something."""

    def after(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = list(batches)
        if rows:
            note(folder, "committed")
            then(folder)
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
            "spark.speculation.task.duration.threshold": "4s",
            "spark.excludeOnFailure.taskAndStage.enabled": "true",  # a retry goes to the other executor
            "spark.locality.wait": "0s",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        }
        spark = session("accidents", config=settings)
        place = folder / "retried"
        run(spark, place, [transfer, deposit], noted(str(place), fail_once))
        place = folder / "worker lost"
        run(spark, place, [transfer, declare_deposit(die_once(str(place)))], noted(str(place)))
        place = folder / "twice"
        slow_deposit = declare_deposit(wait_for_a_twin(str(place)))
        run(spark, place, [transfer, slow_deposit], noted(str(place), meet_the_twin))
        place = folder / "moved"
        moving_deposit = declare_deposit(die_where_the_last_batch_ran(str(place)))
        run(spark, place, [transfer, moving_deposit], noted(str(place)))
        spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
