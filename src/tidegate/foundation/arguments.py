"""What users pass to public functions: checked at the door, refused with what was required and what was got.

    workers: required a whole number of at least 1, got 'two'
    directory: required a path such as "state/ledger" or a pathlib.Path, got 7

Annotations are not enforced when a program runs, so anything can arrive. Each function here returns the argument in the
form in which it is used, or raises; `error` is the class of what it raises.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping
from typing import Any

from tidegate.foundation.errors import DefinitionError, TidegateError

SHOWN_CHARACTERS = 80
"""Longer values are named by their type, and cut: a data frame would fill the screen."""

INT_MAX = (1 << 63) - 1


def shown(value: object) -> str:
    """A value in an error message: as it is written in Python if that is short, else its type and the beginning."""
    kind = type(value)
    if kind.__module__.partition(".")[0] in ("pandas", "pyarrow", "pyspark", "polars"):
        return f"a {kind.__module__.partition('.')[0]} {kind.__name__}"
    try:
        text = repr(value)
    except Exception:  # a user's own __repr__ may fail; the message must not
        return f"a value of type {kind.__name__}"
    if len(text) <= SHOWN_CHARACTERS and "\n" not in text:
        return text
    return f"a {kind.__name__}: {text[:SHOWN_CHARACTERS].partition(chr(10))[0]}..."


def refusal(what: str, required: str, got: object, error: type[TidegateError] = DefinitionError) -> TidegateError:
    """The error for an argument."""
    return error(f"{what}: required {required}, got {shown(got)}")


def whole(
    what: str, value: Any, *, least: int = 1, most: int = INT_MAX, error: type[TidegateError] = DefinitionError
) -> int:
    """A whole number; True and 2.0 are none."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or not least <= number <= most:
        limit = f"of at least {least}" if most == INT_MAX else f"from {least} to {most}"
        raise refusal(what, f"a whole number {limit}", value, error)
    return number


def flag(what: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise refusal(what, "True or False", value)
    return value


def one_of(what: str, value: Any, allowed: Iterable[str], error: type[TidegateError] = DefinitionError) -> None:
    """One of several words."""
    known = tuple(allowed)
    if not isinstance(value, str) or value not in known:
        raise refusal(what, f"one of {', '.join(map(repr, known))}", value, error)


def name(what: str, value: Any, required: str, error: type[TidegateError] = DefinitionError) -> str:
    """A text that is not empty; `required` says what it names."""
    if not isinstance(value, str) or not value:
        raise refusal(what, required, value, error)
    return value


def path(what: str, value: Any, error: type[TidegateError] = DefinitionError) -> str:
    """A path or a URL as text; a pathlib.Path is one."""
    if isinstance(value, str | os.PathLike):
        found = os.fspath(value)
        if isinstance(found, str) and found:
            return found
    raise refusal(what, 'a path such as "state/ledger" or a pathlib.Path', value, error)


def items(what: str, value: Any, required: str, error: type[TidegateError] = DefinitionError) -> list[Any]:
    """The elements of a list, a tuple or anything else that can be gone through, but for texts and tables of data."""
    texts = isinstance(value, str | bytes | bytearray | Mapping) or hasattr(value, "columns")
    if texts or not isinstance(value, Iterable) or isinstance(value, type):
        raise refusal(what, required, value, error)
    return list(value)
