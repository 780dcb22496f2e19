from __future__ import annotations

import pytest

from tidegate.benchmarks.plain_pipeline import PlainPipeline
from tidegate.workloads.tpcx_bb.queries import QUERIES


@pytest.mark.parametrize("name", QUERIES)
def test_events_of_a_query_are_records_of_its_pipeline_and_give_answers(name: str) -> None:
    found = QUERIES[name]
    table = found.events(20_000, seed=3)
    assert len(found.query(PlainPipeline(found.record)).run(table)) > 5
    assert not found.events(20_000, seed=4).equals(table)
