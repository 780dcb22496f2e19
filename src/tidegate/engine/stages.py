"""Runs a batch of a program stage by stage, each by the executor that suits it.

    stage without groups       plain transactions that touch no table of a group: the strategies, on all workers
    stages with groups         the dataflow graphs, and plain transactions that share tables with them:
                                   one walk        all of it in the order of the events, by one worker
                                   side by side    each stage by a worker of its own (`graphs.lanes`)
                                   around          one walk; where plain transactions follow each other for long, the
                                                   strategies run these on all workers, and the walk resumes after them

    events     p p g p p p p p p p p p p l g p g          p: plain, g: enters a graph, l: looks rows up
    around     ─────>[ strategies      ]────────>

A program without graphs is the first kind of stage alone. All ways give the same rows and outcomes: the strategies give
what the order of events would, stages share no row, and between two events the walk can stop anywhere. So which one is
taken is a matter of time, and adaptive takes what was fastest (`adaptation.fastest`).

Where steps are noted, all of it is one walk: the order of commits is that of the walk. Where a history is kept, nothing
goes to the strategies: they do not say when a transaction committed.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.engine.adaptation.fastest import Fastest
from tidegate.engine.execution.executions import Execution, Executor, Job, joined
from tidegate.engine.execution.runner import ADAPTIVE_EVENTS_MIN
from tidegate.engine.execution.workers import Workers
from tidegate.engine.graphs.walk import GraphWalk
from tidegate.operations.decision import Strategy
from tidegate.operations.plan import ProgramPlan

Array = npt.NDArray[Any]

ONE_WALK, SIDE_BY_SIDE, AROUND = "one after the other", "side by side", "around plain transactions"

SIDE_BY_SIDE_EVENTS = 2048
"""Smaller batches are not walked through side by side: handing out pieces takes longer."""

AROUND_EVENTS = 256
"""Runs of at least this many plain transactions leave the walk for the strategies. Measured with 10 us each and two
workers, beside one walk: 0.84 times as fast with 64 in a row, 1.36 with 256, 1.57 with 1,024."""


class Stages:
    """The executor of a whole program."""

    def __init__(
        self,
        plan: ProgramPlan,
        strategies: Executor,
        graphs: GraphWalk,
        strategy: Strategy,
        workers: Workers,
    ) -> None:
        self._strategies, self._graphs = strategies, graphs
        self._strategy, self._workers = strategy, workers
        self._fastest = Fastest()
        flows = plan.flows
        self._graph_stages = sum(1 for stage in flows.stages if stage.groups)
        in_graphs = [member.transaction for member in flows.members]
        apart = [number for stage in flows.stages if not stage.groups for number in stage.transactions]
        # By transaction; the last entry is for events whose transaction is unknown.
        self._plain = np.ones(len(plan.transactions) + 1, np.bool_)
        self._plain[[*in_graphs, -1]] = False
        self._apart = np.zeros_like(self._plain)
        self._apart[apart] = True
        self._mixed = bool(np.any(self._plain & ~self._apart))

    def run(self, job: Job) -> Execution:
        """Run all events of a batch."""
        if not self._graph_stages:
            return self._strategies.run(job)
        if self._strategy == "serial" or self._workers.count == 1 or job.trace:
            return self._graphs.run(job)
        apart = self._apart[job.batch.kinds[job.order]]
        count = int(np.count_nonzero(apart))
        least = ADAPTIVE_EVENTS_MIN if self._strategy == "adaptive" else 1
        if count < least or self._graphs.recording:
            return self._run_graphs(job, self._graph_stages + (count > 0))
        self._workers.start()  # here, where nothing of the batch has run: a refusal leaves all as it was
        execution = self._strategies.run(job.part(job.order[apart], True))
        if count == len(apart):
            return execution
        return joined([execution, self._run_graphs(job.part(job.order[~apart], False), self._graph_stages)])

    def _run_graphs(self, job: Job, stages: int) -> Execution:
        """Run events that belong to `stages` stages through the graphs, in the way that is likely to be the fastest."""
        plain = self._long_plain_runs(job)
        ways = [ONE_WALK]
        if stages > 1 and len(job.order) >= SIDE_BY_SIDE_EVENTS:
            ways.append(SIDE_BY_SIDE)
        if plain:
            ways.append(AROUND)
        if len(ways) == 1:
            return self._graphs.run(job)
        self._workers.start()  # before anything of this part runs
        adaptive = self._strategy == "adaptive"
        way = self._fastest.choose(ways) if adaptive else ways[-1]
        began = time.perf_counter()
        if way == SIDE_BY_SIDE:
            execution = self._graphs.run_side_by_side(job)
        elif way == AROUND:
            execution = self._graphs.run_around(job, plain, self._strategies)
        else:
            execution = self._graphs.run(job)
        if adaptive:
            self._fastest.learn(way, len(job.order), time.perf_counter() - began)
            execution = replace(execution, why=f"{execution.why}: {self._fastest.why}")
        return execution

    def _long_plain_runs(self, job: Job) -> list[tuple[int, int]]:
        """Where in the order plain transactions follow each other for long: first and behind the last."""
        if not self._mixed or self._graphs.recording:
            return []
        plain = np.concatenate([[False], self._plain[job.batch.kinds[job.order]], [False]])
        edges = np.flatnonzero(plain[1:] != plain[:-1])
        begins, ends = edges[::2], edges[1::2]
        long = ends - begins >= AROUND_EVENTS
        return list(zip(begins[long].tolist(), ends[long].tolist(), strict=True))
