"""A version keeps the rows that its batch changed, or the events that it ran: whoever opens the state sees the same.

Each seed gives a program with batches. They run on two states, one by one: on the first every version keeps rows; on
the second an engine ends and is opened again at random places, and keeps rows or events as chance has it. Batches are
asked for again, with their events in another order; snapshots are due early, few versions are kept. Beside both runs
the oracle, or the model of graphs, which shares no code with the engine. One seed again:

    TIDEGATE_SEED=1234 pytest tests/durability/test_version_log.py
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import fsspec
import numpy as np
import pyarrow as pa
import pytest

from tidegate.compiler.program import build_program
from tidegate.durability import housekeeping, version_reader, versioned, versions
from tidegate.durability.compactor import Compactor
from tidegate.durability.ownership import process_token
from tidegate.durability.served import stream_applicant
from tidegate.durability.stored_rows import rows_at
from tidegate.durability.version_info import Owner
from tidegate.durability.version_log import Log, rows_by_running
from tidegate.durability.versioned import VersionedEngine
from tidegate.durability.versions import VersionStore
from tidegate.foundation.errors import RecoveryImpossible
from tidegate.foundation.jit import uncompiled
from tidegate.foundation.storage import open_storage
from tidegate.operations.plan import Program

from ..simulation.world import work_at_once
from ..truth import comparison, graph_comparison
from ..truth.choices import Choices
from ..truth.comparison import (
    ARROW,
    Mismatch,
    bits,
    compare_outcomes,
    compare_tables,
    dressed,
    events_table,
    imported,
    used_tables,
)
from ..truth.graph_comparison import events_schema
from ..truth.oracle import Oracle
from ..truth.random_events import Case, Size, random_case
from ..truth.random_graphs import GraphCase, random_graph_case
from ..truth.running import FIRST_SOAK_SEED, Record, chunks, name_of
from ..truth.stand_in import declared, model_of

PROGRAMS, EXPIRING, GRAPHS = 60, 30, 40
SOAK_PROGRAMS, SOAK_GRAPHS = 3_000, 2_000


@contextmanager
def two_states(name: str, choices: Choices) -> Iterator[tuple[str, str]]:
    """Two places for states, where snapshots come soon and nothing happens in threads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(versions, "SNAPSHOT_AFTER_BYTES", choices.pick([1, 3000, 9000, 8 << 20]))
        patch.setattr(versions, "CHANGE_BYTES_MIN", 1000)
        patch.setattr(housekeeping, "SMALL_BYTES", choices.pick([1 << 20, 0]))
        patch.setattr(housekeeping, "COLLECT_EVERY", choices.pick([1, 3, 20]))
        patch.setattr(versioned, "CATCH_UP_MAX", choices.pick([0, 2, 20]))
        patch.setattr(version_reader, "HEADERS_MAX", choices.pick([2, 256]))
        patch.setattr(Compactor, "request", lambda compactor, version, _: work_at_once(compactor, (version, 0), None))
        try:
            yield f"memory://{name}/rows", f"memory://{name}/mixed"
        finally:
            fsspec.filesystem("memory").rm(name, recursive=True)


class Lives:
    """Engines on one state, one after the other or beside each other, as the tasks of a query are."""

    def __init__(self, program: Program, path: str, logs: list[Log], choices: Choices) -> None:
        self.program, self.path, self._logs, self._choices = program, path, logs, choices
        self._engines: list[VersionedEngine] = []
        self.batch = 0
        self.kept: set[Log] = set()

    def engine(self) -> VersionedEngine:
        """A new one, or one that may have fallen behind."""
        if self._engines and self._choices.chance(60):
            return self._choices.pick(self._engines[-2:])
        log = self._choices.pick(self._logs)
        keep = self._choices.pick([1, 2, 100])
        self._engines.append(VersionedEngine(self.program, self.path, keep_versions=keep, log=log))
        return self._engines[-1]

    def run(self, events: pa.Table, order_by: str | None) -> pa.Table:
        """The next batch."""
        self.batch += 1
        engine = self.engine()
        self.kept.add(engine._log)
        return self._ask(engine, events, order_by)

    def repeat(self, events: pa.Table, order_by: str | None) -> pa.Table:
        """The last batch again, its events in another order; outcomes as before."""
        order = np.arange(events.num_rows)
        for place in range(len(order) - 1, 0, -1):
            other = self._choices.below(place + 1)
            order[[place, other]] = order[[other, place]]
        outcomes = self._ask(self.engine(), events.take(pa.array(order)), order_by)
        return outcomes if outcomes.num_rows != len(order) else outcomes.take(pa.array(np.argsort(order)))

    def _ask(self, engine: VersionedEngine, events: pa.Table, order_by: str | None) -> pa.Table:
        owner = Owner("query", "test", process_token())
        applicant = stream_applicant("query", self.batch - 1)
        return engine.process(applicant, events, order_by=order_by, late="run", owner=owner)

    def opened(self) -> VersionedEngine:
        """The state as a process finds it that knows nothing."""
        return VersionedEngine(self.program, self.path, log=self._choices.pick(self._logs))


def compare_states(first: Lives, second: Lives) -> None:
    """All tables of two states, those that the engine keeps for itself among them."""
    cores = [lives.opened().core for lives in (first, second)]
    for name in {*cores[0].tables, *cores[1].tables}:
        rows, others = (bits(core.rows(name).to_pylist()) for core in cores)
        if rows != others:
            raise Mismatch(f"table {name}: with rows alone {cores[0].rows(name)}, mixed {cores[1].rows(name)}")


def compare_readers(lives: Lives) -> None:
    """Without the program, what can be read are the rows that the program gives; nothing else is given out."""
    store = VersionStore(open_storage(lives.path))
    for version in store.refresh():
        info = store.info(version)
        for layout in info.layouts:
            wanted = rows_by_running(store, lives.program, layout, version)
            if version in store.readable():
                found = rows_at(store, layout, version)
                if bits(found.to_pylist()) != bits(wanted.to_pylist()):
                    raise Mismatch(f"version {version}, table {layout.name}: {found}, by running {wanted}")
            else:
                with pytest.raises(RecoveryImpossible, match=r"the events of a batch, not its rows"):
                    rows_at(store, layout, version)


def check_program(case: Case, seed: int) -> set[Log]:
    """Raises Mismatch where versions with events differ; returns the kinds of versions that were made."""
    choices, oracle, tables = Choices(seed), Oracle(case.program.source), used_tables(case.program)
    with imported(case.program.source) as module, two_states(module.__name__, choices) as paths:
        program = build_program([getattr(module, spec.name) for spec in case.program.transactions])
        rows, mixed = (
            Lives(program, path, logs, choices)
            for path, logs in zip(paths, (["changes"], ["commands", "commands", "changes"]), strict=True)
        )
        loads = {name: found for name, found in case.batches[0].loads.items() if name in {t.name for t in tables}}
        if any(loads.values()):
            kinds = {table.name: {name: kind for name, kind, _ in table.fields} for table in tables}
            loaded = {
                name: pa.Table.from_pylist(found, pa.schema([(field, ARROW[kinds[name][field]]) for field in found[0]]))
                for name, found in loads.items()
                if found
            }
            for lives in (rows, mixed):
                lives.engine().initialise(loaded)
            for name in loaded:
                oracle.load(name, loads[name])
        for batch in case.batches:
            wanted = oracle.run(batch.events, batch.order_by)
            events = dressed(events_table(case, batch), choices)
            for lives in (rows, mixed):
                compare_outcomes(case.program, lives.run(events, batch.order_by), batch, wanted)
                while choices.chance(40):
                    compare_outcomes(case.program, lives.repeat(events, batch.order_by), batch, wanted)
            expected = {name: oracle.scan(name) for name in oracle.tables}
            compare_tables(mixed.opened().core.rows, tables, expected)
            compare_states(rows, mixed)
        compare_readers(mixed)
    return mixed.kept


def check_graph(case: GraphCase, seed: int) -> set[Log]:
    """The same for dataflow graphs: windows, waiting events and what was emitted are compared as well."""
    choices = Choices(seed)
    model = model_of(declared(case.source), case.keeps)
    with imported(case.source) as module, two_states(module.__name__, choices) as paths:
        program = build_program([getattr(module, name) for name in case.names])
        repeatable = all(plan.compiled for plan in program.plan.transactions)
        logs: list[Log] = ["commands", "commands", "changes"] if repeatable else ["changes"]
        rows, mixed = Lives(program, paths[0], ["changes"], choices), Lives(program, paths[1], logs, choices)
        loaded = {}
        for table in case.tables:
            if table.name in model.tables and case.loads[table.name]:
                schema = pa.schema([(name, ARROW[kind]) for name, kind, _ in table.fields])
                loaded[table.name] = pa.Table.from_pylist(case.loads[table.name], schema)
                model.load(table.name, case.loads[table.name])
        for lives in (rows, mixed):
            lives.engine().initialise(loaded)
        start = 0
        while start < len(case.events):
            stop = start + choices.below(min(len(case.events) - start, 9) + 1)
            noted = [{"note": number, **case.events[number]} for number in range(start, stop)]
            model.run(noted)
            order_by = "note" if choices.chance(30) else None
            events = pa.Table.from_pylist(noted, events_schema(case))
            outcomes = [lives.run(events, order_by) for lives in (rows, mixed)]
            while choices.chance(30):
                again = mixed.repeat(events, order_by)
                if events.num_rows == again.num_rows and set(again["note"].to_pylist()) == set(
                    events["note"].to_pylist()
                ):
                    outcomes.append(again)
            told = [bits(table.to_pylist()) for table in outcomes]
            if any(other != told[0] for other in told):
                raise Mismatch(f"outcomes of events {start} to {stop - 1}: {outcomes}")
            compare_states(rows, mixed)
            for table in case.tables:
                if table.name in model.tables:
                    found = mixed.opened().core.rows(table.name).to_pylist()
                    if bits(found) != bits(model.scan(table.name)):
                        raise Mismatch(f"table {table.name}: {found}, expected {model.scan(table.name)}")
            start = stop
        compare_records(rows, mixed)
        compare_readers(mixed)
    return mixed.kept


def compare_records(first: Lives, second: Lives) -> None:
    """What the versions gave out beside rows, where both still have it."""
    stores = [VersionStore(open_storage(lives.path)) for lives in (first, second)]
    infos = [{info.version: info for info in store.infos() if info.kind == "change"} for store in stores]
    for version in infos[0].keys() & infos[1].keys():
        if infos[0][version].records != infos[1][version].records:
            raise Mismatch(f"records of version {version}: {infos[0][version].records}, {infos[1][version].records}")
        for name in infos[0][version].records:
            found = [store.read_record(version, name) for store in stores]
            if len({None if table is None else str(bits(table.to_pylist())) for table in found}) != 1:
                raise Mismatch(f"record {name} of version {version}: {found}")


def run_programs(seeds: range, size: Size = "usual") -> None:
    kept: set[Log] = set()
    for seed in seeds:
        case = random_case(Choices(seed), size)
        try:
            with uncompiled():
                kept |= check_program(case, seed)
        except Exception as error:
            error.add_note(f"seed {seed}\n{comparison.explain(case)}")
            raise
    assert len(seeds) == 1 or kept == {"changes", "commands"}


def run_graphs(seeds: range) -> None:
    kept: set[Log] = set()
    for seed in seeds:
        case = random_graph_case(Choices(seed))
        try:
            with uncompiled():
                kept |= check_graph(case, seed)
        except Exception as error:
            error.add_note(f"seed {seed}\n{graph_comparison.explain(case)}")
            raise
    assert len(seeds) == 1 or kept == {"changes", "commands"}


@pytest.mark.parametrize("seeds", chunks(0, PROGRAMS, 20), ids=name_of)
def test_programs_are_the_same_whatever_their_versions_keep(seeds: range, record_property: Record) -> None:
    run_programs(seeds)
    record_property("compared programs whose versions keep events", len(seeds))


@pytest.mark.parametrize("seeds", chunks(0, EXPIRING, 15), ids=name_of)
def test_so_are_programs_with_rows_that_expire(seeds: range, record_property: Record) -> None:
    run_programs(seeds, "expiring")
    record_property("compared programs whose versions keep events", len(seeds))


@pytest.mark.parametrize("seeds", chunks(0, GRAPHS, 20), ids=name_of)
def test_graphs_are_the_same_whatever_their_versions_keep(seeds: range, record_property: Record) -> None:
    run_graphs(seeds)
    record_property("compared graphs whose versions keep events", len(seeds))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seeds", chunks(FIRST_SOAK_SEED, SOAK_PROGRAMS, 250), ids=name_of)
def test_thousands_of_programs_are_the_same_whatever_their_versions_keep(seeds: range) -> None:
    run_programs(seeds)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seeds", chunks(FIRST_SOAK_SEED, SOAK_GRAPHS, 250), ids=name_of)
def test_thousands_of_graphs_are_the_same_whatever_their_versions_keep(seeds: range) -> None:
    run_graphs(seeds)
