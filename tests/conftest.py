"""Fixtures that tests of several packages share: one local Spark, and a disk that is soon full."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

hypothesis.settings.register_profile("tidegate", deadline=None)  # a first call may compile
hypothesis.settings.load_profile("tidegate")


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
    subprocess.run(["umount", str(mounted)], check=True)
