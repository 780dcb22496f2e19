"""Pictures of the experiments with dataflow graphs, logs and checkpoints, and the style that all pictures share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from tidegate.benchmarks import logging_cost, recovery
from tidegate.benchmarks.harness import Report
from tidegate.benchmarks.replay import BATCHES, CALLS, Recovered

GREEN, BROWN, BLUE, GREY = "#0f766e", "#b45309", "#1d4ed8", "#9ca3af"
COLOURS = {"client": GREY, "graph": GREEN, "transactions": GREEN, "triggers": BROWN, "strong": BROWN, "weak": GREEN}
GROUPED = {"group": "with group commit", "always": "without group commit"}
WHOLE_NUMBERS = FuncFormatter(lambda value, _: f"{value:,.0f}")


def new_figure(title: str, width: float, height: float) -> Figure:
    """An empty picture, its size in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, weight="bold")
    return figure


def save(figure: Figure, file: Path, grid: Literal["both", "y"] = "both") -> None:
    """Write a picture, in the style of all of them."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis=grid, color="#e5e7eb", linewidth=0.8)
        axes.set_axisbelow(True)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150)


def plot_leaderboard(reports: Sequence[Report], file: Path) -> None:
    """Batches a second of the client and of the graph, one pair of bars for each report."""
    figure = new_figure("Leaderboard: atomic, ordered, exactly once", 8.0, 3.2)
    axes = figure.subplots()
    labels, place = [], 0.0
    for report in reports:
        for found in report.comparisons:
            speed = report.items_per_second(found.variant)
            axes.barh(place, speed, color=COLOURS[found.variant], height=0.8)
            axes.text(speed, place, f"  {speed:,.0f}", va="center", fontsize=9)
            labels.append((place, f"{found.variant}, one leaves every {report.experiment.settings['every']:,}"))
            place -= 1.0
        place -= 0.5
    axes.set_yticks([at for at, _ in labels], [label for _, label in labels])
    axes.set_xscale("log")
    axes.margins(x=0.25)
    axes.set_xlabel("batches of one vote per second")
    save(figure, file)


@dataclass(frozen=True, slots=True)
class _Line:
    label: str
    values: Sequence[float]
    colour: str
    style: Literal["-", "--"] = "-"


def plot_triggers(reports: Mapping[int, Report], file: Path) -> None:
    """Batches a second by the length of the chain."""
    lengths = sorted(reports)
    names = [found.variant for found in reports[lengths[0]].comparisons]
    lines = [_Line(name, [reports[n].items_per_second(name) for n in lengths], COLOURS[name]) for name in names]
    _plot_by_length("Who starts the next procedure", lengths, lines, "batches per second", file, log=True)


def plot_logging(reports: Mapping[int, Report], file: Path) -> None:
    """Rounds a second by the length of the chain: strong and weak, with and without group commit."""
    lengths = sorted(reports)
    lines = [
        _Line(
            f"{kind}, {told}",
            [reports[length].items_per_second(f"{kind}, {sync}") for length in lengths],
            COLOURS[kind],
            "-" if sync == "group" else "--",
        )
        for sync, told in GROUPED.items()
        for kind in reversed(logging_cost.RECOVERIES)
    ]
    _plot_by_length("What logging costs a chain of procedures", lengths, lines, "rounds per second", file, log=True)


def plot_recovery(report: Report, lengths: Sequence[int], file: Path) -> None:
    """Seconds to recover by the length of the chain."""
    lines = [
        _Line(kind, [report[recovery.variant_name(kind, length)].seconds_median for length in lengths], COLOURS[kind])
        for kind in logging_cost.RECOVERIES
    ]
    _plot_by_length(report.experiment.title, lengths, lines, "seconds to recover", file)


def _plot_by_length(
    title: str, lengths: Sequence[int], lines: Sequence[_Line], what: str, file: Path, *, log: bool = False
) -> None:
    figure = new_figure(title, 8.0, 4.8)
    axes = figure.subplots()
    for line in lines:
        axes.plot(
            lengths, line.values, marker="o", linewidth=2.0, label=line.label, color=line.colour, linestyle=line.style
        )
    if log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(WHOLE_NUMBERS)
    else:
        axes.set_ylim(0, None)
    axes.set_xticks(list(lengths), [str(length) for length in lengths])
    axes.set_xlabel("procedures in the chain")
    axes.set_ylabel(what)
    axes.legend(frameon=False)
    save(figure, file)


def plot_replay(recovered: Sequence[Recovered], file: Path) -> None:
    """Seconds to recover by the bytes of log between two checkpoints."""
    figure = new_figure("Checkpoint interval and recovery", 8.0, 4.8)
    axes = figure.subplots()
    nothing = [each for each in recovered if not each.point.transactions]
    for style, shade in ((BATCHES, GREEN), (CALLS, BLUE)):
        found = [*nothing, *(each for each in recovered if each.point.style == style)]
        sizes = [each.point.log_size / 1e6 for each in found]
        axes.plot(sizes, [each.seconds for each in found], marker="o", linewidth=2.0, color=shade, label=style)
    axes.set_xlim(0, None)
    axes.set_ylim(0, None)
    axes.set_xlabel("MB of log behind the newest checkpoint")
    axes.set_ylabel("seconds to recover")
    axes.legend(frameon=False, title="transactions logged by")
    save(figure, file)
