"""How many workers a task of `transact` has.

Transactions run in one task, and while it runs Spark leaves the other cores of its executor idle: the stage has no
other task. `spark.task.cpus` says what Spark reserves for a task, one core unless raised, and raising it takes cores
from all other stages. So by default the task uses the cores of its executor, without reserving them:

    local[4]                                 4, or as many as the machine has
    spark.executor.cores=8                   8
    a standalone cluster, nothing set        an executor has its whole machine
    YARN, Kubernetes, nothing set            1: what an executor gets there

It never takes more than the processors that the process may use (its affinity, and the quota of its container), nor
less than `spark.task.cpus`. Tasks of several queries on one executor share: each takes its part of the cores while the
others are at work. They need not agree on a moment, so for one batch they may have a few threads too many.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext

from tidegate.foundation.attendance import present
from tidegate.foundation.processors import processors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WHOLE_MACHINE = 1 << 16
"""More cores than any machine has: the task finds out how many there are."""

_LOCAL = re.compile(r"local(?:\[\s*(\d+|\*)\s*(?:,.*)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*\d+\s*,\s*(\d+)\s*,.*\]")


def executor_cores(session: SparkSession) -> int:
    """The cores of an executor of the session's application, as far as its settings tell."""
    return cores_of(session.conf.get("spark.master", "") or "", session.conf.get("spark.executor.cores", "") or "")


def cores_of(master: str, executor: str) -> int:
    """The cores of an executor for the settings `spark.master` and `spark.executor.cores`; empty where not set."""
    if local := _LOCAL.fullmatch(master):
        return WHOLE_MACHINE if local[1] == "*" else int(local[1] or 1)
    if local := _LOCAL_CLUSTER.fullmatch(master):
        return int(local[1])
    if executor.isdecimal():
        return max(1, int(executor))
    return WHOLE_MACHINE if master.startswith("spark://") else 1


@contextlib.contextmanager
def task_workers(asked: int | None, cores: int) -> Iterator[int]:
    """How many workers this task has, for a batch: as many as were asked for, or its share of the executor's cores."""
    context = TaskContext.get()
    reserved = max(1, context.cpus()) if context is not None else 1
    folder = Path(tempfile.gettempdir()) / f"tidegate-tasks-{os.geteuid()}"
    # All Python workers of an executor are children of one process.
    with present(folder, str(os.getppid())) as tasks:
        yield asked or max(reserved, min(cores, processors()) // tasks)
