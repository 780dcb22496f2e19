"""How outputs are put into order: the non-blocking reorder buffer beside one with a lock, with more and more workers.

light        a stateless operator of 10 µs: putting outputs in order is a large part of the work
selective    an operator of 100 µs with 50 outputs, and a keyed one of 100 µs behind it: moving outputs takes long,
             and who finds the lock taken stands still meanwhile
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tidegate.benchmarks.ordered_race import Race, variant_name
from tidegate.benchmarks.ordering_partitions import sealed
from tidegate.ordering import pipeline
from tidegate.workloads.parametric import KEYS, OUTPUTS, Task, burned, compute, seal, spread, tasks

SCHEMES = ("lock", "non-blocking")
LIGHT_US, SELECTIVE_US = 10, 100


def light(*, records: int, pace: float, workers: Sequence[int], seed: int) -> Race:
    """A light operator without state."""
    table = tasks(records, rounds=round(LIGHT_US * pace), seed=seed)
    return _race(table, computed(table), pipeline(Task).map(compute), workers)


def selective(*, records: int, pace: float, workers: Sequence[int], seed: int) -> Race:
    """An operator with many outputs, and one with state behind it."""
    table = tasks(records, rounds=round(SELECTIVE_US * pace), seed=seed)
    chain = pipeline(Task).flat_map(spread).stateful(seal, key="key")
    return _race(table, sealed(spread_out(table)), chain, workers)


def computed(table: pa.Table) -> list[Task]:
    """What `compute` gives for tasks, without spending the time."""
    return [Task(row["key"], row["rounds"], burned(row["value"], row["rounds"])) for row in table.to_pylist()]


def spread_out(table: pa.Table) -> pa.Table:
    """What `spread` gives for tasks, without spending the time."""
    rows = [
        {"key": (task.key + number) % KEYS, "rounds": task.rounds, "value": task.value + number}
        for task in computed(table)
        for number in range(OUTPUTS)
    ]
    return pa.Table.from_pylist(rows, table.schema)


def _race(table: pa.Table, wanted: Sequence[Task], runs: Any, workers: Sequence[int]) -> Race:
    made = Race(table, wanted)
    for count in workers:
        for scheme in SCHEMES:
            made.add(variant_name(scheme, count), runs, workers=count, reorder=scheme)
    return made


EXPERIMENTS = (
    (f"stateless, {LIGHT_US} µs", LIGHT_US, light),
    (f"{SELECTIVE_US} µs with {OUTPUTS} outputs, then keyed", SELECTIVE_US * (1 + OUTPUTS), selective),
)
"""What is measured, what a record of the source costs in µs, and how to make it; the lock with one worker is first."""
