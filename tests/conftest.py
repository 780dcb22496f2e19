"""Fixtures that tests of several packages share: one local Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
