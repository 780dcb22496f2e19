"""Lets a run that ends with an error leave everything as it was, in an engine that has its state in memory only.

Before the run, the arrays of tables, streams and windows are copied. That takes time in proportion to the state, so it
is done only where a run may end half way: where functions run as plain Python, and their mistakes end it. Engines with
a state folder need no copy: they load what was committed.

    with undone([table, stream, ...]):
        ...                               arrays change, grow, are replaced; a function fails
    ...                                   the same arrays as before, with the same contents

Arrays are restored in place and put back where they were: other arrays may be views of them.

A program with a `while`, or with a function in plain Python, may also be ended by Ctrl-C. That is rarely done, and may
not cost as much: `Interruptible` copies the rows that a batch may write, and no more. What graphs change besides rows
is not undone by it, so an engine in memory whose graph was interrupted is of no use any more, and says so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from tidegate.engine.execution.executions import Execution, Executor, Job
from tidegate.engine.graphs.walk import GraphWalk
from tidegate.engine.state.table import TableState
from tidegate.foundation.errors import InputError, TransactionFailed


class Interruptible:
    """An executor whose jobs Ctrl-C may end in a loop: then the rows that they touch are as they were before."""

    def __init__(self, executor: Executor, tables: Mapping[str, TableState], graphs: GraphWalk) -> None:
        self._executor, self._tables, self._graphs = executor, tables, graphs

    def run(self, job: Job) -> Execution:
        """Run all events of a job, or none."""
        if self._graphs.half_run:
            raise InputError(
                "this engine was interrupted (Ctrl-C) in a transaction of a dataflow graph that did not end, when "
                "other events of the batch had run: make another engine, tg.Engine(...). One with a directory goes on "
                "by itself, as it was before"
            )
        plan, copies = job.batch.plan, []
        for table in [] if plan.flows.members else [self._tables[layout.name] for layout in plan.tables]:
            slots = job.batch.touchable(table)
            copies.append((table, slots, table.exists[slots], {name: c[slots] for name, c in table.columns.items()}))
        try:
            return self._executor.run(job)
        except KeyboardInterrupt:
            for table, slots, exists, columns in copies:
                table.exists[slots] = exists
                for name, values in columns.items():
                    table.columns[name][slots] = values
                table.sweep(np.empty(0, np.int64))
            self._graphs.half_run = bool(plan.flows.members)
            raise


@contextlib.contextmanager
def undone(holders: Iterable[object | None]) -> Iterator[None]:
    """A block after which, if it ends with TransactionFailed or Ctrl-C, these objects are as they were before it."""
    undo = _saved(holder for holder in holders if holder is not None)
    try:
        yield
    except (TransactionFailed, KeyboardInterrupt):
        undo()
        raise


def _saved(holders: Iterable[object]) -> Callable[[], None]:
    """A function that gives these objects the attributes, arrays, lists and dicts that they have now."""
    undo: list[Callable[[], None]] = []
    for holder in holders:
        if isinstance(holder, list):
            undo.append(_save(holder))
            continue
        attributes = vars(holder)
        undo += [_save(value) for value in attributes.values()]
        undo.append(_save(attributes))

    def restore() -> None:
        for step in undo:
            step()

    return restore


def _save(value: Any) -> Callable[[], None]:
    if isinstance(value, np.ndarray):
        contents = value.copy()
        return lambda: np.copyto(value, contents)
    if isinstance(value, dict):
        return _saved_dict(value)
    if isinstance(value, list):
        items = list(value)

        def put_back() -> None:
            value[:] = items

        return put_back
    return _nothing


def _saved_dict(value: dict[Any, Any]) -> Callable[[], None]:
    items = dict(value)
    inner = [_save(item) for item in items.values() if isinstance(item, np.ndarray)]

    def put_back() -> None:
        value.clear()
        value.update(items)
        for step in inner:
            step()

    return put_back


def _nothing() -> None:
    pass
