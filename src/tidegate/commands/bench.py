"""`tidegate bench`: how fast Tidegate is, each number verified and measured beside its reference.

`BENCHMARKS` declares them all; the list that `--help` prints, `tidegate bench all`, and with it `make bench` and
`make smoke`, follow from it. Each command prints its tables, adds JSON lines to a file under `results/`, and ends with
exit code 1 when a bar was missed. Those that draw pictures, too, need the extra that says so.

`--smoke` runs the same code at a small size, without bars and without a file: it shows that the benchmark works, not
how fast anything is.
"""

from __future__ import annotations

import importlib.util
import inspect
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from tidegate.commands import bench_durability as durability
from tidegate.commands import bench_engine as engine
from tidegate.commands import bench_ordering as ordering
from tidegate.commands import bench_strategies as strategies
from tidegate.commands import bench_streams as streams
from tidegate.commands.bench_run import BenchRun, Output, Rounds, Seed, Smoke
from tidegate.foundation.errors import PackageMissing

EXTRAS: dict[str, tuple[str, ...]] = {"bench": ("matplotlib",)}
"""The optional dependencies of this package that benchmarks need, with the modules that they bring."""


@dataclass(frozen=True)
class Benchmark:
    """One command of `tidegate bench`."""

    name: str
    measures: str
    command: Callable[..., None]
    """Takes a `BenchRun`, and options of its own."""
    rounds: int | None
    """How many rounds count; None for a benchmark without rounds. A smoke run has one."""
    smoke: dict[str, Any] = field(default_factory=dict)
    """What `--smoke` sets the command's own options to. The command makes other sizes small itself."""
    extra: str | None = None

    def run(self, *, seed: int, output: Path | None, smoke: bool, rounds: int = 1, **options: Any) -> None:
        """Run it, at the sizes asked for; exit code 1 if a bar was missed."""
        demand([self])
        run = BenchRun(self.name, 1 if smoke else rounds, seed, output, smoke)
        self.command(run, **{**options, **(self.smoke if smoke else {})})
        if not run.passed:
            Console(stderr=True).print("[red]a bar was missed[/red]")
            raise typer.Exit(1)

    def as_typer_command(self) -> Callable[..., None]:
        """The function that typer reads: the command's own options, then those that all benchmarks have."""

        def run(**options: Any) -> None:
            self.run(**options)

        def option(name: str, kind: Any, default: Any) -> inspect.Parameter:
            return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)

        own = list(inspect.signature(self.command, eval_str=True).parameters.values())[1:]
        common = [option("seed", Seed, 1), option("output", Output, None), option("smoke", Smoke, False)]
        if self.rounds is not None:
            common.insert(0, option("rounds", Rounds, self.rounds))
        run.__doc__ = self.command.__doc__
        run.__signature__ = inspect.Signature([*own, *common])  # type: ignore[attr-defined]
        return run


BENCHMARKS = (
    Benchmark("limit", "the engine beside a hand-written Numba program that does the same job",
        engine.limit, 9, {"events": 20_000, "accounts": 2_000}),
    Benchmark("spark", "a streaming pipeline with transact beside the same one with an identity",
        engine.spark, 5, {"batch_rows": 2_000, "batches": 2, "accounts": 500}),
    Benchmark("spark-workers", "a streaming query with all cores of its executor beside one with a single worker",
        engine.spark_workers, 5, {"batch_rows": 200, "batches": 1, "cost": 0.1}),
    Benchmark("spark-ordered", "an ordered pipeline in one task, with the idle cores of its executor beside one thread",
        engine.spark_ordered, 5, {"records": 400, "cost": 0.1}),
    Benchmark("spark-logging", "versions that keep rows beside versions that keep events: speed, bytes, opening",
        engine.spark_logging, 5, {"batch_rows": 500, "batches": 1, "accounts": 200}, "bench"),
    Benchmark("work", "1,000 transactions on a small and on a large table; memory and loading of a very large one",
        engine.work, 5, {"rows_small": 500, "rows_large": 5_000, "memory_rows": 20_000}),
    Benchmark("strategies", "adaptive beside every fixed strategy, over a grid of workloads",
        strategies.strategies, 7, {}, "bench"),
    Benchmark("scaling", "every strategy with 1, 2, 4, ... workers, beside threads that share nothing",
        strategies.scaling, 5, {"cost": 0.1}, "bench"),
    Benchmark("dynamic", "a stream whose character changes: thirteen phases of a ledger",
        strategies.dynamic, 3, {"batches": 1}, "bench"),
    Benchmark("free", "functions that take no time: what adaptive costs where there is nothing to gain",
        strategies.free, None, {"batches": 2}),
    Benchmark("groups", "two groups in the same batches: several strategies at once beside each single one",
        strategies.groups, 9, {}, "bench"),
    Benchmark("graph", "building the graph of a batch: operations per second and core, bytes",
        strategies.graph, 15, {"batch_events": 200}),
    Benchmark("peers", "events per second beside MorphStream's released code",
        strategies.peers, 5),
    Benchmark("leaderboard", "a dataflow graph beside a client that calls its procedures one by one",
        streams.leaderboard, 5, {"votes": 300}, "bench"),
    Benchmark("triggers", "chains of 1 to 10 procedures: started inside the engine, or from outside",
        streams.triggers, 3, {"batches": 50}, "bench"),
    Benchmark("windows", "a window of 100,000 rows beside one of 100: what a row costs",
        streams.windows, 7, {"inserts": 500}),
    Benchmark("stages", "steps of a graph that share no table: one after the other, and side by side",
        streams.stages, 7, {"events": 300, "cost": 0.1}),
    Benchmark("mixed",
        "plain transactions in one program with a graph and with look-ups: by one worker, and by several",
        streams.mixed, 7, {"events": 300, "cost": 0.1}),
    Benchmark("execute", "one transaction now, between the batches of a stream",
        streams.execute, 7, {"requests": 100, "votes": 20}),
    Benchmark("ordering", "ordered pipelines: heuristics, partitioning, reordering, overhead, speed-up and latency",
        ordering.ordering, 5, {"records": 400, "work": 0.005}, "bench"),
    Benchmark("durable", "calls and batches that are on the disk when they return, beside the disk and beside memory",
        durability.durable, 7, {"calls": 32, "batches": 2, "events": 200}),
    Benchmark("logging", "strong and weak logging of chains of procedures, with and without group commit",
        durability.logging, 3, {"tuples": 10, "clients": 2}, "bench"),
    Benchmark("recovery", "opening after a crash: by graph, by bytes of log; a checkpoint of 10 million rows",
        durability.recovery, 3, {"tuples": 20, "transactions": 200, "rows": 2_000}, "bench"),
    # As many rows as it takes to be due for a checkpoint.
    Benchmark("checkpoints", "batches while checkpoints are written (p99), and with 10,000 versions kept",
        durability.checkpoints, 3, {"rows": 4_400_000, "kept": 50}),
)  # fmt: skip


def demand(benchmarks: Iterable[Benchmark]) -> None:
    """Refuse to start what could not finish: a picture comes last, after an hour maybe."""
    for benchmark in benchmarks:
        missing = [name for name in EXTRAS.get(benchmark.extra or "", ()) if importlib.util.find_spec(name) is None]
        if missing:
            raise PackageMissing(
                f"`tidegate bench {benchmark.name}` draws a picture and needs {', '.join(missing)}, which is not "
                f"installed here: pip install 'tidegate[{benchmark.extra}]'"
            )


app = typer.Typer(no_args_is_help=True, help="Measure: every run verified, variants interleaved, ratios printed.")

for _benchmark in BENCHMARKS:
    app.command(_benchmark.name, short_help=_benchmark.measures)(_benchmark.as_typer_command())


@app.command("all", short_help="all of the above, one after the other; more than an hour without --smoke")
def run_all(seed: Seed = 1, smoke: Smoke = False) -> None:
    """Every benchmark, each in a process of its own; exit code 1 if one of them failed or missed a bar.

    Example: `tidegate bench all --smoke`
    """
    demand(BENCHMARKS)
    console = Console()
    failed = []
    for benchmark in BENCHMARKS:
        console.rule(f"tidegate bench {benchmark.name}")
        began = time.perf_counter()
        options = ["--seed", str(seed), *(["--smoke"] if smoke else [])]
        done = subprocess.run([sys.executable, "-m", "tidegate", "bench", benchmark.name, *options], check=False)
        if done.returncode:
            failed.append(f"{benchmark.name} (exit code {done.returncode})")
        console.print(f"{benchmark.name}: {time.perf_counter() - began:.0f} s", style="dim", highlight=False)
    if failed:
        Console(stderr=True).print(f"[red]{len(failed)} of {len(BENCHMARKS)} failed or missed a bar:[/red]", *failed)
        raise typer.Exit(1)
    console.print(f"all {len(BENCHMARKS)} benchmarks ended well")
