"""Runs a random case through the engine and compares every bit with the oracle.

What is compared after each batch: the events' own columns (untouched, in input order), `committed`,
`reason`, `result`, and every table in full. Floats are compared by their bits; all NaNs are one value.

    oracle                 once per case, batch by batch
    same                   engine.run on the batch, with its order_by
    cuts                   the batch's events, already in order, cut into several batches
    execute                engine.execute for each event
    reopened               each batch by a new engine on the directory where the state is kept
    repeated               each batch twice, as after a failure: the second time nothing may change

A `Mismatch` says what differed first; `explain` shows the program and the events beside it.
"""

from __future__ import annotations

import itertools
import linecache
import struct
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import fsspec
import pyarrow as pa

import tidegate as tg
from tidegate.compiler.program import build_program
from tidegate.durability.ownership import process_token, release
from tidegate.durability.served import stream_applicant
from tidegate.durability.version_info import Owner
from tidegate.durability.versioned import VersionedEngine
from tidegate.foundation.storage import open_storage
from tidegate.operations.decision import Strategy

from .choices import Choices
from .oracle import Oracle, Outcome
from .random_events import Batch, Case, Event
from .random_expressions import TableSpec
from .random_programs import ColumnSpec, Program

ARROW = {"int": pa.int64(), "float": pa.float64(), "bool": pa.bool_(), "str": pa.string()}
_numbers = itertools.count()


class Mismatch(AssertionError):
    """The engine and the oracle disagree."""


@dataclass(frozen=True)
class Expected:
    """What the oracle says: outcomes and tables after each batch."""

    outcomes: list[list[Outcome]]
    tables: list[dict[str, list[Event]]]


@dataclass(frozen=True)
class Configuration:
    """One way to run a case."""

    strategy: Strategy = "serial"
    workers: int = 1
    interpreted: bool = False
    batching: str = "same"


def expectation(case: Case) -> Expected:
    oracle = Oracle(case.program.source)
    expected = Expected([], [])
    for batch in case.batches:
        for name, rows in batch.loads.items():
            if name in oracle.tables:
                oracle.load(name, rows)
        expected.outcomes.append(oracle.run(batch.events, batch.order_by))
        expected.tables.append({name: oracle.scan(name) for name in oracle.tables})
    return expected


@contextmanager
def imported(source: str) -> Iterator[types.ModuleType]:
    """The program as a module whose source `inspect` can find."""
    name = f"random_program_{next(_numbers)}"
    filename = f"<{name}>"
    module = types.ModuleType(name)
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    sys.modules[name] = module
    try:
        exec(compile(source, filename, "exec"), module.__dict__)
        yield module
    finally:
        del sys.modules[name], linecache.cache[filename]


def check(case: Case, module: Any, configuration: Configuration, expected: Expected, choices: Choices) -> int:
    """Raises Mismatch where the engine that runs the program in a module differs from what is expected.

    Returns how many batches ran on several workers because the adaptive strategy chose so.
    """
    program, shared = case.program, 0
    transactions = [getattr(module, spec.name) for spec in program.transactions]
    if configuration.batching in ("reopened", "repeated"):
        folder = f"{module.__name__}_{configuration.batching}"
        run = _run_reopened if configuration.batching == "reopened" else _run_repeated
        try:  # in memory: a disk would be asked to sync thousands of times
            run(case, transactions, module, f"memory://{folder}", expected, choices)
        finally:
            fsspec.filesystem("memory").rm(folder, recursive=True)
        return 0
    engine = tg.Engine(transactions, strategy=configuration.strategy, workers=configuration.workers)
    tables = used_tables(program)
    for number, batch in enumerate(case.batches):
        load_all(engine, module, tables, batch, choices)
        wanted = expected.outcomes[number]
        if configuration.batching == "same":
            _run(engine, case, batch, wanted, choices)
            shared += configuration.strategy == "adaptive" and engine.last_batch.workers > 1
        else:
            ordered, outcomes = in_order(batch, wanted)
            if configuration.batching == "execute" and case.by_order:
                return 0  # a call has no order_by, and so no time
            if configuration.batching == "execute":
                _execute_each(engine, module, program, ordered, outcomes)
            else:
                _run_cuts(engine, case, ordered, outcomes, choices)
        compare_tables(lambda table: engine.scan(getattr(module, table)), tables, expected.tables[number])
    return shared


def _run_reopened(
    case: Case, transactions: list[Any], module: Any, directory: str, expected: Expected, choices: Choices
) -> None:
    """Every batch by an engine of its own that finds the state in a directory."""
    tables = used_tables(case.program)
    for number, batch in enumerate(case.batches):
        with tg.Engine(transactions, directory=directory) as engine:
            load_all(engine, module, tables, batch, choices)
            _run(engine, case, batch, expected.outcomes[number], choices)
        with tg.Engine(transactions, directory=directory) as engine:
            compare_tables(lambda table: engine.scan(getattr(module, table)), tables, expected.tables[number])


def _run_repeated(
    case: Case, transactions: list[Any], module: Any, directory: str, expected: Expected, choices: Choices
) -> None:
    """Every batch twice, as Spark does after a failure; the second time by an engine that knows nothing."""
    tables = used_tables(case.program)
    program = build_program(transactions)
    for number, batch in enumerate(case.batches):
        if batch.loads:
            with tg.Engine(transactions, directory=directory) as engine:
                load_all(engine, module, tables, batch, choices)
        owner = Owner("query", "comparison", process_token())
        for _ in range(2):
            versioned = VersionedEngine(program, directory)
            events = events_table(case, batch)
            outcomes = versioned.process(
                stream_applicant("query", number), events, order_by=batch.order_by, late="run", owner=owner
            )
            compare_outcomes(case.program, outcomes, batch, expected.outcomes[number])
            compare_tables(versioned.core.rows, tables, expected.tables[number])
        release(open_storage(directory), "query")


def load_all(engine: Any, module: Any, tables: list[TableSpec], batch: Batch, choices: Choices) -> None:
    for table in tables:
        if table.name in batch.loads:
            _load(engine, module, table, batch.loads[table.name], choices)


def _load(engine: Any, module: Any, table: TableSpec, rows: list[Event], choices: Choices) -> None:
    names = list(rows[0]) if rows else [name for name, _, _ in table.fields]
    kinds = {name: kind for name, kind, _ in table.fields}
    schema = pa.schema([(name, ARROW[kinds[name]]) for name in names])
    engine.load(getattr(module, table.name), dressed(pa.Table.from_pylist(rows, schema), choices))


def _run(engine: Any, case: Case, batch: Batch, wanted: list[Outcome], choices: Choices) -> None:
    events = dressed(events_table(case, batch), choices)
    outcomes = engine.run(events, order_by=batch.order_by)
    kept = outcomes.drop_columns(["committed", "reason", "result"])
    if kept.schema != events.schema or bits(kept.to_pylist()) != bits(events.to_pylist()):
        raise Mismatch(f"the events' own columns changed: {events.schema} became {outcomes.schema}")
    compare_outcomes(case.program, outcomes, batch, wanted)


def _run_cuts(engine: Any, case: Case, events: list[Event], wanted: list[Outcome], choices: Choices) -> None:
    start = 0
    while start < len(events):
        stop = start + 1 + choices.below(len(events) - start)
        order_by = "ts" if case.by_order else None
        _run(engine, case, Batch(events[start:stop], order_by), wanted[start:stop], choices)
        start = stop


def _execute_each(engine: Any, module: Any, program: Program, events: list[Event], wanted: list[Outcome]) -> None:
    specs = {spec.name: spec for spec in program.transactions}
    for event, want in zip(events, wanted, strict=True):
        name = event.get("transaction", program.transactions[0].name)
        if name not in specs:
            continue
        arguments = {column.name: event[column.name] for column, _ in specs[name].parameters}
        got = engine.execute(getattr(module, name), **arguments)
        if got.reason in want.faults and not got.committed:
            continue
        have = (got.committed, want.bare(got.reason), plain(got.result))
        if bits(have) != bits((want.committed, want.reason, want.result)):
            raise Mismatch(f"execute {event}:\n  expected {want}\n  got      {got}")


def used_tables(program: Program) -> list[TableSpec]:
    used = {table.name: table for spec in program.transactions for _, table in spec.parameters if table}
    return list(used.values())


def in_order(batch: Batch, wanted: list[Outcome]) -> tuple[list[Event], list[Outcome]]:
    """The events in the order in which they run; those without a place in the order are left out."""
    positions = list(range(len(batch.events)))
    if batch.order_by:
        places = [event[batch.order_by] for event in batch.events]
        positions = sorted((p for p in positions if places[p] is not None), key=lambda p: places[p])
    return [batch.events[p] for p in positions], [wanted[p] for p in positions]


# Arrow.


def _key_type(kinds: Sequence[tuple[str, str]]) -> pa.DataType:
    if len(kinds) == 1:
        return ARROW[kinds[0][1]]
    return pa.struct([(name, ARROW[kind]) for name, kind in kinds])


def column_type(column: ColumnSpec) -> pa.DataType:
    return pa.list_(_key_type(column.kinds)) if column.is_list else _key_type(column.kinds)


def events_table(case: Case, batch: Batch) -> pa.Table:
    fields = [pa.field("note", pa.string())]
    if case.has_transaction_column:
        fields.append(pa.field("transaction", pa.string()))
    if case.order is not None:
        fields.append(pa.field("ts", ARROW[case.order]))
    fields += [pa.field(column.name, column_type(column)) for column in case.program.columns]
    rows = [{"note": f"event {number}", **event} for number, event in enumerate(batch.events)]
    return pa.Table.from_pylist(rows, pa.schema(fields))


def dressed(table: pa.Table, choices: Choices) -> pa.Table:
    """The same rows in another Arrow form: in pieces, at an offset, with wider or encoded types."""
    match choices.below(8):
        case 0:
            padded = pa.concat_tables([table.slice(0, 1), table, table.slice(0, 1)]).combine_chunks()
            return padded.slice(min(1, table.num_rows), table.num_rows)
        case 1:
            cut = choices.between(0, table.num_rows)
            return pa.concat_tables([table.slice(0, cut), table.slice(cut)])
        case 2:
            return _retyped(table, pa.string(), pa.large_string())
        case 3:
            return _retyped(table, pa.string(), pa.dictionary(pa.int32(), pa.string()))
        case 4:
            return table.select(table.column_names[::-1])
    return table


def _retyped(table: pa.Table, old: pa.DataType, new: pa.DataType) -> pa.Table:
    columns = [column.cast(new) if column.type == old else column for column in table.columns]
    return pa.table(columns, names=table.column_names)


# Comparison.


def bits(value: Any) -> Any:
    """A value in a form in which equality means the same bits; every NaN is the same."""
    if isinstance(value, float):
        return "nan" if value != value else struct.pack(">d", value)
    if isinstance(value, bool) or value is None or isinstance(value, (int, str)):
        return (type(value).__name__, value)
    if isinstance(value, dict):
        return {name: bits(item) for name, item in value.items()}
    return [bits(item) for item in value]


def plain(result: Any) -> Any:
    """A NamedTuple or dataclass as a dict."""
    if hasattr(result, "_asdict"):
        return result._asdict()
    return dict(vars(result)) if hasattr(result, "__dict__") else result


def result_type(program: Program) -> tuple[pa.DataType, bool]:
    """The result column's type, and whether it has one field per transaction."""
    kinds = {spec.name: spec.returns for spec in program.transactions if spec.returns is not None}
    arrow = {
        name: ARROW[kind]
        if isinstance(kind, str)
        else pa.struct([(f"member_{number}", ARROW[part]) for number, part in enumerate(kind[1])])
        for name, kind in kinds.items()
    }
    if len(set(kinds.values())) <= 1:
        return next(iter(arrow.values()), pa.int64()), False
    return pa.struct(list(arrow.items())), True


def compare_outcomes(program: Program, got: pa.Table, batch: Batch, wanted: list[Outcome]) -> None:
    expected_type, by_transaction = result_type(program)
    if got.schema.field("result").type != expected_type:
        raise Mismatch(f"result type: expected {expected_type}, got {got.schema.field('result').type}")
    if got.schema.field("committed").type != pa.bool_() or got.schema.field("reason").type != pa.string():
        raise Mismatch(f"outcome types: got {got.schema}")
    committed, reasons, results = (got[name].to_pylist() for name in ("committed", "reason", "result"))
    if len(committed) != len(wanted):
        raise Mismatch(f"expected {len(wanted)} outcomes, got {len(committed)}")
    for position, want in enumerate(wanted):
        result = want.result
        if by_transaction and result is not None:
            name = batch.events[position]["transaction"]
            result = {field.name: result if field.name == name else None for field in expected_type}
        have = (committed[position], want.bare(reasons[position]), results[position])
        if have[1] in want.faults and have[::2] == (False, None):
            continue
        if bits(have) != bits((want.committed, want.reason, result)):
            event = batch.events[position]
            raise Mismatch(f"event {position} {event}:\n  expected {want}\n  got      {have}")


def compare_tables(scan: Callable[[str], pa.Table], tables: list[TableSpec], wanted: dict[str, list[Event]]) -> None:
    for table in tables:
        scanned = scan(table.name)
        if scanned.schema.names != [name for name, _, _ in table.fields]:
            raise Mismatch(f"table {table.name}: got columns {scanned.schema.names}")
        got = scanned.to_pylist()
        if bits(got) != bits(wanted[table.name]):
            raise Mismatch(f"table {table.name}:\n  expected {wanted[table.name]}\n  got      {got}")


def explain(case: Case) -> str:
    """The whole case as text: source, loads and batches."""
    lines = [case.program.source]
    for batch in case.batches:
        lines += [f"load {name}: {rows}" for name, rows in batch.loads.items()]
        lines.append(f"batch, order_by={batch.order_by}:")
        lines += [f"  {event}" for event in batch.events]
    return "\n".join(lines)
