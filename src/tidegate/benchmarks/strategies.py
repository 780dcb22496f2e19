"""How close the adaptive strategy comes to the best fixed one, over a grid of workloads.

No schedule is best everywhere: which one wins depends on skew, aborts, how long transactions are, what
they cost and how many there are in a batch. The adaptive strategy has to choose. Every workload of the
grid is run by

    serial, lock, mvlk, partitioned, chains                 the published baselines
    {bfs, dfs, ns}-{operation, group}-{eager, lazy}         the twelve scheduling decisions
    adaptive                                                the contender

and each point says what share of the best fixed one's speed the contender has (`grids`). Nearly everywhere
that must be most of it, and nowhere may it be little (`bars`).

A `Contest` is one workload under several strategies. Each strategy has an engine of its own that goes on
from round to round, as a stream does; all of them get the same batches. Outcomes and rows of every run
are compared, bit for bit, with those of a serial engine that is not measured, and that one once with the
plain functions. For that check alone the cost of an operation is cut to a few rounds, because plain
Python would take hours; whether a transaction commits does not depend on it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

import tidegate as tg
from tidegate.benchmarks.bars import Bar
from tidegate.benchmarks.grids import Grid, GridReport, Point
from tidegate.benchmarks.harness import Experiment, Variant
from tidegate.workloads import bidding, grep_sum, streaming_ledger, tolls
from tidegate.workloads.workload import Run, Workload, differences

ADAPTIVE = "adaptive"
SERIAL = "serial"
BASELINES = (SERIAL, "lock", "mvlk", "partitioned", "chains")
DECISIONS = tuple(
    "-".join(axes) for axes in itertools.product(("bfs", "dfs", "ns"), ("operation", "group"), ("eager", "lazy"))
)
FIXED = (*BASELINES, *DECISIONS)
BAR = 0.9
"""The share of the best one's speed that counts as reached."""
SHARE_BAR = 0.95
"""The share of points at which it must be reached."""
WORST_BAR = 0.75
"""The share of the best one's speed that every point must have."""

PLAIN_EVENTS = 1_000
PLAIN_ROUNDS = 3
ROUND_US = 100_000.0  # a round should take about this long: shorter ones are mostly noise
BATCHES_MAX = 64

Batches = Sequence[pa.Table]


def strategy_named(name: str) -> Any:
    """What `tg.Engine` takes for a name of `FIXED` or for "adaptive"."""
    if name not in (ADAPTIVE, *FIXED):
        raise ValueError(f"{name!r} is not a strategy; there are: {', '.join((ADAPTIVE, *FIXED))}")
    axes: Any = name.split("-")
    return tg.Decision(*axes) if name in DECISIONS else name


def chosen(names: str | None) -> list[str]:
    """The strategies that a user lists with commas, all for None; serial is always there, as the reference."""
    listed = [ADAPTIVE, *FIXED] if names is None else [name.strip() for name in names.split(",") if name.strip()]
    for name in listed:
        strategy_named(name)  # raises for one that is not there
    return [SERIAL, *(name for name in listed if name != SERIAL)]


# --- one workload, several strategies -------------------------------------------------------------------


class Contest:
    """One workload that several strategies run, round after round, on the same batches."""

    def __init__(self, workload: Workload, batches_per_round: int = 1) -> None:
        self.workload = workload
        self._count = batches_per_round
        self._batches: list[Batches] = []
        self._wanted: list[Run] = []
        self._reference: tg.Engine | None = None

    @property
    def events(self) -> int:
        """Events in a round."""
        return self._count * self.workload.settings.batch_events

    def batches(self, round_index: int) -> Batches:
        """The batches of a round."""
        while len(self._batches) <= round_index:
            start = len(self._batches) * self._count
            self._batches.append(list(self.workload.batches(self._count, start)))
        return self._batches[round_index]

    def wanted(self, round_index: int) -> Run:
        """The right result of a round: the run of a serial engine that is not measured."""
        if self._reference is None:
            verify_with_plain(self.workload)
            self._reference = self.workload.engine(SERIAL)
        while len(self._wanted) <= round_index:
            outcomes = [self._reference.run(events) for events in self.batches(len(self._wanted))]
            self._wanted.append(Run(outcomes, self.workload.scan(self._reference)))
        return self._wanted[round_index]

    def variant(self, strategy: str, workers: int, name: str | None = None) -> Variant:
        """A strategy as a variant: its engine is made on first use and goes on from round to round."""
        name = name or strategy
        engines: list[tg.Engine] = []
        rounds = itertools.count()

        def prepare() -> tuple[tg.Engine, int, Batches]:
            if not engines:
                engines.append(self.workload.engine(strategy_named(strategy), workers))
            round_index = next(rounds)
            return engines[0], round_index, self.batches(round_index)

        def run(prepared: tuple[tg.Engine, int, Batches]) -> list[pa.Table]:
            engine, _, batches = prepared
            return [engine.run(events) for events in batches]

        def verify(prepared: tuple[tg.Engine, int, Batches], outcomes: list[pa.Table]) -> None:
            engine, round_index, _ = prepared
            require_same(name, self.wanted(round_index), Run(outcomes, self.workload.scan(engine)))

        return Variant(name, prepare=prepare, run=run, verify=verify, note=lambda: what_ran(engines))


def what_ran(engines: Sequence[tg.Engine]) -> str:
    """The strategy that the last batch was run with."""
    last = engines[0].last_batch if engines else None
    return "" if last is None else last.strategy


def require_same(what: str, wanted: Run, found: Run) -> None:
    """Raise if a run is not, bit for bit, what the serial engine gave."""
    problems = differences(wanted, found)
    if problems:
        raise AssertionError(f"{what} differs from serial:\n" + "\n".join(problems))


def verify_with_plain(workload: Workload, events: int = PLAIN_EVENTS) -> None:
    """Raise if the serial engine differs from the plain functions on the first events of a workload."""
    batch = cheap(workload.batch(0).slice(0, events))
    problems = workload.verify([batch], workload.run([batch]))
    if problems:
        raise AssertionError(f"{workload.name}: serial differs from the plain functions:\n" + "\n".join(problems))


def cheap(events: pa.Table) -> pa.Table:
    """The same events at the cost of a few rounds."""
    rounds = np.minimum(events["rounds"].to_numpy(), PLAIN_ROUNDS)
    return events.set_column(events.column_names.index("rounds"), "rounds", pa.array(rounds))


def contest_experiment(
    name: str, workload: Workload, strategies: Iterable[str], *, workers: int, batches: int
) -> Experiment:
    """The experiment of one workload: serial is the reference, so a ratio is a speed-up."""
    contest = Contest(workload, batches)
    return Experiment(
        name=name,
        title=workload.name,
        items=contest.events,
        item="event",
        variants=[contest.variant(strategy, workers) for strategy in strategies],
        settings={"workload": workload.name, "workers": workers, **asdict(workload.settings)},
        seed=workload.settings.seed,
    )


def batches_per_round(workload: Workload) -> int:
    """As many batches as make a round long enough to be timed."""
    settings = workload.settings
    each_us = settings.batch_events * (0.5 + 3 * settings.cost_us)
    return max(1, min(BATCHES_MAX, round(ROUND_US / each_us)))


# --- the grid -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cell:
    """A point before it is an experiment: which workload, with which knobs turned."""

    dimensions: dict[str, Any]
    make: Callable[[float], Workload]


_KNOBS = {"theta": "theta", "abort_ratio": "a", "cost_us": "C", "batch_events": "T", "length": "l", "reads": "r"}


def _cell(kind: Callable[..., Workload], base: Any, turned: dict[str, Any]) -> Cell:
    settings = replace(base, **turned)
    knobs = {symbol: getattr(settings, knob) for knob, symbol in _KNOBS.items() if hasattr(settings, knob)}
    others = {knob: value for knob, value in turned.items() if knob not in (*_KNOBS, "seed")}
    name = kind.name  # type: ignore[attr-defined]
    return Cell({"workload": name, **knobs, **others}, lambda pace: kind(settings, pace))


def _turn(knob: str, *values: float) -> list[dict[str, Any]]:
    return [{knob: value} for value in values]


def cells(seed: int) -> list[Cell]:
    """The full grid: the papers' defaults, each knob turned through its published range, and corners."""
    ledger = replace(streaming_ledger.MORPHSTREAM, seed=seed)
    grep = replace(grep_sum.MORPHSTREAM, seed=seed)
    bids = bidding.BiddingSettings(cost_us=2.0, batch_events=5_120, seed=seed)
    toll = replace(tolls.MORPHSTREAM, batch_events=10_240, seed=seed)
    common = [
        *_turn("theta", 0.0, 0.4, 0.6, 0.8, 1.0),
        *_turn("abort_ratio", 0.0, 0.1, 0.3, 0.6, 0.9),
        *_turn("cost_us", 0.0, 1.0, 5.0),
        *({"cost_us": cost, "batch_events": 5_120} for cost in (30.0, 100.0)),  # enough work in small batches, too
        *({"batch_events": size, "cost_us": 1.0} for size in (5_120, 20_480, 81_920)),
    ]
    few = [*_turn("theta", 0.0, 1.0), *_turn("abort_ratio", 0.3, 0.6), *_turn("cost_us", 0.0, 1.0)]
    corners = [{"theta": 1.0, "cost_us": 0.0}, {"abort_ratio": 0.6, "cost_us": 0.0}, {"theta": 1.0, "abort_ratio": 0.6}]
    lengths = [*_turn("length", 2, 4), *({"length": length, "batch_events": 5_120} for length in (6, 10))]
    reads = _turn("reads", 1, 4, 6, 10)
    plans: list[tuple[Any, Any, list[dict[str, Any]]]] = [
        (streaming_ledger.StreamingLedger, ledger, [{}, *common, *_turn("transfer_ratio", 0.0, 1.0), *corners]),
        (streaming_ledger.StreamingLedger, replace(streaming_ledger.TSTREAM, seed=seed), [{}]),
        (grep_sum.GrepSum, grep, [{}, *common, *lengths, *reads, *corners]),
        (grep_sum.GrepSum, replace(grep_sum.TSTREAM, seed=seed), [{}]),
        (bidding.Bidding, bids, [{}, *few]),
        (bidding.Bidding, replace(bidding.TSTREAM, seed=seed), [{}]),
        (tolls.Tolls, toll, [{}, *few, *_turn("travel_ratio", 0.5)]),
        (tolls.Tolls, replace(tolls.TSTREAM, seed=seed), [{}]),
    ]
    return [_cell(kind, base, turned) for kind, base, variations in plans for turned in variations]


def smoke_cells(seed: int) -> list[Cell]:
    """One small point for each application."""
    small = {"batch_events": 300, "cost_us": 0.1, "abort_ratio": 0.1, "theta": 0.6, "seed": seed}
    return [
        _cell(streaming_ledger.StreamingLedger, streaming_ledger.MORPHSTREAM, {**small, "keys": 200}),
        _cell(grep_sum.GrepSum, grep_sum.MORPHSTREAM, {**small, "keys": 200}),
        _cell(bidding.Bidding, bidding.TSTREAM, {**small, "keys": 200}),
        _cell(tolls.Tolls, tolls.MORPHSTREAM, small),
    ]


def grid(
    points: Sequence[Cell],
    strategies: Sequence[str],
    *,
    pace: float,
    workers: int,
    batches: Callable[[Workload], int] = batches_per_round,
) -> Grid:
    """The declaration: every cell under every strategy."""

    def experiment(cell: Cell) -> Callable[[], Experiment]:
        def make() -> Experiment:
            workload = cell.make(pace)
            return contest_experiment("strategies", workload, strategies, workers=workers, batches=batches(workload))

        return make

    return Grid(
        name="strategies",
        title=f"Adaptive beside the best of {len(strategies) - 1} fixed strategies, {workers} workers",
        points=[Point(cell.dimensions, experiment(cell)) for cell in points],
        contender=ADAPTIVE,
        bar=BAR,
    )


def bars(report: GridReport) -> list[Bar]:
    """Close to the best nearly everywhere, and far from it nowhere."""
    worst, contender = report.worst, report.grid.contender
    reached = f"{contender} has at least {report.grid.bar:g} of the best one's speed"
    return [
        Bar(f"share of points at which {reached}", report.share_reached, "≥", SHARE_BAR),
        Bar(f"{contender} beside the best, at worst ({worst.point.label})", worst.ratio, "≥", WORST_BAR),
    ]
