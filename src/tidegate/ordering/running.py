"""The ways to run a pipeline: all of a table, records as they come, or record batches as they come."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import pyarrow as pa

from tidegate.api.outside import require_unchanged
from tidegate.foundation.arguments import one_of, refusal, whole
from tidegate.foundation.processors import processors
from tidegate.ordering.flow import Mode, Options, Partitioning, Reorder
from tidegate.ordering.graph import Node, Part, lay_out
from tidegate.ordering.heuristics import Heuristic, heuristic_code
from tidegate.ordering.publishing import Publish, check_publish, published
from tidegate.ordering.records import Rows, Words
from tidegate.ordering.report import RunReport, report_of
from tidegate.ordering.runtime import DeadLetter, Runtime, running

DeadLetters = Callable[[DeadLetter], object]
WORKERS_MOST = 1024
CAPACITY_MOST = 1 << 24
SLICE_SECONDS = 1e-3
"""How long a worker stays with an operator: long beside the microsecond that a choice takes, short beside a reader's
patience."""
WINDOW_SECONDS = 0.1
"""Over how long current-throughput adds up what operators did."""
PAUSES = (1e-5, 1e-3)
"""How long a thread that feeds or empties a pipeline sleeps when it can do nothing: at first, and at most."""
OUTPUT_ROWS = 1 << 14
"""Rows of a piece of the output, where batches come in."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a pipeline shall run, as a user says it."""

    workers: int | None = None
    heuristic: Heuristic = "current-throughput"
    reorder: Reorder = "non-blocking"
    partitioning: Partitioning = "hybrid"
    mode: Mode = "workers"
    capacity: int = 1024
    dead_letters: DeadLetters | None = None
    publish: Publish | None = None

    def options(self, nodes: list[Node]) -> Options:
        """The same, checked."""
        one_of("reorder", self.reorder, get_args(Reorder))
        one_of("partitioning", self.partitioning, get_args(Partitioning))
        one_of("mode", self.mode, get_args(Mode))
        check_publish(self.publish, self.mode)
        operators = sum(node.operator is not None for node in nodes)
        workers = processors() if self.workers is None else whole("workers", self.workers, most=WORKERS_MOST)
        if self.dead_letters is not None and not callable(self.dead_letters):
            raise refusal("dead_letters", "a function of a DeadLetter, such as list.append", self.dead_letters)
        return Options(
            workers=workers if self.mode == "workers" else max(operators, 1),
            heuristic=heuristic_code(self.heuristic),
            reorder=self.reorder,
            partitioning=self.partitioning,
            mode=self.mode,
            capacity=whole("capacity", self.capacity, most=CAPACITY_MOST),
            slice_seconds=SLICE_SECONDS,
            window_seconds=WINDOW_SECONDS,
        )


@dataclass(frozen=True, slots=True)
class Measured:
    """The output of a run, and what was measured."""

    table: pa.Table
    report: RunReport


class _Pause:
    """Sleeps longer each time, until something happens."""

    def __init__(self) -> None:
        self._seconds = PAUSES[0]

    def rest(self) -> None:
        time.sleep(self._seconds)
        self._seconds = min(2 * self._seconds, PAUSES[1])

    def over(self) -> None:
        self._seconds = PAUSES[0]


def prepared(part: Part) -> list[Node]:
    """The nodes of a pipeline, once nothing has changed that its compiled code took over."""
    nodes = lay_out(part)
    plans = [node.operator.plan for node in nodes if node.operator is not None]
    require_unchanged(outside for plan in plans if plan is not None for outside in plan.outside)
    return nodes


def _runtime(nodes: list[Node], settings: Settings, places: int) -> Runtime:
    user = settings.heuristic if callable(settings.heuristic) else None
    return Runtime(nodes, settings.options(nodes), places, user, settings.dead_letters)


def run_all(part: Part, records: Any, settings: Settings) -> Measured:
    """Run a whole table."""
    runtime = _runtime(prepared(part), settings, 0)
    given = Rows(part.source.gives, runtime.strings).from_arrow("run", records)
    runtime.give(given)
    began = time.perf_counter()
    pieces: list[Words] = []
    pause = _Pause()
    with running(runtime), published(runtime, settings.publish):
        while True:
            over = runtime.is_over
            found = runtime.take()
            if len(found):
                pieces.append(found)
                pause.over()
            elif over:
                break
            else:
                pause.rest()
    runtime.raise_failure()
    rows = np.concatenate([np.zeros((0, part.gives.stride), np.int64), *pieces])
    report = report_of(runtime, rows, time.perf_counter() - began)
    return Measured(Rows(part.gives, runtime.strings).to_arrow(rows), report)


def run_stream(part: Part, records: Iterable[Any], settings: Settings) -> Iterator[Any]:
    """Run records as they come."""
    if not isinstance(records, Iterable):
        raise refusal("stream", "an iterable of records", records)
    return _streaming(part, records, _runtime(prepared(part), settings, _source_places(settings)), settings.publish)


def _source_places(settings: Settings) -> int:
    return 1 << max(whole("capacity", settings.capacity, most=CAPACITY_MOST) - 1, 0).bit_length()


def _streaming(part: Part, records: Iterable[Any], runtime: Runtime, publish: Publish | None) -> Iterator[Any]:
    rows = Rows(part.gives, runtime.strings)
    feeder = _Feeder(part, records, runtime)
    pause = _Pause()
    with running(runtime), published(runtime, publish):
        feeder.start()
        try:
            while True:
                over = runtime.is_over
                found = runtime.take()
                if len(found):
                    pause.over()
                    for row in found:
                        yield rows.read(row)
                elif over:
                    break
                else:
                    pause.rest()
        finally:
            feeder.stop()
    runtime.raise_failure()
    feeder.raise_failure()


def run_batches(nodes: list[Node], batches: Iterable[pa.RecordBatch], settings: Settings) -> Iterator[pa.Table]:
    """Run record batches as they come, and give the output in pieces; no thread but this one reads the batches."""
    runtime = _runtime(nodes, settings, _source_places(settings))
    source = _BatchSource(nodes, iter(batches), runtime)
    rows = Rows(nodes[-1].takes, runtime.strings)
    pieces: list[Words] = []
    pause = _Pause()
    with running(runtime):
        while True:
            over = runtime.is_over
            fed = 0 if over else source.fill()
            found = runtime.take()
            if len(found):
                pieces.append(found)
            elif over:
                break
            if sum(map(len, pieces)) >= OUTPUT_ROWS:
                yield rows.to_arrow(np.concatenate(pieces))
                pieces.clear()
            if 4 * (fed + len(found)) >= source.places:
                pause.over()
            else:  # few rows are not worth a look: this thread would take a processor from the workers
                pause.rest()
    if pieces:
        yield rows.to_arrow(np.concatenate(pieces))
    runtime.raise_failure()


class _BatchSource:
    """Puts the rows of record batches into the source, as many as fit; it reads a batch when the last one is in."""

    def __init__(self, nodes: list[Node], batches: Iterator[pa.RecordBatch], runtime: Runtime) -> None:
        self._rows, self._batches, self._runtime = Rows(nodes[0].takes, runtime.strings), batches, runtime
        self._waiting: Words = np.zeros((0, nodes[0].takes.stride), np.int64)
        self._number = 0

    @property
    def places(self) -> int:
        """How many rows fit."""
        return len(self._runtime.flow.source_rows)

    def fill(self) -> int:
        """Put rows in; returns how many."""
        room = self._runtime.feed_room()
        if room and not len(self._waiting):
            batch = next((found for found in self._batches if found.num_rows), None)
            if batch is None:
                self._runtime.close()
                return 0
            self._waiting = self._rows.from_arrow("ordered", batch)
        count = min(room, len(self._waiting))
        into = np.arange(self._number, self._number + count) % self.places
        self._runtime.flow.source_rows[into] = self._waiting[:count]
        self._runtime.feed(count)
        self._number += count
        self._waiting = self._waiting[count:]
        return count


class _Feeder:
    """The thread that goes through the records of a user and puts them into the source."""

    def __init__(self, part: Part, records: Iterable[Any], runtime: Runtime) -> None:
        self._rows, self._records, self._runtime = Rows(part.source.gives, runtime.strings), records, runtime
        self._error: BaseException | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._feed, name="tidegate-source", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask it to end; it may be waiting for the user's next record, so nobody waits for it."""
        self._stopping = True

    def raise_failure(self) -> None:
        """Raise what going through the records raised."""
        if self._error is not None:
            raise self._error

    def _feed(self) -> None:
        places = self._runtime.flow.source_rows
        pause = _Pause()
        number = 0
        try:
            for record in self._records:
                while self._runtime.feed_room() == 0 and not self._stopping:
                    pause.rest()
                if self._stopping:
                    return
                pause.over()
                self._rows.write(record, places[number % len(places)], f"record {number} of the stream")
                self._runtime.feed(1)
                number += 1
        except BaseException as error:
            self._error = error
        finally:
            self._runtime.close()
