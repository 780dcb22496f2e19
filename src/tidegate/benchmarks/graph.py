"""What the graph of a batch costs: operations per second and core to build it, and bytes for each.

Before several workers can share a batch, its transactions are taken apart into operations, and each operation is
linked to the write that it waits for (`engine.planning.builder`). Serial execution has nothing of the kind, so this is
the price of a schedule before it has gained anything:

    bind ── construct ── units ── explore ── install
            measured

One worker runs the four published applications with functions that take no time, each batch with one fixed decision.
The engine reports how long building the graph took, without looking up keys, running, and making outcomes. Bytes are
those of the graph's arrays, without what running adds to them and without the versions of rows.

An operation is the write of one row, as in the literature. (The compiler runs a list of rows as one operation; here
every row of it counts.) Outcomes and rows of every batch are compared with a serial engine, as everywhere.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
from rich.table import Table

import tidegate as tg
from tidegate.benchmarks.bars import Bar
from tidegate.benchmarks.harness import Experiment, Variant, plain_table, record
from tidegate.benchmarks.strategies import Batches, Contest
from tidegate.workloads import bidding, grep_sum, streaming_ledger, tolls
from tidegate.workloads.workload import Workload

STRATEGY = "ns-operation-eager"
OPERATIONS_MIN = 10_000_000.0
"""Operations per second on one core."""
BYTES_MAX = 200.0
"""Bytes of graph for each operation."""

Prepared = tuple[tg.Engine, int, Batches]


@dataclass(frozen=True, slots=True)
class Built:
    """One graph, as the engine reports it."""

    seconds: float
    operations: int
    graph_bytes: int

    @staticmethod
    def last_of(engine: tg.Engine) -> Built:
        """The graph of an engine's last batch."""
        last = engine.last_batch
        assert last is not None and "construct" in last.seconds, f"{STRATEGY} must have built a graph"
        found = last.properties
        return Built(last.seconds["construct"], int(found["writes"]), int(found["graph bytes"]))


class Construction:
    """The graphs of one workload, batch after batch."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.built: list[Built] = []
        """Of every batch that was verified."""

    def variant(self) -> Variant:
        """A batch in each round; its seconds are those of the construction alone."""
        whole = Contest(self.workload).variant(STRATEGY, 1, self.workload.name)

        def run(prepared: Prepared) -> tuple[list[pa.Table], Built]:
            return whole.run(prepared), Built.last_of(prepared[0])

        def verify(prepared: Prepared, result: tuple[list[pa.Table], Built]) -> None:
            whole.verify(prepared, result[0])
            self.built.append(result[1])

        return replace(whole, run=run, verify=verify, seconds=lambda result: result[1].seconds)

    def leave_out_warm_up(self, rounds: int) -> None:
        """Keep the graphs of the last `rounds` batches: those before only warmed up."""
        del self.built[:-rounds]

    @property
    def operations_per_second(self) -> float:
        """The median of the batches."""
        return statistics.median(each.operations / each.seconds for each in self.built)

    @property
    def bytes_per_operation(self) -> float:
        """The median of the batches."""
        return statistics.median(each.graph_bytes / each.operations for each in self.built)

    @property
    def operations(self) -> float:
        """Operations of a batch, at the median."""
        return statistics.median(each.operations for each in self.built)

    def bars(self) -> tuple[Bar, Bar]:
        """Quick enough, and small enough."""
        name = self.workload.name
        return (
            Bar(f"operations/s and core, {name}", self.operations_per_second, "≥", OPERATIONS_MIN),
            Bar(f"bytes/operation, {name}", self.bytes_per_operation, "≤", BYTES_MAX),
        )


def constructions(*, batch_events: int, seed: int, keys: int | None = None) -> list[Construction]:
    """The four applications with their published settings; `keys` makes all tables that small."""
    turned: dict[str, Any] = {"cost_us": 0.0, "batch_events": batch_events, "seed": seed}
    turned |= {} if keys is None else {"keys": keys}
    workloads: list[Workload] = [
        streaming_ledger.StreamingLedger(replace(streaming_ledger.MORPHSTREAM, **turned)),
        grep_sum.GrepSum(replace(grep_sum.MORPHSTREAM, **turned)),
        bidding.Bidding(replace(bidding.TSTREAM, **turned)),
        tolls.Tolls(replace(tolls.MORPHSTREAM, **turned)),
    ]
    return [Construction(workload) for workload in workloads]


def experiment(measured: Sequence[Construction]) -> Experiment:
    """The declaration: the applications take turns, a batch each."""
    settings = measured[0].workload.settings
    return Experiment(
        name="graph",
        title=f"Construction of the graph: {settings.batch_events:,} events a batch, integer keys, one worker",
        items=1,
        item="batch",
        variants=[each.variant() for each in measured],
        seed=settings.seed,
    )


def render(title: str, results: Sequence[Construction], *, with_bars: bool) -> Table:
    """One line for each application."""
    median = f"median of {len(results[0].built)} batches, every batch verified"
    caption = f"operations of a batch, of a second, and the bytes of each; {STRATEGY}, {median}"
    table = plain_table(title, ["workload"], ["per batch", "operations/s", "bar", "bytes each", "bar"], caption)
    for found in results:
        speed, size = found.bars()
        passed = speed.passed and size.passed
        table.add_row(
            found.workload.name,
            f"{found.operations:,.0f}",
            f"{found.operations_per_second:,.0f}",
            str(speed) if with_bars else "",
            f"{found.bytes_per_operation:,.0f}",
            str(size) if with_bars else "",
            style=("green" if passed else "red") if with_bars else "",
        )
    return table


def records(results: Sequence[Construction]) -> list[dict[str, Any]]:
    """One JSON-ready record for each application."""
    return [
        record(
            "graph",
            seed=found.workload.settings.seed,
            settings={"strategy": STRATEGY, "workers": 1, **asdict(found.workload.settings)},
            workload=found.workload.name,
            operations_per_second=round(found.operations_per_second),
            bytes_per_operation=round(found.bytes_per_operation, 2),
            built=[asdict(each) for each in found.built],
            bars=[bar.as_record() for bar in found.bars()],
            passed=all(bar.passed for bar in found.bars()),
        )
        for found in results
    ]
