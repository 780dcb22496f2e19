"""Ordered pipelines as data: what the compiler of operators and the runtime that calls them agree on.

A record is a row of 64-bit words. Two words of the runtime come first, then one word for each field:

    | ORIGIN | ENDS | field 0 | field 1 | ... |        ints, numbers of strings, bits of floats, 0 or 1 for a bool

Generated code is one function for all operators of a pipeline, `operate(context, operator, record, frame)`, called by
its address. `record` is the address of the row that comes in. `frame` is the address of a few words: where the state of
the record is, where to write output rows (one behind the other), and how many fit. It returns how many it wrote, or why
plain Python, an interrupt or more room is needed; then the state is as it was before.
"""

from __future__ import annotations

import dataclasses
import inspect
from dataclasses import dataclass, field
from typing import Any, Literal

from tidegate.api.outside import OutsideName
from tidegate.foundation.places import Place
from tidegate.operations.arrays import ArraySpec
from tidegate.operations.layout import Column, ValueType

HEADER = 2
"""Words of the runtime in front of a record's fields."""

FRAME_SLOT, FRAME_OUT, FRAME_ROOM, FRAME_WORDS = 0, 1, 2, 4
"""What the words of a frame say: the slot of the state, the address of the first output row, how many rows fit."""

NO_ROOM = -4
"""What `operate` returns if there are more outputs than fit."""

Role = Literal["map", "filter", "key"]
"""What a function's result means: output records, whether the record stays, or the record's key."""

Many = Literal["one", "optional", "list"]
"""What a function of the role "map" returns: a record, a record or None, or a list of records."""


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """The fields of a record; `python` is the user's dataclass. A column's default means nothing here."""

    name: str
    fields: tuple[Column, ...]
    python: type = field(compare=False)

    @property
    def stride(self) -> int:
        """Words of a row; one of the role "key" has one more behind the fields, the key."""
        return HEADER + len(self.fields)


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """A compiled operator: its functions as text, the arrays that they take, and the strings that they mention.

    The functions are named when the operator is linked.
    """

    name: str
    place: Place
    role: Role
    record: RecordLayout
    source: str
    arguments: tuple[str, ...]
    arrays: tuple[ArraySpec, ...]
    literals: tuple[str, ...]
    in_python: tuple[tuple[int, str], ...] = ()
    """What it leaves to plain Python whenever it gets there: line and text."""
    key: ValueType | None = None
    """The type of the keys that a function of the role "key" gives."""
    outside: tuple[OutsideName, ...] = field(default=(), compare=False)
    """What the compiled code took over from outside the function."""


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """The generated code of a pipeline: its text, and the arrays whose addresses `context` lists, in that order.

    An array of a state has the owner "state", of the operator's number. The worker owns the others: "literals" (the
    numbers of the strings in `literals`), "texts" and "signals".
    """

    source: str
    arrays: tuple[ArraySpec, ...]
    literals: tuple[str, ...]


def unusual(found: type, use: Literal["read", "make", "test", "assign"]) -> str:
    """Why plain Python does more than to read, make, test or assign the fields of a dataclass; empty if it does not.

    What is unusual runs as plain Python.
    """
    declared = vars(found).get("__dataclass_params__")
    if declared is None:
        return f"{found.__name__} is not declared with @dataclass itself"
    for name, usual in _HOOKS[use].items():
        if getattr(found, name, None) is not usual:
            return f"{found.__name__} has {name}" + (" (it is frozen)" if use == "assign" and declared.frozen else "")
    fields = dataclasses.fields(found)
    if use == "make" and (not declared.init or set(inspect.signature(found).parameters) - {f.name for f in fields}):
        return f"{found.__name__} is made of more than its fields"
    for each in fields:
        held = inspect.getattr_static(found, each.name, None)  # with slots, a descriptor of Python's own
        if hasattr(type(held), "__set__") and not inspect.ismemberdescriptor(held):
            return f"{found.__name__}.{each.name} is a property"
    return ""


_HOOKS: dict[str, dict[str, Any]] = {
    "read": {"__getattribute__": object.__getattribute__},
    "make": {"__post_init__": None, "__new__": object.__new__},
    "test": {"__bool__": None, "__len__": None},
    "assign": {"__setattr__": object.__setattr__},
}
