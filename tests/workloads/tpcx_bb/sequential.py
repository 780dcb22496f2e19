"""Plain functions, record after record, one operator after the other: what every run of a chain must equal."""

from __future__ import annotations

import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

Step = Callable[[Any], list[Any]]


@dataclass
class Sequential:
    """A pipeline by its public surface, run in the simplest way that there is."""

    record: type
    steps: list[Step] = field(default_factory=list)

    def map(self, function: Callable[[Any], Any]) -> Sequential:
        return self._with(lambda record: _as_list(function(record)))

    def filter(self, function: Callable[[Any], bool]) -> Sequential:
        return self._with(lambda record: [record] if function(record) else [])

    def flat_map(self, function: Callable[[Any], list[Any]]) -> Sequential:
        return self._with(lambda record: _as_list(function(record)))

    def stateful(self, function: Callable[[Any, Any], Any], key: str | None = None) -> Sequential:
        new_state = next(iter(typing.get_type_hints(function).values()))
        states: dict[Any, Any] = {}

        def step(record: Any) -> list[Any]:
            state = states.setdefault(None if key is None else getattr(record, key), new_state())
            return _as_list(function(state, record))

        return self._with(step)

    def run(self, table: pa.Table) -> list[Any]:
        """All outputs, in order. The states are used up: a pipeline runs once."""
        records = [self.record(**row) for row in table.to_pylist()]
        for step in self.steps:
            records = [output for record in records for output in step(record)]
        return records

    def _with(self, step: Step) -> Sequential:
        return Sequential(self.record, [*self.steps, step])


def _as_list(output: Any) -> list[Any]:
    return output if isinstance(output, list) else [] if output is None else [output]
