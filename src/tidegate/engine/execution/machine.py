"""What a program needs to run operations: its compiled function, a context for each worker, the tables' columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.engine.arrays import ArrayBinder, ProgramStrings, workspace
from tidegate.engine.batch import Batch
from tidegate.engine.kernels.operation import Machine
from tidegate.engine.state.table import TableState
from tidegate.operations.plan import ProgramPlan

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
    arrays: ArrayBinder,
    batch: Batch,
    strings: ProgramStrings,
    workers: int,
) -> Bench:
    """Collect the addresses of all arrays; from here on the tables must not grow until the batch is over."""
    columns: list[Array] = []
    column_first = [0]
    for table in (tables[layout.name] for layout in plan.tables):
        columns += [table.exists, table.keys, *table.columns.values()]
        column_first.append(len(columns))
    apart = workers if plan.scratch else 1  # workers that save lists need arrays of their own
    bound = [arrays.bind(batch, workspace(plan, batch, strings)) for _ in range(apart)]
    contexts = [np.array([array.ctypes.data for array in own], np.int64) for own in bound]
    kinds = len(plan.operations)
    machine = Machine(
        operate=np.array([module.operate.address], np.int64),
        contexts=np.array([contexts[worker % apart].ctypes.data for worker in range(workers)], np.int64),
        first_failure=np.array([operation.first_failure for operation in plan.operations], np.int64),
        whole=np.array([operation.whole for operation in plan.operations], np.int8),
        column_first=np.array(column_first, np.int64),
        column_address=np.array([column.ctypes.data for column in columns], np.int64),
        column_size=np.array([column.itemsize * (column.shape[1] if column.ndim > 1 else 1) for column in columns]),
        cost_ticks=np.zeros((workers, kinds + 8), np.int64),
        cost_samples=np.zeros((workers, kinds + 8), np.int64),
    )
    return Bench(machine, (bound, contexts))
