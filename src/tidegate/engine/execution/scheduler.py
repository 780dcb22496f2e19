"""Runs the transactions of a batch on several workers, as a strategy prescribes.

    build the graph ── make units ── explore ── (lazy: undo, explore again) ── install ── outcomes

A scheduling decision is three values, and each picks one small part here: `_EXPLORERS` for the exploration,
`_make_units` for the unit, `_settle_aborts` for the abort handling. The baselines have their own kernels.

Rows change only at the very end, by `install`, when all outcomes are known: until then all writes go to
versions. A baseline that works in place saves a copy of the rows first. So a run that stops half-way
(an operation needs plain Python; the user interrupts) leaves the rows as they were.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.engine.batch import Batch
from tidegate.engine.execution.families import Bundles
from tidegate.engine.execution.machine import Bench
from tidegate.engine.kernels import aborts, baselines, execution
from tidegate.engine.kernels.graph import Graph, measure
from tidegate.engine.kernels.operation import (
    CONTROL_WORDS,
    CROWDED,
    CURSOR,
    DONE,
    INTERRUPTED,
    LINE,
    RUNNING,
    STOP,
    Progress,
)
from tidegate.engine.kernels.units import (
    Units,
    group_by_row,
    list_edges,
    list_members,
    merge_circles,
    renumber_units,
)
from tidegate.engine.planning.builder import GraphBuilder, Plan
from tidegate.engine.worker_pool import WorkerPool
from tidegate.foundation.processors import processors
from tidegate.operations.decision import Chains, Decision, Partitioned, Strategy

Array = npt.NDArray[Any]
ROUNDS_MAX = 4
"""How often a graph is explored again; then one worker repairs what is still unsettled, in timestamp order."""


PARALLEL_ACCESSES = 1 << 13
"""Below this many accesses one worker installs the versions alone."""


@dataclass(slots=True)
class Run:
    """The state of one batch in the scheduler, and what was measured."""

    plan: Plan
    bench: Bench
    progress: Progress
    strategy: Strategy = "serial"
    beside: Bundles | None = None
    """Work that shares no row with this run, for workers that would have to wait."""
    seconds: dict[str, float] = field(default_factory=dict)
    properties: dict[str, float] = field(default_factory=dict)

    @property
    def stopped(self) -> bool:
        """Whether the results of this run are discarded: an operation needs plain Python, or it was interrupted."""
        return bool(self.progress.control[STOP] != RUNNING)

    @property
    def interrupted(self) -> bool:
        """Whether the user stopped it."""
        return bool(self.progress.control[STOP] == INTERRUPTED)

    def interrupt(self) -> None:
        """Ask all workers to stop."""
        self.progress.control[STOP] = INTERRUPTED


class Scheduler:
    """Runs graphs on workers."""

    def __init__(self, builder: GraphBuilder, workers: WorkerPool) -> None:
        self._builder = builder
        self._workers = workers
        self._locks = baselines.Locks._make(np.empty(0, np.int32) for _ in range(6))

    def start(self, plan: Plan, bench: Bench) -> Run:
        """Set up a run; nothing is executed yet."""
        transactions, operations = plan.transactions, plan.operations
        take = self._builder.memory.take
        progress = Progress(
            control=np.zeros(CONTROL_WORDS, np.int64),
            pending=np.empty(0, np.int32),
            state=take("state", operations, np.int8),
            active=take("active", operations, np.int8),
            operation_failure=take("operation_failure", operations, np.int64),
            failure=take("failure", transactions, np.int64),
            remaining=take("remaining", transactions, np.int32),
            aborted=take("aborted", transactions, np.int8),
        )
        progress.control[CROWDED] = self._workers.count > processors()
        for zeroed in (progress.state, progress.operation_failure, progress.failure, progress.aborted):
            zeroed[:] = 0
        progress.active[:] = 1
        np.subtract(plan.graph.operation_first[1:], plan.graph.operation_first[:-1], out=progress.remaining)
        return Run(plan, bench, progress)

    def execute(self, run: Run, strategy: Strategy) -> None:
        """Run all operations; the rows change only if the run is not stopped."""
        if isinstance(strategy, Decision):
            self._explore(run, strategy)
        elif isinstance(strategy, Chains):
            self._walk_chains(run, strategy)
        else:
            assert isinstance(strategy, str | Partitioned)
            self._run_transactions(run, strategy)

    def finish(self, run: Run, batch: Batch) -> None:
        """Write the outcomes of a run that was not stopped."""
        aborts.settle(run.plan.graph, run.progress, batch.status, batch.valid)

    # --- decisions -------------------------------------------------------------------------------------------

    def _explore(self, run: Run, decision: Decision) -> None:
        began = time.perf_counter()
        eager = decision.abort == "eager"
        units = self._make_units(run, decision.unit, eager)
        run.progress = run.progress._replace(pending=np.empty(len(units.member_first) - 1, np.int32))
        run.seconds["units"] = time.perf_counter() - began
        explorer = _EXPLORERS[decision.exploration]
        self._timed(run, "explore", lambda: explorer(self._workers, run, units, eager))
        self._settle_aborts(run, eager, lambda: explorer(self._workers, run, units, eager))
        self._install(run)

    def _make_units(self, run: Run, unit: str, eager: bool) -> Units:
        graph = run.plan.graph
        count = len(graph.kind)
        if unit == "operation":
            each = np.arange(count + 1, dtype=np.int32)
            return Units(each, each, each)
        units, groups = self._chains(run)
        before, merged = -1, groups
        while merged != before:  # a merged unit may hold part of a transaction that one of its units waited for
            before = merged
            units, merged = _merge(graph, units, merged, eager)
        run.properties |= {"groups": groups, "merged groups": groups - merged}
        return units

    def _chains(self, run: Run) -> tuple[Units, int]:
        unit = np.empty(len(run.plan.graph.kind), np.int32)
        groups = group_by_row(run.plan.shapes, run.plan.graph, self._builder.group_of_row, unit)
        return _listed(unit, groups), groups

    def _settle_aborts(self, run: Run, eager: bool, explore: Callable[[], None]) -> None:
        """With lazy aborts: undo what failed and run its readers again, until a fixed point is reached."""
        if eager or run.stopped:
            return
        began = time.perf_counter()
        graph, progress = run.plan.graph, run.progress
        again = aborts.take_back(graph, progress)
        rounds, redone = 0, 0
        while again and rounds < ROUNDS_MAX and not run.stopped:
            rounds, redone = rounds + 1, redone + again
            explore()
            if not run.stopped:
                again = aborts.take_back(graph, progress)
        if again and not run.stopped:
            redone += self._one_worker(run, lambda: aborts.repair(graph, progress, run.bench.machine, 0))
        run.properties |= {"redo rounds": rounds, "redone operations": redone}
        run.seconds["abort"] = time.perf_counter() - began

    def _one_worker(self, run: Run, action: Callable[[], Any]) -> Any:
        """Run an action on one worker, so that the calling thread stays interruptible."""
        found: list[Any] = []
        self._workers.run(lambda w: found.append(action()) if w == 0 else None, run.interrupt)
        return found[0]

    def _install(self, run: Run) -> None:
        if run.stopped:
            return
        began = time.perf_counter()
        plan, machine, latest = run.plan, run.bench.machine, self._builder.latest_write
        total = len(plan.graph.slot)
        if total < PARALLEL_ACCESSES:
            aborts.install(plan.shapes, plan.graph, run.progress, machine, latest, 0, total)
        else:
            edges = [total * n // self._workers.count for n in range(self._workers.count + 1)]
            self._workers.run(
                lambda w: aborts.install(plan.shapes, plan.graph, run.progress, machine, latest, edges[w], edges[w + 1])
            )
        run.seconds["install"] = time.perf_counter() - began

    # --- baselines -------------------------------------------------------------------------------------------

    def _walk_chains(self, run: Run, strategy: Chains) -> None:
        began = time.perf_counter()
        units, groups = self._chains(run)
        graph, progress, machine = run.plan.graph, run.progress, run.bench.machine
        run.properties["groups"] = groups
        run.seconds["units"] = time.perf_counter() - began
        count = self._workers.count

        def walk() -> None:
            cursor = units.member_first[:-1].copy()
            if strategy.placement == "shared-nothing":
                self._workers.run(
                    lambda w: baselines.walk_own_chains(graph, units, progress, machine, w, count, cursor),
                    run.interrupt,
                )
            else:
                taken = np.zeros(groups, np.int32)
                self._workers.run(
                    lambda w: baselines.walk_any_chain(graph, units, progress, machine, w, count, cursor, taken),
                    run.interrupt,
                )

        self._timed(run, "explore", walk)
        if not run.stopped and aborts.take_back(graph, progress):
            began = time.perf_counter()
            again = self._one_worker(run, lambda: aborts.repair(graph, progress, machine, 0))
            run.properties["redone operations"] = again
            run.seconds["abort"] = time.perf_counter() - began
        self._install(run)

    def _run_transactions(self, run: Run, strategy: str | Partitioned) -> None:
        plan, progress, machine = run.plan, run.progress, run.bench.machine
        graph, shapes, latest = plan.graph, plan.shapes, self._builder.latest_write
        if strategy == "mvlk":
            self._timed(
                run,
                "explore",
                lambda: self._workers.run(
                    lambda w: baselines.run_multiversion_locked(graph, progress, machine, w), run.interrupt
                ),
            )
            self._install(run)
            return
        began = time.perf_counter()
        baselines.save_rows(shapes, graph, machine, latest)
        task = self._in_place(run, strategy)
        run.seconds["units"] = time.perf_counter() - began
        try:
            self._timed(run, "explore", lambda: self._workers.run(task, run.interrupt))
        finally:
            if run.stopped:
                baselines.restore_rows(shapes, graph, machine, latest)
            if strategy == "lock":
                baselines.release_rows(shapes, graph, self._locks)

    def _in_place(self, run: Run, strategy: str | Partitioned) -> Callable[[int], object]:
        plan, progress, machine = run.plan, run.progress, run.bench.machine
        graph, shapes = plan.graph, plan.shapes
        if strategy == "lock":
            locks = self._locks_for(plan)
            return lambda w: baselines.run_locked(shapes, graph, progress, machine, w, locks)
        if isinstance(strategy, Partitioned):
            count = strategy.partitions
            mask, first = np.empty(plan.transactions, np.int64), np.empty(count + 1, np.int64)
            queue = np.empty(len(graph.slot) + 1, np.int32)
            baselines.queue_in_partitions(shapes, graph, count, mask, np.empty(count, np.int64), first, queue)
            serving = np.zeros(count * LINE, np.int64)
            queues = (mask, first, queue)
            return lambda w: baselines.run_partitioned(graph, progress, machine, w, queues, serving)
        assert strategy == "unsafe-nolock"
        return lambda w: baselines.run_without_locks(graph, progress, machine, w)

    def _locks_for(self, plan: Plan) -> baselines.Locks:
        rows, accesses = len(self._builder.latest), len(plan.graph.slot)
        if len(self._locks.writes_done) < rows:
            self._locks = baselines.Locks._make((*(np.zeros(rows, np.int32) for _ in range(4)), *self._locks[4:]))
        self._locks = self._locks._replace(
            after_writes=np.empty(accesses, np.int32), after_reads=np.empty(accesses, np.int32)
        )
        return self._locks

    # --- measuring -------------------------------------------------------------------------------------------

    def _timed(self, run: Run, name: str, action: Callable[[], None]) -> None:
        began = time.perf_counter()
        action()
        run.seconds[name] = run.seconds.get(name, 0.0) + time.perf_counter() - began

    def properties(self, plan: Plan) -> dict[str, float]:
        """Properties of the graph: the number of dependencies of each kind, and the skew of writes over rows."""
        writes, temporal, parametric, logical, longest = measure(
            plan.graph, self._builder.memory.take("lengths", len(plan.graph.slot), np.int32)
        )
        rows = writes - temporal
        skew = math.log(longest * rows / writes) / math.log(rows) if rows > 1 and longest * rows > writes else 0.0
        return {
            "transactions": plan.transactions,
            "operations": plan.operations,
            "writes": writes,
            "temporal": temporal,
            "parametric": parametric,
            "logical": logical,
            "longest chain": longest,
            "skew": min(skew, 1.0),
            "graph bytes": plan.size,
        }

    def is_cyclic(self, run: Run) -> bool:
        """Whether groups of operations wait for each other in a cycle."""
        units, groups = self._chains(run)
        return _merge(run.plan.graph, units, groups, eager=True)[1] < groups


def _merge(graph: Graph, units: Units, count: int, eager: bool) -> tuple[Units, int]:
    """Merge units that wait for each other in a cycle; returns the units and their number."""
    first, target = np.empty(count + 1, np.int64), np.empty(2 * len(graph.slot), np.int32)
    edges = list_edges(graph, units, eager, first, target)
    if edges > len(target):
        target = np.empty(edges, np.int32)
        list_edges(graph, units, eager, first, target)
    merged = np.empty(count, np.int32)
    found = merge_circles(first, target, np.empty((5, count), np.int32), merged)
    if found == count:
        return units, count
    renumber_units(merged, units.unit)
    return _listed(units.unit, found), found


def _listed(unit: Array, count: int) -> Units:
    first, member = np.empty(count + 1, np.int32), np.empty(len(unit), np.int32)
    list_members(unit, first, member)
    return Units(unit, first, member)


# --- explorations --------------------------------------------------------------------------------------------


def _ready_lists(workers: WorkerPool, units: Units) -> list[Array]:
    return [np.empty(len(units.member_first), np.int32) for _ in range(workers.count)]


def _explore_layers(workers: WorkerPool, run: Run, units: Units, eager: bool, kernel: Any) -> None:
    graph, progress, machine = run.plan.graph, run.progress, run.bench.machine
    began = time.perf_counter()
    execution.count_pending(graph, units, progress, eager)
    remaining = progress.remaining.copy()
    total = len(progress.pending)
    order, first = np.empty(total, np.int32), np.empty(total + 2, np.int32)
    depth = execution.layer(graph, units, progress, eager, order, first)
    assert first[depth] == total, "units wait for each other in a circle"
    progress.remaining[:] = remaining
    execution.count_pending(graph, units, progress, eager)
    run.properties["layers"] = max(run.properties.get("layers", 0), depth)
    run.seconds["layers"] = run.seconds.get("layers", 0.0) + time.perf_counter() - began
    progress.control[CURSOR] = 0
    layers = (order, first[: depth + 1])
    ready = _ready_lists(workers, units)
    count = workers.count
    workers.run(lambda w: kernel(graph, units, progress, machine, eager, w, count, layers, ready[w]), run.interrupt)


def _explore_breadth_first(workers: WorkerPool, run: Run, units: Units, eager: bool) -> None:
    _explore_layers(workers, run, units, eager, execution.explore_bfs)


def _explore_depth_first(workers: WorkerPool, run: Run, units: Units, eager: bool) -> None:
    _explore_layers(workers, run, units, eager, execution.explore_dfs)


def _explore_by_signals(workers: WorkerPool, run: Run, units: Units, eager: bool) -> None:
    graph, progress, machine = run.plan.graph, run.progress, run.bench.machine
    execution.count_pending(graph, units, progress, eager)
    progress.control[DONE] = 0
    inbox, offer = np.empty(workers.count * LINE, np.int32), np.empty(workers.count * LINE, np.int32)
    stacks = (inbox, offer, np.empty(len(progress.pending), np.int32))
    execution.hand_out(progress, workers.count, stacks)
    ready = _ready_lists(workers, units)
    count = workers.count

    def explore(worker: int) -> None:
        arguments = (graph, units, progress, machine, eager, worker, count, stacks, ready[worker])
        if run.beside is not None:
            run.beside.run_large(worker)
            while not execution.explore_ns(*arguments, True) and run.beside.run_one(worker):
                pass
            run.beside.run_all(worker)
        execution.explore_ns(*arguments, False)

    workers.run(explore, run.interrupt)


_EXPLORERS: dict[str, Callable[[WorkerPool, Run, Units, bool], None]] = {
    "bfs": _explore_breadth_first,
    "dfs": _explore_depth_first,
    "ns": _explore_by_signals,
}
