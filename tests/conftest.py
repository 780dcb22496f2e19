"""Fixtures that tests of several packages share: one local Spark, and a disk that is soon full."""

from __future__ import annotations

import collections
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from . import numba_interfaces

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

hypothesis.settings.register_profile("tidegate", deadline=None)  # a first call may compile
hypothesis.settings.load_profile("tidegate")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Where Numba changed what Tidegate cannot be imported without, say that, and nothing else."""
    if hasattr(session.config, "workerinput"):
        return  # the process that started this one asked
    found = numba_interfaces.changes()
    if found:
        pytest.exit(numba_interfaces.advice(found), returncode=pytest.ExitCode.USAGE_ERROR)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One local Spark on two cores for all tests of this process; its UI is off, its shuffles small."""
    from tidegate.spark import session

    warehouse = tmp_path_factory.mktemp("warehouse")
    spark = session(
        "tidegate-tests",
        config={
            "spark.master": "local[2]",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(warehouse),
            "spark.ui.enabled": "false",
        },
    )
    yield spark
    spark.stop()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 128 KiB; mounting one needs privileges that not every machine gives."""
    mounted = tmp_path / "disk"
    mounted.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=128k", "tidegate-test", str(mounted)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip(f"mounting is not permitted here: {done.stderr.strip()}")
    yield mounted
    subprocess.run(["umount", "--lazy", str(mounted)], check=True)  # this process may hold a lock there until it ends


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many random programs were compared; tests tell by `record_property`, from any process.

    It stands here because the process that reports collects no tests, and so sees no other conftest.
    """
    totals: collections.Counter[str] = collections.Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "call":
                for name, value in report.user_properties:
                    if str(name).startswith("compared "):
                        totals[name.removeprefix("compared ")] += value
    if totals:
        parts = ", ".join(f"{count:,} {name}" for name, count in totals.items())
        terminalreporter.write_line(f"the engine was compared with the oracle on random input: {parts}")
