"""What the functions of one transaction share while it is compiled: its body, and the helpers that it calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tidegate.compiler.source import FunctionSource
from tidegate.compiler.types import Type
from tidegate.operations.flow import StreamLayout, WindowParameter
from tidegate.operations.layout import Kind, TableLayout
from tidegate.operations.plan import Access, MadeText


@dataclass(frozen=True, slots=True)
class Flowing:
    """What a declaration says besides the signature: its windows, its output streams, and its time parameter.

    `streaming` is whether the transaction is a step of a dataflow graph.
    """

    windows: tuple[WindowParameter, ...] = ()
    emits: tuple[StreamLayout, ...] = ()
    time: str = ""
    streaming: bool = False


NOT_FLOWING = Flowing()


@dataclass(slots=True)
class Helper:
    """A helper function, compiled for one combination of argument types; `fails` if it can abort."""

    name: str
    source: str
    result: Type
    arrays: tuple[str, ...]
    accesses: tuple[Access, ...]
    fails: bool


@dataclass(slots=True)
class Unit:
    """What the functions of one transaction share."""

    name: str
    flowing: Flowing = NOT_FLOWING
    reasons: list[str] = field(default_factory=list)
    literals: list[str] = field(default_factory=list)
    in_python: dict[tuple[int, str], None] = field(default_factory=dict)
    """What plain Python computes: line and text."""
    texts: dict[tuple[int, int, int], MadeText] = field(default_factory=dict)
    """Strings of results that are put together after the run, by their place: line, column, field of the result."""
    part_places: dict[tuple[Kind, int], int] = field(default_factory=dict)
    """The arrays for their parts: a string's n-th part of a kind has a place that other strings use, too."""
    helpers: dict[tuple[Any, ...], Helper] = field(default_factory=dict)
    compiling: list[Callable[..., Any]] = field(default_factory=list)
    emitted: set[str] = field(default_factory=set)
    aggregates: dict[tuple[str, str, str], None] = field(default_factory=dict)
    top_places: dict[str, int] = field(default_factory=dict)
    top_used: int = 0
    lookups: dict[str, tuple[TableLayout, type]] = field(default_factory=dict)
    lookup_writes: set[str] = field(default_factory=set)
    histories: dict[str, tuple[TableLayout, int]] = field(default_factory=dict)
    sources: list[FunctionSource] = field(default_factory=list)
