"""Builds the graph of a batch: allocates its memory, and runs the two phases of `kernels.graph` on all workers.

The shapes of a program do not change, so they are made once; the addresses of the batch's slots and of the
tables' columns are filled in for every batch. Every row of the state has three marks, which are -1 between
batches, so a batch pays only for the rows that it touches.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.engine.batch import Batch
from tidegate.engine.kernels.graph import (
    ACCESSES,
    OPERATIONS,
    TRANSACTIONS,
    VERSIONS,
    Graph,
    Shapes,
    choose,
    decompose,
    forget_rows,
    link_all,
    link_partitions,
)
from tidegate.engine.state.table import TableState
from tidegate.engine.worker_pool import WorkerPool
from tidegate.operations.plan import ProgramPlan

Array = npt.NDArray[Any]
PARALLEL_EVENTS = 1 << 13
"""Below this many events one worker builds the graph alone: starting the others takes longer."""


_GRAPH_TYPES: dict[str, Any] = {
    "event": np.int64,
    "table": np.int8,
    "slot": np.int64,
    "write": np.int8,
    "version": np.int64,
    "now": np.int64,
}


class Memory:
    """Arrays that batches reuse: fresh memory costs a page fault every 4 KiB."""

    def __init__(self) -> None:
        self._arrays: dict[str, Array] = {}

    def take(self, name: str, size: int, kind: Any) -> Array:
        """An array that is not cleared: it holds what the last user of this name left in it."""
        found = self._arrays.get(name)
        if found is None or len(found) < size:
            found = self._arrays[name] = np.empty(size + size // 4, kind)
        return found[:size]


@dataclass(frozen=True, slots=True)
class Plan:
    """The graph of one batch, and the arrays that must live until the batch is over."""

    shapes: Shapes
    graph: Graph
    versions: dict[str, int]
    keep: tuple[Any, ...]

    @property
    def transactions(self) -> int:
        """How many transactions take part."""
        return len(self.graph.event)

    @property
    def operations(self) -> int:
        """How many operations they are made of."""
        return len(self.graph.kind)

    @property
    def size(self) -> int:
        """Bytes of the graph."""
        return sum(array.nbytes for array in self.graph)


class GraphBuilder:
    """Builds graphs for one program over one set of tables."""

    def __init__(self, plan: ProgramPlan, tables: Mapping[str, TableState], workers: WorkerPool) -> None:
        self._tables = [tables[layout.name] for layout in plan.tables]
        self._names = [layout.name for layout in plan.tables]
        self._workers = workers
        self._kinds = _kind_shapes(plan)
        self._slices = _slice_shapes(plan)
        self.memory = Memory()
        self.latest_write = np.empty(0, np.int32)
        self.latest = np.empty(0, np.int32)
        self.group_of_row = np.empty(0, np.int32)

    def build(self, batch: Batch, order: Array, start: int, split: bool) -> Plan:
        """Build the graph of the events from position `start` of `order` on."""
        ranges = self._ranges(start, len(order))
        choice = self.memory.take("choice", len(order), np.int8)
        counts = np.zeros((len(ranges), VERSIONS + len(self._tables) + 8), np.int64)
        offsets = _offsets(batch)
        shapes = self._shapes(batch, offsets, np.zeros(len(self._tables), np.int64))
        self._each(
            ranges,
            lambda w, begin, end: choose(
                shapes, order, batch.kinds, batch.status, split, begin, end, choice, counts[w]
            ),
        )
        totals = counts.sum(axis=0)
        lent = [table.lend(int(totals[VERSIONS + n])) for n, table in enumerate(self._tables)]
        shapes = self._shapes(batch, offsets, self._row_bases())
        graph = self._new_graph(int(totals[TRANSACTIONS]), int(totals[OPERATIONS]), int(totals[ACCESSES]))
        following = np.cumsum(counts, axis=0) - counts
        following[:, VERSIONS : VERSIONS + len(lent)] += np.array(lent)
        partitions = 1 if len(ranges) == 1 else _power_of_two(4 * len(ranges))
        heads = np.full((len(ranges), partitions), -1, np.int32)
        tails = heads.copy()
        self._each(
            ranges,
            lambda w, begin, end: decompose(
                shapes, graph, order, batch.kinds, choice, begin, end, following[w], heads[w], tails[w]
            ),
        )
        try:
            if partitions == 1:
                link_all(shapes, graph, self.latest_write, self.latest)
            else:
                self._each(
                    self._shares(partitions),
                    lambda w, begin, end: link_partitions(
                        shapes, graph, heads, begin, end, self.latest_write, self.latest
                    ),
                )
        except BaseException:  # it is unknown which marks were set
            self.latest_write[:] = self.latest[:] = -1
            raise
        versions = {name: int(totals[VERSIONS + n]) for n, name in enumerate(self._names)}
        return Plan(shapes, graph, versions, (batch, offsets))

    def _new_graph(self, transactions: int, operations: int, accesses: int) -> Graph:
        sizes = {"event": transactions, "operation_first": transactions + 1, "kind": operations}
        sizes |= {"transaction": operations, "access_first": operations + 1}
        graph = Graph._make(
            self.memory.take(name, sizes.get(name, accesses), _GRAPH_TYPES.get(name, np.int32))
            for name in Graph._fields
        )
        graph.operation_first[-1] = operations
        graph.access_first[-1] = accesses
        return graph

    def shapes(self, batch: Batch) -> Shapes:
        """The program's shapes with a batch's slots, for kernels that need no graph."""
        offsets = _offsets(batch)
        batch.keep = offsets
        return self._shapes(batch, offsets, self._row_bases())

    def forget(self, plan: Plan) -> None:
        """Clear the marks and versions of a batch that is over."""
        forget_rows(plan.shapes, plan.graph, self.latest_write, self.latest)
        for table, name in zip(self._tables, self._names, strict=True):
            table.give_back(plan.versions[name])

    def _ranges(self, start: int, stop: int) -> list[tuple[int, int]]:
        count = 1 if stop - start < PARALLEL_EVENTS else self._workers.count
        edges = [start + (stop - start) * n // count for n in range(count + 1)]
        return list(itertools.pairwise(edges))

    def _shares(self, total: int) -> list[tuple[int, int]]:
        count = self._workers.count
        return [(total * n // count, total * (n + 1) // count) for n in range(count)]

    def _each(self, ranges: list[tuple[int, int]], action: Any) -> None:
        if len(ranges) == 1:
            action(0, *ranges[0])
        else:
            self._workers.run(lambda worker: action(worker, *ranges[worker]))

    def _row_bases(self) -> Array:
        """Per table, the offset that makes its slots unique among all tables; also makes room for the marks."""
        sizes = [len(table.exists) for table in self._tables]
        bases = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        if bases[-1] > len(self.latest):
            self.latest_write = np.full(bases[-1], -1, np.int32)
            self.latest = np.full(bases[-1], -1, np.int32)
            self.group_of_row = np.full(bases[-1], -1, np.int32)
        return bases[:-1]

    def _shapes(self, batch: Batch, offsets: list[Array | None], bases: Array) -> Shapes:
        slots = np.array([array.ctypes.data for array in batch.slots], np.int64)
        starts = np.array([0 if array is None else array.ctypes.data for array in offsets], np.int64)
        return Shapes._make((*self._kinds, *self._slices, slots, starts, bases))


def _offsets(batch: Batch) -> list[Array | None]:
    return [None if bound.offsets is None else bound.offsets.astype(np.int64, copy=False) for bound in batch.rows]


def _kind_shapes(plan: ProgramPlan) -> tuple[Array, ...]:
    first, rows, tables, writes = [0], [], [], []
    numbers = {layout.name: number for number, layout in enumerate(plan.tables)}
    for operation in plan.operations:
        for name in operation.rows:
            column = next(
                index
                for index, binding in enumerate(plan.rows)
                if binding.parameter.name == name and operation.transaction in binding.users
            )
            rows.append(column)
            tables.append(numbers[plan.rows[column].parameter.table.name])  # type: ignore[union-attr]
            writes.append(name in operation.writes)
        first.append(len(rows))
    return (np.array(first, np.int64), np.array(rows, np.int64), np.array(tables, np.int64), np.array(writes, np.int8))


def _slice_shapes(plan: ProgramPlan) -> tuple[Array, Array]:
    first = np.cumsum([0, *(len(kinds) for kinds in plan.slices)]).astype(np.int64)
    return first, np.array([kind for kinds in plan.slices for kind in kinds], np.int64)


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()
