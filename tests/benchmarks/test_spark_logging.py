"""The benchmark of what versions keep: it runs, verifies what it runs and what it opens, and draws a picture."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tidegate.benchmarks import durability_plots, harness, spark_logging
from tidegate.benchmarks.spark_logging import LOGS, MANY, WIDE, Kept, Sizes
from tidegate.durability.versions import VersionStore
from tidegate.foundation.storage import open_storage

SIZES = Sizes(batch_rows=200, batches=1, accounts=2_000, rounds=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spark-logging")


@pytest.fixture(scope="module")
def found(spark: SparkSession, folder: Path) -> list[spark_logging.Found]:
    return spark_logging.measure(spark, folder, SIZES, harness.measure)


def test_every_stream_is_run_and_opened_in_both_ways(found: list[spark_logging.Found]) -> None:
    assert [each.stream for each in found] == [spark_logging.MANY, spark_logging.HOT, spark_logging.WIDE]
    for each in found:
        assert [one.variant for one in each.running.comparisons] == ["changes", "commands"]
        assert {one.log for one in each.cuts} == set(LOGS)
        assert [one.variant for one in each.opening.comparisons] == [one.name for one in each.cuts]


def test_bytes_follow_the_rows_that_change_or_the_events(found: list[spark_logging.Found]) -> None:
    sizes = {each.stream: each.sizes for each in found}
    assert sizes[WIDE]["changes"] > 40 * 16 > 10 * (sizes[WIDE]["commands"] - 300)
    assert abs(sizes[MANY]["commands"] - sizes[spark_logging.HOT]["commands"]) < 5
    table = spark_logging.render_sizes(
        {(name, log): size for name, both in sizes.items() for log, size in both.items()}
    )
    assert table.row_count == 3


def test_the_picture_is_drawn(found: list[spark_logging.Found], tmp_path: Path) -> None:
    durability_plots.plot_spark_logging(found, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_the_state_of_a_run_is_what_its_log_says_and_another_one_has_no_number(
    found: list[spark_logging.Found], folder: Path, tmp_path: Path
) -> None:
    stream = spark_logging.streams(tmp_path, SIZES)[-1]
    kept = Kept(folder, {(stream.name, log): folder / "kept" / f"{stream.name} {log}" for log in LOGS})
    stores = {log: VersionStore(open_storage(str(kept.states[stream.name, log]))) for log in LOGS}
    assert not any(info.program for info in stores["changes"].infos())
    assert all(info.program for info in stores["commands"].infos())
    later = next(each for each in found[-1].cuts if each.log == "changes" and each.version == 2)
    (later.folder / "000000000002.change").unlink()
    with pytest.raises(AssertionError, match="the rows differ"):
        harness.measure(spark_logging.opening_experiment(stream, kept, [later], SIZES))
