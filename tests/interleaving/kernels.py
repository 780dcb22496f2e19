"""The lock-free kernels of engine and pipelines as plain Python, whose workers an `Interleaver` runs step by step.

Inside `plain_kernels()` every function that is compiled otherwise is the Python function that it was made of, and
every atomic operation is a step. With `accesses=True`, so is each plain access of an array that a kernel is given.
The functions below do the same outside of kernels, for code that a test breaks on purpose.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import numpy as np

from tidegate.engine.execution import families, scheduler
from tidegate.engine.kernels import aborts, baselines, components, execution, graph, neighbours, operation, units
from tidegate.engine.planning import builder
from tidegate.foundation import atomics
from tidegate.ordering import runtime
from tidegate.ordering.kernels import choosing, claiming, layout, moving, putting, working

from .interleaver import Element, running

ORDERING = (choosing, claiming, layout, moving, putting, working)
KERNELS = (aborts, baselines, components, execution, graph, neighbours, operation, units, *ORDERING)
CALLERS = (builder, families, scheduler, runtime)


# --- atomic operations, as steps -----------------------------------------------------------------------------


def _as_step(operation: Callable[..., Any]) -> Callable[..., Any]:
    def step(array: Any, index: int, *values: int) -> Any:
        run, plain = running(), np.asarray(array)
        if run is None:
            return operation(plain, index, *values)
        return run.atomic(
            operation.__name__, Element(plain, index), sys._getframe(1), lambda: operation(plain, index, *values)
        )

    return step


fetch_add, exchange, compare_exchange, load, store = map(
    _as_step, (atomics.fetch_add, atomics.exchange, atomics.compare_exchange, atomics.load, atomics.store)
)


def relax(spins: int) -> int:
    """Wait until something has changed."""
    run = running()
    if run is not None:
        run.wait(sys._getframe(1))
    return spins + 1


def doze(_microseconds: int) -> None:
    """The same, for a worker that sleeps before it looks again."""
    run = running()
    if run is not None:
        run.wait(sys._getframe(1))


def ticks() -> int:
    """A clock that goes on with every step, so that a seed repeats it."""
    run = running()
    return run.steps if run is not None else 0


def call(*arguments: int) -> int:
    """Run an operation's body, in one step."""
    run = running()
    if run is not None:
        run.step("call", sys._getframe(1))
    return atomics.call(*arguments)


def copy(source: int, target: int, size: int) -> None:
    """Copy a part of a row: a plain read and a plain write."""
    run = running()
    if run is not None and _accesses:
        run.plain(int(source), False, sys._getframe(1))
        run.plain(int(target), True, sys._getframe(1))
    atomics.copy(source, target, size)


_STEPS: dict[Any, Callable[..., Any]] = {
    atomics.fetch_add: fetch_add,
    atomics.exchange: exchange,
    atomics.compare_exchange: compare_exchange,
    atomics.load: load,
    atomics.store: store,
    atomics.relax: relax,
    atomics.relax_crowded: relax,
    atomics.doze: doze,
    atomics.ticks: ticks,
    atomics.call: call,
    atomics.copy: copy,
}


# --- plain accesses, as steps --------------------------------------------------------------------------------


class SharedArray(np.ndarray):  # type: ignore[type-arg]
    """An array whose plain accesses are steps."""

    address = 0  # of the first element; 0: accesses are steps, and not looked at for races

    def __getitem__(self, index: Any) -> Any:
        _note_access(self, index, False, sys._getframe(1))
        return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        _note_access(self, index, True, sys._getframe(1))
        super().__setitem__(index, value)


def _note_access(array: SharedArray, index: Any, write: bool, frame: Any) -> None:
    run = running()
    if run is not None:
        known = array.address and isinstance(index, int | np.integer)
        run.plain(array.address + int(index) * array.itemsize if known else 0, write, frame)


def shared(value: Any) -> Any:
    """An array whose accesses are steps, or a tuple of such; anything else as it is."""
    if isinstance(value, tuple):
        parts = [shared(part) for part in value]
        return type(value)._make(parts) if hasattr(value, "_make") else tuple(parts)
    if not isinstance(value, np.ndarray) or isinstance(value, SharedArray):
        return value
    found = value.view(SharedArray)
    found.address = int(value.ctypes.data) if value.ndim == 1 else 0
    return found


def _with_shared_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: function(*map(shared, arguments))


# --- all of it -----------------------------------------------------------------------------------------------

_accesses = False


def accesses_are_steps() -> bool:
    """Whether plain accesses are steps now."""
    return _accesses


@contextmanager
def plain_kernels(accesses: bool = False) -> Iterator[None]:
    """Inside this block the kernels run as plain Python; their programs should be `uncompiled`, too."""
    global _accesses
    replaced = [
        (module, name, value, _replacement(value, accesses))
        for module in (*KERNELS, *CALLERS)
        for name, value in vars(module).items()
        if _is_ours(value) or (isinstance(value, FunctionType) and value in _STEPS)
    ]
    try:
        _accesses = accesses
        for module, name, _, plain in replaced:
            setattr(module, name, plain)
        yield
    finally:
        _accesses = False
        for module, name, value, _ in replaced:
            setattr(module, name, value)


def _is_ours(value: Any) -> bool:
    return hasattr(value, "py_func") and value.py_func.__module__ in {module.__name__ for module in KERNELS}


def _replacement(value: Any, accesses: bool) -> Any:
    if not _is_ours(value):
        return _STEPS[value]
    is_entry = not value.targetoptions.get("forceinline")  # the others are called with what these were given
    return _with_shared_arrays(value.py_func) if accesses and is_entry else value.py_func
