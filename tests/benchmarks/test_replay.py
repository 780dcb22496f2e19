"""The benchmark of replaying: it verifies what it times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.benchmarks import charts, replay
from tidegate.benchmarks.harness import Comparison, Report, measure
from tidegate.workloads import ledger


def test_both_styles_come_back_at_every_point(tmp_path: Path) -> None:
    template, points = replay.points(tmp_path, transactions=90, batch_events=20, pieces=2, seed=1)
    assert [(point.style, point.transactions) for point in points] == [
        ("", 0),
        (replay.BATCHES, 45),
        (replay.BATCHES, 90),
        (replay.CALLS, 45),
        (replay.CALLS, 90),
    ]
    assert points[0].log_size == 0 and points[1].log_size < points[2].log_size
    report = measure(replay.experiment(template, points, seed=1))
    charts.plot_replay(replay.results(points, report), tmp_path / "replay.png")
    assert (tmp_path / "replay.png").stat().st_size > 10_000


def test_the_rate_leaves_out_what_opening_takes_at_all(tmp_path: Path) -> None:
    template, points = replay.points(tmp_path, transactions=40, batch_events=20, pieces=1, seed=1)
    seconds = [1.0, 3.0, 1.0 + 1e-5]
    compared = tuple(
        Comparison(point.name, (taken,), 1.0, 1.0, 1.0, None) for point, taken in zip(points, seconds, strict=True)
    )
    report = Report(replay.experiment(template, points, seed=1), compared)
    bars = replay.bars(replay.results(points, report))
    assert [bar.passed for bar in bars] == [False, True]
    assert bars[0].found == 20.0 and bars[1].found == pytest.approx(4e6)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_recovery_with_other_rows_is_seen(tmp_path: Path, number: int) -> None:
    template, points = replay.points(tmp_path, transactions=40, batch_events=20, pieces=1, seed=1)
    variant = replay.experiment(template, points, seed=1).variants[number]
    path = variant.prepare()
    engine = variant.run(path)
    engine.execute(ledger.deposit, dst=1, amount=1)
    with pytest.raises(AssertionError, match="the rows differ"):
        variant.verify(path, engine)
    engine.close()
