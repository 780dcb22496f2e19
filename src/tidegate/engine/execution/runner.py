"""Runs the events of a batch by a strategy, and says how it went.

Serial execution is always there: for the strategy of that name, for a batch in which a transaction cannot be
compiled, and as the way back when an operation on several workers needs plain Python in the middle.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.engine.adaptation.model import CANDIDATES, SERIAL, Model, Workload, predict
from tidegate.engine.adaptation.rule import THRESHOLDS, GraphProperties, decide
from tidegate.engine.adaptation.sampling import sample_conflicts
from tidegate.engine.batch import Batch
from tidegate.engine.execution.machine import set_up
from tidegate.engine.execution.scheduler import Run, Scheduler
from tidegate.engine.execution.serial import SerialRun
from tidegate.engine.execution.timing import ticks_per_second
from tidegate.engine.execution.workers import Workers
from tidegate.engine.planning.builder import GraphBuilder
from tidegate.engine.state.strings import StringPool
from tidegate.engine.state.table import TableState
from tidegate.operations.decision import Chains, Decision, Partitioned, Published, Strategy
from tidegate.operations.plan import Program

Array = npt.NDArray[Any]
_log = logging.getLogger(__name__)

PIECE_EVENTS = 1 << 17
"""Events that share a graph at most: what is larger runs in pieces, so that a graph's memory is bounded."""

ADAPTIVE_EVENTS_MIN = 64
"""Batches below this size run serially: starting workers takes longer."""

PROBE_EVENTS, PROBE_EVENTS_MAX, PROBE_SECONDS = 16, 1024, 50e-6
CALL_SECONDS = 12e-6  # what a call of the program takes besides its events

SURE = 0.8
"""Serial is taken without a look at the rows if no other strategy can come near, even without any conflict."""

ESCAPE_BATCHES = 16
"""Batches that run serially after one that needed plain Python in the middle."""

ESCAPED_WHY = "an operation needed plain Python (an integer left 64 bits, for instance): run again serially"


@dataclass(frozen=True, slots=True)
class Execution:
    """How a batch was run."""

    strategy: str
    workers: int = 1
    decision: Decision | None = None
    interpreted: int = 0
    why: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    properties: dict[str, float] = field(default_factory=dict)


class Runner:
    """Runs batches of one program on one set of tables."""

    def __init__(
        self, program: Program, module: ModuleType, tables: Mapping[str, TableState], strategy: Strategy, workers: int
    ) -> None:
        self._program, self._module, self._tables = program, module, tables
        self.plan = program.plan
        self.strategy = strategy
        self.workers = Workers(workers)
        self.model = Model()
        self._builder = GraphBuilder(self.plan, tables, self.workers)
        self._scheduler = Scheduler(self._builder, self.workers)
        self._warned: set[str] = set()
        self._escaping = 0
        self._cost_us, self._abort_ratio = 0.0, 0.0

    def use_strings(self, strings: StringPool) -> None:
        """Strings have other numbers from now on."""
        self.serial = SerialRun(self._program, self._module, self._tables, strings)

    def run(self, batch: Batch, order: Array) -> Execution:
        """Run all events of a batch."""
        if batch.size == 0 or self.strategy == "serial":
            return self._run_serially(batch, order, 0, "the strategy is serial")
        if self.strategy == "adaptive" and self.workers.count == 1:
            return self._run_serially(batch, order, 0, "there is one worker")
        interpreted = self._interpreted_transaction(batch)
        if interpreted is not None:
            return self._run_serially(batch, order, 0, interpreted)
        if self.strategy == "adaptive":
            return self._run_adaptively(batch, order)
        return self._run_in_pieces(batch, order, 0, self.strategy, _splits(self.strategy), "as asked")

    def _run_serially(self, batch: Batch, order: Array, start: int, why: str) -> Execution:
        began = time.perf_counter()
        interpreted = self.serial.run(batch, order, start, batch.size)
        return Execution("serial", interpreted=interpreted, why=why, seconds={"execute": time.perf_counter() - began})

    def _interpreted_transaction(self, batch: Batch) -> str | None:
        """Why the batch cannot be run by several workers, if a transaction in it is not compiled."""
        for number, plan in enumerate(self.plan.transactions):
            if not plan.compiled and np.any((batch.kinds == number) & (batch.status == 0)):
                why = f"transaction {plan.name!r} is interpreted (compiled=False), so its batches run serially"
                if plan.name not in self._warned:
                    self._warned.add(plan.name)
                    _log.warning("%s", why)
                return why
        return None

    # --- adaptive ---------------------------------------------------------------------------------------------

    def _run_adaptively(self, batch: Batch, order: Array) -> Execution:
        if batch.size < ADAPTIVE_EVENTS_MIN:
            return self._run_serially(batch, order, 0, f"fewer than {ADAPTIVE_EVENTS_MIN} events")
        if self._escaping > 0:
            self._escaping -= 1
            return self._run_serially(batch, order, 0, "operations of recent batches needed plain Python")
        probed, cost_ns, interpreted = self._probe(batch, order)
        workers = min(self.workers.count, len(os.sched_getaffinity(0)))
        rest = batch.size - probed
        cheap = Workload(rest, cost_ns, 1.0, 0.0, 0.0, workers)
        if predict(SERIAL, cheap) <= min(predict(c, cheap) for c in CANDIDATES if c is not SERIAL) * SURE:
            execution = self._run_serially(batch, order, probed, f"functions take {cost_ns:.0f} ns: nothing to gain")
            return replace(execution, interpreted=execution.interpreted + interpreted)
        conflict, hot = sample_conflicts(self.plan, batch, order, probed)
        workload = Workload(rest, cost_ns, self._operations(batch), conflict, hot, workers)
        choice = self.model.choose(workload, allow_split=any(self.plan.slices))
        began = time.perf_counter()
        if choice.candidate is SERIAL:
            execution = self._run_serially(batch, order, probed, choice.why)
        else:
            candidate = choice.candidate
            execution = self._run_in_pieces(batch, order, probed, candidate.strategy, candidate.split, choice.why)
        self.model.learn(choice, time.perf_counter() - began)
        return replace(execution, interpreted=execution.interpreted + interpreted)

    def _probe(self, batch: Batch, order: Array) -> tuple[int, float, int]:
        """Run the first events serially: how many, nanoseconds of each, and how many plain Python ran."""
        position, interpreted, step, seconds = 0, 0, PROBE_EVENTS, 0.0
        while True:
            stop = min(position + step, batch.size)
            began = time.perf_counter()
            interpreted += self.serial.run(batch, order, position, stop)
            seconds = time.perf_counter() - began
            count, position = stop - position, stop
            if seconds > PROBE_SECONDS or step >= PROBE_EVENTS_MAX or position == batch.size:
                return position, max(seconds - CALL_SECONDS, 0.0) / max(count, 1) * 1e9, interpreted
            step *= 8

    def _operations(self, batch: Batch) -> float:
        """Operations per transaction if all that can be split are split."""
        counts = np.bincount(batch.kinds[batch.status == 0], minlength=len(self.plan.transactions))
        total = int(counts.sum())
        split = sum(int(count) * max(len(kinds), 1) for count, kinds in zip(counts, self.plan.slices, strict=False))
        return split / total if total else 1.0

    # --- on several workers -----------------------------------------------------------------------------------

    def _run_in_pieces(
        self, batch: Batch, order: Array, start: int, strategy: Strategy, split: bool, why: str
    ) -> Execution:
        """Run events in pieces of bounded memory, each with a graph of its own."""
        if isinstance(strategy, Decision) and strategy.abort == "lazy" and not self._may_speculate():
            strategy = replace(strategy, abort="eager")
            why += "; eager, because a loop may not end on values that are taken back"
        seconds: dict[str, float] = {}
        properties: dict[str, float] = {}
        used = strategy
        for begin in range(start, batch.size, PIECE_EVENTS):
            end = min(begin + PIECE_EVENTS, batch.size)
            run = self._run_piece(batch, order[:end], begin, _in_full(strategy), split)
            if run is None:
                batch.valid[order[begin:]] = False
                self._escaping = ESCAPE_BATCHES
                escaped = self._run_serially(batch, order, begin, ESCAPED_WHY)
                return replace(escaped, seconds=_added(seconds, escaped.seconds))
            seconds = _added(seconds, run.seconds)
            properties = {
                name: max(properties.get(name, 0), value) if name in _LARGEST else properties.get(name, 0) + value
                for name, value in run.properties.items()
            }
            used = run.strategy
        decision = used if isinstance(used, Decision) else None
        return Execution(str(strategy), self.workers.count, decision, why=why, seconds=seconds, properties=properties)

    def _run_piece(self, batch: Batch, order: Array, start: int, strategy: Strategy, split: bool) -> Run | None:
        """Run one piece; None if it needs plain Python, and then nothing of it happened."""
        began = time.perf_counter()
        plan = self._builder.build(batch, order, start, split)
        try:
            built = time.perf_counter()
            bench = set_up(self.plan, self._module, self._tables, batch, self.serial.literals, self.workers.count)
            run = self._scheduler.start(plan, bench)
            run.seconds["construct"] = built - began
            run.properties |= self._scheduler.properties(plan)
            run.strategy = self._by_rule(run, strategy) if isinstance(strategy, Published) else strategy
            self._scheduler.execute(run, run.strategy)
            if not run.stopped:
                self._scheduler.finish(run, batch)
                self._learn(run)
        finally:
            self._builder.forget(plan)
        self._raise_error_of_plain_program()
        return None if run.stopped else run

    def _by_rule(self, run: Run, rule: Published) -> Decision:
        """What the published rule decides for a graph, with costs and aborts of the batches before."""
        found = run.properties
        decision = decide(
            GraphProperties(
                transactions=int(found["transactions"]),
                temporal=int(found["temporal"]),
                parametric=int(found["parametric"]),
                logical=int(found["logical"]),
                skew=found["skew"],
                cyclic=self._scheduler.is_cyclic(run),
                cost_us=self._cost_us,
                abort_ratio=self._abort_ratio,
            ),
            THRESHOLDS[rule.thresholds],
        )
        return decision if self._may_speculate() else replace(decision, abort="eager")

    def _learn(self, run: Run) -> None:
        """Remember what operations cost and how many transactions abort."""
        samples = int(run.bench.machine.cost_samples.sum())
        if samples:
            ticks = float(run.bench.machine.cost_ticks.sum()) / samples
            self._cost_us = ticks / ticks_per_second() * 1e6
        if run.plan.transactions:
            self._abort_ratio = float(np.count_nonzero(run.progress.failure)) / run.plan.transactions
        run.properties |= {"operation us": self._cost_us, "abort ratio": self._abort_ratio}

    def _may_speculate(self) -> bool:
        return all(plan.speculative for plan in self.plan.transactions)

    def _raise_error_of_plain_program(self) -> None:
        error = getattr(self._module.operate, "error", None)
        if error is not None:
            self._module.operate.error = None
            raise error


_LARGEST = ("longest chain", "layers", "graph bytes", "redo rounds", "skew", "operation us", "abort ratio")


def _splits(strategy: Strategy) -> bool:
    return isinstance(strategy, Decision | Chains | Published) or strategy == "chains"


def _in_full(strategy: Strategy) -> Strategy:
    names: dict[Strategy, Strategy] = {"chains": Chains(), "partitioned": Partitioned()}
    return names.get(strategy, strategy)


def _added(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in {**one, **other}}
