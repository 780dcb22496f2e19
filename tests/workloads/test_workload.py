"""Every workload: events follow from settings and seed, knobs do what they say, verification finds mistakes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tidegate.workloads import bidding, grep_sum, streaming_ledger, tolls
from tidegate.workloads.workload import Run, Settings, Workload, Zipf, differences, lists_column

SMALL: dict[str, Any] = {"batch_events": 600, "cost_us": 0.02, "abort_ratio": 0.2}

MAKERS: dict[str, Callable[..., Workload]] = {
    "ledger": lambda **knobs: streaming_ledger.StreamingLedger(
        replace(streaming_ledger.MORPHSTREAM, **{**SMALL, "keys": 100, **knobs})
    ),
    "grep_sum": lambda **knobs: grep_sum.GrepSum(
        replace(grep_sum.MORPHSTREAM, **{**SMALL, "keys": 100, "length": 2, **knobs})
    ),
    "bidding": lambda **knobs: bidding.Bidding(replace(bidding.TSTREAM, **{**SMALL, "keys": 100, **knobs})),
    "tolls": lambda **knobs: tolls.Tolls(
        replace(tolls.MORPHSTREAM, **{**SMALL, "vehicles": 40, "travel_ratio": 0.4, **knobs})
    ),
    "two_groups": lambda **knobs: tolls.TwoGroups(
        replace(tolls.HOT_GROUP, **{**SMALL, "vehicles": 40, **knobs}),
        replace(tolls.CALM_GROUP, **{**SMALL, "keys": 50, **knobs}),
    ),
}
each_workload = pytest.mark.parametrize("name", MAKERS)


@functools.cache
def a_run(name: str) -> tuple[Workload, list[pa.Table], Run]:
    """A serial run of two batches."""
    workload = MAKERS[name]()
    batches = list(workload.batches(2))
    return workload, batches, workload.run(batches)


def with_value(table: pa.Table, column: str, row: int, value: Any) -> pa.Table:
    values = table[column].to_pylist()
    values[row] = value
    place = table.column_names.index(column)
    return table.set_column(place, table.schema.field(column), pa.array(values, table.schema.field(column).type))


@each_workload
class TestEveryWorkload:
    def test_a_seed_gives_the_same_events_and_another_seed_others(self, name: str) -> None:
        one, again, other = MAKERS[name](), MAKERS[name](), MAKERS[name](seed=2)
        assert one.batch(3).equals(again.batch(3))
        assert not one.batch(3).equals(other.batch(3))
        assert all(rows.equals(again.opening()[table]) for table, rows in one.opening().items())

    def test_a_batch_does_not_depend_on_those_before_it(self, name: str) -> None:
        workload = MAKERS[name]()
        batches = list(workload.batches(3))
        assert workload.batch(2).equals(batches[2])
        assert not batches[1].equals(batches[2])
        assert {batch.num_rows for batch in batches} == {workload.settings.batch_events}

    def test_a_serial_run_is_what_the_plain_functions_give(self, name: str) -> None:
        workload, batches, run = a_run(name)
        assert workload.verify(batches, run) == []

    def test_as_many_transactions_abort_as_the_knob_says(self, name: str) -> None:
        _, _, run = a_run(name)
        aborted = pc.mean(pc.invert(pa.concat_tables(run.outcomes)["committed"]).cast(pa.int8())).as_py()
        assert aborted == pytest.approx(0.2, abs=0.05)

    def test_nothing_aborts_at_a_ratio_of_zero(self, name: str) -> None:
        workload = MAKERS[name](abort_ratio=0.0)
        run = workload.run(workload.batches(2))
        assert pa.concat_tables(run.outcomes)["reason"].null_count == 2 * workload.settings.batch_events

    def test_the_cost_is_a_column_and_changes_no_outcome(self, name: str) -> None:
        _, _, run = a_run(name)
        costly = MAKERS[name](cost_us=0.5)
        assert costly.batch(0)["rounds"].unique().to_pylist() == [100]
        found = costly.run(costly.batches(2))
        assert [o["reason"].to_pylist() for o in found.outcomes] == [o["reason"].to_pylist() for o in run.outcomes]
        assert differences(run, found)  # but the seals are others

    def test_a_wrong_row_is_found_and_named(self, name: str) -> None:
        workload, batches, run = a_run(name)
        for table, rows in run.rows.items():
            wrong = with_value(rows, "seal", rows.num_rows // 2, -7)
            problems = workload.verify(batches, Run(run.outcomes, {**run.rows, table: wrong}))
            assert len(problems) == 1 and f"rows of {table.__name__}: seal differs in 1" in problems[0]
            missing = workload.verify(batches, Run(run.outcomes, {**run.rows, table: rows.slice(1)}))
            assert f"{rows.num_rows} are right, found {rows.num_rows - 1}" in missing[0]

    def test_a_wrong_outcome_is_found_and_named(self, name: str) -> None:
        workload, batches, run = a_run(name)
        first = run.outcomes[1]
        row = first["committed"].to_pylist().index(True)
        for column, value in (("committed", False), ("reason", "bad luck"), ("result", -7)):
            wrong = [run.outcomes[0], with_value(first, column, row, value)]
            problems = workload.verify(batches, Run(wrong, run.rows))
            assert len(problems) == 1 and f"outcomes of batch 1: {column} differs in 1" in problems[0]

    def test_batches_in_another_order_are_another_run(self, name: str) -> None:
        workload, batches, _ = a_run(name)
        assert workload.verify(batches, workload.run(batches[::-1]))


class TestZipf:
    def test_skew_makes_small_numbers_frequent(self) -> None:
        random = np.random.default_rng(1)
        shares = [float(np.mean(Zipf(1000, theta).draw(random, 20_000) == 0)) for theta in (0.0, 0.6, 1.2)]
        assert shares[0] == pytest.approx(0.001, abs=0.001)
        assert shares == sorted(shares)

    @pytest.mark.parametrize(
        ("count", "theta", "columns"), [(30, 0.0, 30), (30, 2.0, 20), (1000, 1.0, 12), (1, 0.0, 1)]
    )
    def test_numbers_of_a_row_are_distinct_and_in_range(self, count: int, theta: float, columns: int) -> None:
        found = Zipf(count, theta).draw_distinct(np.random.default_rng(1), 200, columns)
        assert found.min() >= 0 and found.max() < count
        assert all(len(set(row)) == columns for row in found.tolist())

    def test_more_distinct_numbers_than_there_are_is_refused(self) -> None:
        with pytest.raises(ValueError, match="5 different keys"):
            Zipf(4, 0.0).draw_distinct(np.random.default_rng(1), 1, 5)


class TestSettings:
    @pytest.mark.parametrize(
        "wrong", [{"theta": -1.0}, {"abort_ratio": 1.5}, {"cost_us": -1.0}, {"batch_events": 0}, {"keys": 0}]
    )
    def test_impossible_settings_are_refused_by_name(self, wrong: dict[str, float]) -> None:
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Settings(**wrong)  # type: ignore[arg-type]


class TestDifferences:
    def run_with(self, values: list[float]) -> Run:
        outcomes = pa.table({"committed": [True], "reason": pa.array([None], pa.string()), "result": [1]})
        return Run([outcomes], {grep_sum.Record: pa.table({"id": range(len(values)), "value": values})})

    def test_floats_are_compared_by_their_bits(self) -> None:
        nan = float("nan")
        assert differences(self.run_with([0.0, nan]), self.run_with([0.0, nan])) == []
        assert "value differs in 1" in differences(self.run_with([0.0, nan]), self.run_with([-0.0, nan]))[0]
        assert differences(self.run_with([0.1 + 0.2]), self.run_with([0.3]))

    def test_missing_batches_are_named(self) -> None:
        run = self.run_with([0.0])
        assert "1 batches" in differences(run, Run([], run.rows))[0]


def test_lists_are_null_where_they_are_not_wanted() -> None:
    matrix = np.arange(6).reshape(3, 2)
    assert lists_column(matrix, np.array([True, False, True])).to_pylist() == [[0, 1], None, [4, 5]]
