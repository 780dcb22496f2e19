"""The benchmark of recovery: it verifies what it times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.benchmarks import charts, recovery
from tidegate.benchmarks.harness import Comparison, Experiment, Report, Variant, measure
from tidegate.workloads.chains import chain_events


def declared(folder: Path, tuples: int = 6) -> Experiment:
    return recovery.experiment(folder, lengths=(1, 2), tuples=tuples, seed=1)


def test_both_recoveries_of_all_lengths_come_to_the_chains_counters(tmp_path: Path) -> None:
    report = measure(declared(tmp_path))
    assert [found.variant for found in report.comparisons] == [
        "weak, 1 procedure",
        "strong, 1 procedure",
        "weak, 2 procedures",
        "strong, 2 procedures",
    ]
    charts.plot_recovery(report, (1, 2), tmp_path / "recovery.png")
    assert (tmp_path / "recovery.png").stat().st_size > 10_000


def test_the_bar_is_the_longest_weak_recovery_beside_the_shortest() -> None:
    seconds = {"weak, 1 procedure": 1.0, "strong, 1 procedure": 9.0, "weak, 5 procedures": 1.6}
    experiment = Experiment("recovery", "Made up", 1, "round", [Variant(name, run=lambda _: None) for name in seconds])
    found = tuple(Comparison(name, (taken,), 1.0, 1.0, 1.0, None) for name, taken in seconds.items())
    bar = recovery.bar(Report(experiment, found), (1, 5))
    assert bar.found == 1.6 and not bar.passed


def test_a_recovery_with_a_tuple_too_many_is_seen(tmp_path: Path) -> None:
    for variant in declared(tmp_path).variants[:2]:
        path = variant.prepare()
        engine = variant.run(path)
        engine.run(chain_events(1))
        with pytest.raises(AssertionError, match="the rows differ"):
            variant.verify(path, engine)
        engine.close()


def test_a_log_that_a_checkpoint_has_cut_off_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.durability.logged.CHECKPOINT_AFTER_BYTES", 2_000)
    with pytest.raises(AssertionError, match="a checkpoint has ended it"):
        declared(tmp_path, tuples=20).variants[0].prepare()
