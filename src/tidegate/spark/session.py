"""A SparkSession with settings that suit Tidegate, for users who have no session yet.

Any SparkSession works with `transact`. This one makes settings that otherwise take time to find out:

    PYSPARK_PYTHON        the running Python; otherwise workers may start another one, without tidegate
    JAVA_HOME             a Java that Spark can run on, wherever it is (`java.find_java`)
    master                local[*], unless spark-submit, SPARK_REMOTE or the caller chose one
    Arrow batches         larger than Spark's 10,000 rows: fewer transfers to the worker
    logs                  errors only, no progress bar, no warning about the host's name

The caller's settings take precedence. An active session is returned unchanged: Spark has one JVM per process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from tidegate.foundation.arguments import name as text
from tidegate.foundation.arguments import refusal
from tidegate.foundation.tracebacks import briefly
from tidegate.spark.java import ensure_java

ARROW_BATCH_ROWS = 20_000
"""Rows per Arrow batch on the way to a Python worker: larger batches were no faster."""

_QUIET = Path(__file__).with_name("log4j2.properties")


@briefly
def session(name: str = "tidegate", *, config: Mapping[str, object] | None = None) -> SparkSession:
    """The active SparkSession, or a new one that is ready for `transact`.

    Args:
        name: the application's name, as Spark's pages show it.
        config: Spark settings by their full names, such as {"spark.master": "local[4]"}.

    >>> spark = session("ledger", config={"spark.sql.shuffle.partitions": 4})  # doctest: +SKIP
    """
    text("session: name", name, "a text")
    given: object = {} if config is None else config
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise refusal("session: config", 'Spark settings by their names, {"spark.master": "local[4]"}', config)
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    chosen = {key: _text(value) for key, value in (config or {}).items()}
    remote = chosen.get("spark.remote") or os.environ.get("SPARK_REMOTE", "")
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit started us, and chose master and Java
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {"spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_BATCH_ROWS)} | chosen
    if not submitted and not remote.startswith("sc://"):
        ensure_java()
        settings = _of_our_own_jvm(settings)
        if not remote:
            settings.setdefault("spark.master", "local[*]")
            if settings["spark.master"].startswith("local"):
                # Laptops and containers often have a host name that resolves to nothing.
                os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _of_our_own_jvm(settings: dict[str, str]) -> dict[str, str]:
    """The settings, plus those for a JVM that this process starts itself."""
    options = "spark.driver.extraJavaOptions"
    quiet = f"-Dlog4j2.configurationFile={_QUIET.as_uri()} {settings.get(options, '')}"  # the last one wins
    return {"spark.ui.showConsoleProgress": "false"} | settings | {options: quiet.strip()}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
