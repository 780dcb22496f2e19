"""`tidegate bench ordering`: the ordered runtime, by the experiments that it was published with and by its own bars.

Each part measures, and returns what draws its picture.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.commands.bench_run import BenchRun
from tidegate.foundation.processors import processors

if TYPE_CHECKING:
    from tidegate.benchmarks.harness import Report
    from tidegate.benchmarks.ordered_race import Race

MANY_CORES = 16
"""From so many workers on some bars apply: fewer hardly meet."""
AS_FAST = 0.95
"""The ratio from which on two ways count as equally fast: what is missing to 1 is noise."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much each run does."""

    records: int
    work: float
    workers: int

    def count(self, cost_us: float) -> int:
        """How many records of a cost make `work` seconds."""
        return max(20, round(self.work * 1e6 / cost_us))

    @property
    def worker_counts(self) -> list[int]:
        """1, 2, 4, ... workers, and the most."""
        from tidegate.benchmarks.scaling import worker_counts

        return worker_counts(self.workers)


Plot = Callable[[Path], None]
Part = Callable[[BenchRun, Sizes], Plot]


def ordering(
    run: BenchRun,
    part: Annotated[str, typer.Option(help="all, heuristics, partitions, buffers or speed.")] = "all",
    records: Annotated[int, typer.Option(min=100, help="Events of a query, readings of a light pipeline.")] = 200_000,
    work: Annotated[float, typer.Option(help="Seconds that one worker computes in a run of heavy operators.")] = 0.5,
    workers: Annotated[int | None, typer.Option(min=1, help="Most threads.", show_default="all cores")] = None,
) -> None:
    """Ordered pipelines: heuristics, partitioning and reordering schemes, overhead, speed-up and latency.

    Example: `tidegate bench ordering --part partitions --work 2`
    """
    parts = {"heuristics": _heuristics, "partitions": _partitions, "buffers": _buffers, "speed": _speed}
    if part != "all" and part not in parts:
        raise typer.BadParameter(f"--part: got {part!r}, required one of all, {', '.join(parts)}")
    sizes = Sizes(records, work, workers or processors())
    for name in parts if part == "all" else (part,):
        run.draw(parts[name](run, sizes), f"ordering-{name}")


def _show(run: BenchRun, race: Race, title: str, experiment: str, **settings: object) -> Report:
    """Measure a race, print its table, and write its records."""
    report = run.measure(race.experiment(experiment, title, settings, run.seed))
    run.console.print(race.render(report))
    run.append(race.records(report))
    return report


def _heuristics(run: BenchRun, sizes: Sizes) -> Plot:
    from tidegate.benchmarks import ordering_charts
    from tidegate.benchmarks import ordering_heuristics as experiments
    from tidegate.benchmarks.ordered_race import curves
    from tidegate.workloads.tpcx_bb.queries import QUERIES

    throughput, latency = {}, {}
    for name, query in QUERIES.items():
        title = f"{name}: {query.title}"
        race = experiments.race(name, records=sizes.records, workers=sizes.worker_counts, seed=run.seed)
        report = _show(run, race, title, "ordering-heuristics", query=name)
        throughput[title] = curves(report, report.items_per_second)
        latency[title] = curves(report, partial(race.figure, "latency"))
    return lambda file: ordering_charts.plot_heuristics(throughput, latency, file)


def _partitions(run: BenchRun, sizes: Sizes) -> Plot:
    from tidegate.benchmarks import ordering_charts
    from tidegate.benchmarks import ordering_partitions as experiments
    from tidegate.benchmarks.bars import Bar

    pace, workers = run.pace(), sizes.workers
    skew: dict[str, dict[float, float]] = {scheme: {} for scheme in experiments.SCHEMES}
    processing: dict[str, dict[float, float]] = {scheme: {} for scheme in experiments.SCHEMES}

    def race_with(cost: float, sigma: float | None) -> Race:
        count = sizes.count(cost)
        return experiments.race(records=count, cost_us=cost, pace=pace, workers=workers, sigma=sigma, seed=run.seed)

    cost = experiments.SKEW_COST_US
    for sigma in experiments.SIGMAS[:1] if run.smoke else experiments.SIGMAS:
        race = race_with(cost, sigma)
        report = _show(run, race, f"Keys with sigma {sigma:g}, {cost} µs", "ordering-skew", sigma=sigma, cost=cost)
        for scheme, found in skew.items():
            found[sigma] = report.items_per_second(scheme)
    for cost in experiments.COSTS_US[:2] if run.smoke else experiments.COSTS_US:
        race = race_with(cost, None)
        _show(run, race, f"Uniform keys, {cost:,} µs", "ordering-cost", cost=cost)
        for scheme, found in processing.items():
            found[cost] = race.figure("processing", scheme)
    bars = [
        Bar(f"hybrid, {cost:g} µs: processing latency beside the cost", 1e6 * taken / cost, "≤", 2.0)
        for cost, taken in processing["hybrid"].items()
    ]
    if workers >= MANY_CORES:
        strongest = experiments.SIGMAS[0]
        gain = skew["hybrid"][strongest] / skew["partitioned"][strongest]
        bars.append(Bar("hybrid beside partitioned, strongest skew", gain, "≥", 2.0))
    run.require(bars, {"workers": workers})
    return lambda file: ordering_charts.plot_partitions(skew, processing, file)


def _buffers(run: BenchRun, sizes: Sizes) -> Plot:
    from tidegate.benchmarks import ordering_buffers as experiments
    from tidegate.benchmarks import ordering_charts
    from tidegate.benchmarks.bars import Bar
    from tidegate.benchmarks.ordered_race import curves, ratios

    pace, counts, found, costs = run.pace(), sizes.worker_counts, {}, {}
    for title, cost, make in experiments.EXPERIMENTS:
        race = make(records=sizes.count(cost), pace=pace, workers=counts, seed=run.seed)
        report = _show(run, race, f"Reordering: {title}", "ordering-reorder", what=title)
        found[title], costs[title] = ratios(report), curves(report, partial(race.figure, "cost"))
    light = next(iter(found))
    bars = []
    for title, speeds in found.items():
        for n in counts:
            strict = title == light and n >= MANY_CORES // 2 and sizes.workers >= MANY_CORES
            gain = speeds["non-blocking"][n] / speeds["lock"][n]
            bars.append(Bar(f"non-blocking beside lock: {title}, x{n}", gain, "≥", 1.3 if strict else AS_FAST))
    run.require(bars, {"workers": sizes.workers})
    return lambda file: ordering_charts.plot_buffers(found, costs, file)


def _speed(run: BenchRun, sizes: Sizes) -> Plot:
    from tidegate.benchmarks import ordering_charts
    from tidegate.benchmarks import ordering_speed as experiments
    from tidegate.benchmarks.bars import Bar
    from tidegate.benchmarks.ordered_race import ratios

    pace, workers, seed = run.pace(), sizes.workers, run.seed
    light = experiments.overhead(records=sizes.records, seed=seed)
    bars = [experiments.overhead_bar(_show(run, light, "Three light operators", "ordering-overhead"))]
    speedups = {}
    for kind in ("stateless", "keyed"):
        count = sizes.count(experiments.HEAVY_US)
        race = experiments.speedup(kind, records=count, pace=pace, workers=sizes.worker_counts, seed=seed)
        report = _show(run, race, f"A {kind} operator of {experiments.HEAVY_US} µs", "ordering-speedup", kind=kind)
        speedups[kind] = ratios(report)[kind]
        if workers >= 2:
            told = f"speed-up of a {kind} operator of {experiments.HEAVY_US} µs, two workers"
            bars.append(Bar(told, speedups[kind][2], "≥", experiments.SPEEDUP_BAR))
    spawning = multiprocessing.get_context("spawn")  # a fork would copy locks of threads that are not there
    with ThreadPoolExecutor(workers) as threads, ProcessPoolExecutor(workers, spawning) as processes:
        declared = experiments.futures(threads, processes, records=sizes.records // 4, workers=workers, seed=seed)
        beside = run.show(declared)
    peak = experiments.peak_rate(records=sizes.records // 4, workers=workers, seed=seed)
    latency = experiments.latency(peak / 2, records=sizes.records // 4, workers=workers, seed=seed)
    run.require([*bars, latency.bar()], {"workers": workers, "peak_rate": round(peak)})
    return lambda file: ordering_charts.plot_speed(speedups, beside, 1e3 * latency.seconds, file)
