from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor

import pytest

from tidegate.benchmarks import futures_pipeline
from tidegate.benchmarks.ordering_speed import light
from tidegate.benchmarks.plain_pipeline import PlainPipeline
from tidegate.workloads.parametric import Reading, readings


@pytest.mark.parametrize("run", [futures_pipeline.record_by_record, futures_pipeline.in_chunks])
@pytest.mark.parametrize("count", [0, 1, 2_500])
def test_futures_with_order_restored_give_what_the_plain_functions_give(
    run: Callable[[Executor, list[Reading]], list[Reading]], count: int
) -> None:
    table = readings(count, sensors=5)
    with ThreadPoolExecutor(3) as pool:
        assert run(pool, [Reading(**row) for row in table.to_pylist()]) == light(PlainPipeline(Reading)).run(table)
