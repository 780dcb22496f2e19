"""The ledger over Spark Connect: a client without a JVM of its own, a server in another process.

    python connect.py FOLDER

Starts a server, streams FOLDER/in into FOLDER, and leaves FOLDER/report.json with what a client sees.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark

import tidegate as tg
from tidegate.durability import ownership
from tidegate.foundation.errors import InputError
from tidegate.foundation.storage import open_storage
from tidegate.spark import read_state, session, transact
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


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def server() -> Iterator[str]:
    """A Connect server on a port that was free; gives its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]"]
    command += [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    environment = {**os.environ, "JAVA_HOME": str(ensure_java()), "PYSPARK_PYTHON": sys.executable}
    process = subprocess.Popen(command, env=environment)
    try:
        deadline = time.monotonic() + 120
        while not answers(port):
            assert process.poll() is None and time.monotonic() < deadline, "the server did not start"
            time.sleep(0.1)
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def main(folder: Path) -> None:
    with server() as address:
        run(folder, address)


def run(folder: Path, address: str) -> None:
    spark = session("connect", config={"spark.remote": address})
    report: dict[str, object] = {"session": type(spark).__module__, "jvm": hasattr(spark, "_jvm")}
    state = folder / "state"
    schema = "event long, ts long, transaction string, src long, dst long, amount long"
    events = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(folder / "in"))
    opening = spark.createDataFrame([(1, 1000)], "id long, balance long")
    program = [transfer, deposit]
    outcomes = transact(events, program, state=state, order_by="ts", initial={Account: opening})
    query = (
        outcomes.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "query.checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "query.out"))
    )
    query.awaitTermination()
    deadline = time.monotonic() + 20
    while ownership.current(open_storage(str(state))) is not None and time.monotonic() < deadline:
        time.sleep(0.1)
    report["released"] = ownership.current(open_storage(str(state))) is None
    rows = spark.read.parquet(str(folder / "query.out")).collect()
    report["outcomes"] = [[row.event, row.committed, row.reason, row.result] for row in rows]
    report["balances"] = [[row.id, row.balance] for row in read_state(spark, state, Account).collect()]
    batch = spark.createDataFrame([(1, 5)], "dst long, amount long")
    applied = transact(batch, [deposit], state=state)
    report["batch"] = [applied.count(), applied.collect()[0].result, applied.collect()[0].result]
    try:
        transact(batch.drop("amount"), [deposit], state=state)
    except InputError as error:
        report["refused"] = str(error)
    (folder / "report.json").write_text(json.dumps(report))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
