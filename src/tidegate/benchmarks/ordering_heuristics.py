"""Which operator a free worker should take: four heuristics on five queries, by throughput and by latency.

Each query of TPCx-BB runs with each heuristic on 1, 2, 4, ... workers, Arrow to Arrow, as fast as it can. The
heuristics differ in which operator gets a worker next, so in how records flow: one operator after the other, as
batches do, or all at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.benchmarks.ordered_race import Race, variant_name
from tidegate.benchmarks.plain_pipeline import PlainPipeline
from tidegate.ordering import pipeline
from tidegate.workloads.tpcx_bb.queries import QUERIES

HEURISTICS = ("current-throughput", "last-in-pipeline", "estimated-time", "queue-size")


def race(name: str, *, records: int, workers: Sequence[int], seed: int) -> Race:
    """All heuristics on one query; the default one with one worker is the reference."""
    query = QUERIES[name]
    table = query.events(records, seed=seed)
    made = Race(table, query.query(PlainPipeline(query.record)).run(table))
    runs = query.query(pipeline(query.record))
    for heuristic in HEURISTICS:
        for count in workers:
            made.add(variant_name(heuristic, count), runs, workers=count, heuristic=heuristic)
    return made
