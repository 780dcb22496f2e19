"""What the commands of `tidegate bench` share: progress while they measure, tables, files, and the exit code.

Nothing is measured here. What is imported when a command runs stays out of `--help`, which must be quick.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from tidegate.commands.literal import literal

if TYPE_CHECKING:
    from tidegate.benchmarks.bars import Bar
    from tidegate.benchmarks.free import Found
    from tidegate.benchmarks.grids import Grid, GridReport, Point, PointReport
    from tidegate.benchmarks.harness import Experiment, Report
    from tidegate.benchmarks.memory import Footprint
    from tidegate.benchmarks.strategies import Cell


def file_for(output: Path | None, name: str, smoke: bool) -> Path | None:
    """Where records go; None for a smoke run."""
    return None if smoke else output or Path("results") / f"{name}.jsonl"


def run(declared: Experiment, file: Path | None) -> bool:
    """Measure, show and tell whether all bars were reached."""
    console = Console()
    return show(measure(declared, console), console, file)


def measure(declared: Experiment, console: Console) -> Report:
    """Measure an experiment, with a line that says how far it is."""
    from tidegate.benchmarks import harness

    with _progress(console) as progress:
        task = progress.add_task(f"{declared.name}: warming up", total=declared.rounds)

        def on_round(done: int, total: int) -> None:
            progress.update(task, description=f"{declared.name}: rounds", completed=done)

        return harness.measure(declared, on_round=on_round)


def measure_grid(declared: Grid, console: Console, file: Path | None, seconds_max: float | None = None) -> GridReport:
    """Measure a grid; each point is written down when it is done."""
    from tidegate.benchmarks import grids

    with _progress(console) as progress:
        task = progress.add_task("", total=len(declared.points))

        def on_round(point: Point, done: int, total: int) -> None:
            progress.update(task, description=f"{point.label}: round {done} of {total}")

        def on_point(found: PointReport) -> None:
            append(file, grids.point_records(declared, found))
            progress.advance(task)

        return grids.measure_grid(declared, on_round=on_round, on_point=on_point, seconds_max=seconds_max)


def measure_free(
    cells: Sequence[Cell], console: Console, file: Path | None, *, pace: float, workers: int, batches: int
) -> list[Found]:
    """Measure workloads whose functions are free; each is written down when it is done."""
    from tidegate.benchmarks import free
    from tidegate.benchmarks.grids import label_of

    with _progress(console) as progress:
        task = progress.add_task("", total=len(cells) * (free.WARM_BATCHES + batches))
        results = []
        for cell in cells:
            progress.update(task, description=label_of(cell.dimensions))
            results.append(
                free.measure(cell, pace=pace, workers=workers, batches=batches, on_batch=lambda: progress.advance(task))
            )
            append(file, [results[-1].as_record()])
        return results


def show(report: Report, console: Console, file: Path | None) -> bool:
    """Print a report, write its records, and tell whether all bars were reached."""
    from tidegate.benchmarks import harness

    return harness.show(report, console, file)


def show_bars(
    name: str, bars: Sequence[Bar], console: Console, file: Path | None, *, seed: int, settings: Mapping[str, Any]
) -> bool:
    """Print bars, write a record of each, and tell whether all were reached."""
    from tidegate.benchmarks import harness
    from tidegate.benchmarks.bars import render_bars

    console.print(render_bars(bars))
    append(file, [harness.record(f"{name}-bar", seed=seed, settings=settings, **bar.as_record()) for bar in bars])
    return all(bar.passed for bar in bars)


def show_memory(footprint: Footprint, seed: int, file: Path | None) -> bool:
    """Print what a large table costs, write it down, and tell whether that is little enough."""
    from tidegate.benchmarks import harness, memory

    fits = footprint.resident_bytes <= memory.RESIDENT_BYTES_MAX
    quick = footprint.load_seconds <= memory.LOAD_SECONDS_MAX
    table = Table(
        title=f"{footprint.rows:,} rows of two integers, loaded in a fresh process",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for heading in ("", "measured", "bar"):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    megabytes = {
        "before loading": footprint.before_bytes,
        "resident": footprint.resident_bytes,
        "peak, input included": footprint.peak_bytes,
    }
    for name, size in megabytes.items():
        bar = f"≤ {memory.RESIDENT_BYTES_MAX / 1e6:,.0f} MB {'✓' if fits else '✗'}" if name == "resident" else ""
        table.add_row(name, f"{size / 1e6:,.0f} MB", bar)
    bar = f"≤ {memory.LOAD_SECONDS_MAX:g} s {'✓' if quick else '✗'}"
    table.add_row("load", f"{footprint.load_seconds:.2f} s", bar)
    Console().print(table)
    values = asdict(footprint)
    settings = {"rows": values.pop("rows")}
    append(file, [harness.record("memory", seed=seed, settings=settings, **values, passed=fits and quick)])
    return fits and quick


def append(file: Path | None, records: Sequence[Mapping[str, Any]]) -> None:
    """Add records to a command's file, if it has one."""
    from tidegate.benchmarks import harness

    if file is not None:
        harness.append(file, records)


def draw(console: Console, file: Path | None, name: str, plot: Callable[[Path], None]) -> None:
    """The picture beside the records; without records it is drawn, and thrown away."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        picture = Path(folder) / "picture.png" if file is None else file.with_name(f"{name}.png")
        plot(picture)
    if file is not None:
        console.print(literal(f"picture: {picture}", "dim"))


def finish(passed: Sequence[bool]) -> None:
    """End with exit code 1 if a bar was missed."""
    if not all(passed):
        Console(stderr=True).print("[red]a bar was missed[/red]")
        raise typer.Exit(1)


def _progress(console: Console) -> Progress:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console, transient=True)
