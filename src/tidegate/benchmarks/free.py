"""What the adaptive strategy costs where there is nothing to gain: functions that take no time.

One worker runs them best, one by one. The adaptive strategy must find that out and then keep out of the way, on
every workload of the grid whose functions are free (`strategies.cells`). It loses a few percent, less than a
machine's speed changes from one moment to the next. So the engines take turns with each batch, and what counts is
the sum of many batches, those included in which the adaptive strategy looked:

    batch 0    serial    adaptive
    batch 1    adaptive  serial
    batch 2    serial    adaptive       share = seconds of serial / seconds of adaptive

Outcomes of every batch and the rows at the end are compared, bit for bit, and the first events with the plain
functions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tidegate.benchmarks.bars import Bar
from tidegate.benchmarks.grids import label_of
from tidegate.benchmarks.harness import record
from tidegate.benchmarks.strategies import ADAPTIVE, SERIAL, Cell, require_same, verify_with_plain
from tidegate.workloads.workload import Run, Workload

BAR = 0.95
"""The share of serial's speed that the adaptive strategy must have."""
WARM_BATCHES = 16
"""Batches before the clock counts: code is loaded, and the adaptive strategy looks for the first time."""


@dataclass(frozen=True, slots=True)
class Found:
    """How long the batches of one workload took."""

    label: str
    workload: Workload
    batches: int
    serial_seconds: float
    adaptive_seconds: float

    @property
    def share(self) -> float:
        """The adaptive strategy's speed as a share of serial's."""
        return self.serial_seconds / self.adaptive_seconds

    @property
    def bar(self) -> Bar:
        """The adaptive strategy is nearly as fast."""
        return Bar(f"{ADAPTIVE} beside {SERIAL}, {self.label}", self.share, "≥", BAR)

    def as_record(self) -> dict[str, Any]:
        """JSON-ready, with all that is needed to measure it again."""
        settings = asdict(self.workload.settings)
        return record(
            "free",
            seed=settings.pop("seed"),
            settings={"workload": self.workload.name, "batches": self.batches, **settings},
            serial_seconds=round(self.serial_seconds, 6),
            adaptive_seconds=round(self.adaptive_seconds, 6),
            **self.bar.as_record(),
        )


def free_cells(cells: Sequence[Cell]) -> list[Cell]:
    """Those whose functions take no time."""
    return [cell for cell in cells if cell.dimensions["C"] == 0.0]


def measure(
    cell: Cell,
    *,
    pace: float,
    workers: int,
    batches: int,
    clock: Callable[[], float] = time.perf_counter,
    on_batch: Callable[[], None] = lambda: None,
) -> Found:
    """Run `batches` batches of a workload by both strategies, in turns."""
    workload = cell.make(pace)
    verify_with_plain(workload)
    engines = {strategy: workload.engine(strategy, workers) for strategy in (SERIAL, ADAPTIVE)}
    seconds = dict.fromkeys(engines, 0.0)
    for number, events in enumerate(workload.batches(WARM_BATCHES + batches)):
        outcomes = {}
        for strategy in (SERIAL, ADAPTIVE) if number % 2 == 0 else (ADAPTIVE, SERIAL):
            began = clock()
            outcomes[strategy] = engines[strategy].run(events)
            seconds[strategy] += clock() - began if number >= WARM_BATCHES else 0.0
        require_same(ADAPTIVE, Run([outcomes[SERIAL]], {}), Run([outcomes[ADAPTIVE]], {}))
        on_batch()
    rows = {strategy: workload.scan(engine) for strategy, engine in engines.items()}
    require_same(ADAPTIVE, Run([], rows[SERIAL]), Run([], rows[ADAPTIVE]))
    for engine in engines.values():
        engine.close()
    return Found(label_of(cell.dimensions), workload, batches, seconds[SERIAL], seconds[ADAPTIVE])
