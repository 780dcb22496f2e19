"""What is right for parametric operators is known without spending their time: it equals the plain functions."""

from __future__ import annotations

import pyarrow as pa

from tidegate.benchmarks import ordering_buffers as buffers
from tidegate.benchmarks import ordering_partitions as partitions
from tidegate.benchmarks.harness import measure
from tidegate.benchmarks.plain_pipeline import PlainPipeline
from tidegate.workloads.parametric import OUTPUTS, Task, compute, seal, spread, tasks

TABLE = tasks(40, rounds=5, sigma=0.1)
PLAIN = PlainPipeline(Task)


def test_seals_and_values_are_those_of_the_plain_functions() -> None:
    assert partitions.sealed(TABLE) == PLAIN.stateful(seal, key="key").run(TABLE)
    assert buffers.computed(TABLE) == PLAIN.map(compute).run(TABLE)


def test_what_is_spread_is_sealed_as_the_plain_functions_do() -> None:
    wanted = PLAIN.flat_map(spread).stateful(seal, key="key").run(TABLE)
    found = buffers.spread_out(TABLE)
    assert isinstance(found, pa.Table) and partitions.sealed(found) == wanted and len(wanted) == 40 * OUTPUTS


def test_every_scheme_gives_the_outputs_of_the_plain_functions_in_the_experiments() -> None:
    made = partitions.race(records=200, cost_us=0.01, pace=100.0, workers=2, sigma=0.2, seed=1)
    report = measure(made.experiment("made-up", "", {}, seed=1))
    assert [found.variant for found in report.comparisons] == ["hybrid", "shared", "partitioned"]
    for race in (
        buffers.light(records=100, pace=1.0, workers=[1, 2], seed=1),
        buffers.selective(records=10, pace=0.1, workers=[2], seed=1),
    ):
        report = measure(race.experiment("made-up", "", {}, seed=1))
        assert {found.variant.rsplit(" x", 1)[0] for found in report.comparisons} == {"non-blocking", "lock"}
