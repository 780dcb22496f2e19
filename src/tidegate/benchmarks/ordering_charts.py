"""Pictures of the experiments with ordered pipelines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from tidegate.benchmarks.charts import BLUE, BROWN, GREEN, GREY, WHOLE_NUMBERS, new_figure, save
from tidegate.benchmarks.harness import Report
from tidegate.benchmarks.ordered_race import Curves

COLOURS = {
    "current-throughput": GREEN,
    "last-in-pipeline": BLUE,
    "estimated-time": BROWN,
    "queue-size": GREY,
    "hybrid": GREEN,
    "shared": BLUE,
    "partitioned": BROWN,
    "non-blocking": GREEN,
    "lock": BROWN,
}


def plot_heuristics(throughput: Mapping[str, Curves], latency: Mapping[str, Curves], file: Path) -> None:
    """Records a second, and milliseconds, by workers: a column for each query, a line for each heuristic."""
    figure = new_figure("Which operator a free worker takes", 3.0 * len(throughput), 5.4)
    rows = figure.subplots(2, len(throughput), squeeze=False)
    for column, query in enumerate(throughput):
        speed, wait = rows[0][column], rows[1][column]
        _lines(speed, throughput[query])
        _lines(wait, latency[query], scale=1e3)
        speed.set_title(query, fontsize=10)
        speed.set_ylim(0, None)
        speed.yaxis.set_major_formatter(WHOLE_NUMBERS)
        wait.set_yscale("log")
        wait.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        wait.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        wait.yaxis.set_minor_formatter(NullFormatter())
        wait.set_xlabel("workers")
    rows[0][0].set_ylabel("records per second")
    rows[1][0].set_ylabel("latency, ms")
    rows[0][0].legend(frameon=False, fontsize=8)
    save(figure, file)


def plot_partitions(
    skew: Mapping[str, Mapping[float, float]], cost: Mapping[str, Mapping[float, float]], file: Path
) -> None:
    """Records a second by sigma, and latency by the cost of the operator: a line for each scheme."""
    figure = new_figure("How records of many keys are given to workers", 10.0, 4.2)
    left, right = figure.subplots(1, 2)
    _lines(left, skew)
    left.set_ylim(0, None)
    left.yaxis.set_major_formatter(WHOLE_NUMBERS)
    left.set_xlabel("sigma of the keys: smaller is more skew")
    left.set_ylabel("records per second")
    left.legend(frameon=False)
    _lines(right, cost, scale=1e6)
    ends = sorted(next(iter(cost.values())))
    right.plot(ends, ends, color="#111827", linestyle=":", linewidth=1.2, label="the cost itself")
    right.set_xscale("log")
    right.set_yscale("log")
    right.set_xlabel("cost of the operator, µs")
    right.set_ylabel("processing latency, µs")
    right.legend(frameon=False)
    save(figure, file)


def plot_buffers(speed: Mapping[str, Curves], cost: Mapping[str, Curves], file: Path) -> None:
    """Speed, and what the first operator spends on a record, by workers: a column for each experiment."""
    figure = new_figure("How outputs are put into order", 4.6 * len(speed), 6.4)
    rows = figure.subplots(2, len(speed), squeeze=False)
    for column, title in enumerate(speed):
        upper, lower = rows[0][column], rows[1][column]
        _lines(upper, speed[title])
        _lines(lower, cost[title], scale=1e6)
        upper.set_title(title, fontsize=10)
        lower.set_xlabel("workers")
        for axes in (upper, lower):
            axes.set_ylim(0, None)
    rows[0][0].set_ylabel("speed beside lock x1")
    rows[1][0].set_ylabel("cost of the first operator, µs")
    rows[0][0].legend(frameon=False)
    save(figure, file)


def plot_speed(speedups: Mapping[str, Mapping[int, float]], beside: Report, milliseconds: Any, file: Path) -> None:
    """Speed-up of heavy operators, records a second beside futures, and how latencies are distributed."""
    figure = new_figure("What the ordered runtime gains", 14.0, 4.0)
    left, middle, right = figure.subplots(1, 3)
    for (kind, found), colour in zip(speedups.items(), (GREEN, BLUE), strict=False):
        left.plot(sorted(found), [found[count] for count in sorted(found)], marker="o", color=colour, label=kind)
    counts = sorted(next(iter(speedups.values())))
    left.plot(counts, counts, color="#111827", linestyle=":", linewidth=1.2, label="as many times as workers")
    left.set_xticks(counts)
    left.set_ylim(0, None)
    left.set_xlabel("workers")
    left.set_ylabel("speed beside one worker")
    left.legend(frameon=False)
    for place, found_way in enumerate(beside.comparisons):
        speed = beside.items_per_second(found_way.variant)
        middle.barh(-place, speed, color=GREEN if place == len(beside.comparisons) - 1 else GREY, height=0.7)
        middle.text(speed, -place, f"  {speed:,.0f}", va="center", fontsize=9)
    middle.set_yticks([-place for place in range(len(beside.comparisons))], [w.variant for w in beside.comparisons])
    middle.set_xscale("log")
    middle.margins(x=0.3)
    middle.set_xlabel("records per second, three light operators")
    right.hist(milliseconds, bins=60, color=GREEN)
    right.set_yscale("log")
    right.set_xlabel("latency at half the peak rate, ms")
    right.set_ylabel("records")
    save(figure, file)


def _lines(axes: Any, found: Mapping[str, Mapping[Any, float]], scale: float = 1.0) -> None:
    places: Sequence[Any] = ()
    for name, curve in found.items():
        places = sorted(curve)
        values = [scale * curve[place] for place in places]
        axes.plot(places, values, marker="o", linewidth=2.0, label=name, color=COLOURS[name])
    axes.set_xticks(list(places), [f"{place:g}" for place in places])
    axes.margins(y=0.08)
