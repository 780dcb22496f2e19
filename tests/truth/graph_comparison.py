"""Runs a random dataflow program through the engine and compares every bit with the model.

The model and the engine take the same events in the same calls. After each call these are equal: the events that were
decided, with all their columns, in the order of decision; their outcomes; every table; the earlier states of rows;
the visible rows of every window; the events that wait; now and then what was emitted into the outputs; the history.
Cut into other calls, the same events give the same, so the model needs no second opinion about cuts.

    whole      all events in one call
    cuts       cut at random places, empty calls as well
    single     one call for each event, plain transactions by `engine.execute`
    ordered    cut as well, each call's events in a random order, with the column that puts them right
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import tidegate as tg
from tidegate.operations.decision import Strategy
from tidegate.testing import check_history

from .choices import Choices
from .comparison import ARROW, Mismatch, bits, dressed, imported
from .model import Decided, Model
from .random_graph_bodies import FieldSpec
from .random_graphs import Event, GraphCase
from .stand_in import declared, model_of


@dataclass(frozen=True)
class Calls:
    """One way to run a case."""

    cutting: str = "whole"
    strategy: Strategy = "serial"
    workers: int = 1
    record: bool = True
    """Whether a history is kept; without one, the strategies may run plain transactions."""


def check_graphs(case: GraphCase, calls: Calls, choices: Choices) -> Model:
    """Raises Mismatch where the engine differs from the model, which is returned."""
    names = declared(case.source)
    model = model_of(names, case.keeps)
    with imported(case.source) as module:
        items = [getattr(module, name) for name in case.names]
        with tg.Engine(items, strategy=calls.strategy, workers=calls.workers, record=calls.record) as engine:
            for table in case.tables:
                if table.name in model.tables:
                    kinds = {name: kind for name, kind, _ in table.fields}
                    schema = pa.schema([(name, ARROW[kind]) for name, kind in kinds.items()])
                    engine.load(getattr(module, table.name), pa.Table.from_pylist(case.loads[table.name], schema))
                    model.load(table.name, case.loads[table.name])
            for start, stop in pieces(len(case.events), calls.cutting, choices):
                form = choices.below(8)  # the Arrow form of the events: each call has its own, whatever waits
                run = execute_event if calls.cutting == "single" and is_plain(case, case.events[start]) else run_events
                run(engine, model, module, case, range(start, stop), form, calls.cutting == "ordered")
                compare_state(engine, model, module, names, case, f"after event {stop - 1}")
                compare_earlier_states(engine, model, f"after event {stop - 1}")
                if choices.chance(30):
                    compare_outputs(engine, model, module, names, case)
            compare_outputs(engine, model, module, names, case)
            if calls.record:
                _compare_history(engine, model, module, case, one_worker=calls.workers == 1)
    return model


def pieces(count: int, cutting: str, choices: Choices) -> list[tuple[int, int]]:
    """Where the calls begin and end."""
    if cutting == "whole":
        return [(0, count)]
    if cutting == "single":
        return [(number, number + 1) for number in range(count)]
    found, start = [], 0
    while start < count:
        stop = start + choices.below(min(count - start, 9) + 1)
        found.append((start, stop))
        start = stop
    return found


def events_schema(case: GraphCase) -> pa.Schema:
    fields = [pa.field("note", pa.int64())]
    if case.has_transaction_column:
        fields.append(pa.field("transaction", pa.string()))
    return pa.schema([*fields, *(pa.field(column.name, field_type(column)) for column in case.columns)])


def field_type(given: FieldSpec) -> pa.DataType:
    if given.is_composite:
        assert given.table is not None
        return pa.struct([(name, ARROW[kind]) for name, kind in given.table.key_kinds])
    return ARROW[given.kind]


def is_plain(case: GraphCase, event: Event) -> bool:
    return event.get("transaction") in [name for name, _ in case.plain]


def execute_event(
    engine: Any, model: Model, module: Any, case: GraphCase, positions: range, form: int, ordered: bool
) -> None:
    event = case.events[positions.start]
    (wanted,) = model.run([event])
    (parameters,) = (parameters for name, parameters in case.plain if name == event["transaction"])
    arguments = {given.name: event[given.name] for given, _ in parameters}
    got = engine.execute(getattr(module, event["transaction"]), **arguments)
    outcome = wanted.outcome
    if got.reason in outcome.faults:
        return
    if bits((got.committed, got.reason, got.result)) != bits((outcome.committed, outcome.reason, outcome.result)):
        raise Mismatch(f"execute of event {positions.start}", wanted, got)


def run_events(
    engine: Any, model: Model, module: Any, case: GraphCase, positions: range, form: int, ordered: bool
) -> None:
    noted = [{"note": number, **case.events[number]} for number in positions]
    schema = events_schema(case)
    wanted = model.run(noted)
    if ordered:
        noted.sort(key=lambda event: (event["note"] * 7 % 5, event["note"] * 3 % 7))
    table = dressed(pa.Table.from_pylist(noted, schema), Choices(replay=[form, 1]))
    got = engine.run(table, order_by="note") if ordered else engine.run(table)
    if engine.last_batch.interior_aborts != model.interior_aborts:
        raise Mismatch("steps that failed inside", model.interior_aborts, engine.last_batch.interior_aborts)
    if set(got.column_names) != {*schema.names, "committed", "reason", "result"}:
        raise Mismatch(f"columns of the outcomes: got {got.column_names}")
    rows = got.to_pylist()
    # Outcomes stand in the order of the table, behind those of events that waited; the model's in that of decisions.
    rows.sort(key=lambda row: row["note"])
    wanted.sort(key=lambda decided: decided.event["note"])
    for position in range(max(len(rows), len(wanted))):
        if position < min(len(rows), len(wanted)) and rows[position]["reason"] in wanted[position].outcome.faults:
            rows[position]["reason"] = wanted[position].outcome.reason
        want = _as_row(wanted[position], schema) if position < len(wanted) else "no more outcomes"
        have = rows[position] if position < len(rows) else "no more outcomes"
        if isinstance(have, str) or isinstance(want, str) or bits(have) != bits(want):
            raise Mismatch(f"outcome {position} of events {positions.start} to {positions.stop - 1}", want, have)


def _as_row(decided: Decided, schema: pa.Schema) -> Event:
    outcome = decided.outcome
    result = {"committed": outcome.committed, "reason": outcome.reason, "result": outcome.result}
    return {**{name: decided.event[name] for name in schema.names}, **result}


def compare_state(engine: Any, model: Model, module: Any, names: dict[str, Any], case: GraphCase, when: str) -> None:
    for table in case.tables:
        if table.name in model.tables:
            _compare(f"table {table.name} {when}", model.scan(table.name), engine.scan(getattr(module, table.name)))
    for name in case.windows:
        _compare(f"window {name} {when}", model.visible(names[name]), engine.scan(getattr(module, name)))
    for graph in case.graphs:
        for stream in graph.borders:
            wanted = model.waiting(names[stream.name])
            _compare(f"waiting in {stream.name} {when}", wanted, engine.scan(getattr(module, stream.name)))


def compare_earlier_states(engine: Any, model: Model, when: str) -> None:
    """What each row was, as long as somebody may ask for it, the newest first; nobody has to ask."""
    for name, keep in model.keeps.items():
        history, strings = engine._core.flows.histories[name], engine._core.strings
        table = pa.table({field: _texts(values, kind, strings) for field, values, kind in _columns_of(history)})
        got = [row for row in table.to_pylist() if row["time"] + keep > int(history.state[2])]
        states = model.state.states[name]
        latest = max((state.time for state in states), default=0)
        keys = model.tables[name]._key
        wanted = [
            {**dict(zip(keys, s.key, strict=True)), **s.fields, "time": s.time, "exists": s.exists}
            for s in states
            if s.time + keep > latest
        ]
        by_key = [sorted(rows, key=lambda row: [row[part] for part in keys]) for rows in (wanted, got)]
        for want, have in itertools.zip_longest(*by_key):
            if bits(have) != bits(want):
                raise Mismatch(f"earlier states of {name} {when}", *by_key)


def _columns_of(history: Any) -> Iterator[tuple[str, Any, str]]:
    """The fields of all states that a history holds, the oldest first."""
    places = np.arange(history.state[0], history.state[1]) & (len(history.time) - 1)
    layout = history.table.layout
    for position, column in enumerate(layout.key_columns):
        words = history.table.keys[history.slots[places], position]
        yield column.name, words.view(np.float64) if column.kind.value == "float" else words, column.kind.value
    for column in layout.value_columns:
        yield column.name, history.columns[column.name][places], column.kind.value
    yield "time", history.time[places], "int"
    yield "exists", history.exists[places], "bool"


def _texts(values: Any, kind: str, strings: Any) -> Any:
    return strings.texts(values) if kind == "str" else values


def compare_outputs(engine: Any, model: Model, module: Any, names: dict[str, Any], case: GraphCase) -> None:
    for graph in case.graphs:
        for stream in graph.outputs:
            got = engine.take(getattr(module, stream.name))
            _compare(f"output {stream.name}", model.take(names[stream.name]), got)


def _compare_history(engine: Any, model: Model, module: Any, case: GraphCase, one_worker: bool) -> None:
    """The same steps; in the same order where one worker ran them, and in one that breaks no rule where several did."""
    history = list(engine.history)
    wanted = [tuple(step)[1:] for step in model.history]
    got = [tuple(step)[1:] for step in history]
    if not one_worker:
        wanted, got = sorted(wanted), sorted(got)
    for position in range(max(len(wanted), len(got))):
        if wanted[position : position + 1] != got[position : position + 1]:
            raise Mismatch(f"history, step {position}", wanted[position:][:3], got[position:][:3])
    for graph in case.graphs:
        found = check_history(getattr(module, f"flow_{graph.number}"), history)
        if found:
            raise Mismatch("the history breaks a rule", [], found)


def _compare(what: str, wanted: list[Event], table: pa.Table) -> None:
    got = table.to_pylist()
    if bits(got) != bits(wanted):
        raise Mismatch(what, wanted, got)


def explain(case: GraphCase) -> str:
    """The whole case as text."""
    lines = [case.source, *(f"load {name}: {rows}" for name, rows in case.loads.items())]
    for number, event in enumerate(case.events):
        shown = {name: value for name, value in event.items() if value is not None}
        lines.append(f"  {number}: {shown}")
    return "\n".join(lines)
