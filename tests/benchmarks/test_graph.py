from __future__ import annotations

import io
import json
from dataclasses import replace

import pyarrow as pa
import pytest
from rich.console import Console

from tidegate.benchmarks import graph
from tidegate.benchmarks.graph import BYTES_MAX, OPERATIONS_MIN, Built, Construction
from tidegate.benchmarks.harness import measure
from tidegate.workloads.streaming_ledger import MORPHSTREAM, StreamingLedger

SMALL = StreamingLedger(replace(MORPHSTREAM, keys=60, batch_events=100, cost_us=0.0, seed=5))


def result_of(*built: Built) -> Construction:
    construction = Construction(SMALL)
    construction.built.extend(built)
    return construction


def test_the_four_applications_are_there_with_functions_that_take_no_time() -> None:
    workloads = [each.workload for each in graph.constructions(batch_events=50, seed=7, keys=80)]
    assert len({workload.name for workload in workloads}) == 4
    assert {workload.rounds for workload in workloads} == {0}
    assert {(workload.settings.batch_events, workload.settings.seed) for workload in workloads} == {(50, 7)}
    assert {workload.settings.keys for workload in workloads} == {80}


def test_without_other_sizes_tables_are_as_published() -> None:
    keys = [each.workload.settings.keys for each in graph.constructions(batch_events=50, seed=1)]
    assert keys == [122_880, 12_288, 10_000, 100]


def test_the_construction_alone_is_timed_batch_by_batch() -> None:
    measured = [Construction(SMALL)]
    report = measure(replace(graph.experiment(measured), rounds=3))
    (construction,) = measured
    assert len(construction.built) == 4  # one warmed up
    first = construction.built[0]
    construction.leave_out_warm_up(rounds=3)
    assert report[SMALL.name].seconds == tuple(each.seconds for each in construction.built)
    whole = sum(len(batch) + batch["to_account"].is_valid().to_pylist().count(True) for batch in SMALL.batches(1))
    assert first.operations <= 2 * whole  # a deposit writes two rows, a transfer four; some are split less
    assert 12 < construction.bytes_per_operation < 1_000 and construction.operations_per_second > 0


def test_a_batch_that_differs_from_serial_has_no_number() -> None:
    construction = Construction(SMALL)
    variant = construction.variant()
    prepared = variant.prepare()
    (outcomes,), built = variant.run(prepared)
    wrong = outcomes.set_column(outcomes.column_names.index("result"), "result", pa.array([0] * 100, pa.int64()))
    with pytest.raises(AssertionError, match="outcomes of batch 0: result differs"):
        variant.verify(prepared, ([wrong], built))
    assert construction.built == []


def test_the_middle_of_the_batches_counts() -> None:
    found = result_of(Built(1.0, 100, 3_000), Built(2.0, 100, 4_000), Built(5.0, 200, 5_000))
    assert found.operations_per_second == 50.0 and found.bytes_per_operation == 30.0 and found.operations == 100


@pytest.mark.parametrize(
    ("speed", "size", "passed"),
    [
        (OPERATIONS_MIN, BYTES_MAX, (True, True)),
        (OPERATIONS_MIN - 1, BYTES_MAX, (False, True)),
        (OPERATIONS_MIN, BYTES_MAX + 1, (True, False)),
    ],
)
def test_it_must_be_quick_and_small(speed: float, size: float, passed: tuple[bool, bool]) -> None:
    found = result_of(Built(1.0, int(speed), int(speed * size)))
    assert tuple(bar.passed for bar in found.bars()) == passed


def test_the_table_has_bars_unless_it_is_a_smoke_run() -> None:
    found = [result_of(Built(1e-5, 1_000, 62_000))]
    shown = {}
    for with_bars in (True, False):
        text = io.StringIO()
        Console(width=140, file=text).print(graph.render("Graphs", found, with_bars=with_bars))
        shown[with_bars] = text.getvalue()
    assert "≥ 10,000,000 ✓" in shown[True] and "≤ 200 ✓" in shown[True] and "100,000,000" in shown[True]
    assert "✓" not in shown[False] and "62" in shown[False]


def test_records_are_json_lines_with_every_batch() -> None:
    (told,) = json.loads(json.dumps(graph.records([result_of(Built(1.0, 100, 30_000))])))
    assert told["workload"] == "streaming ledger" and told["seed"] == 5 and told["settings"]["keys"] == 60
    assert told["built"] == [{"seconds": 1.0, "operations": 100, "graph_bytes": 30_000}]
    assert (told["operations_per_second"], told["bytes_per_operation"], told["passed"]) == (100, 300.0, False)
    assert [bar["passed"] for bar in told["bars"]] == [False, False]
