"""What a program needs to run operations: its compiled function, a context for each worker, the tables' columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.engine.batch import Batch
from tidegate.engine.kernels.operation import Machine
from tidegate.engine.state.table import TableState
from tidegate.operations.plan import DTYPES, ProgramPlan

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Bench:
    """A machine set up for one batch, and the arrays whose addresses it holds."""

    machine: Machine
    keep: tuple[Any, ...]


def set_up(
    plan: ProgramPlan,
    module: ModuleType,
    tables: Mapping[str, TableState],
    batch: Batch,
    literals: Array,
    workers: int,
) -> Bench:
    """Write down where everything lies; the tables must not grow from here until the batch is over."""
    shared: list[Array] = []
    for bound in batch.values:
        if bound.offsets is not None:
            shared.append(bound.offsets.astype(np.int64, copy=False))
        shared.append(bound.values)
    shared += [bound.offsets.astype(np.int64, copy=False) for bound in batch.rows if bound.offsets is not None]
    columns: list[Array] = []
    column_first = [0]
    for layout in plan.tables:
        table = tables[layout.name]
        shared += table.arrays
        columns += [table.exists, table.keys, *table.columns.values()]
        column_first.append(len(columns))
    results = [batch.valid, *batch.results, literals]
    scratch = [[np.zeros(_longest(batch, row), DTYPES[kind]) for row, kind in plan.scratch] for _ in range(workers)]
    contexts = [np.array([array.ctypes.data for array in (*shared, *results, *own)], np.int64) for own in scratch]
    assert all(len(context) == plan.context_size for context in contexts), "machine code would read something else"
    kinds = len(plan.operations)
    machine = Machine(
        operate=np.array([module.operate.address], np.int64),
        contexts=np.array([context.ctypes.data for context in contexts], np.int64),
        first_failure=np.array([operation.first_failure for operation in plan.operations], np.int64),
        whole=np.array([operation.whole for operation in plan.operations], np.int8),
        column_first=np.array(column_first, np.int64),
        column_address=np.array([column.ctypes.data for column in columns], np.int64),
        column_size=np.array([column.itemsize * (column.shape[1] if column.ndim > 1 else 1) for column in columns]),
        cost_ticks=np.zeros((workers, kinds + 8), np.int64),
        cost_samples=np.zeros((workers, kinds + 8), np.int64),
    )
    return Bench(machine, (shared, results, scratch, contexts))


def _longest(batch: Batch, row: int) -> int:
    offsets = batch.rows[row].offsets
    assert offsets is not None
    return int(np.max(np.diff(offsets), initial=0))
