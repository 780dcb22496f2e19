"""A declared transaction: the user's function, callable as before, with its compiled plan beside it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tidegate.api.stream import Stream
from tidegate.api.window import Window
from tidegate.operations.plan import TransactionPlan


class Transaction:
    """A transaction: call it with plain rows and it is the plain function.

    It keeps the function's name, docstring and signature. `plan` is what the compiler made of it and
    `classes` are the tables of its signature by name. A streaming transaction is `on` a stream and `emits`
    others; a `trigger` runs inside the transaction that feeds its stream or owns its window.
    """

    __wrapped__: Callable[..., Any]
    __name__: str

    def __init__(
        self,
        function: Callable[..., Any],
        plan: TransactionPlan,
        classes: dict[str, type],
        on: Stream | Window | None = None,
        emits: tuple[Stream, ...] = (),
        windows: dict[str, Window] | None = None,
        trigger: bool = False,
    ) -> None:
        functools.update_wrapper(self, function)
        self.plan = plan
        self.classes = classes
        self.on = on
        self.emits = emits
        self.windows = windows or {}
        self.trigger = trigger

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Run the plain function; `tg.require` and `tg.abort` raise `tg.Abort`."""
        return self.__wrapped__(*arguments, **named)

    def __repr__(self) -> str:
        parameters = ", ".join(parameter.name for parameter in self.plan.parameters)
        return f"<transaction {self.__name__}({parameters})>"
