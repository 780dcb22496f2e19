"""A declared transaction: the user's function, still callable, together with its compiled plan."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec
from weakref import WeakKeyDictionary, WeakValueDictionary

from tidegate.api.outside import OutsideName
from tidegate.api.stream import Stream
from tidegate.api.window import Window
from tidegate.operations.plan import TransactionPlan

if TYPE_CHECKING:  # type checkers know typing_extensions, whether it is installed or not
    from typing_extensions import TypeVar

    Function = TypeVar("Function", covariant=True, default=Any)
else:
    from typing import TypeVar

    Function = TypeVar("Function", covariant=True)

_triggers: WeakKeyDictionary[Stream | Window, WeakValueDictionary[str, Transaction]] = WeakKeyDictionary()
"""The triggers that are declared on a stream or window, by name: one that is declared again replaces the earlier."""

P = ParamSpec("P")
R = TypeVar("R")


class ProgramPart:
    """A part of a program: a transaction or a dataflow graph.

    It exists for type checkers, as the common type of the elements of `[transfer, tg.dataflow([...])]`.
    """


class Transaction(ProgramPart, Generic[Function]):
    """A transaction; called with plain rows, it runs the plain function.

    It keeps the function's name, docstring and signature. `plan` is the compiler's result, and `classes` are
    the tables of its signature by name. A streaming transaction is `on` a stream and `emits` into others;
    a `trigger` runs inside the transaction that feeds its stream or owns its window. `outside` are the names from
    outside that its compiled code depends on.

    Type checkers see the function's own signature; `Transaction` without a type argument stands for any transaction.
    The only type argument is the function type, rather than parameters and result: so mypy infers a list of
    transactions for `[transfer, deposit]`, and not a list of objects.
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
        outside: tuple[OutsideName, ...] = (),
    ) -> None:
        functools.update_wrapper(self, function)
        self.plan = plan
        self.classes = classes
        self.on = on
        self.emits = emits
        self.windows = windows or {}
        self.trigger = trigger
        self.outside = outside
        if trigger and on is not None:
            _triggers.setdefault(on, WeakValueDictionary())[self.__name__] = self

    def __call__(self: Transaction[Callable[P, R]], *arguments: P.args, **named: P.kwargs) -> R:
        """Run the plain function; `tg.require` and `tg.abort` raise `tg.Abort`."""
        result: R = self.__wrapped__(*arguments, **named)
        return result

    def __repr__(self) -> str:
        parameters = ", ".join(parameter.name for parameter in self.plan.parameters)
        return f"<transaction {self.__name__}({parameters})>"


def triggers_on(place: Stream | Window) -> list[Transaction]:
    """The triggers that are declared on a stream or window, and still there."""
    return list(_triggers.get(place, {}).values())
