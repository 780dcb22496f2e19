"""A pipeline run as its definition says: plain functions, record after record, one operator after the other.

It has the surface of `tidegate.ordering.pipeline`, for chains, and nothing else: no compiler, no threads, no queues.
What it gives is right, and every measured run is compared with it.

    wanted = query(PlainPipeline(Sale)).run(table)
    found = query(pipeline(Sale)).run(table, workers=2)
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

Step = Callable[[], Callable[[Any], list[Any]]]
"""Makes the function that turns a record into its outputs, with fresh states."""


@dataclass(frozen=True, slots=True)
class PlainPipeline:
    """A chain of operators over records of one type."""

    record: type
    steps: tuple[Step, ...] = ()

    def map(self, function: Callable[[Any], Any]) -> PlainPipeline:
        """One output, none, or a list."""
        return self._with(lambda: lambda record: _as_list(function(record)))

    flat_map = map

    def filter(self, function: Callable[[Any], bool]) -> PlainPipeline:
        """The record itself, or nothing."""
        return self._with(lambda: lambda record: [record] if function(record) else [])

    def stateful(self, function: Callable[[Any, Any], Any], key: str | None = None, **options: Any) -> PlainPipeline:
        """A state for each key, or one; how keys are partitioned makes no difference."""
        new_state = next(iter(typing.get_type_hints(function).values()))

        def begin() -> Callable[[Any], list[Any]]:
            states: dict[Any, Any] = {}

            def step(record: Any) -> list[Any]:
                found = None if key is None else getattr(record, key)
                if found not in states:
                    states[found] = new_state()
                return _as_list(function(states[found], record))

            return step

        return self._with(begin)

    def run(self, table: pa.Table) -> list[Any]:
        """All outputs, in order."""
        records = [self.record(**row) for row in table.to_pylist()]
        for begin in self.steps:
            step = begin()
            records = [output for record in records for output in step(record)]
        return records

    def _with(self, step: Step) -> PlainPipeline:
        return PlainPipeline(self.record, (*self.steps, step))


def _as_list(output: Any) -> list[Any]:
    return output if isinstance(output, list) else [] if output is None else [output]


def differs(found: pa.Table, wanted: Sequence[Any]) -> str:
    """Where a table differs from records; nothing if it does not."""
    rows = found.to_pylist()
    if len(rows) != len(wanted):
        return f"{len(wanted):,} outputs are right, found {len(rows):,}"
    for number, (row, record) in enumerate(zip(rows, wanted, strict=True)):
        if row != vars(record):
            return f"output {number:,} is {record}, found {row}"
    return ""
