"""The benchmark of checkpoints and kept versions: it verifies what it times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tidegate.benchmarks import checkpoints
from tidegate.benchmarks.checkpoints import CHANGED, NONE, WHOLE, KeptSizes, LargeState, Sizes
from tidegate.benchmarks.harness import Comparison, Experiment, Report, Variant, measure

SIZES = Sizes(rows=2_000, batch_events=50, batches=4, rounds=1)
KEPT = KeptSizes(few=3, many=25, rows=100, batch_events=10, batches=2, rounds=1)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LargeState]:
    """A small state that is due for a checkpoint early: between one stretch of batches and two of them."""
    monkeypatch.setattr("tidegate.durability.logged.CHECKPOINT_AFTER_BYTES", 19_000)
    made = LargeState(SIZES, tmp_path / "state")
    yield made
    made.close()


def test_each_kind_of_checkpoint_happens_beside_its_batches(state: LargeState) -> None:
    report = measure(checkpoints.experiment(state, SIZES))
    assert [found.variant for found in report.comparisons] == [NONE, CHANGED, WHOLE]
    assert all(found.note.startswith("worst ") for found in report.comparisons)


def test_a_stretch_in_which_no_checkpoint_was_written_has_no_number(
    state: LargeState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.durability.logged.CHECKPOINT_AFTER_BYTES", 1 << 30)
    variant = checkpoints.experiment(state, SIZES).variants[2]
    prepared = variant.prepare()
    with pytest.raises(AssertionError, match="the whole state: 0 checkpoints"):
        variant.verify(prepared, variant.run(prepared))


def test_outcomes_that_differ_are_seen(state: LargeState) -> None:
    variant = checkpoints.experiment(state, SIZES).variants[0]
    prepared = variant.prepare()
    _, outcomes = variant.run(prepared)
    flipped = outcomes[0].set_column(
        outcomes[0].schema.get_field_index("result"), "result", pa.array([7] * SIZES.batch_events)
    )
    with pytest.raises(AssertionError, match="none: the rows differ"):
        state.verify(prepared[0], [flipped, *outcomes[1:]], NONE)
    state._truth.run(pa.concat_tables(prepared[0][1:]))


def test_a_state_that_comes_back_with_other_rows_is_seen(tmp_path: Path) -> None:
    state = LargeState(replace(SIZES, rounds=1), tmp_path / "state")
    state.run(state.stretch())  # the truth does not hear of it
    with pytest.raises(AssertionError, match="at the end: the rows differ"):
        state.close()


def test_the_p99_counts_and_not_the_worst() -> None:
    names = (NONE, CHANGED, WHOLE)
    experiment = Experiment("checkpoints", "Made up", 1, "batch", [Variant(name, run=lambda _: None) for name in names])
    found = tuple(
        Comparison(name, (taken,), 1.0, 1.0, 1.0, None) for name, taken in zip(names, (1.0, 1.5, 1.6), strict=True)
    )
    assert [bar.passed for bar in checkpoints.bars(Report(experiment, found))] == [True, False]
    variant = checkpoints._variant(NONE, None)  # type: ignore[arg-type]
    assert variant.seconds is not None
    assert variant.seconds(([0.001] * 499 + [9.0], [])) == pytest.approx(0.5)


def test_batches_beside_few_and_many_versions(tmp_path: Path) -> None:
    report = measure(checkpoints.kept_experiment(tmp_path, KEPT))
    assert [found.variant for found in report.comparisons] == ["3 versions", "25 versions"]
    assert report["25 versions"].bar == checkpoints.KEPT_BAR


def test_versions_that_are_not_there_are_seen(tmp_path: Path) -> None:
    variant = checkpoints.kept_experiment(tmp_path, KEPT).variants[1]
    batches = variant.prepare()
    outcomes = variant.run(batches)
    for file in sorted((tmp_path / "kept-25").glob("*.change"))[:10]:
        file.unlink()
    with pytest.raises(AssertionError, match="25 versions should be kept, and 18 are there"):
        variant.verify(batches, outcomes)
