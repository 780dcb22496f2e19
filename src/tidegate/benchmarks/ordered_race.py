"""Several ways to run one ordered pipeline over the same records: verified, with throughput and latency of each.

    throughput    records by the time from when workers start until the last output has left; without Arrow in and out
    latency       from when a record is taken in until an output that follows from it has left, on average; as in the
                  published evaluation, the first and the last fifth of a run do not count
    processing    from when a worker begins with a record until its outputs have left the operator, in order
    cost          what a worker spends on a record, waiting for others included

All outputs of every run are compared with those of the plain functions.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import pyarrow as pa
from rich.table import Table

from tidegate.benchmarks import harness
from tidegate.benchmarks.harness import Experiment, Report, Variant, plain_table
from tidegate.benchmarks.plain_pipeline import differs


def variant_name(what: str, workers: int) -> str:
    """A way to run with its workers."""
    return f"{what} x{workers}"


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run showed, in seconds; `processing` and `cost` are of the first operator and one record."""

    outputs: pa.Table
    seconds: float
    latency: float
    processing: float
    cost: float


def figures_of(pipeline: Any, table: pa.Table, options: Mapping[str, Any]) -> Figures:
    """Run a pipeline, and take its figures."""
    measured = pipeline.measure(table, **options)
    report, first = measured.report, measured.report.operators[0]
    fifth = len(report.latencies) // 5
    middle = report.latencies[fifth : len(report.latencies) - fifth]
    latency = float(middle.mean()) if len(middle) else 0.0
    return Figures(measured.table, report.seconds, latency, first.processing, first.cost)


Figure = Literal["latency", "processing", "cost"]
FIGURES: tuple[Figure, ...] = get_args(Figure)


@dataclass(slots=True)
class Race:
    """Ways to run pipelines with the same outputs over one table."""

    table: pa.Table
    wanted: Sequence[Any]
    """The outputs of the plain functions."""
    item: str = "record"
    variants: list[Variant] = field(default_factory=list)
    taken: dict[tuple[str, Figure], list[float]] = field(default_factory=dict)

    def add(self, name: str, pipeline: Any, **options: Any) -> None:
        """One more way: a pipeline, and how it is run."""

        def run(_: Any) -> Figures:
            return figures_of(pipeline, self.table, options)

        def verify(_: Any, found: Figures) -> None:
            if problem := differs(found.outputs, self.wanted):
                raise AssertionError(f"{name}: {problem}")
            for figure in FIGURES:
                self.taken.setdefault((name, figure), []).append(getattr(found, figure))

        self.variants.append(Variant(name, run=run, verify=verify, seconds=lambda found: found.seconds))

    def experiment(
        self, name: str, title: str, settings: Mapping[str, Any], seed: int, bars: Mapping[str, float] | None = None
    ) -> Experiment:
        """The declaration; the first way that was added is the reference."""
        return Experiment(
            name, title, self.table.num_rows, self.item, self.variants, bars=bars or {}, settings=settings, seed=seed
        )

    def figure(self, figure: Figure, name: str) -> float:
        """Seconds: the median of all rounds but the first, which warms up."""
        taken = self.taken[name, figure]
        return statistics.median(taken[1:] or taken)

    def records(self, report: Report) -> list[dict[str, Any]]:
        """One JSON-ready record for each way, with its figures."""
        return [
            {**line, **{f"{each}_us": round(1e6 * self.figure(each, line["variant"]), 3) for each in FIGURES}}
            for line in harness.records(report)
        ]

    def render(self, report: Report) -> Table:
        """Throughput and latency of all ways."""
        title, rounds = report.experiment.title, report.experiment.rounds
        shown = plain_table(
            title,
            ["variant"],
            ["records/s", "ratio", *FIGURES],
            f"{self.table.num_rows:,} records a run, median of {rounds} interleaved rounds, every run verified; "
            "processing and cost are of the first operator",
        )
        for found in report.comparisons:
            shown.add_row(
                found.variant,
                f"{report.items_per_second(found.variant):,.0f}",
                f"{found.ratio:.2f}",
                *(harness.duration(self.figure(each, found.variant)) for each in FIGURES),
            )
        return shown


Curves = dict[str, dict[int, float]]
"""A number by what was run and by its workers."""


def curves(report: Report, value: Callable[[str], float]) -> Curves:
    """A number of each variant, by its name without workers and by its workers."""
    found: Curves = {}
    for comparison in report.comparisons:
        what, workers = comparison.variant.rsplit(" x", 1)
        found.setdefault(what, {})[int(workers)] = value(comparison.variant)
    return found


def ratios(report: Report) -> Curves:
    """The speed of each variant beside the reference."""
    return curves(report, lambda name: report[name].ratio)
