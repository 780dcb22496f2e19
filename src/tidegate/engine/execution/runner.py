"""Runs the events of a batch by a strategy, and reports how it went.

Serial execution serves three purposes: the strategy of that name, batches with a transaction that is not compiled,
and the fallback when an operation on several workers turns out to need plain Python.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.engine.adaptation.attention import Habit, KnownCost, SerialSpell, Unrelated
from tidegate.engine.adaptation.model import (
    ALONE,
    FAMILIES,
    SERIAL,
    SOONEST_NS,
    SPARED,
    Beside,
    Choice,
    Model,
    Workload,
    predict,
)
from tidegate.engine.adaptation.probing import Probe, Prober
from tidegate.engine.adaptation.punctuation import Punctuation
from tidegate.engine.adaptation.rule import THRESHOLDS, GraphProperties, decide
from tidegate.engine.adaptation.sampling import sample_hottest, sample_neighbours
from tidegate.engine.batch import Batch
from tidegate.engine.execution import families
from tidegate.engine.execution.executions import Execution, Job, added, joined
from tidegate.engine.execution.machine import set_up
from tidegate.engine.execution.scheduler import Run, Scheduler
from tidegate.engine.execution.serial import SerialRun
from tidegate.engine.execution.timing import ticks_per_second
from tidegate.engine.execution.workers import Workers
from tidegate.engine.faults import Faults
from tidegate.engine.kernels.operation import SAMPLE
from tidegate.engine.planning.builder import GraphBuilder
from tidegate.engine.state.strings import StringPool
from tidegate.engine.state.table import TableState
from tidegate.foundation.processors import processors
from tidegate.operations.decision import Chains, Decision, Families, Partitioned, Published, Strategy
from tidegate.operations.plan import Program

Array = npt.NDArray[Any]
_log = logging.getLogger(__name__)

PIECE_EVENTS = 1 << 17
"""The maximum number of events in a graph: larger batches run in pieces, so that a graph's memory is bounded."""

ADAPTIVE_EVENTS_MIN = 64
"""Batches below this size run serially: starting workers takes longer."""

SURE = 0.8
"""Serial is chosen without examining rows if it needs at most this share of any other strategy's conflict-free time."""

LARGE_FAMILY = 0.95
"""A largest family with at most this share of the transactions may get its own strategy; each other runs serially."""

SPARED_SAMPLES, SPARED_SHARE = 256, 0.05
"""What aborts spare is estimated only with 256 timed operations, and if more than 5 % of all operations could stop."""

ESCAPE_BATCHES = 16
"""How many batches run serially after one in which an operation needed plain Python."""

ESCAPED_WHY = "an operation needed plain Python (an integer left 64 bits, for instance): run again serially"


class Runner:
    """Runs batches of one program on one set of tables."""

    def __init__(
        self,
        program: Program,
        module: ModuleType,
        tables: Mapping[str, TableState],
        strategy: Strategy,
        workers: int,
        punctuation: int | None,
        faults: Faults,
    ) -> None:
        self._program, self._module, self._tables, self._faults = program, module, tables, faults
        self._interval = punctuation
        self.punctuation = Punctuation()
        self.plan = program.plan
        self.strategy = strategy
        self.workers = Workers(workers)
        self.model = Model()
        self._builder = GraphBuilder(self.plan, tables, self.workers)
        self._scheduler = Scheduler(self._builder, self.workers)
        in_graphs = {member.transaction for member in self.plan.flows.members}
        self._never_compiled = [
            (n, plan) for n, plan in enumerate(self.plan.transactions) if not plan.compiled and n not in in_graphs
        ]
        self._warned: set[str] = set()
        self._escaping = 0
        self._cost_us, self._abort_ratio, self._failed, self._spared = 0.0, 0.0, 0.0, SPARED
        self._prober, self._known_cost = Prober(), KnownCost()
        self._serial_spell, self._habit, self._unrelated = SerialSpell(), Habit(), Unrelated()
        self._unlooked = 0
        self._job: Job
        self._nothing_ran = True

    def use_strings(self, strings: StringPool) -> None:
        """Switch to another string pool, with other string numbers."""
        self.serial = SerialRun(self._program, self._module, self._tables, strings, self._faults)

    def run(self, job: Job) -> Execution:
        """Run events of plain transactions, in pieces if a punctuation interval was set."""
        interval = self._interval or max(len(job.order), 1)
        executions = []
        for begin in range(0, max(len(job.order), 1), interval):
            piece = job.part(job.order[begin : begin + interval], begin == 0)
            began = time.perf_counter()
            executions.append(self._run_interval(piece))
            self.punctuation.add(len(piece.order), time.perf_counter() - began)
        return executions[0] if len(executions) == 1 else joined(executions)

    def _run_interval(self, job: Job) -> Execution:
        batch, order = job.batch, job.order
        self._job, self._nothing_ran = job, job.untouched
        if len(order) == 0 or self.strategy == "serial":
            return self._run_serially(batch, order, 0, "the strategy is serial")
        if self.strategy == "adaptive" and self.workers.count == 1:
            return self._run_serially(batch, order, 0, "there is one worker")
        interpreted = self._interpreted_transaction(job)
        if interpreted is not None:
            return self._run_serially(batch, order, 0, interpreted)
        if self.strategy == "adaptive":
            return self._run_adaptively(job)
        self.workers.start()  # before anything of the batch runs: if a thread is refused, nothing has changed
        if isinstance(self.strategy, Families):
            return self._run_families(batch, families.find(self._builder, self.workers, batch, order, 0), "as asked")
        return self._run_in_pieces(batch, order, 0, self.strategy, _splits(self.strategy), "as asked")

    def _run_serially(self, batch: Batch, order: Array, start: int, why: str) -> Execution:
        began = time.perf_counter()
        interpreted = self.serial.run(batch, order, start, len(order))
        return Execution("serial", interpreted=interpreted, why=why, seconds={"execute": time.perf_counter() - began})

    def _interpreted_transaction(self, job: Job) -> str | None:
        """Why several workers cannot run the events: one of the transactions is not compiled. None if all are."""
        for number, plan in self._never_compiled:
            if job.transactions[number]:
                why = f"transaction {plan.name!r} is interpreted (compiled=False), so its batches run serially"
                if plan.name not in self._warned:
                    self._warned.add(plan.name)
                    _log.warning("%s", why)
                return why
        return None

    # --- adaptive ---------------------------------------------------------------------------------------------

    def _run_adaptively(self, job: Job) -> Execution:
        batch, order = job.batch, job.order
        if len(order) < ADAPTIVE_EVENTS_MIN:
            return self._run_serially(batch, order, 0, f"fewer than {ADAPTIVE_EVENTS_MIN} events")
        if self._escaping > 0:
            self._escaping -= 1
            return self._run_serially(batch, order, 0, "operations of recent batches needed plain Python")
        spell = self._serial_spell
        if spell.goes_on(lambda cost_ns: self._is_cheap(len(order), cost_ns)):
            why = f"functions took {spell.cost_ns:.0f} ns: serial, as the batch before"
            execution = self._run_serially(batch, order, 0, why)
            spell.ran(execution.seconds["execute"] / len(order) * 1e9)
            self._unlooked += 1
            return execution
        self.workers.start()  # before the probe runs any event: if a thread is refused, nothing has changed
        habit = self._habit.take(len(order))
        if habit is not None:
            return self._run_by_habit(batch, order, habit)
        began = time.perf_counter()
        probe = self._cost(batch, order)
        probed, cost_ns, interpreted = probe.events, probe.cost_ns, probe.interpreted
        probe_seconds = time.perf_counter() - began
        rest = len(order) - probed
        if self._is_cheap(rest, cost_ns):
            execution = self._run_serially(batch, order, probed, f"functions take {cost_ns:.0f} ns: nothing to gain")
            spell.begin(execution.seconds["execute"] / rest * 1e9 if rest else cost_ns)
            self._habit.end()
            return replace(
                execution,
                interpreted=execution.interpreted + interpreted,
                seconds={"probe": probe_seconds, **execution.seconds},
            )
        began, workers = time.perf_counter(), self._usable_workers()
        workload = Workload(rest, cost_ns, self._operations(job), 0.0, 0.0, workers, spared=self._spared)
        workload = replace(workload, aborts=self._failed)
        hottest = functools.cache(lambda: sample_hottest(self.plan, batch, order, probed))
        related = None
        if self._unrelated.worth_a_search(hottest):
            related = families.find(self._builder, self.workers, batch, order, probed)
        if related is None or related.largest > 1 / workers:  # otherwise no worker has to wait for another
            near = sample_neighbours(self._builder.shapes(batch), batch, order, probed, workers)
            workload = replace(workload, near=near, hot=hottest())
        if related is not None:
            workload, found = self._with_families(workload, batch, related)
            interpreted += found
            order, probed, self._nothing_ran = related.remaining(), 0, False
        relate_seconds = time.perf_counter() - began
        choice = self.model.choose(workload, any(self.plan.slices), 1 + self._unlooked)
        self._unlooked = 0
        if related is not None:
            self._unrelated.judge(choice)
        began = time.perf_counter()
        execution = self._run_choice(batch, order, probed, choice, related)
        run_seconds = time.perf_counter() - began
        self._habit.judge(choice, probe_seconds + relate_seconds, run_seconds)
        looked = relate_seconds if choice.candidate is FAMILIES or choice.candidate.shared else 0.0
        self._learn_from(batch, choice, execution, looked + run_seconds, probe)
        return replace(
            execution,
            interpreted=execution.interpreted + interpreted,
            seconds={"probe": probe_seconds, "relate": relate_seconds, **execution.seconds},
        )

    def _run_by_habit(self, batch: Batch, order: Array, choice: Choice) -> Execution:
        """Run a batch like the previous ones, without examining it."""
        began = time.perf_counter()
        execution = self._run_choice(batch, order, 0, choice, None)
        self._unlooked += 1
        self._habit.ran(self._really_ns(execution, choice.workload))
        self._learn_from(batch, choice, execution, time.perf_counter() - began, None)
        return execution if execution.escaped else replace(execution, why=f"as the batch before: {choice.why}")

    def _learn_from(
        self, batch: Batch, choice: Choice, execution: Execution, seconds: float, probe: Probe | None
    ) -> None:
        """Update what is known from a batch that ran."""
        self._failed = np.count_nonzero(batch.status[self._job.order]) / len(self._job.order)
        if execution.escaped:  # it did not run as chosen
            self._known_cost.learn(0.0)
            self._serial_spell.end()
            self._habit.end()
            return
        serial, really_ns = choice.candidate is SERIAL, self._really_ns(execution, choice.workload)
        alone = choice.candidate is not FAMILIES  # for families, only the time including scheduling is known
        first = self.model.learn(choice, seconds, really_ns if alone else choice.workload.cost_ns)
        if probe is not None and probe.events and not first:
            self._prober.learn(really_ns)
        self._known_cost.learn(0.0 if first or serial else really_ns)
        if serial:
            self._serial_spell.begin(really_ns)
        else:
            self._serial_spell.end()

    def _usable_workers(self) -> int:
        return min(self.workers.count, processors())

    def _is_cheap(self, count: int, cost_ns: float) -> bool:
        """Whether serial execution clearly wins, even against strategies that never wait."""
        if count * cost_ns <= SOONEST_NS * SURE:
            return True
        found = Workload(count, cost_ns, 1.0, 0.0, 0.0, self._usable_workers(), largest=0.0)
        return predict(SERIAL, found) <= min(predict(candidate, found) for candidate in (FAMILIES, *ALONE)) * SURE

    def _cost(self, batch: Batch, order: Array) -> Probe:
        """The cost of a transaction: reused from the last batch if possible, otherwise measured by a probe."""
        known_ns = self._known_cost.take(lambda cost_ns: self._is_cheap(len(order), cost_ns))
        if known_ns is not None:
            return Probe(0, known_ns, 0)
        return self._prober.probe(lambda start, stop: self.serial.run(batch, order, start, stop), len(order))

    def _with_families(self, workload: Workload, batch: Batch, related: families.Families) -> tuple[Workload, int]:
        """Add to the workload how its families would spread over the workers.

        Also returns how many events plain Python ran.
        """
        interpreted = 0
        if related.count > 1 and related.largest > 1 / families.LARGE_SHARE:
            cost_ns, interpreted = families.weigh(related, self.serial, batch)
            workload = replace(workload, cost_ns=cost_ns)
        workload = replace(workload, largest=related.largest)
        events = related.largest_events()
        part = len(events) / max(related.transactions, 1)
        if related.largest <= 1 / self.workers.count or part > LARGE_FAMILY:
            return workload, interpreted
        hot = sample_hottest(self.plan, batch, events, 0)
        return replace(workload, beside=Beside(part, hot, related.second)), interpreted

    def _run_choice(
        self, batch: Batch, order: Array, start: int, choice: Choice, related: families.Families | None
    ) -> Execution:
        candidate = choice.candidate
        if candidate is SERIAL:
            return self._run_serially(batch, order, start, choice.why)
        if candidate is FAMILIES:
            assert related is not None
            return self._run_families(batch, related, choice.why)
        if candidate.shared:
            assert related is not None
            return self._run_apart(batch, related, choice)
        execution = self._run_in_pieces(batch, order, start, candidate.strategy, candidate.split, choice.why)
        return execution if execution.escaped else replace(execution, strategy=str(candidate))

    def _run_families(self, batch: Batch, related: families.Families, why: str) -> Execution:
        began = time.perf_counter()
        bundles = families.Bundles(related, self.serial, batch, self.workers.count)
        self.workers.run(bundles.run_all)
        self._raise_error_of_plain_program()
        return Execution(
            str(FAMILIES.strategy),
            self.workers.count,
            interpreted=bundles.interpreted,
            why=why,
            seconds={"execute": time.perf_counter() - began},
            properties={"families": related.count, "largest family": related.largest},
        )

    def _run_apart(self, batch: Batch, related: families.Families, choice: Choice) -> Execution:
        """Two strategies for one batch: the chosen one for the largest family, one worker for each of the others."""
        others = families.Bundles(related, self.serial, batch, self.workers.count, without_largest=True)
        candidate, largest = choice.candidate, related.largest_events()
        execution = self._run_in_pieces(batch, largest, 0, candidate.strategy, candidate.split, choice.why, others)
        if others.left:  # weighing may have run all of the largest family, so that there was no graph to run beside
            self.workers.run(others.run_all)
        return replace(
            execution,
            strategy=execution.strategy if execution.escaped else str(candidate),
            interpreted=execution.interpreted + others.interpreted,
            properties={**execution.properties, "families": related.count, "largest family": related.largest},
        )

    def _really_ns(self, execution: Execution, workload: Workload) -> float:
        """Nanoseconds that a transaction really took; for families, including the time to schedule them."""
        if workload.transactions == 0:
            return workload.cost_ns
        if execution.strategy == "serial":
            return execution.seconds["execute"] / workload.transactions * 1e9
        if execution.strategy == "families":
            share = max(workload.largest, 1 / self.workers.count)
            return execution.seconds["execute"] / (workload.transactions * share) * 1e9
        if "operation us" in execution.properties:
            per_transaction = execution.properties["operations"] / max(execution.properties["transactions"], 1)
            return execution.properties["operation us"] * 1e3 * per_transaction
        return workload.cost_ns

    def _operations(self, job: Job) -> float:
        """Operations per transaction if every transaction that can be split is split."""
        counts = job.transactions
        total = int(counts.sum())
        split = sum(int(count) * max(len(kinds), 1) for count, kinds in zip(counts, self.plan.slices, strict=False))
        return split / total if total else 1.0

    # --- on several workers -----------------------------------------------------------------------------------

    def _run_in_pieces(
        self,
        batch: Batch,
        order: Array,
        start: int,
        strategy: Strategy,
        split: bool,
        why: str,
        beside: families.Bundles | None = None,
    ) -> Execution:
        """Run events in pieces of bounded memory, each with its own graph.

        During the first piece, workers that would have to wait run the bundles of `beside`.
        """
        if not self._may_speculate():
            if isinstance(strategy, Decision) and strategy.abort == "lazy":
                strategy = replace(strategy, abort="eager")
                why += "; eager, because a loop may not end on values that are taken back"
            elif isinstance(strategy, Chains) or strategy == "chains":
                split = False
                why += "; whole transactions, because a loop may not end on values that are taken back"
        seconds: dict[str, float] = {}
        properties: dict[str, float] = {}
        used = strategy
        for begin in range(start, len(order), PIECE_EVENTS):
            end = min(begin + PIECE_EVENTS, len(order))
            alone = begin == 0 and beside is None and self._nothing_ran
            run = self._run_piece(batch, order[:end], begin, _in_full(strategy), split, alone, beside)
            beside = None
            if run is None:
                batch.valid[order[begin:]] = False
                self._escaping = ESCAPE_BATCHES
                escaped = self._run_serially(batch, order, begin, ESCAPED_WHY)
                return replace(escaped, seconds=added(seconds, escaped.seconds), escaped=True)
            seconds = added(seconds, run.seconds)
            properties = {
                name: max(properties.get(name, 0), value) if name in _LARGEST else properties.get(name, 0) + value
                for name, value in run.properties.items()
            }
            used = run.strategy
        decision = used if isinstance(used, Decision) else None
        return Execution(str(strategy), self.workers.count, decision, why=why, seconds=seconds, properties=properties)

    def _run_piece(
        self,
        batch: Batch,
        order: Array,
        start: int,
        strategy: Strategy,
        split: bool,
        may_stop: bool,
        beside: families.Bundles | None,
    ) -> Run | None:
        """Run one piece; returns None if it needs plain Python, and then the tables are unchanged."""
        began = time.perf_counter()
        plan = self._builder.build(batch, order, start, split)
        try:
            built = time.perf_counter()
            serial, workers = self.serial, self.workers.count
            bench = set_up(self.plan, self._module, self._tables, serial.arrays, batch, serial.strings, workers)
            run = self._scheduler.start(plan, bench)
            run.beside = beside
            run.seconds["construct"] = built - began
            run.properties |= self._scheduler.properties(plan)
            run.strategy = self._by_rule(run, strategy) if isinstance(strategy, Published) else strategy
            # An interrupt can stop the batch only while no part of it has been installed; later it runs to its end.
            with self._job.interrupts.stop_with(run.interrupt) if may_stop else contextlib.nullcontext():
                self._scheduler.execute(run, run.strategy)
            if not run.stopped:
                self._scheduler.finish(run, batch)
                self._learn(run)
        finally:
            self._builder.forget(plan)
        self._raise_error_of_plain_program()
        if run.interrupted:
            raise KeyboardInterrupt
        return None if run.stopped else run

    def _by_rule(self, run: Run, rule: Published) -> Decision:
        """What the published rule decides for a graph, with the costs and aborts of earlier batches."""
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
        """Remember the cost of operations and the share of transactions that abort."""
        samples = int(run.bench.machine.cost_samples.sum())
        if samples:
            ticks = float(run.bench.machine.cost_ticks.sum()) / samples
            self._cost_us = ticks / ticks_per_second() * 1e6
        if run.plan.transactions:
            self._abort_ratio = float(np.count_nonzero(run.progress.failure)) / run.plan.transactions
        stoppable = self._abort_ratio * (run.plan.operations - run.plan.transactions)
        if samples >= SPARED_SAMPLES and stoppable > run.plan.operations * SPARED_SHARE:
            self._spared = min(max((run.plan.operations - samples * SAMPLE) / stoppable, 0.0), 1.0)
        run.properties |= {"operation us": self._cost_us, "abort ratio": self._abort_ratio}

    def _may_speculate(self) -> bool:
        """Whether every transaction of the job terminates, whatever values it sees."""
        counts = zip(self.plan.transactions, self._job.transactions, strict=True)
        return all(plan.speculative for plan, count in counts if count)

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
