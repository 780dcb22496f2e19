"""The benchmark of durable calls and batches: it verifies what it times."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tidegate.benchmarks import durable
from tidegate.benchmarks.harness import Experiment, measure
from tidegate.workloads import ledger


def calls(folder: Path) -> Experiment:
    return durable.execute_experiment(folder, calls=48, seed=1)


def test_calls_come_to_the_plain_functions_rows_from_any_number_of_threads(tmp_path: Path) -> None:
    report = measure(calls(tmp_path))
    names = [durable.APPEND, durable.ALLOCATED, durable.ONE, durable.MANY, durable.ALWAYS, durable.NEVER]
    assert [found.variant for found in report.comparisons] == names
    assert report[durable.ONE].bar == durable.ONE_BAR
    bar = durable.execute_bar(report)
    assert bar.limit == 5.0
    assert bar.found == report[durable.ONE].seconds_median / report[durable.MANY].seconds_median


@pytest.mark.parametrize("number", [2, 3, 4, 5])
def test_a_call_too_many_is_seen(tmp_path: Path, number: int) -> None:
    variant = calls(tmp_path).variants[number]
    engine, path = variant.prepare()
    result = variant.run((engine, path))
    engine.execute(ledger.deposit, dst=1, amount=1)
    with pytest.raises(AssertionError, match="the rows differ"):
        variant.verify((engine, path), result)


@pytest.mark.parametrize("number", [0, 1])
def test_appends_that_are_not_there_are_seen(tmp_path: Path, number: int) -> None:
    variant = calls(tmp_path).variants[number]
    descriptor, path = variant.prepare()
    size = variant.run((descriptor, path))
    path.write_bytes(b"")
    with pytest.raises(AssertionError, match="what was appended is not there"):
        variant.verify((descriptor, path), size)


def test_a_transaction_takes_few_bytes_of_log_whatever_sync_means(tmp_path: Path) -> None:
    sizes = durable.log_sizes(tmp_path, calls=60, seed=1)
    assert [(size.workload, size.sync) for size in sizes] == [
        (workload, sync) for workload in ("ledger", "streaming ledger") for sync in durable.SYNCS
    ]
    for size in sizes:
        assert size.bar.passed, size
        assert size.size / size.transactions > 12  # a frame takes eleven bytes besides its record


def test_batches_come_to_the_plain_functions_outcomes(tmp_path: Path) -> None:
    experiment = durable.batch_experiment(tmp_path, batches=2, events=300, seed=1)
    report = measure(experiment)
    assert experiment.settings["syncs"] == 2 and experiment.settings["log_bytes"] > 2 * 300 * 24
    slower = max(report[durable.MEMORY].seconds_median, report[durable.DISK].seconds_median)
    assert durable.batch_bar(report).found == slower / report[durable.DURABLE].seconds_median


@pytest.mark.parametrize("number", [0, 2])
def test_wrong_outcomes_and_wrong_rows_of_batches_are_seen(tmp_path: Path, number: int) -> None:
    variant = durable.batch_experiment(tmp_path, batches=2, events=50, seed=1).variants[number]
    prepared = variant.prepare()
    outcomes = variant.run(prepared)
    wrong = outcomes[1].set_column(
        outcomes[1].schema.get_field_index("committed"), "committed", pa.array([False] * outcomes[1].num_rows)
    )
    with pytest.raises(AssertionError, match="the rows differ"):
        variant.verify(prepared, [outcomes[0], wrong])
    prepared[0].execute(ledger.deposit, dst=1, amount=1)
    with pytest.raises(AssertionError, match="the rows differ"):
        variant.verify(prepared, outcomes)
