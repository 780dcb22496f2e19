"""Pipelined stages: a batch is walked through by one lane for all stages, or by a lane for each, side by side.

A lane is one pass over all events in order. It forms the atomic batches, counts the rounds, and runs the groups and
plain transactions that belong to its stage. Every lane sees the same events, and so the same rounds, without any
communication. Only tuples pass between lanes: the lane that emits them notes where each round ends in the stream, and
the lane that reads them may read up to there.

    events      0 ........ 512 ........ 1024 ........ 1536            pieces of a batch
    check           done         done        runs
    invoice         done         runs                                 takes what check emitted in that piece

`Pipeline` hands out the pieces: a lane may start a piece when it has finished the piece before, and every lane that it
reads streams from has finished this one.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.engine.kernels.flows import tick
from tidegate.engine.state.streams import StreamState
from tidegate.operations.flow import (
    ALONE,
    GIVES,
    GROUP,
    LOGGED,
    MODE,
    NOTHING,
    POSITION,
    RECORD,
    ROUNDS,
    STEP_EVENTS,
    STEP_HEAD,
    STEP_STATUS,
    STEP_WORDS,
    TAKES,
    TRACE_END,
    TRACED,
    TRACING,
    UNTRACED,
    FlowsPlan,
)
from tidegate.operations.outcomes import Step, rolled_back
from tidegate.operations.plan import ProgramPlan

Array = npt.NDArray[Any]
SMALLEST = 64


class Lane:
    """Where one walk stands. `stage` is the number of the stage whose groups it runs; None for all of them."""

    def __init__(self, plan: ProgramPlan, streams: Sequence[StreamState], stage: int | None) -> None:
        flows, self.stage = plan.flows, stage
        self.flows = flows
        self.control = np.zeros(ROUNDS + len(flows.flows), np.int64)
        self.control[GROUP] = -1
        self.log = np.zeros((SMALLEST, 6), np.int64)
        self.steps: list[tuple[int, ...]] = []
        """What it ran, for a history: member, round, group, status, tuples, when."""
        self.aborted = np.zeros(len(plan.reasons), np.int64)
        """By reason of the program: how often a step failed that no event started, in machine code."""
        self.aborted_plain: Counter[tuple[int, str]] = Counter()
        """The same in plain Python, by transaction and reason."""
        self.trace = np.zeros(0, np.int64)
        """The words of the steps that it noted, or is to run (`operations.flow`)."""
        self.open: dict[int, Array] = {}
        self.opened: dict[int, Array] = {}
        """How many events wait in the open batch of each border stream, and which."""
        self.spans = {number: streams[number].span for number in flows.crossing}
        """Where the current round lies in the streams that lead from one stage to another."""
        self.refused = np.empty(0, np.int32)
        """By event: not 0 where it must not run."""
        self.moment = np.zeros(1, np.int64)
        """The event that it came to last; rows expire by what the clock says there."""
        self.hits = np.zeros(len(flows.members), np.int64)
        self.void_valid = np.zeros(1, np.bool_)
        self.void_results = [np.zeros(1, kind.dtype) for kind in plan.result_arrays]
        """Where results go that are not returned: only the first transaction on a border stream returns any."""
        self.wanted = {table.name: np.zeros((1, len(table.key)), np.int64) for table in plan.tables}
        self.float_wanted = {name: words.view(np.float64) for name, words in self.wanted.items()}
        """One key of each table, to be looked up."""
        groups = sum(len(flow.groups) for flow in flows.flows)
        self.mine = np.ones(groups + len(plan.transactions), np.bool_)
        self.roles = np.full(len(flows.streams), ALONE, np.int64)
        self.rounds_before = np.zeros(len(flows.flows), np.int64)
        self.seconds = 0.0
        self.arrays: tuple[int, tuple[Any, ...]] | None = None
        """What generated code works on, and since which change of arrays."""
        if stage is not None:
            self._take_part(flows, groups, stage)

    def _take_part(self, flows: FlowsPlan, groups: int, stage: int) -> None:
        own = flows.stages[stage]
        self.mine[:] = False
        self.mine[list(own.groups)] = True
        self.mine[[groups + transaction for transaction in own.transactions]] = True
        emitted = {stream for group in own.groups for stream in flows.group(group).emits}
        for stream in flows.crossing:
            self.roles[stream] = GIVES if stream in emitted else TAKES if stream in own.takes else NOTHING
        self.spans |= {stream: np.zeros(2, np.int64) for stream in flows.crossing if stream not in emitted}

    def givers(self, lanes: Sequence[Lane]) -> list[int]:
        """Those of the lanes that it takes streams from."""
        return [number for number, lane in enumerate(lanes) if np.any((self.roles == TAKES) & (lane.roles == GIVES))]

    def begin(self, events: int, refused: Array, rounds: Array, record: bool, mode: int = UNTRACED) -> None:
        """Stand before the first event of a batch; `rounds` are the numbers of the last rounds of each graph."""
        self.refused = refused
        self.control[POSITION], self.control[GROUP], self.control[RECORD] = 0, -1, record
        self.turn_to(mode)
        self.control[ROUNDS:] = self.rounds_before[:] = rounds
        for number in (border for flow in self.flows.flows for border in flow.borders):
            self.open[number], self.opened[number] = np.zeros(1, np.int64), np.empty(events + 1, np.int64)
        self.seconds = 0.0
        self.arrays = None
        self.aborted[:] = 0
        self.aborted_plain.clear()

    @property
    def rounds(self) -> Array:
        """The number of the last round of each graph."""
        return self.control[ROUNDS:]

    def open_batch(self, stream: int) -> Array:
        """The events of the open batch of a border stream."""
        return self.opened[stream][: self.open[stream][0]]

    # --- history -------------------------------------------------------------------------------------------

    def log_steps(self, steps: Iterable[tuple[int, int, int]], batch: int, group: int) -> None:
        """Note what plain Python ran: members with status and tuples, that committed or aborted as one, at one time."""
        if self.control[RECORD]:
            self.collect()
            when = int(tick())
            self.steps += [(member, batch, group, status, n, when) for member, status, n in steps if n]

    def collect(self) -> None:
        """Take over what machine code has noted."""
        self.steps += [tuple(step) for step in self.log[: self.control[LOGGED]].tolist()]
        self.control[LOGGED] = 0

    def make_room_for_steps(self) -> None:
        """The log is full."""
        if not self.control[LOGGED]:
            self.log = np.zeros((2 * len(self.log), 6), np.int64)
        self.collect()

    # --- steps, noted or run again ----------------------------------------------------------------------------

    def turn_to(self, mode: int) -> None:
        """From here on leave no trace, note steps in a new trace, or run none but those of one."""
        self.control[MODE], self.control[TRACED], self.control[TRACE_END] = mode, 0, 0

    @property
    def noted(self) -> Array:
        """The words of the steps that were noted."""
        return self.trace[: self.control[TRACED]].copy()

    def run_only(self, words: bytes) -> None:
        """The steps to run next, and no others."""
        given = np.frombuffer(words, np.int64)
        if len(given) > len(self.trace):
            self.trace = np.zeros(max(len(given), 2 * len(self.trace)), np.int64)
        self.trace[: len(given)] = given
        self.control[TRACED], self.control[TRACE_END] = 0, len(given)

    def end_step(self, status: int) -> None:
        """Close what machine code noted of a step that plain Python ran, or go to the next step to run."""
        if self.control[MODE] == UNTRACED:
            return
        place = int(self.control[TRACED])
        if self.control[MODE] == TRACING and self.trace[place + STEP_WORDS] > 0:
            self.trace[place + STEP_STATUS] = status
            if status > 0:
                self.trace[place + STEP_WORDS], self.trace[place + STEP_EVENTS] = STEP_HEAD, 0
        self.control[TRACED] += self.trace[place + STEP_WORDS]

    def make_room_for_trace(self) -> None:
        """The trace is full."""
        self.trace = np.concatenate([self.trace, np.zeros(max(len(self.trace), SMALLEST * SMALLEST), np.int64)])


def aborts_of(lanes: Sequence[Lane], plan: ProgramPlan) -> dict[str, dict[str, int]]:
    """By transaction and reason: how often steps failed in the batch that no event started."""
    found: dict[str, dict[str, int]] = {}
    for lane in lanes:
        compiled = ((plan.reason_sources[n], int(lane.aborted[n])) for n in np.flatnonzero(lane.aborted))
        for (transaction, reason), count in (*compiled, *lane.aborted_plain.items()):
            counts = found.setdefault(plan.names[transaction], {})
            counts[reason] = counts.get(reason, 0) + count
    return found


def history_of(lanes: Sequence[Lane], plan: ProgramPlan, reasons: Sequence[str], first: int) -> list[Step]:
    """What the lanes ran since the last call, in the order in which it happened, numbered from `first` on."""
    found: list[tuple[int, ...]] = []
    for lane in lanes:
        lane.collect()
        found += lane.steps
        lane.steps = []
    if len(lanes) > 1:
        found.sort(key=lambda step: step[-1])
    return [_step(plan, reasons, first + place, step) for place, step in enumerate(found)]


def _step(plan: ProgramPlan, reasons: Sequence[str], number: int, noted: tuple[int, ...]) -> Step:
    member, batch, group, status, tuples, _ = noted
    graph, place = "", -1
    if member >= 0:
        flow = plan.flows.flows[plan.flows.flow_of(group)]
        graph, place = flow.name, group - flow.first_group
    if not graph:  # a plain transaction, whether or not it runs as a graph of its own
        batch, place = 0, -1
    transaction = -1 - member if member < 0 else plan.flows.members[member].transaction
    reason = _reason(plan, reasons, status, transaction)
    return Step(number, graph, plan.names[transaction], batch, place, status == 0, tuples, reason)


def _reason(plan: ProgramPlan, reasons: Sequence[str], status: int, transaction: int) -> str | None:
    """Why a step of a transaction aborted, in its own words or in those of who failed."""
    if not 0 < status <= len(plan.reasons):
        return reasons[status - 1] if status else None
    failed, reason = plan.reason_sources[status - 1]
    return reason if failed == transaction else rolled_back(plan.names[failed], reason)


class Pipeline:
    """Hands out the pieces of a batch to workers: `run(lane, piece)` is called once for each, when it may be.

    `before` are for each lane those that it follows.
    """

    def __init__(self, before: Sequence[Sequence[int]], pieces: int, run: Callable[[int, int], None]) -> None:
        self._run, self._pieces, self._before = run, pieces, before
        self._done = [0] * len(before)
        self._busy = [False] * len(before)
        self._stopped = False
        self._changed = threading.Condition()

    def work(self, worker: int) -> None:
        """Take pieces until there are none."""
        while (lane := self._next()) is not None:
            try:
                self._run(lane, self._done[lane])
            except BaseException:
                self.stop()
                raise
            with self._changed:
                self._done[lane] += 1
                self._busy[lane] = False
                self._changed.notify_all()

    def stop(self) -> None:
        """Hand out nothing more."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _next(self) -> int | None:
        """The lane that is to go on: of those that may, the one that is behind most. None when all is done."""
        with self._changed:
            while not self._stopped and min(self._done) < self._pieces:
                ready = [lane for lane in range(len(self._done)) if self._may_go_on(lane)]
                if ready:
                    chosen = min(ready, key=lambda lane: self._done[lane])
                    self._busy[chosen] = True
                    return chosen
                self._changed.wait()
            return None

    def _may_go_on(self, lane: int) -> bool:
        done = self._done[lane]
        return not self._busy[lane] and done < self._pieces and all(self._done[b] > done for b in self._before[lane])


def pieces_of(events: int, count: int, least: int) -> Sequence[int]:
    """Where the pieces of a batch end: about `count` of them, none but the last shorter than `least`."""
    size = max(least, -(-events // count))
    return [*range(size, events, size), events]
