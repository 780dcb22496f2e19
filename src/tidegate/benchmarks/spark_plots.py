"""Pictures of the experiments on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from tidegate.benchmarks import spark_logging
from tidegate.benchmarks.charts import BROWN, GREEN, WHOLE_NUMBERS, new_figure, save

LOG_COLOURS = {"changes": GREEN, "commands": BROWN}
LINES: tuple[Literal["-", "--", ":"], ...] = ("-", "--", ":")


def plot_spark_logging(found: Sequence[spark_logging.Found], file: Path) -> None:
    """What versions keep: speed and bytes for each stream, and the time to open what lies behind a snapshot."""
    figure = new_figure("What a version keeps on Spark: changed rows, or events", 12.0, 4.2)
    speed, size, opening = figure.subplots(1, 3)
    names = [each.stream for each in found]
    for place, log in enumerate(spark_logging.LOGS):
        at = [number + 0.4 * (place - 0.5) for number in range(len(found))]
        speeds = [each.running.items_per_second(log) for each in found]
        for axes, values in ((speed, speeds), (size, [each.sizes[log] for each in found])):
            bars = axes.bar(at, values, width=0.38, color=LOG_COLOURS[log], label=log)
            axes.bar_label(bars, fmt="{:,.3g}" if axes is size else "{:,.0f}", fontsize=8, padding=2)
    for axes, what in ((speed, "events per second"), (size, "bytes of version files per event")):
        axes.set_xticks(range(len(names)), [name.replace(" ", "\n") for name in names])
        axes.set_ylabel(what)
        axes.margins(y=0.15)
    for number, each in enumerate(found):
        for log in spark_logging.LOGS:
            cut = [one for one in each.cuts if one.log == log]
            milliseconds = [1000 * each.opening[one.name].seconds_median for one in cut]
            style: dict[str, Any] = {"linestyle": LINES[number], "color": LOG_COLOURS[log]}
            opening.plot([one.events for one in cut], milliseconds, marker="o", **style)
    for axes in (speed, size, opening):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.15g}"))
    opening.set_xlabel("events behind the snapshot")
    opening.set_ylabel("milliseconds to open the state")
    opening.set_xscale("log")
    opening.xaxis.set_major_formatter(WHOLE_NUMBERS)
    speed.legend(frameon=False)
    kinds = [Line2D([], [], color="#374151", linestyle=LINES[number], label=name) for number, name in enumerate(names)]
    opening.legend(handles=kinds, frameon=False, loc="lower left")
    save(figure, file)
