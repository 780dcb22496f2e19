"""Any dataflow graph through `transact`: micro-batches, restarts and cold workers, compared with the model.

The programs are those of `tests/truth`, and so is the model: nothing here is compared with the engine. Each case is cut
into a few files, one micro-batch each, and run by one query or by two with a stop in between. Compared are, after each
query: the outcomes of each micro-batch, with all columns; what `await_outcome` says of each event; every table; every
output stream; the visible rows of windows and the events that wait, as the stored state has them.

    plain      generated code runs as plain Python, in the workers too: thousands of lines less to compile
    compiled   as users run it

A failure prints its seed and the program. One seed again:

    TIDEGATE_SEED=1234 pytest tests/spark/test_random_graphs.py
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

import tidegate as tg
from tidegate.durability import ownership
from tidegate.foundation.jit import uncompiled
from tidegate.foundation.storage import open_storage
from tidegate.spark import await_outcome, read_state, transact
from tidegate.spark.task import TaskSettings

from ..truth.choices import Choices
from ..truth.comparison import ARROW, Mismatch, bits, imported
from ..truth.graph_comparison import events_schema, explain
from ..truth.model import Decided, Model
from ..truth.random_graphs import Event, GraphCase, random_graph_case
from ..truth.running import FIRST_SOAK_SEED, Record, chunks, name_of
from ..truth.stand_in import declared, model_of

PLAIN, REMEMBERING = 3, 1
SOAK_PLAIN, SOAK_COMPILED = 120, 30
CUTS = 3


def cuts_of(case: GraphCase) -> list[tuple[int, int]]:
    """Where micro-batches begin and end; some are empty."""
    choices, count = Choices(len(case.drawn)), len(case.events)
    return list(itertools.pairwise(sorted([0, *(choices.below(count + 1) for _ in range(CUTS)), count])))


def model_with_rows(case: GraphCase, names: dict[str, Any]) -> Model:
    model = model_of(names, case.keeps)
    for name in model.tables:
        model.load(name, case.loads[name])
    return model


def remembers(case: GraphCase) -> bool:
    """Whether states that rows had in earlier micro-batches decide about later events; in most programs they do not."""
    found = []
    for forgets in (False, True):
        model = model_with_rows(case, declared(case.source))
        outcomes = []
        for start, stop in cuts_of(case):
            outcomes += [decided.outcome for decided in model.run(case.events[start:stop])]
            if forgets:
                model.state.states = {name: [] for name in model.state.states}
        found.append(bits([(outcome.committed, outcome.result) for outcome in outcomes]))
    return bool(found[0] != found[1])


@dataclass
class Stream:
    """A case on its way through Spark: its files, its queries, and the model beside them."""

    spark: SparkSession
    case: GraphCase
    module: Any
    folder: Path
    ordered: bool
    names: dict[str, Any] = field(init=False)
    model: Model = field(init=False)
    cuts: list[tuple[int, int]] = field(init=False)
    emitted: dict[str, list[Event]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names = declared(self.case.source)
        self.model = model_with_rows(self.case, self.names)
        (self.folder / "in").mkdir()
        self.cuts = cuts_of(self.case)

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def items(self) -> list[Any]:
        return [getattr(self.module, name) for name in self.case.names]

    def initial(self) -> dict[type, pa.Table]:
        """Rows to begin with."""
        found = {}
        for table in self.case.tables:
            if table.name in self.model.tables:
                schema = pa.schema([(name, ARROW[kind]) for name, kind, _ in table.fields])
                rows = pa.Table.from_pylist(self.case.loads[table.name], schema)
                found[getattr(self.module, table.name)] = rows
        return found

    def write(self, number: int) -> list[Event]:
        """The events of a micro-batch, as they are put into its file."""
        noted = [{"note": place, **self.case.events[place]} for place in range(*self.cuts[number])]
        rows = sorted(noted, key=lambda event: (event["note"] * 7 % 5, event["note"])) if self.ordered else noted
        file = self.folder / "in" / f"{number}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, events_schema(self.case)), file)
        os.utime(file, (1_000_000 + number, 1_000_000 + number))
        return noted

    def run(self, initial: dict[type, pa.Table]) -> dict[int, list[Event]]:
        """A query over all files that were not read yet: the outcomes of each micro-batch."""
        schema = from_arrow_schema(events_schema(self.case))
        events = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(self.folder / "in"))
        order_by = "note" if self.ordered else None
        outcomes = transact(events, self.items, state=self.state, order_by=order_by, initial=initial, requests="note")
        found: dict[int, list[Event]] = {}

        def keep(frame: DataFrame, batch: int) -> None:
            found[batch] = frame.toArrow().to_pylist()

        stream = outcomes.writeStream.foreachBatch(keep).trigger(availableNow=True)
        stream.option("checkpointLocation", str(self.folder / "checkpoint")).start().awaitTermination()
        return found

    # What is compared.

    def compare_outcomes(self, number: int, wanted: list[Decided], rows: list[Event]) -> None:
        schema = events_schema(self.case)
        rows.sort(key=lambda row: row["note"])
        wanted.sort(key=lambda decided: decided.event["note"])
        if [row["note"] for row in rows] != [decided.event["note"] for decided in wanted]:
            raise Mismatch(f"events decided in micro-batch {number}", wanted, rows)
        for row, decided in zip(rows, wanted, strict=True):
            outcome = decided.outcome
            if row["reason"] in outcome.faults:  # several things are wrong with the event: any may be told
                row["reason"] = outcome.reason
            result = {"committed": outcome.committed, "reason": outcome.reason, "result": outcome.result}
            want = {**{name: decided.event[name] for name in schema.names}, **result}
            if bits(row) != bits(want):
                raise Mismatch(f"outcome in micro-batch {number}", want, row)
            kept = await_outcome(self.state, row["note"], timeout=0)
            if kept.committed != outcome.committed or bits(kept.result) != bits(outcome.result):
                raise Mismatch(f"awaited outcome of event {row['note']}", want, kept)

    def compare_state(self) -> None:
        for table in self.case.tables:
            if table.name in self.model.tables:
                rows = read_state(self.spark, self.state, getattr(self.module, table.name)).toArrow().to_pylist()
                _compare(f"table {table.name}", self.model.scan(table.name), rows)
        for stream in (stream for graph in self.case.graphs for stream in graph.outputs):
            wanted = self.emitted.setdefault(stream.name, [])
            wanted += self.model.take(self.names[stream.name])
            rows = read_state(self.spark, self.state, getattr(self.module, stream.name)).toArrow().to_pylist()
            _compare(f"output {stream.name}", wanted, rows)
        self._compare_memory()

    def _compare_memory(self) -> None:
        """Windows and waiting events are read by an engine that is opened on the state."""
        deadline = time.monotonic() + 30.0
        while ownership.current(open_storage(str(self.state))) is not None:
            assert time.monotonic() < deadline, "the query did not let go of the state"
            time.sleep(0.02)
        with tg.Engine(self.items, directory=str(self.state)) as engine:
            for name in self.case.windows:
                rows = engine.scan(getattr(self.module, name)).to_pylist()
                _compare(f"window {name}", self.model.visible(self.names[name]), rows)
            for stream in (stream for graph in self.case.graphs for stream in graph.borders):
                rows = engine.scan(getattr(self.module, stream.name)).to_pylist()
                _compare(f"waiting in {stream.name}", self.model.waiting(self.names[stream.name]), rows)


def _compare(what: str, wanted: list[Event], rows: list[Event]) -> None:
    if bits(rows) != bits(wanted):
        raise Mismatch(what, wanted, rows)


def check(spark: SparkSession, case: GraphCase, folder: Path, restarts: bool, ordered: bool) -> None:
    """Raises Mismatch where Spark gives something else than the model."""
    with imported(case.source) as module:
        stream = Stream(spark, case, module, folder, ordered)
        initial, middle = stream.initial(), len(stream.cuts) // 2
        numbers = range(len(stream.cuts))
        for query in [numbers[:middle], numbers[middle:]] if restarts else [numbers]:
            wanted = {number: stream.model.run(stream.write(number)) for number in query}
            found = stream.run(initial)
            if list(found) != list(query):
                raise Mismatch("micro-batches", list(query), list(found))
            for number in query:
                stream.compare_outcomes(number, wanted[number], found[number])
            if stream.cuts[query[-1]][1] > 0:  # else there was no event yet, and no version but the first
                stream.compare_state()


def run_seeds(spark: SparkSession, seeds: Iterable[int], folder: Path) -> int:
    count = 0
    for seed in seeds:
        case = random_graph_case(Choices(seed), small=True)
        (folder / str(seed)).mkdir()
        try:
            check(spark, case, folder / str(seed), restarts=seed % 2 == 0, ordered=seed % 3 == 0)
        except Exception as error:
            what = "\n  ".join(str(part) for part in error.args)
            text = f"seed {seed}: {type(error).__name__}\n{what}\n\n{explain(case)}"
            pytest.fail(text, pytrace=not isinstance(error, Mismatch))
        count += 1
    return count


# --- how workers run it --------------------------------------------------------------------------------------


def make_task_maker(plain: bool, cache: str) -> Callable[[TaskSettings], Any]:
    """In place of `make_task`: workers forget what is warm before every batch, and keep machine code in a folder.

    What it returns is sent by value and imports where it runs: workers cannot import tests.
    """

    def make_task(settings: TaskSettings) -> Any:
        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import contextlib
            import os

            from tidegate.foundation.jit import uncompiled
            from tidegate.spark import task as tasks

            tasks._engines.clear()
            before = os.environ.get("TIDEGATE_CACHE_DIR")
            os.environ["TIDEGATE_CACHE_DIR"] = cache
            try:
                with uncompiled() if plain else contextlib.nullcontext():
                    found = list(tasks.run_task(settings, batches))
            finally:
                os.environ.pop("TIDEGATE_CACHE_DIR")
                if before is not None:
                    os.environ["TIDEGATE_CACHE_DIR"] = before
            yield from found

        return task

    return make_task


@contextlib.contextmanager
def workers(monkeypatch: pytest.MonkeyPatch, folder: Path, plain: bool) -> Iterator[None]:
    cache = str(folder / "cache")  # programs that nobody will run again stay out of the user's cache
    monkeypatch.setenv("TIDEGATE_CACHE_DIR", cache)
    monkeypatch.setattr(sys.modules["tidegate.spark.transact"], "make_task", make_task_maker(plain, cache))
    with uncompiled() if plain else contextlib.nullcontext():
        yield


LONGER = (pytest.mark.soak, pytest.mark.timeout(3600))
SEEDS = [
    (chunks(0, PLAIN, 3), True, ()),
    (chunks(FIRST_SOAK_SEED, SOAK_PLAIN, 30), True, LONGER),
    (chunks(FIRST_SOAK_SEED, SOAK_COMPILED, 10), False, LONGER),
]
ALL_SEEDS = [
    pytest.param(seeds, plain, id=f"{'plain' if plain else 'compiled'} {name_of(seeds)}", marks=marks)
    for parts, plain, marks in SEEDS
    for seeds in parts
]


@pytest.mark.parametrize(("seeds", "plain"), ALL_SEEDS)
def test_generated_code_on_spark_equals_the_model(
    spark: SparkSession,
    tmp_path: Path,
    seeds: range,
    plain: bool,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Record,
) -> None:
    with workers(monkeypatch, tmp_path, plain):
        record_property("compared dataflow programs on Spark", run_seeds(spark, seeds, tmp_path))


def test_what_rows_were_in_earlier_micro_batches_is_remembered(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Record
) -> None:
    telling = (seed for seed in itertools.count() if remembers(random_graph_case(Choices(seed), small=True)))
    with workers(monkeypatch, tmp_path, plain=True):
        compared = run_seeds(spark, itertools.islice(telling, REMEMBERING), tmp_path)
        record_property("compared dataflow programs on Spark", compared)
