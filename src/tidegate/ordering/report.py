"""What a run measured: for each operator its records, outputs and time; for the output, how long records took."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidegate.engine.execution.timing import ticks_per_second
from tidegate.ordering.kernels import layout as at
from tidegate.ordering.records import Words
from tidegate.ordering.runtime import Runtime


@dataclass(frozen=True, slots=True)
class OperatorReport:
    """What workers did for one operator; the cost of a record contains what the runtime does for it."""

    name: str
    compiled: bool
    records: int
    outputs: int
    seconds: float
    processing: float
    """Seconds from when a worker begins with a record until its outputs have left the operator in order, on average."""

    @property
    def cost(self) -> float:
        """Seconds for a record."""
        return self.seconds / max(self.records, 1)

    @property
    def selectivity(self) -> float:
        """Outputs for a record."""
        return self.outputs / max(self.records, 1)


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run measured. `latencies` are seconds from a record's entry to the exit of each output, in order."""

    seconds: float
    operators: tuple[OperatorReport, ...]
    latencies: npt.NDArray[np.float64]

    def latency(self, quantile: float) -> float:
        """The latency that so large a part of the outputs does not exceed; without the first and the last fifth.

        While a run begins and ends, queues are shorter than in between.
        """
        count = len(self.latencies)
        middle = self.latencies[count // 5 : count - count // 5]
        return float(np.quantile(middle, quantile)) if len(middle) else 0.0


def report_of(runtime: Runtime, rows: Words, seconds: float) -> RunReport:
    """The report of a run that is over, whose output rows are given."""
    flow, rate = runtime.flow, ticks_per_second()
    operators = []
    for number, node in enumerate(flow.nodes):
        if node.operator is None:
            continue
        tallies = [flow.worker_at(w) + at.TALLY + at.TALLY_WORDS * number for w in range(flow.options.workers)]
        records, outputs, ticks = (sum(int(flow.memory[tally + k]) for tally in tallies) for k in range(3))
        compiled = node.operator.plan is not None
        processing = flow.word(number, at.PROCESSED) / rate / max(records, 1)
        operators.append(OperatorReport(node.operator.name, compiled, records, outputs, ticks / rate, processing))
    return RunReport(seconds, tuple(operators), (rows[:, at.ENDS] - rows[:, at.ORIGIN]) / rate)
