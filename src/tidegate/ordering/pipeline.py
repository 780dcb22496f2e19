"""Ordered pipelines: operators over records, run by several workers, with the output of a sequential run.

    @dataclass
    class Click: ts: int; user: int; page: int
    @dataclass
    class Visit: clicks: int = 0; last: int = 0                  # a state: one for each key, at first its defaults

    def is_valid(click: Click) -> bool: ...
    def session(state: Visit, click: Click) -> Session | None: ...

    clicks = pipeline(Click).filter(is_valid).stateful(session, key="user")
    table = clicks.run(arrow_table, workers=2)

A pipeline is a value: each method returns a longer one, and one part may be continued in several ways. The plain
functions, called for one record after the other, are its meaning, whatever the number of workers and the options.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from tidegate.foundation.arguments import refusal, shown, whole
from tidegate.foundation.errors import DefinitionError
from tidegate.ordering.flow import Mode, Partitioning, Reorder
from tidegate.ordering.graph import Node, Part, common_part
from tidegate.ordering.heuristics import Heuristic
from tidegate.ordering.publishing import Publish
from tidegate.ordering.records import arrow_schema, record_layout
from tidegate.ordering.running import DeadLetters, Measured, Settings, prepared, run_all, run_stream
from tidegate.ordering.steps import stateful, stateless

PARTITIONS_MOST = 1 << 16


class Pipeline:
    """A pipeline, or a part of one; made by `pipeline`."""

    def __init__(self, part: Part) -> None:
        self._part = part

    def __repr__(self) -> str:
        return f"<pipeline from {self._part.source.gives.name} to {self._part.gives.name}>"

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of its output."""
        return arrow_schema(self._part.gives)

    # --- operators ----------------------------------------------------------------------------------------------------

    def map(self, function: Callable[[Any], Any]) -> Pipeline:
        """Call a function for each record: it returns a record (`-> X`), one or none (`-> X | None`), or a list."""
        return self._with(stateless(function, "map", self._part.gives, sys._getframe(1).f_locals))

    def flat_map(self, function: Callable[[Any], Iterable[Any]]) -> Pipeline:
        """Call a function for each record, which returns a list of records (`-> list[X]`)."""
        return self._with(stateless(function, "flat_map", self._part.gives, sys._getframe(1).f_locals))

    def filter(self, function: Callable[[Any], Any]) -> Pipeline:
        """Keep the records for which a function is true."""
        return self._with(stateless(function, "filter", self._part.gives, sys._getframe(1).f_locals))

    def stateful(
        self,
        function: Callable[[Any, Any], Any],
        key: str | Callable[[Any], Any] | None = None,
        partitions: int | Sequence[int] | None = None,
    ) -> Pipeline:
        """Call a function for each record with the state of the record's key, which it may change.

        Args:
            function: takes a state and a record; annotated with a dataclass whose fields have defaults, and the record.
            key: a field of the record, or a function of it. Records of one key are processed in their order; those of
                different keys side by side. None: there is one state for all.
            partitions: into how many buckets keys are divided by their hash; or a rising list of int keys at which a
                new bucket begins (range partitioning). Records of one bucket are processed one at a time.
        """
        divided = _partitions(partitions, key)
        return self._with(stateful(function, self._part.gives, key, divided, sys._getframe(1).f_locals))

    def branch(self, *branches: Callable[[Pipeline], Pipeline] | int) -> tuple[Pipeline, ...]:
        """Several continuations of this pipeline, to be joined by `merge`; each gets its own copy of every record.

        Args:
            branches: a function for each branch, from this pipeline to its continuation; or a number, for that many
                copies of this pipeline.

        >>> low, high = clicks.branch(
        ...     lambda p: p.filter(is_low), lambda p: p.filter(is_high).map(flag)
        ... )  # doctest: +SKIP
        >>> both = merge(low, high)  # doctest: +SKIP
        """
        if len(branches) == 1 and isinstance(branches[0], int):
            return (self,) * whole("branch", branches[0])
        made = []
        for build in branches:
            if not callable(build):
                raise refusal("branch", "functions from a pipeline to a pipeline, or a number", build)
            made.append(build(self))
            if not isinstance(made[-1], Pipeline):
                raise refusal("branch", "functions that return a pipeline", made[-1])
        return tuple(made)

    def _with(self, operator: Any) -> Pipeline:
        return Pipeline(Part(operator.gives, self._part, operator))

    # --- running ------------------------------------------------------------------------------------------------------

    def run(
        self,
        records: Any,
        workers: int | None = None,
        heuristic: Heuristic = "current-throughput",
        *,
        reorder: Reorder = "non-blocking",
        partitioning: Partitioning = "hybrid",
        mode: Mode = "workers",
        capacity: int = 1024,
        dead_letters: DeadLetters | None = None,
        publish: Publish | None = None,
    ) -> pa.Table:
        """Run all records through the pipeline; returns the output, in order, as an Arrow table.

        Args:
            records: an Arrow table, a pandas or polars frame, or a list of dicts, with a column for each field.
            workers: how many threads work; None: as many as there are processors for this process.
            heuristic: which operator a free worker takes next (see `tidegate.ordering.heuristics`), or a function.
            reorder: how outputs are brought into order: "non-blocking", or under a "lock".
            partitioning: how keyed operators share their records: "hybrid", "shared" or "partitioned".
            mode: "workers" share all operators; with "thread-per-operator" each operator has a thread of its own.
            capacity: how many records each operator holds at most.
            dead_letters: called with a `DeadLetter` for each record whose function raised; without it the first such
                record ends the run with `OperatorFailed`.
            publish: with "thread-per-operator", a port of this machine (0: any free one) or the path of a Unix socket,
                where queues, costs and threads of the operators are told as JSON while it runs.
        """
        return self.measure(
            records,
            workers,
            heuristic,
            reorder=reorder,
            partitioning=partitioning,
            mode=mode,
            capacity=capacity,
            dead_letters=dead_letters,
            publish=publish,
        ).table

    def measure(
        self, records: Any, workers: int | None = None, heuristic: Heuristic = "current-throughput", **options: Any
    ) -> Measured:
        """The same as `run`, with what was measured: records, cost and selectivity of each operator, and latencies."""
        return run_all(self._part, records, Settings(workers, heuristic, **options))

    def stream(
        self,
        records: Iterable[Any],
        workers: int | None = None,
        heuristic: Heuristic = "current-throughput",
        **options: Any,
    ) -> Iterator[Any]:
        """Run records as they come, and give the output as it comes out; at most a bounded number is under way.

        Args:
            records: any iterable of records; it is gone through in a thread of its own.
            workers: as for `run`, like all other options.
            heuristic: as for `run`.
            options: as for `run`.
        """
        return run_stream(self._part, records, Settings(workers, heuristic, **options))


def pipeline(record: type) -> Pipeline:
    """A pipeline that takes records of a dataclass.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Click:
    ...     user: int
    ...     page: int
    >>> def is_valid(click: Click) -> bool:
    ...     return click.page >= 0
    >>> pipeline(Click).filter(is_valid)
    <pipeline from Click to Click>
    """
    return Pipeline(Part(record_layout("pipeline", record, sys._getframe(1).f_locals)))


def merge(*branches: Pipeline) -> Pipeline:
    """Join branches of one pipeline: for each record at their fork, first what the first branch gives, and so on."""
    if len(branches) < 2 or not all(isinstance(each, Pipeline) for each in branches):
        raise DefinitionError(f"merge: required two pipelines or more, got {', '.join(map(shown, branches)) or 'none'}")
    parts = tuple(each._part for each in branches)
    first = parts[0].gives
    for part in parts[1:]:
        if part.gives != first or part.gives.python is not first.python:
            raise DefinitionError(
                f"merge: the branches give records of different classes, {first.name} and {part.gives.name}; let all "
                "of them return the same dataclass"
            )
    common_part(parts)
    return Pipeline(Part(first, merged=parts))


def nodes_of(made: Pipeline) -> list[Node]:
    """The graph of a pipeline, ready to run."""
    return prepared(made._part)


def _partitions(given: Any, key: Any) -> int | tuple[int, ...]:
    if given is None:
        return 0
    if key is None:
        raise DefinitionError(
            "stateful: partitions are of keys, and there is no key; give one, or leave partitions out"
        )
    if isinstance(given, int):
        return whole("partitions", given, most=PARTITIONS_MOST)
    bounds = tuple(given) if isinstance(given, list | tuple) else ()
    rising = all(isinstance(each, int) for each in bounds) and all(a < b for a, b in itertools.pairwise(bounds))
    if not bounds or not rising or not isinstance(key, str):
        raise refusal("partitions", "a number of buckets, or a rising list of ints with key= an int field", given)
    return bounds
