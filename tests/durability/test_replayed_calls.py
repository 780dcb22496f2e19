"""Calls that are replayed in batches leave what executing them one by one left: outcomes, rows, graphs, all of it.

Two engines have the same program. One executes calls and logs them, the other one replays the log.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.compiler.program import build_program
from tidegate.durability import log_reading
from tidegate.durability.commands import Codec, Execute, Load, Run
from tidegate.durability.log_reading import CommandReader, ExecuteBatch
from tidegate.engine.core import EngineCore
from tidegate.engine.kernels.index import COUNT
from tidegate.foundation.errors import InputError
from tidegate.foundation.jit import uncompiled
from tidegate.operations.plan import Program
from tidegate.workloads import ledger, streaming_ledger

from ..truth.choices import Choices
from ..truth.comparison import ARROW, bits, imported, used_tables
from ..truth.graph_comparison import events_schema, is_plain
from ..truth.random_events import Case, random_case
from ..truth.random_graphs import GraphCase, random_graph_case
from ..truth.running import chunks, name_of
from . import test_log_reading as programs
from .test_log_reading import payloads_of


@pytest.fixture(autouse=True)
def smallest_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reading, "ROWS_MIN", 1)


class Twins:
    """Two engines with the same program: one does what it is asked to and logs it, the other one replays the log."""

    def __init__(self, program: Program, choices: Choices, record: bool = False) -> None:
        self.plan, self._choices = program.plan, choices
        self.doing = EngineCore(program, track_changes=True, record=record)
        self.replaying = EngineCore(program, track_changes=True, record=record)
        self.codec, self._reader = Codec(program.plan.transactions), CommandReader(program.plan)
        self._payloads: list[bytes] = []
        self._outcomes: list[Any] = []
        self.batched = 0

    def load(self, name: str, rows: pa.Table) -> None:
        self._log(self.codec.encode(Load(name, rows)))
        self.doing.load(name, rows)

    def run(self, events: pa.Table) -> None:
        self._log(self.codec.encode(Run(events)))
        self.doing.run(events)

    def execute(self, number: int, arguments: dict[str, Any]) -> None:
        record, taken = self.codec.execute(number, arguments)
        self._log(record)
        self._outcomes.append(self.doing.execute(number, taken))

    def _log(self, record: bytes) -> None:
        if self._payloads and self._choices.chance(50):
            self._payloads[-1] += record
        else:
            self._payloads.append(record)

    def compare(self, what: str) -> None:
        """Replays what was logged, and compares everything."""
        outcomes: list[Any] = []
        for command in self._reader.commands(payloads_of(self._payloads)):
            if isinstance(command, ExecuteBatch):
                self.batched += len(command)
                if not self.plan.flows.members and self._choices.chance(50):
                    outcomes += self._run(command)
                else:
                    self.replaying.run(command.events)
                    outcomes += [None] * len(command)
            elif isinstance(command, Execute):
                names = [parameter.name for parameter in self.plan.transactions[command.transaction].parameters]
                arguments = dict(zip(names, command.arguments, strict=True))
                outcomes.append(self.replaying.execute(command.transaction, arguments))
            elif isinstance(command, Run):
                self.replaying.run(command.events)
            else:
                assert isinstance(command, Load)
                self.replaying.load(command.table, command.rows)
        for wanted, got in zip(self._outcomes, outcomes, strict=True):
            if got is not None:
                assert bits((got.committed, got.reason, got.result)) == bits(
                    (wanted.committed, wanted.reason, wanted.result)
                ), what
        self._payloads, self._outcomes = [], []
        assert_same(self.doing, self.replaying, what)

    def _run(self, batch: ExecuteBatch) -> list[tg.Outcome]:
        found = []
        for row in self.replaying.run(batch.events).outcomes.to_pylist():
            result = row["result"]
            if self.plan.result_by_transaction and result is not None:
                result = result[row["transaction"]]
            found.append(tg.Outcome(row["committed"], row["reason"], result))
        return found


def assert_same(one: EngineCore, other: EngineCore, what: str) -> None:
    changed = [{name: bits(rows.to_pylist()) for name, rows in core.take_changes().items()} for core in (one, other)]
    plain = {layout.name for layout in one.plan.tables}
    for name in plain:
        wanted, got = (sorted(found.get(name, []), key=repr) for found in changed)
        assert got == wanted, what
    for name in one.tables:
        wanted_rows, got_rows = (core.rows(name).to_pylist() for core in (one, other))
        if name in plain:
            assert one.tables[name]._counters[COUNT] == other.tables[name]._counters[COUNT], what
        else:  # a graph that has not run yet may say so, or say nothing
            wanted_rows, got_rows = ([row for row in rows if row.get("value") != 0] for rows in (wanted_rows, got_rows))
        assert bits(got_rows) == bits(wanted_rows), f"{what}: {name}"
    if one.plan.flows.members:
        assert one.flows.history == other.flows.history, what
        assert one.flows.rounds.tolist() == other.flows.rounds.tolist(), what
        for number in range(len(one.flows.streams)):
            if not any(not flow.name and number in flow.borders for flow in one.flows.flows.flows):
                assert one.flows.scan(number).to_pylist() == other.flows.scan(number).to_pylist(), what
        for number in range(len(one.flows.window_layouts)):
            wanted_rows, got_rows = (flows.window_rows(number).to_pylist() for flows in (one.flows, other.flows))
            assert bits(got_rows) == bits(wanted_rows), what


@pytest.mark.parametrize("seeds", chunks(0, 160, 40), ids=name_of)
def test_replaying_random_programs_equals_executing_one_by_one(seeds: range) -> None:
    batched = 0
    with uncompiled():
        for seed in seeds:
            choices = Choices(seed)
            case = random_case(choices)
            source = case.program.interpreted if seed % 4 == 0 else case.program.source
            with imported(source) as module:
                program = build_program([getattr(module, spec.name) for spec in case.program.transactions])
                batched += _replay_case(Twins(program, choices), case, f"seed {seed}")
    assert batched > 1000


def _replay_case(twins: Twins, case: Case, what: str) -> int:
    specs = {spec.name: spec for spec in case.program.transactions}
    for batch in case.batches:
        for table in used_tables(case.program):
            kinds = {name: ARROW[kind] for name, kind, _ in table.fields}
            rows = batch.loads.get(table.name)
            if rows:
                schema = pa.schema([(name, kinds[name]) for name in rows[0]])
                twins.load(table.name, pa.Table.from_pylist(rows, schema))
        for event in batch.events:
            name = event.get("transaction", case.program.transactions[0].name)
            if name in specs:
                arguments = {column.name: event[column.name] for column, _ in specs[name].parameters}
                twins.execute(twins.plan.names.index(name), arguments)
        twins.compare(what)
    return twins.batched


@pytest.mark.parametrize("seeds", chunks(0, 90, 30), ids=name_of)
def test_replaying_plain_transactions_between_the_rounds_of_graphs_equals_executing_them(seeds: range) -> None:
    batched = 0
    with uncompiled():
        for seed in seeds:
            choices = Choices(seed)
            case = random_graph_case(choices)
            with imported(case.source) as module:
                program = build_program([getattr(module, name) for name in case.names])
                twins = Twins(program, choices, record=seed % 3 == 0)
                _replay_graphs(twins, case, choices, f"seed {seed}")
                batched += twins.batched
    assert batched > 100


def _replay_graphs(twins: Twins, case: GraphCase, choices: Choices, what: str) -> None:
    schema = events_schema(case)
    for table in case.tables:
        if table.name in twins.doing.tables:
            kinds = pa.schema([(name, ARROW[kind]) for name, kind, _ in table.fields])
            twins.load(table.name, pa.Table.from_pylist(case.loads[table.name], kinds))
    for number, event in enumerate(case.events):
        if is_plain(case, event):
            (parameters,) = (parameters for name, parameters in case.plain if name == event["transaction"])
            arguments = {given.name: event[given.name] for given, _ in parameters}
            for _ in range(choices.between(1, 4)):
                twins.execute(twins.plan.names.index(event["transaction"]), arguments)
        else:
            twins.run(pa.Table.from_pylist([{"note": number, **event}], schema))
        if choices.chance(10):
            twins.compare(f"{what}, event {number}")
    twins.compare(what)


# --- the ledgers ------------------------------------------------------------------------------------------------


def test_replaying_the_ledger_equals_executing_it() -> None:
    settings = ledger.LedgerSettings(accounts=100, overdraw_ratio=0.1, arbitrary_keys=True, seed=3)
    generator = ledger.EventGenerator(settings)
    twins = Twins(build_program(ledger.PROGRAM), Choices(1))
    twins.load("Account", generator.opening())
    _replay_events(twins, generator.batch(3000))


def test_replaying_the_streaming_ledger_equals_executing_it() -> None:
    workload = streaming_ledger.StreamingLedger(
        streaming_ledger.LedgerSettings(theta=0.6, abort_ratio=0.1, cost_us=0.0, batch_events=3000, keys=500)
    )
    twins = Twins(build_program(workload.program), Choices(1))
    for table, rows in workload.opening().items():
        twins.load(table.__name__, rows)
    _replay_events(twins, workload.batch(0))


def _replay_events(twins: Twins, events: pa.Table) -> None:
    for event in events.to_pylist():
        number = twins.plan.names.index(event["transaction"])
        twins.execute(number, {p.name: event[p.name] for p in twins.plan.transactions[number].parameters})
    twins.compare("a ledger")
    assert twins.batched == events.num_rows


# --- programs of all sorts --------------------------------------------------------------------------------------

KEYS = [0, 1, -1, 2**63 - 1, -(2**63), 2**62]
PRICES = [0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, 5e-324]
NAMES = ["", "ab", "käse", "a\0", "x" * 70]


def test_keys_of_all_kinds_lists_deletes_and_plain_python_replay_alike() -> None:
    choices = Choices(7)
    pick = choices.pick
    twins = Twins(programs.PROGRAM, choices)
    sale = lambda: (pick(NAMES), pick(KEYS), pick(PRICES))  # noqa: E731
    for _ in range(40):
        for _ in range(30):
            number = choices.below(6)
            some_of = lambda item: [item() for _ in range(choices.below(4))]  # noqa: E731
            arguments: dict[str, Any] = [
                {
                    "account": pick(KEYS),
                    "amount": pick(KEYS),
                    "rate": pick(PRICES),
                    "opened": True,
                    "note": pick(NAMES),
                },
                {"sale": sale(), "count": choices.below(90)},
                {
                    "accounts": some_of(lambda: pick(KEYS)),
                    "sales": some_of(sale),
                    "names": some_of(lambda: pick(NAMES)),
                    "rates": some_of(lambda: pick(PRICES)),
                    "flags": some_of(lambda: choices.chance(50)),
                },
                {"shop": pick(NAMES), "point": pick(PRICES)},
                {"account": pick(KEYS)},
                {"account": pick(KEYS), "note": pick(NAMES), "amount": choices.below(3)},
            ][number]
            if choices.chance(3):
                arguments[pick(list(arguments))] = None
            twins.execute(number, arguments)
        twins.compare("all kinds")
    assert twins.batched > 1000


@tg.table(key="id")
class Count:
    id: int
    value: int = 0


@tg.table(key="at")
class Level:
    at: float
    value: int = 0


@tg.table(key=("a", "b"))
class Pair:
    a: int
    b: str
    value: int = 0


@tg.table(key=("b", "a"))
class Riap:
    a: int
    b: str
    value: int = 0


@tg.transaction
def count_up(row: Count, by: int) -> int:
    row.value += by
    return row.value


@tg.transaction
def level_up(row: Level, by: int) -> int:
    row.value += by
    return row.value


@tg.transaction
def pair_up(pair: Pair, by: int) -> int:
    pair.value += by
    return pair.value


@tg.transaction
def riap_up(pair: Riap, by: int) -> int:
    pair.value += 2 * by
    return pair.value


def test_a_column_of_two_types_is_no_column_for_the_one_that_it_cannot_carry() -> None:
    """A float is no key of ints: an engine refuses such calls, replayed or not; ints are both."""
    program = build_program([count_up, level_up])
    codec = Codec(program.plan.transactions)
    (first, second, third) = [
        codec.encode(call) for call in (Execute(0, (1, 2)), Execute(1, (1.5, 2)), Execute(0, (1, 3)))
    ]
    found = list(CommandReader(program.plan).commands(payloads_of([first, second, third])))
    assert [type(part) for part in found] == [ExecuteBatch, Execute, ExecuteBatch]
    core = EngineCore(program)
    core.run(found[0].events)  # type: ignore[union-attr]
    with pytest.raises(InputError, match="'row' has type double"):
        core.execute(1, {"row": 1.5, "by": 2})
    core.run(found[2].events)  # type: ignore[union-attr]
    assert core.rows("Count").to_pylist() == [{"id": 1, "value": 5}]


def test_a_column_of_keys_whose_fields_stand_in_another_order_carries_both() -> None:
    twins = Twins(build_program([pair_up, riap_up, count_up]), Choices(3))
    for number in range(40):
        twins.execute(0, {"pair": (number % 3, "x"), "by": 1})
        twins.execute(1, {"pair": ("x", number % 3), "by": number})
        twins.execute(2, {"row": number % 5, "by": number})
    twins.compare("pairs")
    assert twins.batched == 120


@tg.transaction
def oddly_named(transaction: Count, by: int) -> int:
    transaction.value += by
    return transaction.value


def test_calls_whose_arguments_cannot_be_columns_are_given_one_by_one() -> None:
    program = build_program([oddly_named, count_up])
    codec = Codec(program.plan.transactions)
    payload = codec.encode(Execute(0, (1, 2))) + codec.encode(Execute(1, (1, 2)))
    found = list(CommandReader(program.plan).commands(payloads_of([payload])))
    assert found == [Execute(0, (1, 2)), Execute(1, (1, 2))]


orders = tg.stream("orders", row=Count, by=int)


@tg.transaction(on=orders)
def order(row: Count, by: int) -> int:
    row.value += 100 * by
    return row.value


def test_calls_between_the_events_of_an_unfinished_atomic_batch_leave_those_waiting_as_they_were() -> None:
    program = build_program([count_up, tg.dataflow([order], atomic_batch=3)])
    twins = Twins(program, Choices(5))
    events = pa.table({"transaction": ["orders"], "row": pa.array([1], pa.int32()), "by": pa.array([7], pa.int16())})
    for number in range(20):
        twins.run(events)
        for _ in range(3):
            twins.execute(program.plan.names.index("count_up"), {"row": 1, "by": 1})
        twins.compare(f"after {number}")
        assert twins.doing.flows is not None and twins.replaying.flows is not None
        stream = twins.doing.flows.stream_number("orders")
        wanted, got = (core.flows.scan(stream) for core in (twins.doing, twins.replaying))  # type: ignore[union-attr]
        assert got.equals(wanted), "their types, too"
    assert twins.batched == 60


def test_replay_is_the_same_for_every_strategy() -> None:
    program = build_program(ledger.PROGRAM)
    generator = ledger.EventGenerator(ledger.LedgerSettings(accounts=20, overdraw_ratio=0.1))
    opening, events = generator.opening(), generator.batch(2000)
    codec, plan = Codec(program.plan.transactions), program.plan
    records = []
    for event in events.to_pylist():
        number = plan.names.index(event["transaction"])
        records.append(codec.execute(number, {p.name: event[p.name] for p in plan.transactions[number].parameters})[0])
    rows = []
    for strategy, workers in (("serial", 1), ("adaptive", 2), (tg.Decision(), 2)):
        core = EngineCore(program, strategy=strategy, workers=workers)  # type: ignore[arg-type]
        core.load("Account", opening)
        for part in CommandReader(plan).commands(payloads_of(records)):
            assert isinstance(part, ExecuteBatch)
            core.run(part.events)
        rows.append(core.rows("Account"))
        core.runner.workers.close()
    assert rows[0].equals(rows[1]) and rows[0].equals(rows[2])
    assert not np.array_equal(rows[0]["balance"], opening["balance"])
