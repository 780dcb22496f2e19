"""Errors of Tidegate show the user's own lines, and not those between the user's line and the `raise`.

An error that Tidegate raises on purpose says in its message what is wrong, and the line that helps is the user's. So
where a public function is left, frames of Tidegate, and of the libraries that it called, are taken out of the
traceback, also in the errors that it was caused by; frames of users' functions that Tidegate called stay. Errors that
nobody raised on purpose keep every frame.

To see all frames: set TIDEGATE_FULL_TRACEBACK=1, or log at DEBUG.

    @briefly                             a public function
    except TidegateError as error:       the same inside a function that must not cost a call more
        raise shortened(error)
"""

from __future__ import annotations

import functools
import logging
import os
import site
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, TypeVar

from tidegate.foundation.errors import TidegateError

P = ParamSpec("P")
R = TypeVar("R")

VARIABLE = "TIDEGATE_FULL_TRACEBACK"
_OURS = str(Path(__file__).parents[1]) + os.sep


def briefly(function: Callable[P, R]) -> Callable[P, R]:
    """The function; an error of Tidegate that leaves it shows the user's frames only."""

    @functools.wraps(function)
    def called(*arguments: P.args, **named: P.kwargs) -> R:
        try:
            return function(*arguments, **named)
        except TidegateError as error:
            raise shortened(error)  # noqa: B904 - it is the same error

    return called


def shortened(error: TidegateError) -> TidegateError:
    """The error itself, without the frames of Tidegate, to be raised again."""
    if not os.environ.get(VARIABLE) and not logging.getLogger("tidegate").isEnabledFor(logging.DEBUG):
        for one in _chain(error):
            one.__traceback__ = _trimmed(one.__traceback__)
    return error


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and those that led to it."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting += [one.__cause__, one.__context__]


def _trimmed(trace: TracebackType | None) -> TracebackType | None:
    """The frames outside Tidegate, and outside the libraries that it called."""
    kept: list[TracebackType] = []
    inside = False
    libraries = _libraries()
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        inside = inside or file.startswith(_OURS)
        if not inside or not file.startswith((*libraries, "<frozen ")):
            kept.append(trace)
        trace = trace.tb_next
    found: TracebackType | None = None
    for one in reversed(kept):
        found = TracebackType(found, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return found


def _libraries() -> tuple[str, ...]:
    """Where code lies that no user of this program wrote."""
    paths = sysconfig.get_paths()
    folders = {paths["stdlib"], paths["purelib"], paths["platlib"], site.getusersitepackages(), *site.getsitepackages()}
    return (_OURS, *(folder.rstrip(os.sep) + os.sep for folder in folders))
