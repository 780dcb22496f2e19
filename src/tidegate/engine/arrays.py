"""Finds the arrays that generated code works on, as the program's plan lists them (`operations.arrays`).

    ArraySpec(owner="table", of="Account", role="columns", key="balance")     tables["Account"].columns["balance"]

An array is an attribute of its owner. Owners that live as long as the engine (tables, streams, windows, ...) are known
when a program is loaded, so an array that is missing is reported there. A batch, a worker and a lane come with each
call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.engine.batch import Batch
from tidegate.engine.state.strings import StringPool
from tidegate.foundation.interrupts import signals
from tidegate.operations.arrays import ArraySpec
from tidegate.operations.plan import ProgramPlan

Array = npt.NDArray[Any]
Owners = Mapping[tuple[str, str | int], object]
_NO_SIGNALS = np.zeros(1, np.int64)


@dataclass(frozen=True, slots=True)
class ProgramStrings:
    """What generated code knows of strings: the numbers of the program's own, and where the bytes of all are."""

    literals: Array
    texts: Array


def strings_of(plan: ProgramPlan, pool: StringPool) -> ProgramStrings:
    """A program's strings in a pool."""
    return ProgramStrings(np.array([pool.number(text) for text in plan.literals], np.int64), pool.places)


@dataclass(frozen=True, slots=True)
class Workspace:
    """What a worker has besides the batch: strings, signals, and space to save the lists that it writes."""

    literals: Array
    texts: Array
    signals: Array
    undo: Sequence[Array]


def workspace(plan: ProgramPlan, batch: Batch, strings: ProgramStrings) -> Workspace:
    """A workspace with space for the longest lists of a batch."""
    undo = [np.zeros(_longest(batch, row), kind.dtype) for row, kind in plan.scratch]
    watched = signals() if plan.may_loop else _NO_SIGNALS
    return Workspace(strings.literals, strings.texts, watched, undo)


def _longest(batch: Batch, row: int) -> int:
    offsets = batch.rows[row].offsets
    assert offsets is not None
    return int(np.max(np.diff(offsets), initial=0))


_PASSING = ("batch", "worker", "lane", "row column", "value column")
"""Owners that come with each call."""


class ArrayBinder:
    """Finds the arrays of a list for each call: owners replace their arrays as they grow.

    `owners` are those that live as long as the engine, by kind and name.
    """

    def __init__(self, specs: Sequence[ArraySpec], owners: Owners) -> None:
        self._wanted = [(spec, owners.get((spec.owner, spec.of))) for spec in specs]
        for spec, owner in self._wanted:
            if spec.owner not in _PASSING:
                check(spec, owner)

    def bind(self, batch: Batch, worker: Workspace, lane: object = None) -> tuple[Any, ...]:
        """The arrays, in the order of the list."""
        passing: dict[str, Any] = {"batch": batch, "worker": worker, "lane": lane}
        columns = {"row column": batch.rows, "value column": batch.values}
        found = []
        for spec, owner in self._wanted:
            if owner is None:
                owner = columns[spec.owner][spec.of] if spec.owner in columns else passing[spec.owner]  # type: ignore[index]
            array = getattr(owner, spec.role)
            found.append(array if spec.key is None else array[spec.key])
        return tuple(found)


def check(spec: ArraySpec, owner: object) -> None:
    """Require that an owner, None where there is none, has an array of the type that generated code expects."""
    array = getattr(owner, spec.role, None)
    if array is not None and spec.key is not None:
        array = array.get(spec.key) if isinstance(array, Mapping) else array[spec.key]
    if spec.dtype is None and isinstance(array, tuple):
        return
    shape = None if array is None else (array.dtype, array.shape[1] if array.ndim > 1 else 0)
    if shape != (spec.dtype, spec.width):
        raise AssertionError(
            f"generated code takes {spec.name!r} ({np.dtype(spec.dtype)}, width {spec.width}), which is "
            f"{spec.role}{'' if spec.key is None else f'[{spec.key!r}]'} of {spec.owner} {spec.of!r}; got "
            f"{'nothing' if shape is None else f'{shape[0]}, width {shape[1]}'}"
        )
