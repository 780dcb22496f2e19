"""Pictures of the experiments with dataflow graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from tidegate.benchmarks.harness import Report

COLOURS = {"client": "#9ca3af", "graph": "#0f766e", "transactions": "#0f766e", "triggers": "#b45309"}


def plot_leaderboard(reports: Sequence[Report], file: Path) -> None:
    """Batches a second of the client and of the graph, one pair of bars for each report."""
    figure = Figure(figsize=(8.0, 3.2), layout="constrained")
    axes = figure.subplots()
    labels, place = [], 0.0
    for report in reports:
        for found in report.comparisons:
            speed = report.experiment.items / found.seconds_median
            axes.barh(place, speed, color=COLOURS[found.variant], height=0.8)
            axes.text(speed, place, f"  {speed:,.0f}", va="center", fontsize=9)
            every = report.experiment.settings["every"]
            labels.append((place, f"{found.variant}, one leaves every {every:,}"))
            place -= 1.0
        place -= 0.5
    axes.set_yticks([at for at, _ in labels], [label for _, label in labels])
    axes.set_xscale("log")
    axes.margins(x=0.25)
    axes.set_xlabel("batches of one vote per second")
    figure.suptitle("Leaderboard: atomic, ordered, exactly once", x=0.01, ha="left", fontsize=12, weight="bold")
    save(figure, file)


def plot_triggers(reports: Mapping[int, Report], file: Path) -> None:
    """Batches a second by the length of the chain."""
    figure = Figure(figsize=(8.0, 4.8), layout="constrained")
    axes = figure.subplots()
    lengths = sorted(reports)
    for name in (found.variant for found in reports[lengths[0]].comparisons):
        speeds = [reports[n].experiment.items / reports[n][name].seconds_median for n in lengths]
        axes.plot(lengths, speeds, color=COLOURS[name], marker="o", linewidth=2.0, label=name)
    axes.set_yscale("log")
    axes.set_xticks(lengths, [str(length) for length in lengths])
    axes.set_xlabel("procedures in the chain")
    axes.set_ylabel("batches per second")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.legend(frameon=False)
    figure.suptitle("Who starts the next procedure", x=0.01, ha="left", fontsize=12, weight="bold")
    save(figure, file)


def save(figure: Figure, file: Path) -> None:
    """Write a picture, in the style of all of these."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="both", color="#e5e7eb", linewidth=0.8)
        axes.set_axisbelow(True)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150)
