"""How records of many keys are given to workers: the hybrid queue beside a shared one and one queue for each partition.

skew     keys from a normal distribution, in ranges: the smaller sigma, the more records are in few partitions.
         "partitioned" has as many partitions as workers, the others a hundred.
cost     uniform keys, operators of 10 to 10,000 µs: how long a record's outputs wait behind those of records that
         came earlier. What is shown is the time from when its processing begins until its outputs have left.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidegate.benchmarks.ordered_race import Race
from tidegate.ordering import pipeline
from tidegate.workloads.parametric import Task, burned, key_ranges, seal, tasks

SCHEMES = ("hybrid", "shared", "partitioned")
PARTITIONS = 100
SIGMAS = (0.1, 0.2, 0.3, 0.5, 1.0)
COSTS_US = (10, 100, 1_000, 10_000)
SKEW_COST_US = 100


def sealed(table: pa.Table) -> list[Task]:
    """What `seal` gives for tasks, without spending the time."""
    seals: dict[int, int] = {}
    out = []
    for row in table.to_pylist():
        seals[row["key"]] = burned(seals.get(row["key"], 0) + row["value"], row["rounds"])
        out.append(Task(row["key"], row["rounds"], seals[row["key"]]))
    return out


def race(*, records: int, cost_us: float, pace: float, workers: int, sigma: float | None, seed: int) -> Race:
    """One keyed operator with each scheme."""
    table = tasks(records, rounds=round(cost_us * pace), sigma=sigma, seed=seed)
    made = Race(table, sealed(table))
    for scheme in SCHEMES:
        partitions = workers if scheme == "partitioned" else PARTITIONS
        made.add(scheme, _pipeline(partitions), workers=workers, partitioning=scheme)
    return made


def _pipeline(partitions: int) -> Any:
    return pipeline(Task).stateful(seal, key="key", partitions=key_ranges(partitions))
