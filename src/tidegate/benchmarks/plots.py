"""One picture for each benchmark of the strategies, as a PNG.

    strategies    left: every workload as a dot, how close adaptive comes to the best fixed strategy;
                  right: the share of workloads at which a strategy has at least x of the best one's speed
    scaling       events a second by workers, beside independent threads and a straight line
    dynamic       left: events a second, phase by phase; right: the whole stream, relative to adaptive
    groups        events a second of every strategy, as bars

The adaptive strategy has one colour everywhere; fixed strategies are coloured by family, so that eighteen lines can be
told apart where it matters and stay in the background where it does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from tidegate.benchmarks.charts import new_figure, save
from tidegate.benchmarks.dynamic import Stream
from tidegate.benchmarks.grids import GridReport, PointReport
from tidegate.benchmarks.scaling import BOUND
from tidegate.benchmarks.strategies import ADAPTIVE, DECISIONS, SERIAL

ADAPTIVE_COLOUR = "#c2410c"
FAMILIES = {
    ADAPTIVE: ADAPTIVE_COLOUR,
    SERIAL: "#111827",
    "lock": "#7c3aed",
    "mvlk": "#a78bfa",
    "partitioned": "#0f766e",
    "chains": "#65a30d",
    "bfs": "#1d4ed8",
    "dfs": "#60a5fa",
    "ns": "#0891b2",
    BOUND: "#9ca3af",
}
MARKS = ("o", "s", "^", "D")
GREY = "#6b7280"

_Place = Literal["lower left", "upper left", "upper right"]


def family(strategy: str) -> str:
    """What a strategy is coloured by: its name, or how a decision explores."""
    return strategy.split("-")[0] if strategy in DECISIONS else strategy


def colour(strategy: str) -> str:
    """The colour of a strategy."""
    return FAMILIES[family(strategy)]


def _style(strategy: str) -> dict[str, Any]:
    """How the line of a strategy is drawn: the adaptive one in front, most fixed ones faint."""
    style = {"linewidth": 2.6, "zorder": 4} if strategy == ADAPTIVE else {"linewidth": 1.0, "zorder": 2}
    return {**style, "color": colour(strategy), "alpha": 1.0 if strategy in (ADAPTIVE, SERIAL) else 0.65}


def plot_grid(report: GridReport, file: Path) -> None:
    """How close adaptive comes to the best fixed strategy, and how far the fixed ones are from it."""
    title = (
        f"{report.grid.title}: at least {report.grid.bar:g} of the best at {report.share_reached:.0%} of "
        f"{len(report.points)} workloads, worst {report.worst.ratio:.2f}"
    )
    figure = new_figure(title, 13.0, 5.6)
    left, right = figure.subplots(1, 2, width_ratios=[1.15, 1.0])
    _plot_points(left, report)
    _plot_profile(right, [found.shares() for found in report.points], report.grid.bar)
    save(figure, file, "y")


def _plot_points(axes: Axes, report: GridReport) -> None:
    ranked = sorted(report.points, key=lambda found: found.ratio)
    workloads = list(dict.fromkeys(str(found.point.dimensions["workload"]) for found in report.points))
    palette = ("#c2410c", "#1d4ed8", "#0f766e", "#7c3aed")
    for number, workload in enumerate(workloads):
        places = [place for place, found in enumerate(ranked) if found.point.dimensions["workload"] == workload]
        ratios = [ranked[place].ratio for place in places]
        axes.scatter(
            places, ratios, s=26, marker=MARKS[number % 4], color=palette[number % 4], label=workload, zorder=3
        )  # fmt: skip
    axes.axhline(report.grid.bar, color=GREY, linewidth=1, linestyle="--")
    axes.axhline(1.0, color=GREY, linewidth=0.8)
    worst = ranked[0]
    axes.annotate(
        _wrapped(worst.point.label), (0, worst.ratio), xytext=(14, 0), textcoords="offset points", fontsize=7.5,
        color=GREY, va="center",
    )  # fmt: skip
    axes.set_ylim(0, max(1.1, *(found.ratio * 1.05 for found in ranked)))
    axes.set_xlabel("workloads, by how close adaptive came")
    axes.set_ylabel("speed of adaptive ÷ speed of the best fixed strategy")
    axes.legend(frameon=False, fontsize=8.5, loc="lower right")


def _plot_profile(axes: Axes, shares: Sequence[Mapping[str, float]], bar: float) -> None:
    """For each strategy the share of workloads at which it has at least x of the best one's speed."""
    for strategy in reversed(list(shares[0])):
        ratios = sorted(min(1.0, found[strategy]) for found in shares)
        above = [1.0 - place / len(ratios) for place in range(len(ratios))]
        axes.step([0.0, *ratios, 1.0], [1.0, *above, above[-1]], where="pre", **_style(strategy))
    axes.axvline(bar, color=GREY, linewidth=1, linestyle="--")
    axes.set_xlim(0, 1.0)
    axes.set_ylim(0, 1.03)
    axes.set_xlabel("share of the best fixed strategy's speed")
    axes.set_ylabel("workloads at which a strategy has at least that share")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    _families_legend(axes, shares[0], "lower left")


def plot_scaling(curves: Mapping[str, Mapping[int, float]], title: str, file: Path) -> None:
    """Events a second by workers."""
    figure = new_figure(title, 9.0, 5.6)
    axes = figure.subplots()
    bound = curves[BOUND]
    counts = sorted(bound)
    serial = curves[SERIAL][1]
    axes.plot(counts, [serial * count for count in counts], color=GREY, linewidth=0.8, linestyle=":")
    axes.plot(counts, [bound[count] for count in counts], color=GREY, linewidth=1.6, linestyle="--")
    axes.axhline(serial, color=FAMILIES[SERIAL], linewidth=1.0)
    for strategy, speeds in curves.items():
        if strategy in (BOUND, SERIAL):
            continue
        places = sorted(speeds)
        axes.plot(places, [speeds[place] for place in places], marker="o", markersize=4, **_style(strategy))
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.set_ylim(0, None)
    axes.set_xlabel("workers")
    axes.set_ylabel("events per second")
    axes.yaxis.set_major_formatter(FuncFormatter(_thousands))
    lines = {
        "independent threads": Line2D([], [], color=GREY, linewidth=1.6, linestyle="--"),
        "workers × serial": Line2D([], [], color=GREY, linewidth=0.8, linestyle=":"),
    }
    _families_legend(axes, [name for name in curves if name != BOUND], "upper left", lines)
    save(figure, file, "y")


def plot_dynamic(stream: Stream, rounds: int, slowdowns: Mapping[str, Mapping[str, float]], file: Path) -> None:
    """Phase by phase, and each whole stream: `slowdowns` has the time of each fixed strategy ÷ adaptive's."""
    figure = new_figure("A stream whose character changes", 14.0, 6.0)
    left, right = figure.subplots(1, 2, width_ratios=[1.5, 1.0])
    medians = stream.medians(rounds)
    events = [sum(batch.num_rows for batch in stretch.batches) for stretch in stream.stretches]
    places = range(len(events))
    for strategy, seconds in medians.items():
        speeds = [count / taken for count, taken in zip(events, seconds, strict=True)]
        left.plot(places, speeds, marker="o" if strategy == ADAPTIVE else None, markersize=4, **_style(strategy))
    left.set_xticks(list(places), [stretch.name for stretch in stream.stretches], rotation=40, ha="right", fontsize=8.5)
    fastest = max(count / seconds[place] for seconds in medians.values() for place, count in enumerate(events))
    left.set_ylim(0, 1.2 * fastest)  # room for the legend
    left.set_ylabel("events per second")
    left.yaxis.set_major_formatter(FuncFormatter(_thousands))
    _families_legend(left, medians, "upper right", columns=5)
    _plot_slowdowns(right, slowdowns)
    save(figure, file, "y")


def _plot_slowdowns(axes: Axes, slowdowns: Mapping[str, Mapping[str, float]]) -> None:
    first = next(iter(slowdowns.values()))
    strategies = sorted(first, key=lambda strategy: first[strategy])
    for number, (name, found) in enumerate(slowdowns.items()):
        for place, strategy in enumerate(strategies):
            axes.scatter(
                found[strategy], place, s=34, marker=MARKS[number], color=colour(strategy), zorder=3,
                facecolors=colour(strategy) if number == 0 else "none",
            )  # fmt: skip
        axes.scatter([], [], marker=MARKS[number], color=GREY, facecolors=GREY if number == 0 else "none", label=name)
    axes.axvline(1.0, color=ADAPTIVE_COLOUR, linewidth=1.6)
    axes.annotate(
        ADAPTIVE, (1.0, len(strategies) - 0.4), xytext=(4, 0), textcoords="offset points", color=ADAPTIVE_COLOUR,
        fontsize=8.5,
    )  # fmt: skip
    axes.set_yticks(range(len(strategies)), strategies, fontsize=8.5)
    axes.set_ylim(-0.6, len(strategies) + 0.2)
    axes.set_xlim(0, None)
    axes.set_xlabel("time for the whole stream ÷ adaptive's")
    axes.legend(frameon=False, fontsize=8.5, loc="center left")


def plot_groups(found: PointReport, file: Path) -> None:
    """Events a second of every strategy, the slowest first; the title says how the final ended."""
    experiment = found.report.experiment
    result = f"{found.contender} ({found.final[found.contender].note}) has {found.ratio:.2f} times the speed of"
    figure = new_figure(f"{experiment.title}\n{result} {found.best.variant}", 11.0, 5.6)
    axes = figure.subplots()
    ranked = sorted(found.report.comparisons, key=lambda each: each.seconds_median, reverse=True)
    speeds = [found.report.items_per_second(each.variant) for each in ranked]
    places = range(len(ranked))
    drawn = axes.bar(places, speeds, color=[colour(each.variant) for each in ranked], width=0.72, zorder=3)
    axes.bar_label(drawn, [_short(speed) for speed in speeds], fontsize=8, color=GREY, padding=2)
    axes.set_xticks(list(places), [each.variant for each in ranked], rotation=40, ha="right", fontsize=8.5)
    axes.set_ylabel("events per second")
    axes.set_ylim(0, 1.12 * max(speeds))
    axes.yaxis.set_major_formatter(FuncFormatter(_thousands))
    _families_legend(axes, [each.variant for each in ranked], "upper left")
    save(figure, file, "y")


def _families_legend(
    axes: Axes, strategies: Iterable[str], place: _Place, more: Mapping[str, Line2D] | None = None, columns: int = 1
) -> None:
    there = {family(strategy) for strategy in strategies}
    lines = {
        name: Line2D([], [], color=shade, linewidth=2.6 if name == ADAPTIVE else 1.4)
        for name, shade in FAMILIES.items()
        if name in there
    } | dict(more or {})
    axes.legend(list(lines.values()), list(lines), frameon=False, fontsize=8.5, loc=place, ncols=columns)


def _wrapped(label: str, words: int = 4) -> str:
    parts = label.split(" ")
    return "\n".join(" ".join(parts[start : start + words]) for start in range(0, len(parts), words))


def _thousands(value: float, _: object) -> str:
    return f"{value / 1e6:g} M" if value >= 1e6 else f"{value / 1e3:g} k" if value else "0"


def _short(value: float) -> str:
    return f"{value / 1e6:.2f} M" if value >= 1e6 else f"{value / 1e3:.0f} k" if value >= 1e3 else f"{value:.0f}"
