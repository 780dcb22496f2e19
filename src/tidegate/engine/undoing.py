"""Lets a run that ends with an error leave everything as it was, in an engine that has its state in memory only.

Before the run, the arrays of tables, streams and windows are copied. That takes time in proportion to the state, so it
is done only where a run may end half way: where functions run as plain Python, and their mistakes end it. Engines with
a state folder need no copy: they load what was committed.

    with undone([table, stream, ...]):
        ...                               arrays change, grow, are replaced; a function fails
    ...                                   the same arrays as before, with the same contents

Arrays are restored in place and put back where they were: other arrays may be views of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from tidegate.foundation.errors import TransactionFailed


@contextlib.contextmanager
def undone(holders: Iterable[object | None]) -> Iterator[None]:
    """A block after which, if it ends with TransactionFailed, these objects are as they were before it."""
    undo = _saved(holder for holder in holders if holder is not None)
    try:
        yield
    except TransactionFailed:
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
