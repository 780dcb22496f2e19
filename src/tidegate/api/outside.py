"""What a compiled body took over from outside: constants, helper functions, and all other names that it mentions.

A plain function looks a global name up at each call. Compiled code holds what the name stood for when the transaction
was declared. So a transaction remembers the names with what they stood for, and whoever takes a program compares:

    LIMIT = 100
    @tg.transaction              the compiled code holds 100
    def pay(...): tg.require(amount <= LIMIT, "too much")
    LIMIT = 50                   the plain function reads 50 now
    tg.Engine([pay])             refused

A notebook's cell that runs again makes new objects of the same functions and classes. They count as unchanged if they
were written the same.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from tidegate.foundation.errors import DefinitionError
from tidegate.foundation.places import Place


class _Missing:
    def __repr__(self) -> str:
        return "not defined"


MISSING = _Missing()
"""What a name stands for that nobody has defined."""


@dataclass(frozen=True, slots=True)
class OutsideName:
    """A name in a body: what it stood for at the declaration (`value`), and stands for now (`look`)."""

    what: str
    name: str
    place: Place
    value: Any
    look: Callable[[], Any]

    @property
    def is_constant(self) -> bool:
        """Whether it stands for a value; other names stand for functions, classes and modules."""
        return not callable(self.value) and not isinstance(self.value, ModuleType)


def require_unchanged(names: Iterable[OutsideName]) -> None:
    """Raise a DefinitionError if a name stands for something else than when its transaction was declared."""
    for outside in names:
        now = outside.look()
        if now is outside.value or _is_same(outside.value, now):
            continue
        advice = (
            "pass it as a parameter (an event column), keep it in a table, or declare the transaction after the "
            "assignment"
            if outside.is_constant
            else "declare the transaction again, after that"
        )
        raise DefinitionError(
            outside.place.describe(
                f"{outside.what}: {outside.name} was {_shown(outside.value)} when the transaction was declared, and is "
                f"{_shown(now)} now; the plain function would see the new one, the compiled code has the old one",
                advice,
            )
        )


def _is_same(then: Any, now: Any) -> bool:
    """Whether two objects mean the same to a body."""
    if type(then) is not type(now):
        return False
    if isinstance(then, FunctionType):
        return (then.__code__, then.__defaults__, then.__kwdefaults__) == (
            now.__code__,
            now.__defaults__,
            now.__kwdefaults__,
        )
    if isinstance(then, type):
        return _written(then) == _written(now)
    return repr(then) == repr(now)  # tells 0.0 from -0.0, and takes NaN for NaN


def _written(found: type) -> tuple[Any, ...]:
    return found.__module__, found.__qualname__, inspect.get_annotations(found)


def _shown(value: Any) -> str:
    if isinstance(value, FunctionType):
        return f"{value.__name__}() of {value.__code__.co_filename}:{value.__code__.co_firstlineno}"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
