"""One run of a `tidegate bench` command: its common options, progress, tables, files, pictures, and missed bars.

A command declares experiments and passes them to its `BenchRun`. A smoke run drops every bar and writes no file; that
is decided here, so that no experiment has to know. What is imported inside functions stays out of `--help`, which must
be quick.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tidegate.commands.literal import literal

if TYPE_CHECKING:
    from tidegate.benchmarks.bars import Bar
    from tidegate.benchmarks.grids import Grid, GridReport, Point, PointReport
    from tidegate.benchmarks.harness import Experiment, Report

Rounds = Annotated[int, typer.Option(min=1, help="Rounds that count; one more runs first to warm up.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same events.")]
Output = Annotated[Path | None, typer.Option(help="Where JSON lines are added.", show_default="results/…")]
Smoke = Annotated[bool, typer.Option("--smoke", help="Small sizes, no bars, no file: does it work at all?")]


@dataclass(slots=True)
class BenchRun:
    """What every command of `tidegate bench` is given, and what it has found so far."""

    name: str
    rounds: int
    seed: int
    output: Path | None
    smoke: bool
    console: Console = field(default_factory=Console)
    passed: bool = True
    """Whether no bar was missed until now."""

    @property
    def file(self) -> Path | None:
        """Where records go; None for a smoke run."""
        return None if self.smoke else self.output or Path("results") / f"{self.name}.jsonl"

    def measure(self, declared: Experiment) -> Report:
        """Measure an experiment, with a line that shows the progress."""
        from tidegate.benchmarks import harness

        declared = replace(declared, rounds=self.rounds, bars={} if self.smoke else declared.bars)
        with self.progress(f"{declared.name}: warming up", declared.rounds) as update:
            return harness.measure(
                declared, on_round=lambda done, total: update(description=f"{declared.name}: rounds", completed=done)
            )

    def show(self, declared: Experiment) -> Report:
        """Measure an experiment, print its table, write its records, and note whether it reached its bars."""
        from tidegate.benchmarks import harness

        report = self.measure(declared)
        self.console.print(harness.render(report))
        self.append(harness.records(report))
        if self.file is not None:
            self.console.print(f"results added to {self.file}\n", style="dim", highlight=False)
        self.passed &= report.passed
        return report

    def measure_grid(self, declared: Grid, seconds_max: float | None = None) -> GridReport:
        """Measure a grid; each point is written to the file as soon as it is done."""
        from tidegate.benchmarks import grids

        with self.progress("", len(declared.points)) as update:

            def on_round(point: Point, done: int, total: int) -> None:
                update(description=f"{point.label}: round {done} of {total}")

            def on_point(found: PointReport) -> None:
                self.append(grids.point_records(declared, found))
                update(advance=1)

            return grids.measure_grid(
                declared, on_round=on_round, on_point=on_point, rounds=self.rounds, seconds_max=seconds_max
            )

    def require(self, bars: Sequence[Bar], settings: Mapping[str, Any]) -> None:
        """Print bars, write a record of each, and note whether all were reached; a smoke run has none."""
        from tidegate.benchmarks import harness
        from tidegate.benchmarks.bars import render_bars

        if self.smoke:
            return
        self.console.print(render_bars(bars))
        name = f"{self.name}-bar"
        self.append([harness.record(name, seed=self.seed, settings=settings, **bar.as_record()) for bar in bars])
        self.note(bar.passed for bar in bars)

    def note(self, reached: Iterable[bool]) -> None:
        """Note bars that were shown in another way; a smoke run has none."""
        self.passed &= self.smoke or all(reached)

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Add records to the file, if there is one."""
        from tidegate.benchmarks import harness

        if self.file is not None:
            harness.append(self.file, records)

    def draw(self, plot: Callable[[Path], None], name: str = "") -> None:
        """Draw a picture beside the records; a smoke run draws it and throws it away."""
        with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
            file = self.file or Path(folder) / "picture"
            picture = file.with_name(f"{name or self.name}.png")
            plot(picture)
        if self.file is not None:
            self.console.print(literal(f"picture: {picture}", "dim"))

    def pace(self) -> float:
        """How many rounds of `cost.burn` make a microsecond here."""
        from tidegate.workloads.cost import calibrate

        pace = calibrate()
        self.console.print(f"{pace:.0f} rounds of the cost loop are a microsecond here", style="dim", highlight=False)
        return pace

    @contextmanager
    def progress(self, description: str, total: int) -> Iterator[Callable[..., None]]:
        """A progress bar while something runs; call what it gives with what has changed, as `rich` names it."""
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console, transient=True) as shown:
            task = shown.add_task(description, total=total)
            yield lambda **changes: shown.update(task, **changes)


@contextmanager
def temporary_folder(parent: Path | None = None) -> Iterator[Path]:
    """A folder for one experiment, in the one given; it is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-", dir=parent, ignore_cleanup_errors=True) as folder:
        yield Path(folder)
