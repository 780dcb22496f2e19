"""Runs a random case on an engine with a directory, which ends and is opened again between any two calls.

    call ── call ── checkpoint ── call ── abandoned   call ── call ── closed   call ── ...
    sync="group", recovery="strong", lock, 2 workers  "never", "weak", serial  ...

Beside it run the oracle, or the model of graphs, and an engine that keeps everything in memory. They see the calls that
were acknowledged, which here are all. After every call outcomes are equal; whenever the state was opened again, and at
the end, all of it is: tables, windows, waiting events, outputs, and what was remembered of calls with a key.

Storage is a disk in memory that never fails, or an object store in memory: a real one would sync thousands of times.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import fsspec
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.durability import logged
from tidegate.engine.core import EngineCore
from tidegate.foundation.storage import LocalStorage, Storage, open_storage

from ..simulation.disk import SimulatedDisk
from ..strategies import COMBINATIONS
from .choices import Choices
from .comparison import (
    ARROW,
    Mismatch,
    bits,
    compare_outcomes,
    compare_tables,
    dressed,
    events_table,
    imported,
    in_order,
    load_all,
    plain,
    used_tables,
)
from .graph_comparison import (
    compare_earlier_states,
    compare_outputs,
    compare_state,
    execute_event,
    is_plain,
    run_events,
)
from .oracle import Oracle, Outcome
from .random_events import Batch, Case, Event
from .random_graphs import GraphCase
from .stand_in import declared, model_of

GRAPH_STRATEGIES: list[tuple[Any, int]] = [("serial", 1), ("lock", 2), (tg.Decision(), 3), ("adaptive", 2)]


def told(answer: Any) -> Any:
    """What an engine answered, in a form in which equality means the same bits."""
    if isinstance(answer, tg.Outcome):
        return bits((answer.committed, answer.reason, plain(answer.result)))
    return bits(answer.to_pylist() if isinstance(answer, pa.Table) else answer)


@contextlib.contextmanager
def storage_of(name: str, choices: Choices) -> Iterator[str]:
    """A place for a state: the path is valid while this is open, and checkpoints are small there."""
    after = choices.pick([1200, 2500, 6000, 1 << 20])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logged, "CHECKPOINT_AFTER_BYTES", after)
        if choices.chance(30):
            try:
                yield f"memory://{name}"
            finally:
                fsspec.filesystem("memory").rm(name, recursive=True)
            return
        disk = SimulatedDisk(name)

        def opened(path: str) -> Storage:
            return LocalStorage(path, disk) if path == f"/{name}" else open_storage(path)

        patch.setattr(logged, "open_storage", opened)
        patch.setattr("tidegate.foundation.appending.STEP_SIZE", 4096)
        yield f"/{name}"


class Lives:
    """An engine that ends now and then, in any way, and is opened again with other options."""

    def __init__(self, items: list[Any], directory: str, choices: Choices, strategies: list[tuple[Any, int]]) -> None:
        self._items, self._directory, self._choices, self._strategies = items, directory, choices, strategies
        self.count = 0
        self.open()

    def open(self) -> None:
        """Open the state, with any options."""
        choices = self._choices
        strategy, workers = choices.pick(self._strategies)
        options: dict[str, Any] = {"sync": choices.pick(["group", "always", "never"])}
        options["recovery"] = choices.pick(["weak", "strong"])
        self.engine = tg.Engine(self._items, strategy, workers, directory=self._directory, **options)
        self.count += 1

    @property
    def kept(self) -> logged.LoggedEngine:
        assert self.engine._kept is not None
        return self.engine._kept

    def go_on(self) -> bool:
        """Perhaps make a checkpoint, or end and be opened again; whether it was."""
        match self._choices.weighted([(8, "nothing"), (2, "checkpoint"), (2, "abandoned"), (1, "closed")]):
            case "nothing":
                return False
            case "checkpoint":
                self.kept.checkpoint()
                return False
            case "abandoned":
                self.kept._join()
                self.kept._let_go()
            case "closed":
                self.engine.close()
        self.open()
        return True

    def outcomes(self) -> dict[int | str, Any]:
        """What is remembered of calls with a key."""
        return {key: entry.outcome for key, entry in self.kept._keys._entries.items()}


# --- programs of transactions -------------------------------------------------------------------------------------


class _Programs:
    """One case: the engine with a directory, one in memory, and the oracle, in step."""

    def __init__(self, case: Case, module: Any, lives: Lives, memory: tg.Engine, choices: Choices) -> None:
        self.case, self.module, self.lives, self.memory, self.choices = case, module, lives, memory, choices
        self.oracle = Oracle(case.program.source)
        self.tables = used_tables(case.program)
        self.keys: dict[str, tuple[Any, Event, tg.Outcome]] = {}

    def batch(self, batch: Batch) -> None:
        """Load, and run the events in any calls."""
        for engine in (self.lives.engine, self.memory):
            load_all(engine, self.module, self.tables, batch, Choices(len(batch.events)))
        for name, rows in batch.loads.items():
            if name in self.oracle.tables:
                self.oracle.load(name, rows)
        self.pause()
        if self.choices.chance(30):
            self.run(batch, self.oracle.run(batch.events, batch.order_by))
            return
        events, _ = in_order(batch, [Outcome(True, None, None)] * len(batch.events))
        start = 0
        while start < len(events):
            stop = start + 1 + self.choices.below(min(6, len(events) - start))
            if self.choices.chance(50):
                order_by = batch.order_by if self.case.by_order else None
                self.run(Batch(events[start:stop], order_by), self.oracle.run(events[start:stop], order_by))
            else:
                for event in events[start:stop]:
                    self.execute(event)
            start = stop

    def run(self, batch: Batch, wanted: list[Outcome]) -> None:
        """One call of `run`."""
        events = dressed(events_table(self.case, batch), self.choices)
        outcomes = self.lives.engine.run(events, order_by=batch.order_by)
        compare_outcomes(self.case.program, outcomes, batch, wanted)
        in_memory = self.memory.run(events, order_by=batch.order_by)
        if outcomes.schema != in_memory.schema or bits(outcomes.to_pylist()) != bits(in_memory.to_pylist()):
            raise Mismatch(f"outcomes of {batch}: {outcomes}, in memory {in_memory}")
        self.pause()

    def execute(self, event: Event) -> None:
        """One call of `execute`, with a key now and then; and calls that were made before, once more."""
        program = self.case.program
        specs = {spec.name: spec for spec in program.transactions}
        name = event.get("transaction", program.transactions[0].name)
        if name not in specs:
            return
        arguments = {column.name: event[column.name] for column, _ in specs[name].parameters}
        key = f"call {len(self.keys)}" if self.choices.chance(30) else None
        want = self.oracle.execute(event)
        got = self._call(name, arguments, key)
        refused = not got.committed and got.reason in want.faults
        bare = dataclasses.replace(got, reason=want.bare(got.reason))
        if not refused and told(bare) != bits((want.committed, want.reason, want.result)):
            raise Mismatch(f"execute {event}:\n  expected {want}\n  got      {got}")
        if key is not None:
            self.keys[key] = (name, arguments, got)
        self.pause()
        if self.keys and self.choices.chance(20):
            key = self.choices.pick(list(self.keys))
            name, arguments, first = self.keys[key]
            again = self._call(name, arguments, key)
            if told(again) != told(first):
                raise Mismatch(f"execute {name} with key {key}: first {first}, then {again}")

    def _call(self, name: str, arguments: Event, key: str | None) -> tg.Outcome:
        transaction = getattr(self.module, name)
        got = self.lives.engine.execute(transaction, key, **arguments)
        in_memory = self.memory.execute(transaction, key, **arguments)
        if told(got) != told(in_memory):
            raise Mismatch(f"execute {name} {arguments}: {got}, in memory {in_memory}")
        return got

    def pause(self) -> None:
        if self.lives.go_on():
            self.compare()

    def compare(self) -> None:
        """All that the state holds."""
        wanted = {name: self.oracle.scan(name) for name in self.oracle.tables}
        for engine in (self.lives.engine, self.memory):
            compare_tables(lambda table, engine=engine: engine.scan(getattr(self.module, table)), self.tables, wanted)
        remembered = {key: told(outcome) for key, (_, _, outcome) in self.keys.items()}
        got = {key: told(outcome) for key, outcome in self.lives.outcomes().items()}
        if got != remembered:
            raise Mismatch(f"calls with keys: {got}, expected {remembered}")


def check_logged(case: Case, seed: int) -> int:
    """Raises Mismatch where an engine with a directory differs; returns how often it was opened."""
    choices = Choices(seed)
    interpreted = choices.chance(15)
    with imported(case.program.interpreted if interpreted else case.program.source) as module:
        transactions = [getattr(module, spec.name) for spec in case.program.transactions]
        with storage_of(module.__name__, choices) as directory:
            lives = Lives(transactions, directory, choices, list(COMBINATIONS))
            both = _Programs(case, module, lives, tg.Engine(transactions), choices)
            for batch in case.batches:
                both.batch(batch)
            lives.kept._join()
            lives.kept._let_go()
            lives.open()
            both.compare()
            lives.engine.close()
            lives.open()
            both.compare()
            lives.engine.close()
    return lives.count


# --- dataflow graphs ----------------------------------------------------------------------------------------------


class _InMemory:
    """Calls go to the engine with a directory and to one in memory; answers are its own, and the same."""

    def __init__(self, lives: Lives, memory: tg.Engine) -> None:
        self.lives, self.memory = lives, memory

    @property
    def _core(self) -> EngineCore:
        core = self.lives.engine._core
        core.graphs()  # they remember in tables, which they read when somebody asks
        return core

    @property
    def last_batch(self) -> Any:
        """What the engine with a directory did."""
        return self.lives.engine.last_batch

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            got, in_memory = (getattr(engine, name)(*arguments, **named) for engine in (self.lives.engine, self.memory))
            if told(got) != told(in_memory):
                raise Mismatch(f"{name} with a directory", in_memory, got)
            return got

        return call


def check_logged_graphs(case: GraphCase, seed: int) -> int:
    """Raises Mismatch where an engine with a directory differs from the model; returns how often it was opened."""
    choices = Choices(seed)
    names = declared(case.source)
    model = model_of(names, case.keeps)
    with imported(case.source) as module, storage_of(module.__name__, choices) as directory:
        items = [getattr(module, name) for name in case.names]
        lives = Lives(items, directory, choices, GRAPH_STRATEGIES)
        engine: Any = _InMemory(lives, tg.Engine(items))
        for table in case.tables:
            if table.name in model.tables:
                schema = pa.schema([(name, ARROW[kind]) for name, kind, _ in table.fields])
                engine.load(getattr(module, table.name), pa.Table.from_pylist(case.loads[table.name], schema))
                model.load(table.name, case.loads[table.name])
        form, start = choices.below(8), 0
        while start < len(case.events):
            stop = start + 1 + choices.below(min(len(case.events) - start, 9))
            if is_plain(case, case.events[start]) and choices.chance(50):
                stop = start + 1
                execute_event(engine, model, module, case, range(start, stop), form, False)
            else:
                run_events(engine, model, module, case, range(start, stop), form, choices.chance(30))
            start = stop
            if lives.go_on() or start >= len(case.events):
                _compare_graphs(engine, model, module, names, case, f"after event {stop - 1}")
            if choices.chance(20):
                compare_outputs(engine, model, module, names, case)
        lives.kept._join()
        lives.kept._let_go()
        for _ in range(2):
            lives.open()
            _compare_graphs(engine, model, module, names, case, "at the end")
            lives.engine.close()
        lives.open()
        compare_outputs(engine, model, module, names, case)
        lives.engine.close()
    return lives.count


def _compare_graphs(engine: Any, model: Any, module: Any, names: dict[str, Any], case: GraphCase, when: str) -> None:
    compare_state(engine, model, module, names, case, when)
    compare_earlier_states(engine, model, when)
