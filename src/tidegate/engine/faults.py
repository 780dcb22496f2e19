"""What happens when a function in plain Python raises: its transaction aborts and it is logged, or the run ends.

A transaction that is declared with `compiled=False` may contain any Python, and so any mistake:

    dst.balanc += amount        aborts: "AttributeError: 'Account' object has no attribute 'balanc'"

With `on_error="abort"` every event aborts with that reason, as it would with any other; the first traceback of each
kind, by type and line, is logged. With `on_error="raise"` the run ends with `TransactionFailed`, and nothing of the
batch is committed. `tg.abort` and `tg.require` never count.

A compiled transaction that plain Python runs, because an integer left 64 bits, aborts with the bare name of the
exception. That is what its compiled code gives, and what runs where must not change an outcome.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal

from tidegate.api.control import Abort
from tidegate.foundation.errors import TidegateError, TransactionFailed
from tidegate.operations.outcomes import error_reason
from tidegate.operations.plan import Program

OnError = Literal["abort", "raise"]

_log = logging.getLogger(__name__)
_SHOWN = 200


class Faults:
    """What the functions of a program raised; one for each engine."""

    def __init__(self, program: Program, on_error: OnError = "abort") -> None:
        self._program, self._on_error = program, on_error
        self._logged: set[tuple[type, str, int]] = set()
        self.events: Sequence[int] = ()
        """The events for which a function is running."""

    @property
    def may_end_a_run(self) -> bool:
        """Whether a run may end with TransactionFailed."""
        return self._on_error == "raise" and not all(plan.compiled for plan in self._program.plan.transactions)

    @contextlib.contextmanager
    def forgiven(self) -> Iterator[None]:
        """Inside, functions that raise abort: a batch that was committed once is run again as it was."""
        before, self._on_error = self._on_error, "abort"
        try:
            yield
        finally:
            self._on_error = before

    @contextlib.contextmanager
    def caught(self, number: int, arguments: Mapping[str, Any]) -> Iterator[None]:
        """Around what a transaction's function does, or makes necessary."""
        try:
            yield
        except (TidegateError, Abort):
            raise
        except Exception as error:
            plan = self._program.plan.transactions[number]
            if not plan.compiled:
                self._meet(number, arguments, error)
            raise Abort(error_reason(error, plan.compiled)) from error

    def _meet(self, number: int, arguments: Mapping[str, Any], error: Exception) -> None:
        plan = self._program.plan.transactions[number]
        trace = _from(error.__traceback__, self._program.functions[number].__code__)
        file, line = (plan.place.file, plan.place.line) if trace is None else _last(trace)
        what = f"{file}:{line}: transaction {plan.name!r} raised {error_reason(error, compiled=False)}"
        if self._on_error == "raise":
            given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
            given = given if len(given) <= _SHOWN else f"{given[:_SHOWN]}..."
            raise TransactionFailed(
                f"{what}\nfor event {', '.join(map(str, self.events))} of its batch, counted from 0: {given}\n"
                'Nothing of the batch is committed. Correct the function and run it again, or take on_error="abort": '
                "such events then abort, with this as the reason."
            ) from error
        if (type(error), file, line) not in self._logged:
            self._logged.add((type(error), file, line))
            _log.warning(
                '%s, so its event aborts. Others of this kind are not logged. on_error="raise" stops at the first.',
                what,
                exc_info=(type(error), error, trace or error.__traceback__),
            )


def _from(trace: TracebackType | None, code: Any) -> TracebackType | None:
    """The part of a traceback that begins in the user's function."""
    while trace is not None and trace.tb_frame.f_code is not code:
        trace = trace.tb_next
    return trace


def _last(trace: TracebackType) -> tuple[str, int]:
    """The line of the user's own code that raised, or called what did: libraries are below it."""
    file = trace.tb_frame.f_code.co_filename
    found = (file, trace.tb_lineno)
    while (following := trace.tb_next) is not None:
        trace = following
        if trace.tb_frame.f_code.co_filename == file:
            found = (file, trace.tb_lineno)
    return found
