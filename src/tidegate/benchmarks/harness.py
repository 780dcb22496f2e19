"""Runs the variants of an experiment side by side and says how they compare.

One number from one run says little: machines get warm, busy and noisy. So the variants take turns,
round by round, and only what happened in the same run is compared:

    round 0 (not counted)   reference  candidate
    round 1                 candidate  reference      the order turns, so none always goes first
    round 2                 reference  candidate
    ...
    ratio = median(reference seconds) / median(candidate seconds)         1.0: as fast as it
    spread = the smallest and the largest ratio within one round

Each run is prepared outside the clock, timed, and verified; a run that does not verify raises, and
then the experiment has no number. A variant that knows its time better than a clock around it (a
streaming query that reports each batch) gives the seconds itself.

Results are written as JSON lines, one for each variant, with the commit, the machine, the seed and
the settings, so that a number can be traced to what produced it. The harness knows nothing about
transactions, and a bar that is missed is reported, never hidden.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
from rich import box
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to do the job. `run` gets what `prepare` made; `verify` gets both and raises if wrong."""

    name: str
    run: Callable[[Any], Any]
    prepare: Callable[[], Any] = lambda: None
    verify: Callable[[Any, Any], None] = lambda prepared, result: None
    seconds: Callable[[Any], float] | None = None
    """The time of a run, read from its result, for a variant that knows better than the clock."""
    note: Callable[[], str] = lambda: ""
    """A word on how the last run was done, for the records."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """Variants of one job; the first is the reference, the others are compared with it."""

    name: str
    title: str
    items: int
    """How many things one run handles; times are also given for one of them."""
    item: str
    variants: Sequence[Variant]
    bars: Mapping[str, float] = field(default_factory=dict)
    """The smallest ratio to the reference that a variant must reach."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    rounds: int = 1
    """How many rounds count; the command that measures it says how many."""

    @property
    def item_plural(self) -> str:
        """Several of the things: events, batches."""
        return self.item + ("es" if self.item.endswith("ch") else "s")


@dataclass(frozen=True, slots=True)
class Comparison:
    """The times of one variant, and how they compare with the reference's."""

    variant: str
    seconds: tuple[float, ...]
    ratio: float
    ratio_min: float
    ratio_max: float
    bar: float | None
    note: str = ""

    @property
    def seconds_median(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.seconds)

    @property
    def passed(self) -> bool | None:
        """Whether the bar was reached; None where there is none."""
        return None if self.bar is None else self.ratio >= self.bar


@dataclass(frozen=True, slots=True)
class Report:
    """An experiment and the comparisons that it gave, in the order of its variants.

    Of the variants only the names are kept: engines, tables and events of a grid's points would not fit in memory.
    """

    experiment: Experiment
    comparisons: tuple[Comparison, ...]

    @property
    def passed(self) -> bool:
        """Whether every bar was reached."""
        return all(comparison.passed is not False for comparison in self.comparisons)

    def __getitem__(self, variant: str) -> Comparison:
        return next(comparison for comparison in self.comparisons if comparison.variant == variant)

    def items_per_second(self, variant: str) -> float:
        """The speed of a variant, at the median of its rounds."""
        return self.experiment.items / self[variant].seconds_median


def measure(
    experiment: Experiment,
    *,
    clock: Callable[[], float] = time.perf_counter,
    on_round: Callable[[int, int], None] = lambda done, total: None,
    seconds_max: float | None = None,
    rounds_min: int = 1,
) -> Report:
    """Run all variants in turn for one round that is not counted and `rounds` that are.

    After `seconds_max` seconds no further round begins, except for the first `rounds_min` that count.
    """
    started = clock()
    seconds: dict[str, list[float]] = {variant.name: [] for variant in experiment.variants}
    if len(seconds) != len(experiment.variants):
        raise ValueError(f"experiment {experiment.name!r}: two variants have the same name")
    for round_index in range(experiment.rounds + 1):
        if round_index > rounds_min and seconds_max is not None and clock() - started >= seconds_max:
            experiment = replace(experiment, rounds=round_index - 1)
            break
        turn = round_index % len(experiment.variants)
        for variant in (*experiment.variants[turn:], *experiment.variants[:turn]):
            taken = _run_once(variant, clock)
            if round_index > 0:
                seconds[variant.name].append(taken)
        on_round(round_index, experiment.rounds)
    reference = seconds[experiment.variants[0].name]
    comparisons = tuple(
        _compare(variant, seconds[variant.name], reference, experiment.bars.get(variant.name))
        for variant in experiment.variants
    )
    return Report(replace(experiment, variants=[_named(name) for name in seconds]), comparisons)


def _named(name: str) -> Variant:
    def refuse(prepared: Any) -> Any:
        raise AssertionError(f"{name!r} was measured, and a report keeps its name only")

    return Variant(name, run=refuse)


def _run_once(variant: Variant, clock: Callable[[], float]) -> float:
    prepared = variant.prepare()
    start = clock()
    result = variant.run(prepared)
    taken = clock() - start
    variant.verify(prepared, result)
    return variant.seconds(result) if variant.seconds is not None else taken


def _compare(variant: Variant, taken: list[float], reference: list[float], bar: float | None) -> Comparison:
    ratios = [theirs / ours for theirs, ours in zip(reference, taken, strict=True)]
    ratio = statistics.median(reference) / statistics.median(taken)
    return Comparison(variant.name, tuple(taken), ratio, min(ratios), max(ratios), bar, variant.note())


def plain_table(title: str, left: Sequence[str], right: Sequence[str], caption: str | None = None) -> Table:
    """An empty table in the style of all reports: columns of text, then columns of numbers."""
    table = Table(title=title, title_justify="left", title_style="bold", caption=caption, caption_justify="left")
    table.box, table.pad_edge, table.padding = box.SIMPLE_HEAD, False, (0, 1, 0, 0)
    for heading in left:
        table.add_column(heading, no_wrap=True)
    for heading in right:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def render(report: Report) -> Table:
    """The report as a table for a terminal."""
    experiment = report.experiment
    reference = experiment.variants[0].name
    table = plain_table(
        experiment.title,
        ["variant"],
        [f"per {experiment.item}", f"{experiment.item_plural}/s", "ratio", "spread", "bar"],
        f"{experiment.items:,} {experiment.item_plural} a run, median of {experiment.rounds} interleaved "
        f"rounds, every run verified; ratio: speed beside {reference!r}",
    )
    for comparison in report.comparisons:
        each = comparison.seconds_median / experiment.items
        bar = "" if comparison.bar is None else f"≥ {comparison.bar:g} {'✓' if comparison.passed else '✗'}"
        style = "red" if comparison.passed is False else "green" if comparison.passed else ""
        table.add_row(
            comparison.variant,
            duration(each),
            f"{1 / each:,.0f}",
            f"{comparison.ratio:.2f}",
            f"{comparison.ratio_min:.2f} – {comparison.ratio_max:.2f}",
            bar,
            style=style,
        )
    return table


def duration(seconds: float) -> str:
    """A time in the unit in which it is easiest to read: 45 ns, 1.2 ms, 3.0 s."""
    for unit, size in (("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3)):
        if seconds < 1000 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def records(report: Report) -> list[dict[str, Any]]:
    """One JSON-ready record for each variant."""
    experiment = report.experiment
    return [
        record(
            experiment.name,
            seed=experiment.seed,
            settings={**experiment.settings, "items": experiment.items, "rounds": experiment.rounds},
            variant=comparison.variant,
            reference=experiment.variants[0].name,
            seconds=[round(taken, 6) for taken in comparison.seconds],
            seconds_median=round(comparison.seconds_median, 6),
            ratio=round(comparison.ratio, 4),
            ratio_min=round(comparison.ratio_min, 4),
            ratio_max=round(comparison.ratio_max, 4),
            bar=comparison.bar,
            passed=comparison.passed,
            **({"note": comparison.note} if comparison.note else {}),
        )
        for comparison in report.comparisons
    ]


def record(experiment: str, *, seed: int, settings: Mapping[str, Any], **values: Any) -> dict[str, Any]:
    """One JSON-ready record: what was measured, and everything needed to measure it again."""
    return {
        "experiment": experiment,
        **values,
        "seed": seed,
        "settings": dict(settings),
        "commit": commit(),
        "machine": machine(),
        "versions": versions(),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def append(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Add records to a file of JSON lines, which is made if it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


@functools.cache
def commit() -> str | None:
    """The commit of the sources that run, marked if they were changed since; None outside a clone."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", os.path.dirname(os.path.abspath(__file__)), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


@functools.cache
def machine() -> dict[str, Any]:
    """What the numbers depend on: processor, cores, memory and system; no names of hosts or users."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": f"{platform.system()} {platform.machine()}",
    }


@functools.cache
def versions() -> dict[str, str]:
    """The versions of Python and of the packages that do the work."""
    found = {"python": platform.python_version()}
    for package in ("tidegate", "numba", "numpy", "pyarrow", "pyspark"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
