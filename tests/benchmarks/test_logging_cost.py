"""The benchmark of logging: it verifies what it times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.benchmarks import charts, logging_cost
from tidegate.benchmarks.harness import Experiment, measure
from tidegate.benchmarks.state_folders import log_frames
from tidegate.workloads.chains import chain_events


def declared(folder: Path, length: int = 2) -> Experiment:
    return logging_cost.experiment(length, folder, tuples=9, clients=2, seed=1, bar=2.0)


def test_all_ways_of_logging_come_to_the_chains_counters(tmp_path: Path) -> None:
    report = measure(declared(tmp_path))
    assert [found.variant for found in report.comparisons] == [
        "strong, always",
        "weak, always",
        "strong, group",
        "weak, group",
    ]
    assert report["weak, always"].bar == 2.0
    charts.plot_logging({2: report}, tmp_path / "logging.png")
    assert (tmp_path / "logging.png").stat().st_size > 10_000


def test_strong_without_group_commit_syncs_every_step(tmp_path: Path) -> None:
    writes = {}
    for variant in declared(tmp_path, 1).variants:
        engine, path = variant.prepare()
        variant.run((engine, path))
        writes[variant.name] = len(log_frames(path))
        engine.close()
    assert writes["strong, always"] == 2 * 9 and writes["weak, always"] == 9
    assert writes["strong, group"] <= 9 and writes["weak, group"] <= 9


def test_a_tuple_too_many_is_seen(tmp_path: Path) -> None:
    variant = declared(tmp_path, 1).variants[0]
    engine, path = variant.prepare()
    variant.run((engine, path))
    engine.run(chain_events(1))
    with pytest.raises(AssertionError, match="strong, always: the rows differ"):
        variant.verify((engine, path), None)
    engine.close()
