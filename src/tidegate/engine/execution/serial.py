"""The serial strategy: the events of a batch, one after the other, in one call of the generated program.

This is the specification that every other strategy is compared with. If an event needs plain Python, the
program returns its position, the interpreter runs it, and the program continues after it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.engine.arrays import ArrayBinder, strings_of, workspace
from tidegate.engine.batch import Batch
from tidegate.engine.faults import Faults
from tidegate.engine.interpreter import Interpreter
from tidegate.engine.state.strings import StringPool
from tidegate.engine.state.table import TableState
from tidegate.foundation.jit import is_uncompiled
from tidegate.operations.plan import Program

Array = npt.NDArray[Any]


class SerialRun:
    """Runs events of a program on its tables in order."""

    def __init__(
        self,
        program: Program,
        module: ModuleType,
        tables: Mapping[str, TableState],
        strings: StringPool,
        faults: Faults,
    ) -> None:
        self.plan = program.plan
        self.strings = strings_of(self.plan, strings)
        self._module = module
        self.arrays = ArrayBinder(self.plan.arrays, {("table", name): table for name, table in tables.items()})
        self._interpreter = Interpreter(program, tables, strings, faults)
        self._compiled = [plan.compiled for plan in self.plan.transactions]
        self._plain = is_uncompiled()
        self._one_at_a_time = threading.RLock()  # a plain function may execute another transaction

    def run(self, batch: Batch, order: Array, start: int, stop: int) -> int:
        """Run the events at positions `start` to `stop` of the order; returns how many plain Python ran."""
        return self.prepare(batch)(order, start, stop)

    def prepare(self, batch: Batch) -> Callable[[Array, int, int], int]:
        """A function that runs parts of a batch, as `run` does; each thread needs its own."""
        arrays = self.arrays.bind(batch, workspace(self.plan, batch, self.strings))
        compiled, kinds, status = self._module.run, batch.kinds, batch.status

        def run(order: Array, position: int, stop: int) -> int:
            interpreted = 0
            while True:
                position = compiled(position, stop, order, kinds, status, arrays)
                if position < 0:  # in a loop; its transaction is undone
                    raise KeyboardInterrupt
                while position < stop:  # transactions that are never compiled need no call of `run` in between
                    event = int(order[position])
                    if status[event] == 0:
                        with self._one_at_a_time:  # several workers may run families of this batch
                            self._interpreter.run(batch, event)
                        interpreted += 1
                    position += 1
                    if position < stop and self._compiled[kinds[order[position]]]:
                        break
                if position >= stop:
                    return interpreted

        def run_quietly(order: Array, position: int, stop: int) -> int:
            with np.errstate(all="ignore"):  # machine code does not warn about infinities and NaN either
                return run(order, position, stop)

        return run_quietly if self._plain else run
