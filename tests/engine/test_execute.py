"""`engine.execute`: one transaction now gives what the same event gives in a batch, in every respect, but sooner.

Random programs run twice, event by event: one engine executes, the other runs batches of one. Outcomes, the rows
noted as changed, the rows themselves and the report must be the same. Then arguments of any type at all: they must
be taken or refused in the words that the batch has for them.
"""

from __future__ import annotations

import collections
import decimal
import math
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import fsspec
import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.compiler.program import build_program
from tidegate.engine import core as core_module
from tidegate.engine.core import EngineCore
from tidegate.engine.kernels.index import COUNT
from tidegate.engine.single import LIST_ITEMS_MAX, REASONS_REMEMBERED
from tidegate.foundation.jit import uncompiled

from ..strategies import STRATEGIES
from ..truth.choices import Choices
from ..truth.comparison import ARROW, bits, events_table, imported, used_tables
from ..truth.random_events import Batch, Case, Event, random_case
from ..truth.running import Record, chunks, name_of

PROGRAMS = 160
ODD_ARGUMENTS: list[Any] = [
    None, True, 0, -1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**53, 2**53 + 1, 1.5, -0.0, math.nan, math.inf,
    "a", "", "\ud800", "a" * 100, b"a", decimal.Decimal(1), object(), range(3), [], [1], [None], [[1]], [1.5, 2],
    ["a", "b"], [True], [math.nan], (1, "a"), (1, "a", 2), {}, {"id": 1}, [{}], [(1, "a"), (2, "b")], [1] * 1000,
    np.int64(3), np.int32(3), np.uint64(2**63), np.float64(0.5), np.float32(0.5), np.float64("nan"), np.bool_(True),
    np.array([1, 2]), [np.int64(1), np.float64(2.0)],
]  # fmt: skip


# --- random programs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", chunks(0, PROGRAMS, 40), ids=name_of)
def test_executing_one_by_one_equals_running_one_by_one(
    seeds: range, record_property: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seeds.start // 40 % 2:  # strings are renumbered in every batch
        monkeypatch.setattr(core_module, "STRINGS_KEPT", -(10**9))
    with uncompiled():
        for seed in seeds:
            choices = Choices(seed)
            case = random_case(choices)
            for executing, running, event, number, arguments in _steps(case, choices, interpreted=seed % 4 == 0):
                got = executing.execute(number, arguments)
                events = events_table(case, Batch([event], None))
                outcome = running.run(events).outcomes.select(["committed", "reason", "result"]).to_pylist()[0]
                if running.plan.result_by_transaction and outcome["result"] is not None:
                    outcome["result"] = outcome["result"][running.plan.names[number]]
                wanted = tuple(outcome.values())
                assert bits((got.committed, got.reason, got.result)) == bits(wanted), f"seed {seed}: {event}"
                assert _reported(executing) == _reported(running), f"seed {seed}: {event}"
                _assert_same_state(executing, running, f"seed {seed}: {event}")
    record_property("compared programs executed event by event", len(seeds))


@pytest.mark.parametrize("seeds", chunks(5000, PROGRAMS, 40), ids=name_of)
def test_any_argument_is_taken_or_refused_as_a_batch_does(seeds: range, record_property: Record) -> None:
    with uncompiled():
        for seed in seeds:
            choices = Choices(seed)
            case = random_case(choices)
            for executing, running, _, number, arguments in _steps(case, choices, interpreted=seed % 4 == 0):
                if choices.chance(80):
                    arguments[choices.pick(list(arguments))] = choices.pick(ODD_ARGUMENTS)
                got = _attempt(lambda: executing.execute(number, arguments))  # noqa: B023
                wanted = _attempt(lambda: running._execute_as_batch(number, arguments))  # noqa: B023
                assert got == wanted, f"seed {seed}: {arguments}"
                _assert_same_state(executing, running, f"seed {seed}: {arguments}")
    record_property("compared programs with arguments of any type", len(seeds))


def _steps(
    case: Case, choices: Choices, interpreted: bool
) -> Iterator[tuple[EngineCore, EngineCore, Event, int, dict[str, Any]]]:
    """Two engines with the same rows, and the events of a case with their arguments, one by one."""
    specs = {spec.name: spec for spec in case.program.transactions}
    with imported(case.program.interpreted if interpreted else case.program.source) as module:
        program = build_program([getattr(module, name) for name in specs])
        engines = EngineCore(program, track_changes=True), EngineCore(program, track_changes=True)
        for batch in case.batches:
            for table in used_tables(case.program):
                kinds = {name: ARROW[kind] for name, kind, _ in table.fields}
                for engine in engines:
                    rows = batch.loads.get(table.name) or [{}]
                    schema = pa.schema([(name, kinds[name]) for name in (rows[0] or kinds)])
                    engine.load(table.name, pa.Table.from_pylist([row for row in rows if row], schema))
                    engine.take_changes()
            for event in batch.events:
                name = event.get("transaction", case.program.transactions[0].name)
                if name in specs:
                    arguments = {c.name: _as_argument(choices, event[c.name]) for c, _ in specs[name].parameters}
                    yield *engines, event, program.plan.names.index(name), arguments


def _as_argument(choices: Choices, value: Any) -> Any:
    """A value of an event as a caller may give it: composite keys as dicts or tuples, lists as lists or tuples."""
    if isinstance(value, list):
        items = [_as_argument(choices, item) for item in value]
        return items if choices.chance(50) else tuple(items)
    if isinstance(value, dict):
        return tuple(value.values()) if choices.chance(50) else {**value, "more": None}
    return value


def _attempt(action: Callable[[], tg.Outcome]) -> Any:
    try:
        outcome = action()
    except Exception as error:
        return type(error), str(error), type(error.__cause__), str(error.__cause__)
    return bits((outcome.committed, outcome.reason, outcome.result))


def _reported(engine: EngineCore) -> tuple[Any, ...]:
    found = engine.last_batch
    assert found is not None
    return (
        found.events,
        found.committed,
        found.aborted,
        found.strategy,
        found.interpreted,
        found.workers,
        [*found.seconds],
    )


def _assert_same_state(one: EngineCore, other: EngineCore, what: str) -> None:
    assert _changes(one) == _changes(other), what
    for name, table in one.tables.items():
        assert bits(one.rows(name).to_pylist()) == bits(other.rows(name).to_pylist()), what
        assert len(table.fresh) == 0 and not table.marks.any(), what
        assert table._counters[COUNT] == other.tables[name]._counters[COUNT], what


def _changes(engine: EngineCore) -> dict[str, Any]:
    """The rows that were written, sorted: the order of their slots does not matter."""
    return {name: sorted(map(repr, bits(rows.to_pylist()))) for name, rows in engine.take_changes().items()}


# --- what is executed without a batch -----------------------------------------------------------------------------


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0


@tg.table(key=("place", "name", "open", "level"))
class Shelf:
    place: int
    name: str
    open: bool
    level: float
    label: str = "none"
    weight: float = 0.0


class Found(NamedTuple):
    label: str
    weight: float
    count: int
    opened: bool


@tg.transaction
def transfer(src: Account, dst: Account, amount: int) -> int:
    tg.require(src.balance >= amount, "insufficient funds")
    src.balance -= amount
    dst.balance += amount
    return src.balance


@tg.transaction
def audit(accounts: list[Account]) -> int:
    total = 0
    for account in accounts:
        total += account.balance
    return total


@tg.transaction
def store(shelf: Shelf, others: list[Shelf], label: str, weights: list[float], opened: bool) -> Found:
    shelf.label = label
    for weight in weights:
        shelf.weight += weight
    for other in others:
        other.weight = -shelf.weight
    tg.require(shelf.weight < 1000.0, "too heavy")
    return Found(shelf.label, shelf.weight, len(others), opened)


@tg.transaction
def close(src: Account) -> None:
    tg.require(src.exists, "no such account")
    tg.delete(src)


@tg.transaction(compiled=False)
def explain(src: Account, amount: int) -> int:
    if amount < 0:
        raise tg.Abort(f"{amount} is negative")
    src.balance += amount
    return src.balance


PROGRAM = [transfer, audit, store, close, explain]
KEY = (1, "a", True, -0.0)
OTHER_KEY = {"level": 2.5, "open": False, "name": "b", "place": -1}


@pytest.fixture
def no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever would be executed as a batch fails."""
    monkeypatch.setattr(EngineCore, "_execute_as_batch", None)


@pytest.mark.usefixtures("no_batch")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_plain_arguments_make_no_batch(strategy: Any) -> None:
    with tg.Engine(PROGRAM, strategy=strategy, workers=2) as engine:
        engine.load(Account, pa.table({"id": [1, 2], "balance": [100, 0]}))
        assert engine.execute(transfer, src=1, dst=2, amount=30) == tg.Outcome(True, None, 70)
        assert engine.execute(transfer, src=np.int64(1), dst=3, amount=71).reason == "insufficient funds"
        assert engine.execute(audit, accounts=[1, 2, 3, 1]) == tg.Outcome(True, None, 170)
        assert engine.execute(audit, accounts=()) == tg.Outcome(True, None, 0)
        assert engine.execute(close, src=2) == tg.Outcome(True, None, None)
        assert engine.execute(close, src=2) == tg.Outcome(False, "no such account", None)
        assert engine.execute(explain, src=1, amount=2) == tg.Outcome(True, None, 72)
        assert engine.execute(explain, src=1, amount=-2) == tg.Outcome(False, "-2 is negative", None)
        assert engine.last_batch is not None and engine.last_batch.aborted == {"-2 is negative": 1}
        found = engine.execute(store, shelf=KEY, others=[OTHER_KEY, KEY], label="käse", weights=[1, 0.5], opened=True)
        assert found.result == {"label": "käse", "weight": -1.5, "count": 2, "opened": True}
        heavy = engine.execute(store, shelf=KEY, others=[OTHER_KEY], label="x", weights=[1e6], opened=False)
        assert heavy == tg.Outcome(False, "too heavy", None)
        assert engine.scan(Account).to_pydict() == {"id": [1], "balance": [72]}
        assert engine.read(Shelf, KEY) == {
            "place": 1, "name": "a", "open": True, "level": 0.0, "label": "käse", "weight": -1.5
        }  # fmt: skip
        assert engine.read(Shelf, (-1, "b", False, 2.5))["weight"] == -1.5


def test_an_integer_that_leaves_64_bits_on_the_way_goes_through_plain_python() -> None:
    @tg.transaction
    def middle(src: Account, other: int) -> int:
        src.balance = (src.balance + other) // 2
        return src.balance

    engine = tg.Engine([middle])
    engine.load(Account, pa.table({"id": [1], "balance": [2**63 - 1]}))
    assert engine.execute(middle, src=1, other=2**63 - 3) == tg.Outcome(True, None, 2**63 - 2)
    assert engine.last_batch is not None and engine.last_batch.interpreted == 1
    assert engine.execute(middle, src=1, other=0).result == 2**62 - 1
    assert engine.last_batch.interpreted == 0


def test_lists_of_any_length_are_taken() -> None:
    engine = tg.Engine(PROGRAM)
    for count in (0, 1, LIST_ITEMS_MAX, LIST_ITEMS_MAX + 1, 3, 4 * LIST_ITEMS_MAX, 0, 2):
        keys = [(number, "a", True, 0.0) for number in range(count)]
        found = engine.execute(store, shelf=(0, "", True, 0.0), others=keys, label="x", weights=[0.5], opened=True)
        assert found.committed and found.result["count"] == count
        heavy = engine.execute(store, shelf=(0, "", True, 0.0), others=keys, label="y", weights=[1e9], opened=True)
        assert heavy.reason == "too heavy"
    rows = engine.scan(Shelf)
    assert rows.num_rows == 4 * LIST_ITEMS_MAX + 1
    assert rows["label"].to_pylist().count("x") == 1
    assert min(rows["weight"].to_pylist()) == -4.0


def test_items_of_a_list_may_come_from_anywhere() -> None:
    engine = tg.Engine(PROGRAM)
    engine.load(Account, pa.table({"id": [1, 2], "balance": [10, 5]}))
    for accounts in (iter([1, 2]), np.array([1, 2]), {1: "a", 2: "b"}, range(1, 3), (n for n in (1, 2))):
        assert engine.execute(audit, accounts=accounts).result == 15


def test_tables_grow_and_are_swept_while_transactions_are_executed() -> None:
    engine = tg.Engine(PROGRAM)
    for number in range(3000):
        assert engine.execute(explain, src=number, amount=1).result == (2 if number else 1)
        assert engine.execute(transfer, src=number, dst=number + 1, amount=1).committed
        assert not engine.execute(transfer, src=-number - 1, dst=1, amount=1).committed  # looked at only
        if number % 2:
            assert engine.execute(close, src=number).committed
    assert engine.execute(audit, accounts=[0, 3000]).result == 1
    table = engine._core.tables["Account"]
    assert table._counters[COUNT] == engine.scan(Account).num_rows == 1501
    assert len(table.exists) == 2048


def test_batches_between_may_grow_tables_and_renumber_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_module, "STRINGS_KEPT", 10)
    engine = tg.Engine(PROGRAM)
    engine._core._strings_limit = 10
    for number in range(60):
        key = (number, f"name {number % 7}", False, float(number))
        label = f"label {number}"
        found = engine.execute(store, shelf=key, others=[], label=label, weights=[], opened=False)
        assert found.result == {"label": label, "weight": 0.0, "count": 0, "opened": False}
        events = {
            "transaction": ["explain"] * 50,
            "src": list(range(50 * number, 50 * number + 50)),
            "amount": [7] * 50,
        }
        empty = {name: pa.nulls(50) for name in engine._program.plan.columns if name not in events}
        engine.run(pa.table({**events, **empty}))
        assert engine.execute(audit, accounts=[50 * number, 50 * number + 49, 0]).result == 21
        if number % 3:
            engine.execute(store, shelf=key, others=[], label="none", weights=[], opened=False)
    rows = engine.scan(Shelf).to_pylist()
    assert [row["label"] for row in rows] == ["none" if n % 3 else f"label {n}" for n in range(60)]
    assert len(engine._core.strings) < 120


def test_reasons_that_plain_python_makes_up_do_not_pile_up() -> None:
    engine = tg.Engine([explain])
    for amount in range(1, 3 * REASONS_REMEMBERED):
        assert engine.execute(explain, src=1, amount=-amount).reason == f"{-amount} is negative"
    assert engine.execute(explain, src=1, amount=5).result == 5


def test_a_transaction_that_executes_another_does_not_lose_its_own_arguments() -> None:
    engine: tg.Engine

    @tg.transaction(compiled=False)
    def relay(src: Account, hops: int) -> int:
        tg.require(hops > 0, "the end")
        below = engine.execute(relay, src=hops, hops=hops - 1)
        src.balance += (below.result or 0) + 1
        return src.balance

    engine = tg.Engine([relay])
    engine.load(Account, pa.table({"id": [1, 2, 3, 10], "balance": [100, 200, 300, 0]}))
    assert engine.execute(relay, src=10, hops=3) == tg.Outcome(True, None, 200 + 300 + 3)
    assert engine.scan(Account)["balance"].to_pylist() == [100, 201, 502, 503]


def test_what_is_executed_on_a_directory_is_there_afterwards() -> None:
    directory = "memory://executed"
    try:
        with tg.Engine(PROGRAM, directory=directory) as engine:
            engine.load(Account, pa.table({"id": [1, 2, 3], "balance": [100, 0, 5]}))
            engine.execute(transfer, src=1, dst=1, amount=30)
            engine.execute(transfer, src=1, dst=4, amount=30)
            engine.execute(transfer, src=1, dst=5, amount=1000)
            engine.execute(close, src=3)
        with tg.Engine(PROGRAM, directory=directory) as engine:
            assert engine.scan(Account).to_pydict() == {"id": [1, 2, 4], "balance": [70, 0, 30]}
    finally:
        fsspec.filesystem("memory").rm("executed", recursive=True)


# --- threads and Ctrl-C -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("directory", [None, "memory://audited"])
def test_threads_that_execute_see_committed_states_only(directory: str | None) -> None:
    """A stream of transfers runs in batches while threads transfer and audit: all the money is always there."""
    accounts, threads = list(range(24)), 8
    rounds, size = (60, 2000) if directory is None else (8, 200)
    engine = tg.Engine([transfer, audit], workers=2, directory=directory)
    engine.load(Account, pa.table({"id": accounts, "balance": [1000] * len(accounts)}))
    seen: collections.Counter[int] = collections.Counter()
    finished = threading.Event()

    def stream() -> None:
        random = np.random.default_rng(0)
        try:
            for _ in range(rounds):
                src, dst, amount = (random.integers(0, len(accounts), size) for _ in range(3))
                names = pa.array(["transfer"] * size)
                nulls = pa.nulls(size, pa.list_(pa.int64()))
                engine.run(
                    pa.table({"transaction": names, "src": src, "dst": dst, "amount": amount, "accounts": nulls})
                )
        finally:
            finished.set()

    def work(number: int) -> list[int]:
        totals = []
        step = 0
        while not finished.is_set() or step < 20:
            step += 1
            engine.execute(transfer, src=(number + step) % 24, dst=(number * step) % 24, amount=step % 50)
            totals.append(engine.execute(audit, accounts=accounts).result)
            if step % 5 == 0:
                totals.append(sum(engine.scan(Account)["balance"].to_pylist()))
                assert engine.read(Account, number)["balance"] >= 0
        return totals

    try:
        with engine, ThreadPoolExecutor(threads + 1) as pool:
            running = pool.submit(stream)
            for totals in pool.map(work, range(threads)):
                seen.update(totals)
            running.result()
    finally:
        if directory is not None:
            fsspec.filesystem("memory").rm("audited", recursive=True)
    assert set(seen) == {1000 * len(accounts)}
    assert seen.total() > threads * 20


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_a_plain_function_and_leaves_nothing_of_it() -> None:
    @tg.transaction(compiled=False)
    def interrupted(src: Account, dst: Account) -> None:
        src.balance -= 10
        signal.raise_signal(signal.SIGINT)
        dst.balance += 10

    before = signal.getsignal(signal.SIGINT)
    engine = tg.Engine([interrupted])
    with pytest.raises(KeyboardInterrupt):
        engine.execute(interrupted, src=1, dst=2)
    assert signal.getsignal(signal.SIGINT) is before
    assert engine.scan(Account).num_rows == 0
    with pytest.raises(KeyboardInterrupt):
        engine.execute(interrupted, src=1, dst=3)
    assert engine.scan(Account).num_rows == 0


def test_other_threads_execute_without_touching_signals() -> None:
    handlers = []

    @tg.transaction(compiled=False)
    def look(src: Account) -> None:
        handlers.append(signal.getsignal(signal.SIGINT))

    engine = tg.Engine([look])
    thread = threading.Thread(target=lambda: engine.execute(look, src=1))
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGINT)]
