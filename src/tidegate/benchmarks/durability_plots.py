"""Pictures of the experiments with logs and checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from tidegate.benchmarks import logging_cost, recovery
from tidegate.benchmarks.harness import Report
from tidegate.benchmarks.replay import BATCHES, CALLS, Recovered
from tidegate.benchmarks.stream_plots import save

STRONG, WEAK, BESIDE = "#b45309", "#0f766e", "#1d4ed8"
COLOURS = {"strong": STRONG, "weak": WEAK}
GROUPED = {"group": "with group commit", "always": "without group commit"}


def plot_logging(reports: Mapping[int, Report], file: Path) -> None:
    """Rounds a second by the length of the chain: strong and weak, with and without group commit."""
    figure, axes = _figure("What logging costs a chain of procedures")
    lengths = sorted(reports)
    for sync, told in GROUPED.items():
        for kind in reversed(logging_cost.RECOVERIES):
            name = f"{kind}, {sync}"
            speeds = [reports[length].experiment.items / reports[length][name].seconds_median for length in lengths]
            style: dict[str, Any] = {"linestyle": "-" if sync == "group" else "--", "color": COLOURS[kind]}
            axes.plot(lengths, speeds, marker="o", linewidth=2.0, label=f"{kind}, {told}", **style)
    axes.set_yscale("log")
    axes.set_xticks(lengths, [str(length) for length in lengths])
    axes.set_xlabel("procedures in the chain")
    axes.set_ylabel("rounds per second")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.legend(frameon=False)
    save(figure, file)


def plot_recovery(report: Report, lengths: Sequence[int], file: Path) -> None:
    """Seconds to recover by the length of the chain."""
    figure, axes = _figure(report.experiment.title)
    for kind in logging_cost.RECOVERIES:
        seconds = [report[recovery.variant_name(kind, length)].seconds_median for length in lengths]
        axes.plot(lengths, seconds, marker="o", linewidth=2.0, color=COLOURS[kind], label=kind)
    axes.set_xticks(list(lengths), [str(length) for length in lengths])
    axes.set_ylim(0, None)
    axes.set_xlabel("procedures in the chain")
    axes.set_ylabel("seconds to recover")
    axes.legend(frameon=False)
    save(figure, file)


def plot_replay(recovered: Sequence[Recovered], file: Path) -> None:
    """Seconds to recover by the bytes of log between two checkpoints."""
    figure, axes = _figure("Checkpoint interval and recovery")
    nothing = [each for each in recovered if not each.point.transactions]
    for style, shade in ((BATCHES, WEAK), (CALLS, BESIDE)):
        found = [*nothing, *(each for each in recovered if each.point.style == style)]
        sizes = [each.point.log_size / 1e6 for each in found]
        axes.plot(sizes, [each.seconds for each in found], marker="o", linewidth=2.0, color=shade, label=style)
    axes.set_xlim(0, None)
    axes.set_ylim(0, None)
    axes.set_xlabel("MB of log behind the newest checkpoint")
    axes.set_ylabel("seconds to recover")
    axes.legend(frameon=False, title="transactions logged by")
    save(figure, file)


def _figure(title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(8.0, 4.8), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, weight="bold")
    return figure, figure.subplots()
