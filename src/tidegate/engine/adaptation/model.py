"""Tidegate's own adaptive rule: predict how long each strategy would take for this batch, and take the fastest.

The inputs are measured, not assumed:

    cost          nanoseconds per transaction, from a few transactions of the batch that are run first
    near          the probability that a transaction waits for one of the few before it, from a sample of the batch
    hot           the share of transactions that touch the hottest row, from a sample
    operations    how many operations a transaction splits into
    largest       the largest family's share of the run time; families are connected components (`kernels.components`)
    aborts        the share of transactions that failed in the last batch
    spared        the share of a failing transaction's other operations that need not run, from the last split batch
    workers       threads, but no more than processors

A strategy's time is its overhead, spread over the workers, plus the functions' time divided by the number of
workers that can be kept busy. The chain of transactions on the hottest row limits parallelism; workers that take
transactions in order also wait for neighbouring transactions.

    serial        n * cost
    families      n * (overhead + cost * largest): families must be found before anything runs
    lock, mvlk    n * (overhead + cost * (1 + waiting * near)) / workers
    ns            n * (overhead + cost) / workers
    ns, split     the same, with an overhead for every operation
    families + ns the largest family by ns, with its overhead; a worker that would wait runs other families, without
    all but serial take at least the hottest row's chain: hot * n * (overhead + cost) / operations in a chain's link

Predictions are corrected by what a strategy's last batches really took, recomputed with the functions' real cost:
a wrong cost estimate is not the strategy's fault. The correction is the median, so one batch that ran while the
machine was busy changes nothing, and errors within the noise are ignored (`TOLERANCE`). A change of strategy must
promise a gain (`HYSTERESIS`); otherwise the choice would flap between equals.
"""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass, field, replace

from tidegate.operations.decision import Decision, Families, Strategy

HYSTERESIS = 0.01
"""A new strategy must be predicted to be faster than the last one by this share."""

MARGIN = 0.1
"""Several workers must be predicted to beat one by this share: near break-even, effects outside the model decide."""

REMEMBERED = 5
"""A strategy's correction is the median ratio of measured to predicted time over this many of its batches."""

TOLERANCE = 0.05
"""A prediction error up to this share is ignored; only the excess corrects the prediction."""

FORGETTING = 0.02
"""The share of a correction that decays with every batch: a strategy not tried for long may have become faster."""

SPARED = 0.5
"""The share of an aborting transaction's other operations that need not run, until a batch has measured it."""

LOG_ENTRIES = 256

_SIGNALS = Decision("ns", "operation", "eager")


@dataclass(frozen=True, slots=True)
class Overheads:
    """Nanoseconds that a strategy takes besides the functions themselves.

    Starting points, fitted to the streaming ledger on two cores; differences on other machines and workloads are
    learnt (`Model.correction`).
    """

    batch: float
    transaction: float
    operation: float
    waiting: float = 0.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A strategy that the model may choose.

    `split` says whether transactions are split into operations. With `shared`, the strategy runs the largest family
    only; each of the others runs serially on one worker (`Families`).
    """

    strategy: Strategy
    split: bool
    overheads: Overheads
    shared: bool = False

    def __str__(self) -> str:
        return f"{'families + ' if self.shared else ''}{self.strategy}{' split' if self.split else ''}"


SERIAL = Candidate("serial", False, Overheads(0.0, 0.0, 0.0))
FAMILIES = Candidate(Families(), False, Overheads(150_000.0, 120.0, 0.0))
ALONE = (
    Candidate("lock", False, Overheads(400_000.0, 700.0, 0.0, waiting=1.0)),
    Candidate("mvlk", False, Overheads(400_000.0, 600.0, 0.0, waiting=1.0)),
    Candidate(_SIGNALS, False, Overheads(500_000.0, 700.0, 0.0)),
    Candidate(_SIGNALS, True, Overheads(500_000.0, 300.0, 300.0)),
)
APART = Overheads(500_000.0, 60.0, 0.0)
"""The extra overhead of running the largest family and the others by different strategies: weighing, two lists."""

CANDIDATES: tuple[Candidate, ...] = (
    SERIAL,
    FAMILIES,
    *ALONE,
    *(replace(candidate, shared=True) for candidate in ALONE if candidate.strategy == _SIGNALS),
)
SOONEST_NS = min(candidate.overheads.batch for candidate in (FAMILIES, *ALONE))
"""No strategy on several workers takes less than this for a batch."""


@dataclass(frozen=True, slots=True)
class Beside:
    """Shares of the largest family and the others, for running them by two strategies at once."""

    part: float
    """The share of all transactions that belong to the largest family."""
    hot: float
    """The hottest row's share of the largest family's transactions."""
    second: float
    """The second largest family's share of the time."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What is known about a batch before it is run."""

    transactions: int
    cost_ns: float
    operations: float
    near: float
    hot: float
    workers: int
    largest: float = 1.0
    aborts: float = 0.0
    spared: float = SPARED
    """The share of an aborting transaction's other operations that need not run, if it is split."""
    beside: Beside | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """What the model chose, and the numbers behind it."""

    candidate: Candidate
    predicted: dict[str, float]
    workload: Workload

    @property
    def why(self) -> str:
        """The reason as a sentence with the numbers."""
        found = self.workload
        times = ", ".join(f"{name} {seconds * 1e3:.2f} ms" for name, seconds in self.predicted.items())
        return (
            f"{self.candidate}: {found.transactions:,} transactions of {found.cost_ns / 1e3:.2f} us, "
            f"{found.operations:.1f} operations each, waiting for neighbours {found.near:.3f}, "
            f"hottest row {found.hot:.3f}, largest family {found.largest:.2f}, {found.workers} workers; "
            f"predicted: {times}"
        )


@dataclass(slots=True)
class Model:
    """Chooses strategies and learns from how long they took."""

    ratios: dict[str, deque[float]] = field(default_factory=dict)
    """Measured divided by predicted time, for the last batches of each strategy."""
    known: set[str] = field(default_factory=set)
    last: str = ""
    log: deque[str] = field(default_factory=lambda: deque(maxlen=LOG_ENTRIES))

    def correction(self, candidate: Candidate) -> float:
        """The factor by which to multiply a strategy's prediction."""
        off = statistics.median(self.ratios.get(str(candidate), (1.0,))) - 1.0
        return 1.0 + off - min(max(off, -TOLERANCE), TOLERANCE)

    def choose(self, workload: Workload, allow_split: bool, batches: int = 1) -> Choice:
        """The strategy that should be fastest; `batches` is the number of batches since the last choice."""
        for ratios in self.ratios.values():
            for position, ratio in enumerate(ratios):
                ratios[position] = 1.0 + (ratio - 1.0) * (1.0 - FORGETTING) ** batches
        allowed = [
            candidate
            for candidate in CANDIDATES
            if (allow_split or not candidate.split) and (workload.beside is not None or not candidate.shared)
        ]
        predicted = {str(c): predict(c, workload) * self.correction(c) for c in allowed}
        best = min(allowed, key=lambda c: predicted[str(c)])
        if predicted[str(SERIAL)] <= predicted[str(best)] * (1 + MARGIN):
            best = SERIAL
        for candidate in allowed:
            if str(candidate) == self.last and predicted[self.last] <= predicted[str(best)] * (1 + HYSTERESIS):
                best = candidate
        choice = Choice(best, predicted, workload)
        self.last = str(best)
        self.log.append(choice.why)
        return choice

    def learn(self, choice: Choice, seconds: float, cost_ns: float) -> bool:
        """Compare the prediction with the time the batch took; returns whether it was the strategy's first batch.

        A strategy's first batch also loads its machine code, so nothing is learnt from it. `cost_ns` is what a
        transaction's function really took: a wrong cost estimate is not the strategy's fault.
        """
        name = str(choice.candidate)
        plain = predict(choice.candidate, replace(choice.workload, cost_ns=cost_ns))
        if name not in self.known:
            self.known.add(name)
            return True
        if plain <= 0.0 or choice.candidate is SERIAL:
            return False
        ratios = self.ratios.setdefault(name, deque([1.0], maxlen=REMEMBERED))
        ratios.append(min(max(seconds / plain, 0.25), 4.0))
        return False


def predict(candidate: Candidate, workload: Workload) -> float:
    """Seconds that a strategy takes for a batch."""
    count, cost = workload.transactions, workload.cost_ns
    if candidate is SERIAL:
        return count * cost * 1e-9
    overheads, workers = candidate.overheads, workload.workers
    if candidate is FAMILIES:
        return (overheads.batch + count * (overheads.transaction + cost * max(workload.largest, 1 / workers))) * 1e-9
    operations = workload.operations if candidate.split else 1.0
    overhead = overheads.transaction + overheads.operation * operations
    if candidate.split:  # some operations after a failure are not run
        cost *= 1.0 - workload.aborts * (1.0 - 1.0 / operations) * workload.spared
    fixed, part, hot, second = overheads.batch, 1.0, workload.hot, 0.0
    if candidate.shared and workload.beside is not None:
        part, hot, second = workload.beside.part, workload.beside.hot, workload.beside.second
        fixed += FAMILIES.overheads.batch + APART.batch
        fixed += (FAMILIES.overheads.transaction + APART.transaction) * count
    lost = 1.0 + overheads.waiting * workload.near
    spread = count * (part * overhead + cost * lost) / workers
    chain = hot * part * count * (overhead + cost) / operations
    return (fixed + max(spread, chain, second * count * cost)) * 1e-9
