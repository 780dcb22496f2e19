"""Many experiments with the same variants are a grid, each point of it with its values of some dimensions:

    point        theta=0.6 cost=10        one experiment
    contender    the variant in question  how close does it come, point by point, to the best of the others?
    final        contender and best       the best of many noisy numbers is best by luck, too; so the best
                                          few and the contender run again, in more rounds, and that is
                                          what is compared

Each point is written down as soon as it is measured, so that a run that is stopped leaves what it has.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.table import Table

from tidegate.benchmarks.harness import Comparison, Experiment, Report, measure, plain_table, record, records

FINAL_ROUNDS = 3
"""Rounds of a final for each round before it: three variants run, not all, so there is time."""

FINAL_ROUNDS_MIN = 3
"""Rounds of a final when time is up: one alone would be noise."""


def label_of(dimensions: Mapping[str, Any]) -> str:
    """Dimensions in one line: "grep and sum theta=0.2 C=1.0"."""
    return " ".join(str(value) if name == "workload" else f"{name}={value}" for name, value in dimensions.items())


@dataclass(frozen=True, slots=True)
class Point:
    """One experiment of a grid; it is made when its turn comes, because data takes memory."""

    dimensions: Mapping[str, Any]
    experiment: Callable[[], Experiment]

    @property
    def label(self) -> str:
        """The dimensions in one line."""
        return label_of(self.dimensions)


@dataclass(frozen=True, slots=True)
class Grid:
    """Experiments that ask the same question: how close does `contender` come to the best of the others?"""

    name: str
    title: str
    points: Sequence[Point]
    contender: str
    bar: float = 0.9
    """A point counts as reached when the contender has at least this share of the best one's speed."""
    finalists: int = 2
    """How many of the others run again beside the contender."""


@dataclass(frozen=True, slots=True)
class PointReport:
    """The result of a point: all variants, and the final between the contender and the best."""

    point: Point
    report: Report
    final: Report
    contender: str

    @property
    def best(self) -> Comparison:
        """The fastest of the others, in the final."""
        others = [found for found in self.final.comparisons if found.variant != self.contender]
        return min(others, key=lambda found: found.seconds_median)

    @property
    def ratio(self) -> float:
        """The contender's speed as a share of the best one's; above 1 where it is faster."""
        return self.best.seconds_median / self.final[self.contender].seconds_median

    def shares(self) -> dict[str, float]:
        """Each variant's speed as a share of the best one's; the contender's is that of the final."""
        others = {found.variant: found.seconds_median for found in self.report.comparisons}
        others.pop(self.contender)
        best = min(others.values())
        return {self.contender: self.ratio, **{name: best / taken for name, taken in others.items()}}


@dataclass(frozen=True, slots=True)
class GridReport:
    """A grid and the points that were measured."""

    grid: Grid
    points: tuple[PointReport, ...]

    @property
    def share_reached(self) -> float:
        """The share of points at which the contender reached the bar."""
        return sum(found.ratio >= self.grid.bar for found in self.points) / len(self.points)

    @property
    def worst(self) -> PointReport:
        """The point at which the contender was farthest from the best."""
        return min(self.points, key=lambda found: found.ratio)


def measure_grid(
    grid: Grid,
    *,
    clock: Callable[[], float] = time.perf_counter,
    on_round: Callable[[Point, int, int], None] = lambda point, done, total: None,
    on_point: Callable[[PointReport], None] = lambda found: None,
    rounds: int | None = None,
    seconds_max: float | None = None,
) -> GridReport:
    """Measure all points in turn: `rounds` of each, unless its experiment decides; they share `seconds_max`."""
    if not grid.points:
        raise ValueError(f"grid {grid.name!r} has no points")
    ends = None if seconds_max is None else clock() + seconds_max
    found = []
    for number, point in enumerate(grid.points):
        left = None if ends is None else max(0.0, ends - clock()) / (len(grid.points) - number)
        half = None if left is None else left / 2  # the final takes the other half
        run = functools.partial(measure, clock=clock, on_round=functools.partial(on_round, point), seconds_max=half)
        experiment = point.experiment()
        experiment = replace(experiment, rounds=experiment.rounds if rounds is None else rounds)
        found.append(_measure_point(grid, point, experiment, run))
        on_point(found[-1])
    return GridReport(grid, tuple(found))


def _measure_point(grid: Grid, point: Point, experiment: Experiment, run: Callable[..., Report]) -> PointReport:
    report = run(experiment)
    others = [found for found in report.comparisons if found.variant != grid.contender]
    if not others or len(others) == len(report.comparisons):
        raise ValueError(f"grid {grid.name!r}: {grid.contender!r} and others to compare it with are required")
    fastest = sorted(others, key=lambda found: found.seconds_median)[: grid.finalists]
    names = {grid.contender, *(found.variant for found in fastest)}
    variants = [variant for variant in experiment.variants if variant.name in names]
    final = run(
        replace(
            experiment,
            name=f"{experiment.name}-final",
            title=f"{experiment.title}: the final",
            variants=variants,
            bars={},
            rounds=FINAL_ROUNDS * experiment.rounds,
        ),
        rounds_min=FINAL_ROUNDS_MIN,
    )
    return PointReport(point, report, final, grid.contender)


def render_grid(report: GridReport) -> Table:
    """The grid as a table: one line for each point, then the sum of it."""
    grid = report.grid
    table = plain_table(
        grid.title,
        ["point", "best", f"{grid.contender} ran"],
        ["items/s, best", grid.contender, "ratio"],
        f"{grid.contender}: at least {grid.bar:g} of the best at {report.share_reached:.0%} of {len(report.points)} "
        f"points; worst {report.worst.ratio:.2f} ({report.worst.point.label})",
    )
    table.columns[0].no_wrap = False
    for found in report.points:
        contender, items = found.final[grid.contender], found.report.experiment.items
        table.add_row(
            found.point.label,
            found.best.variant,
            contender.note,
            f"{items / found.best.seconds_median:,.0f}",
            f"{items / contender.seconds_median:,.0f}",
            f"{found.ratio:.2f}",
            style="" if found.ratio >= grid.bar else "red",
        )
    return table


def point_records(grid: Grid, found: PointReport) -> list[dict[str, Any]]:
    """JSON-ready records of a point: one for each variant, then how the contender compares."""
    experiment = found.report.experiment
    verdict = record(
        f"{grid.name}-point",
        seed=experiment.seed,
        settings=experiment.settings,
        dimensions=dict(found.point.dimensions),
        contender=grid.contender,
        best=found.best.variant,
        ratio=round(found.ratio, 4),
        note=found.final[grid.contender].note,
    )
    return [*records(found.report), *records(found.final), verdict]


def grid_record(report: GridReport) -> dict[str, Any]:
    """One JSON-ready record of a grid as a whole."""
    return record(
        f"{report.grid.name}-grid",
        seed=report.points[0].report.experiment.seed,
        settings={"points": len(report.points), "bar": report.grid.bar},
        contender=report.grid.contender,
        share_reached=round(report.share_reached, 4),
        worst=round(report.worst.ratio, 4),
        worst_point=dict(report.worst.point.dimensions),
    )
