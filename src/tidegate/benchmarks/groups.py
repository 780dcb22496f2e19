"""Two groups of transactions in the same batches: several strategies at once beside every single one.

A toll road with two regions that share no row (`workloads.tolls.TwoGroups`):

    hot     skewed, half of it aborts, functions that take no time      runs best one by one
    calm    scattered, hardly an abort, long and costly transactions    runs best on all workers

A single strategy is right for one of them. The adaptive one finds that they are not related and runs each in its own
way, at the same time (its note says "families + ..."); so it must be faster than each single strategy.

All strategies run first. Then the best two and the adaptive one run again, and that decides (`grids`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

from tidegate.benchmarks.bars import Bar
from tidegate.benchmarks.grids import Grid, Point, PointReport
from tidegate.benchmarks.harness import Experiment
from tidegate.benchmarks.strategies import ADAPTIVE, contest_experiment
from tidegate.workloads.tolls import TollSettings, TwoGroups

BAR = 1.0
"""Faster than the best of the others, by whatever there is."""


def grid(
    strategies: Sequence[str], *, hot: TollSettings, calm: TollSettings, pace: float, workers: int, batches: int = 1
) -> Grid:
    """The declaration: a grid of one point, for its final."""

    def make() -> Experiment:
        workload = TwoGroups(hot, calm, pace)
        declared = contest_experiment("groups", workload, strategies, workers=workers, batches=batches)
        settings = {"workload": workload.name, "workers": workers, "hot": asdict(hot), "calm": asdict(calm)}
        return replace(declared, title=f"Two groups of tolls, {workers} workers", settings=settings)

    return Grid(
        name="groups",
        title="Several strategies at once beside each single one",
        points=[Point({"workload": TwoGroups.name}, make)],
        contender=ADAPTIVE,
        bar=BAR,
    )


def bar(found: PointReport) -> Bar:
    """Adaptive is faster than the best single strategy, in the final."""
    ran = found.final[found.contender].note
    what = f"{found.contender} ({ran}) beside {found.best.variant}, the best single strategy"
    return Bar(what, found.ratio, ">", BAR)
