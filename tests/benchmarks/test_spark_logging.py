"""The benchmark of what versions keep: it runs, verifies what it runs and what it opens, and draws a picture."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tidegate.benchmarks import harness, spark_logging, spark_plots
from tidegate.benchmarks.spark_logging import LOGS, Found, Kept, Sizes, Stream
from tidegate.durability.versions import VersionStore
from tidegate.foundation.storage import open_storage

SIZES = Sizes(batch_rows=200, batches=1, accounts=2_000, rounds=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spark-logging")


@pytest.fixture(scope="module")
def streams(folder: Path) -> list[Stream]:
    return spark_logging.streams(folder, SIZES)


@pytest.fixture(scope="module")
def found(spark: SparkSession, folder: Path, streams: list[Stream]) -> Found:
    """The stream whose events change many rows; `make smoke` runs all of them."""
    (measured,) = spark_logging.measure(spark, folder, streams[-1:], SIZES, harness.measure)
    return measured


def test_the_streams_differ_in_the_rows_that_an_event_changes(streams: list[Stream]) -> None:
    assert [stream.name for stream in streams] == [spark_logging.MANY, spark_logging.HOT, spark_logging.WIDE]
    events, rows = ([stream.source.events for stream in streams], [stream.source.state.num_rows for stream in streams])
    assert rows[0] > events[0] / 2 and rows[1] < events[1] and rows[2] > 10 * events[2]


def test_a_stream_is_run_and_opened_in_both_ways(found: Found) -> None:
    assert [one.variant for one in found.running.comparisons] == ["changes", "commands"]
    assert {one.log for one in found.cuts} == set(LOGS)
    assert [one.variant for one in found.opening.comparisons] == [one.name for one in found.cuts]


def test_bytes_follow_the_rows_that_change_or_the_events(found: Found) -> None:
    assert found.sizes["changes"] > 2 * found.sizes["commands"]
    assert spark_logging.render_sizes([found]).row_count == 1
    assert [line["variant"] for line in spark_logging.size_records([found], SIZES)] == ["changes", "commands"]


def test_the_picture_is_drawn(found: Found, tmp_path: Path) -> None:
    spark_plots.plot_spark_logging([found], tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_a_state_is_what_its_log_says_and_one_with_other_rows_has_no_number(
    found: Found, folder: Path, streams: list[Stream]
) -> None:
    stream = streams[-1]
    kept = Kept(folder, {(stream.name, log): folder / "kept" / f"{stream.name} {log}" for log in LOGS})
    stores = {log: VersionStore(open_storage(str(kept.states[stream.name, log]))) for log in LOGS}
    assert not any(info.program for info in stores["changes"].infos())
    assert all(info.program for info in stores["commands"].infos())
    later = next(each for each in found.cuts if each.log == "changes" and each.version == 2)
    (later.folder / "000000000002.change").unlink()
    with pytest.raises(AssertionError, match="the rows differ"):
        harness.measure(spark_logging.opening_experiment(stream, kept, [later], SIZES))
