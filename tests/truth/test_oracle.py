"""The oracle and the generator, checked before they judge anything else.

The oracle takes rows out of dicts and puts them back. `run_live` below does the opposite: it keeps
one object per row for ever and copies everything before each transaction, to restore it after an
abort. Both must agree on every random program. The other tests are worked out by hand.
"""

from __future__ import annotations

import collections
import copy

import pytest

from .choices import Choices, shrink
from .oracle import Abort, Oracle, Outcome, Row, stored
from .random_events import Case, random_case

LEDGER = """
import tidegate as tg

@tg.table(key="id")
class Account:
    id: int
    balance: int = 10
    rate: float = 1

@tg.transaction
def transfer(src: Account, dst: Account, amount: int) -> int:
    src.balance -= amount
    dst.balance += amount
    tg.require(src.balance >= 0, "insufficient funds")
    return src.balance

@tg.transaction
def close(src: Account) -> None:
    tg.delete(src)

@tg.transaction
def divide(src: Account, amount: int) -> float:
    src.rate = 3
    return src.balance / amount
"""


def run_live(case: Case) -> tuple[list[Outcome], dict[str, dict]]:
    """Every row is one object for ever; what a transaction did is undone by copying it all back."""
    oracle = Oracle(case.program.source)
    live: dict[tuple[str, tuple], Row] = {}

    def load(loads: dict) -> None:
        for name in loads.keys() & oracle.tables.keys():
            oracle.state[name].clear()
            oracle.load(name, loads[name])
            live.update({(name, key): oracle.tables[name](key, v) for key, v in oracle.state[name].items()})

    def row(kind: type[Row], value: object) -> Row:
        key = Oracle._key(kind, value)
        return live.setdefault((kind.__name__, key), kind(key, None))

    def one(event: dict) -> Outcome:
        name = event.get("transaction", next(iter(oracle.transactions)))
        if name not in oracle.transactions or any(
            Oracle._fault(event[p], kind, many) for p, kind, many in oracle.transactions[name].parameters
        ):
            return oracle.execute(event)
        declared = oracle.transactions[name]
        before = {place: copy.copy(item.__dict__) for place, item in live.items()}
        try:
            arguments = []
            for parameter, kind, many in declared.parameters:
                value = event[parameter]
                if issubclass(kind, Row):
                    value = [row(kind, item) for item in value] if many else row(kind, value)
                arguments.append(value)
            return Outcome(True, None, stored(declared.function(*arguments), declared.returns))
        except Exception as error:
            for place, item in live.items():
                item.__dict__.clear()
                item.__dict__.update(before.get(place) or type(item)(place[1], None).__dict__)
            return Outcome(False, str(error) if isinstance(error, Abort) else type(error).__name__, None)

    outcomes: list[Outcome] = []
    for batch in case.batches:
        load(batch.loads)
        positions = range(len(batch.events))
        found: dict[int, Outcome] = {}
        if batch.order_by:
            placed = [p for p in positions if batch.events[p][batch.order_by] is not None]
            positions = sorted(placed, key=lambda p: batch.events[p][batch.order_by])
        for position in positions:
            found[position] = one(batch.events[position])
        missing = Outcome(False, f"null in order column {batch.order_by!r}", None)
        outcomes += [found.get(position, missing) for position in range(len(batch.events))]
    tables: dict[str, dict] = {name: {} for name in oracle.tables}
    for (name, key), item in live.items():
        if item.exists:
            tables[name][key] = {field: item.__dict__[field] for field in item._defaults}
    return outcomes, tables


@pytest.mark.parametrize("chunk", range(4))
def test_two_ways_of_keeping_rows_agree(chunk: int) -> None:
    for seed in range(chunk * 60, chunk * 60 + 60):
        case = random_case(Choices(seed))
        oracle = Oracle(case.program.source)
        outcomes: list[Outcome] = []
        for batch in case.batches:
            for name in batch.loads.keys() & oracle.tables.keys():
                oracle.load(name, batch.loads[name])
            outcomes += oracle.run(batch.events, batch.order_by)
        live_outcomes, live_tables = run_live(case)
        assert repr(outcomes) == repr(live_outcomes), case.program.source
        for name in oracle.tables:
            assert repr(sorted(oracle.state[name].items())) == repr(sorted(live_tables[name].items()))


def test_generated_programs_commit_and_abort_in_good_proportion() -> None:
    reasons: collections.Counter[str | None] = collections.Counter()
    changed = 0
    for seed in range(400):
        case = random_case(Choices(seed))
        oracle = Oracle(case.program.source)
        for batch in case.batches:
            for event in batch.events:
                before = repr(oracle.state)
                outcome = oracle.execute(event)
                reasons[outcome.reason] += 1
                changed += before != repr(oracle.state)
    total = reasons.total()
    assert 0.4 < reasons[None] / total < 0.8
    assert changed / total > 0.25
    for reason in ("overflow", "ZeroDivisionError", "IndexError", "ValueError", "AssertionError", "no"):
        assert reasons[reason] > total / 1000, reasons
    assert reasons["NameError"] + reasons["TypeError"] + reasons["AttributeError"] == 0, reasons


def test_a_seed_gives_the_same_case_again_and_so_do_its_choices() -> None:
    first, second = random_case(Choices(5)), random_case(Choices(5))
    replayed = random_case(Choices(replay=first.drawn))
    assert first.program.source == second.program.source == replayed.program.source
    assert repr(first.batches) == repr(second.batches) == repr(replayed.batches)


def test_shrinking_finds_a_small_stream() -> None:
    small = shrink([9, 4, 7, 3, 8, 2], lambda drawn: any(value >= 7 for value in drawn), seconds=5)
    assert small == [7]


def event(name: str, **values: object) -> dict:
    return {"transaction": name, "src": None, "dst": None, "amount": None, **values}


def test_an_abort_after_writes_leaves_nothing() -> None:
    oracle = Oracle(LEDGER)
    assert oracle.execute(event("transfer", src=1, dst=2, amount=11)).reason == "insufficient funds"
    assert oracle.scan("Account") == []
    assert oracle.execute(event("transfer", src=1, dst=2, amount=4)) == Outcome(True, None, 6)
    assert oracle.scan("Account") == [
        {"id": 1, "balance": 6, "rate": 1.0},
        {"id": 2, "balance": 14, "rate": 1.0},
    ]


def test_the_same_key_is_the_same_row() -> None:
    oracle = Oracle(LEDGER)
    assert oracle.execute(event("transfer", src=1, dst=1, amount=7)).result == 10


def test_exceptions_and_overflow_abort() -> None:
    oracle = Oracle(LEDGER)
    assert oracle.execute(event("divide", src=1, amount=0)).reason == "ZeroDivisionError"
    assert oracle.execute(event("transfer", src=1, dst=2, amount=-(2**63))).reason == "overflow"
    assert oracle.scan("Account") == []


def test_an_int_in_a_float_field_becomes_a_float_and_a_delete_removes_the_row() -> None:
    oracle = Oracle(LEDGER)
    oracle.execute(event("divide", src=1, amount=5))
    assert repr(oracle.scan("Account")) == "[{'id': 1, 'balance': 10, 'rate': 3.0}]"
    oracle.execute(event("close", src=1))
    assert oracle.scan("Account") == []


def test_bad_events_are_outcomes() -> None:
    oracle = Oracle(LEDGER)
    assert oracle.execute(event("transfer", src=None, dst=1, amount=1)).reason == "null key in column 'src'"
    assert oracle.execute(event("transfer", src=1, dst=1)).reason == "null in column 'amount'"
    assert oracle.execute(event("steal", src=1)).reason == "unknown transaction 'steal'"
    assert oracle.execute({"transaction": None}).reason == "null transaction"


def test_events_run_in_order_and_answer_in_input_order() -> None:
    oracle = Oracle(LEDGER)
    events = [
        {**event("transfer", src=1, dst=2, amount=15), "ts": 2},
        {**event("transfer", src=2, dst=1, amount=5), "ts": 1},
        {**event("close", src=1), "ts": None},
    ]
    outcomes = oracle.run(events, order_by="ts")
    assert [outcome.committed for outcome in outcomes] == [True, True, False]
    assert outcomes[2].reason == "null in order column 'ts'"
