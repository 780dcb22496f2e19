"""The traps that a correct engine must handle, one test each, by name, on every strategy.

Each test says what a plausible engine gets wrong. The programs run compiled; the same tests run the
interpreted transactions too, for those must fall into no trap either. Once: whatever the strategy, they run serially
(`test_strategies.py`).
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg

from ..strategies import CONFIGURATIONS

SMALLEST, LARGEST = -(2**63), 2**63 - 1


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0
    limit: int = 1000


@tg.table(key="name")
class Person:
    name: str
    visits: int = 0
    last: str = "never"


@tg.table(key="level")
class Gauge:
    level: float
    readings: int = 0


@tg.table(key=("segment", "vehicle"))
class Position:
    segment: int
    vehicle: str
    speed: float = 0.0


def transfer(src: Account, dst: Account, amount: int) -> int:
    tg.require(src.balance >= amount, "insufficient funds")
    src.balance -= amount
    dst.balance += amount
    return src.balance


def deposit(dst: Account, amount: int) -> int:
    dst.balance += amount
    return dst.balance


def withdraw_then_check(src: Account, amount: int) -> int:
    src.balance -= amount
    src.limit -= 1
    tg.require(src.balance >= 0, "insufficient funds")
    return src.balance


def close(src: Account) -> None:
    tg.require(src.exists, "no such account")
    tg.delete(src)


def collect(dst: Account, others: list[Account], amount: int) -> int:
    for other in others:
        tg.require(other.balance >= amount, "insufficient funds")
        other.balance -= amount
        dst.balance += amount
    return dst.balance


def ratio(src: Account, amount: int) -> int:
    src.balance = src.balance // amount
    return src.balance


def nth(dst: Account, others: list[Account], amount: int) -> int:
    dst.balance += 1
    return others[amount].balance


def triple(src: Account, amount: int) -> int:
    src.balance = src.balance * 3 // amount
    return src.balance


def grow(src: Account, amount: int) -> int:
    src.limit = src.limit + 1
    return src.balance + amount


def look(src: Account) -> int:
    return src.balance + src.limit


def refuse(src: Account) -> None:
    src.balance += 1
    raise LookupError("not this one")


def visit(who: Person, label: str) -> str:
    previous = who.last
    who.visits += 1
    who.last = label
    return previous


def measure(gauge: Gauge, value: float) -> int:
    gauge.readings += 1
    return gauge.readings


def move(car: Position, speed: float) -> float:
    before = car.speed
    car.speed = speed
    return before


def explain(src: Account, label: str) -> int:
    tg.require(src.exists, label)
    return src.balance


Start = Callable[..., Any]


INTERPRETED = ("interpreted", 2)


@pytest.fixture(params=[*CONFIGURATIONS, INTERPRETED], ids=lambda pair: f"{pair[0]}-{pair[1]}")
def start(request: pytest.FixtureRequest) -> Start:
    """start(functions..., rows={id: balance}) gives an engine that runs them."""
    strategy, workers = ("lock", 2) if request.param == INTERPRETED else request.param
    compiled = request.param != INTERPRETED

    def make(*functions: types.FunctionType, rows: dict[int, int] | None = None) -> Any:
        transactions = [tg.transaction(compiled=compiled)(function) for function in functions]
        engine = tg.Engine(transactions, strategy=strategy, workers=workers)
        if rows is not None:
            schema = pa.schema({"id": pa.int64(), "balance": pa.int64(), "limit": pa.int64()})
            columns = [list(rows), list(rows.values()), [1000] * len(rows)]
            engine.load(Account, pa.table(columns, schema=schema))
        return engine

    return make


def ledger(*events: tuple[Any, ...], extra: dict[str, list[Any]] | None = None) -> pa.Table:
    """Events (name, src, dst, amount) as a table."""
    names, sources, targets, amounts = zip(*events, strict=True) if events else ((), (), (), ())
    columns = {
        "transaction": pa.array(names, pa.string()),
        "src": pa.array(sources, pa.int64()),
        "dst": pa.array(targets, pa.int64()),
        "amount": pa.array(amounts, pa.int64()),
    }
    return pa.table({**columns, **(extra or {})})


def outcomes(table: pa.Table) -> list[Any]:
    """The result where it committed, else the reason."""
    rows = table.to_pylist()
    for row in rows:
        assert (row["reason"] is None) == row["committed"]
        assert row["committed"] or row["result"] is None
    return [row["result"] if row["committed"] else row["reason"] for row in rows]


def named(table: pa.Table) -> list[Any]:
    """Outcomes, of exceptions the name alone: behind it, transactions that are not compiled give the message."""
    return [found.partition(": ")[0] if isinstance(found, str) else found for found in outcomes(table)]


def balances(engine: Any) -> dict[int, int]:
    scanned = engine.scan(Account)
    return dict(zip(scanned["id"].to_pylist(), scanned["balance"].to_pylist(), strict=True))


def test_the_same_row_under_two_parameter_names(start: Start) -> None:
    """Two copies of the row would make or lose the amount."""
    engine = start(transfer, rows={1: 100})
    assert outcomes(engine.run(ledger(("transfer", 1, 1, 30), ("transfer", 1, 1, 101)))) == [
        70 + 30,
        "insufficient funds",
    ]
    assert balances(engine) == {1: 100}


def test_the_same_key_twice_in_a_list(start: Start) -> None:
    """The second visit must see what the first one wrote."""
    engine = start(collect, rows={1: 0, 2: 50})
    events = {"dst": [1, 1], "others": [[2, 2], [2, 2]], "amount": [20, 20]}
    assert outcomes(engine.run(pa.table(events))) == [40, "insufficient funds"]
    assert balances(engine) == {1: 40, 2: 10}


def test_a_row_that_is_a_parameter_and_in_a_list(start: Start) -> None:
    engine = start(collect, rows={1: 30, 2: 50})
    events = {"dst": [1], "others": [[1, 2, 1]], "amount": [20]}
    assert outcomes(engine.run(pa.table(events))) == [50]
    assert balances(engine) == {1: 50, 2: 30}


def test_a_row_created_and_deleted_in_one_batch(start: Start) -> None:
    engine = start(deposit, close)
    events = ledger(("deposit", None, 7, 5), ("close", 7, None, None), ("close", 7, None, None))
    assert outcomes(engine.run(events)) == [5, None, "no such account"]
    assert balances(engine) == {}
    assert engine.read(Account, 7) is None


def test_a_row_deleted_and_created_again_starts_from_the_defaults(start: Start) -> None:
    engine = start(deposit, close, withdraw_then_check, rows={7: 100})
    events = ledger(("withdraw_then_check", 7, None, 10), ("close", 7, None, None), ("deposit", None, 7, 5))
    assert outcomes(engine.run(events)) == [90, None, 5]
    assert engine.read(Account, 7) == {"id": 7, "balance": 5, "limit": 1000}


def test_an_abort_after_writes(start: Start) -> None:
    """All fields that were written go back, and a row that was not there is not there."""
    engine = start(withdraw_then_check, rows={1: 10})
    events = ledger(
        ("withdraw_then_check", 1, None, 11),
        ("withdraw_then_check", 2, None, 1),
        ("withdraw_then_check", 1, None, 4),
    )
    assert outcomes(engine.run(events)) == ["insufficient funds", "insufficient funds", 6]
    assert engine.scan(Account).to_pylist() == [{"id": 1, "balance": 6, "limit": 999}]


def test_an_abort_leaves_none_of_the_transactions_other_writes(start: Start) -> None:
    """The abort comes at the third row; the first two were written already."""
    engine = start(collect, rows={1: 0, 2: 50, 3: 50, 4: 5})
    events = {"dst": [1], "others": [[2, 3, 4]], "amount": [20]}
    assert outcomes(engine.run(pa.table(events))) == ["insufficient funds"]
    assert balances(engine) == {1: 0, 2: 50, 3: 50, 4: 5}


def test_a_chain_of_aborts_frees_a_later_transaction_to_commit(start: Start) -> None:
    engine = start(transfer, rows={1: 100, 2: 0, 3: 0, 4: 0})
    events = ledger(("transfer", 1, 2, 150), ("transfer", 2, 3, 150), ("transfer", 3, 4, 150), ("transfer", 1, 4, 100))
    assert outcomes(engine.run(events)) == [*["insufficient funds"] * 3, 0]
    assert balances(engine) == {1: 0, 2: 0, 3: 0, 4: 100}


def test_money_is_conserved_by_a_chain_of_transfers(start: Start) -> None:
    """A released peer sets the target from the source's balance."""
    engine = start(transfer, rows={1: 100, 2: 7})
    events = ledger(*[("transfer", 1 + n % 2, 2 - n % 2, 3 * n) for n in range(20)])
    engine.run(events)
    assert sum(balances(engine).values()) == 107


def test_division_by_zero_aborts_with_its_name(start: Start) -> None:
    engine = start(ratio, rows={1: 10})
    assert named(engine.run(ledger(("ratio", 1, None, 0), ("ratio", 1, None, 3)))) == [
        "ZeroDivisionError",
        3,
    ]


def test_an_index_error_aborts_with_its_name(start: Start) -> None:
    engine = start(nth, rows={1: 0, 2: 20, 3: 30})
    events = {"dst": [1] * 6, "others": [[2, 3]] * 5 + [[]], "amount": [0, 1, 2, -2, -3, 0]}
    assert named(
        engine.run(
            pa.table(
                events,
                schema=pa.schema({"dst": pa.int64(), "others": pa.list_(pa.int64()), "amount": pa.int64()}),
            )
        )
    ) == [20, 30, "IndexError", 20, "IndexError", "IndexError"]
    assert balances(engine)[1] == 3


def test_an_exception_of_the_users_aborts_with_its_name(start: Start) -> None:
    engine = start(refuse)
    assert named(engine.run(pa.table({"src": [1]}))) == ["LookupError"]
    assert balances(engine) == {}


def test_integer_overflow_of_a_field_aborts(start: Start) -> None:
    engine = start(deposit, rows={1: LARGEST - 1, 2: SMALLEST + 1})
    events = ledger(
        ("deposit", None, 1, 2), ("deposit", None, 1, 1), ("deposit", None, 1, 1),
        ("deposit", None, 2, -2), ("deposit", None, 2, -1), ("deposit", None, 2, SMALLEST),
    )  # fmt: skip
    assert outcomes(engine.run(events)) == ["overflow", LARGEST, "overflow", "overflow", SMALLEST, "overflow"]
    assert balances(engine) == {1: LARGEST, 2: SMALLEST}


def test_an_intermediate_integer_may_leave_64_bits(start: Start) -> None:
    """Python's integers have no limit: only what is stored must fit."""
    engine = start(triple, rows={1: LARGEST, 2: LARGEST})
    assert outcomes(engine.run(ledger(("triple", 1, None, 3), ("triple", 2, None, 2)))) == [
        LARGEST,
        "overflow",
    ]


def test_a_result_that_leaves_64_bits_aborts_and_is_undone(start: Start) -> None:
    engine = start(grow, rows={1: LARGEST})
    assert outcomes(engine.run(ledger(("grow", 1, None, 1), ("grow", 1, None, 0)))) == ["overflow", LARGEST]
    assert engine.read(Account, 1) == {"id": 1, "balance": LARGEST, "limit": 1001}


def test_null_keys(start: Start) -> None:
    engine = start(transfer, rows={1: 10})
    events = ledger(("transfer", None, 1, 5), ("transfer", 1, None, 5), ("transfer", 1, 1, 5))
    assert outcomes(engine.run(events)) == ["null key in column 'src'", "null key in column 'dst'", 10]


def test_a_null_in_a_list_of_keys(start: Start) -> None:
    engine = start(collect, rows={1: 0, 2: 50})
    schema = pa.schema({"dst": pa.int64(), "others": pa.list_(pa.int64()), "amount": pa.int64()})
    events = pa.table({"dst": [1, 1, 1], "others": [[2, None], None, [2]], "amount": [1, 1, 1]}, schema=schema)
    assert outcomes(engine.run(events)) == ["null key in column 'others'", "null key in column 'others'", 1]


def test_nan_keys(start: Start) -> None:
    """NaN equals nothing, so no row could ever be found again."""
    engine = start(measure)
    events = pa.table({"gauge": [math.nan, 1.5, 1.5, None, math.inf, 0.0, -0.0], "value": [1.0] * 7})
    assert outcomes(engine.run(events)) == [
        "NaN key in column 'gauge'", 1, 2, "null key in column 'gauge'", 1, 1, 2,
    ]  # fmt: skip
    assert engine.scan(Gauge).to_pylist() == [
        {"level": 0.0, "readings": 2},
        {"level": 1.5, "readings": 2},
        {"level": math.inf, "readings": 1},
    ]


def test_null_and_nan_parameters(start: Start) -> None:
    """A null is refused; a NaN is a value like others."""
    engine = start(move)
    cars = [{"segment": 1, "vehicle": "a"}] * 3
    assert outcomes(engine.run(pa.table({"car": cars, "speed": [None, math.nan, 2.0]})))[0] == "null in column 'speed'"
    assert engine.scan(Position)["speed"].to_pylist() == [2.0]
    result = engine.run(pa.table({"car": cars[:1], "speed": [math.nan]}))
    assert outcomes(result) == [2.0]
    assert math.isnan(engine.scan(Position)["speed"][0].as_py())


def test_an_unknown_transaction_name(start: Start) -> None:
    engine = start(deposit, close)
    events = ledger(("steal", 1, 1, 5), (None, 1, 1, 5), ("deposit", None, 1, 5), ("Deposit", 1, 1, 1))
    assert outcomes(engine.run(events)) == [
        "unknown transaction 'steal'",
        "null transaction",
        5,
        "unknown transaction 'Deposit'",
    ]


def test_columns_that_the_named_transaction_does_not_take_may_be_null(start: Start) -> None:
    engine = start(transfer, deposit)
    assert outcomes(engine.run(ledger(("deposit", None, 1, 5)))) == [5]


def test_an_empty_batch(start: Start) -> None:
    engine = start(deposit, rows={1: 1})
    for empty in (ledger(), ledger().slice(0, 0), pa.Table.from_batches([], ledger().schema)):
        result = engine.run(empty)
        assert result.num_rows == 0
        assert result.schema.names == ["transaction", "src", "dst", "amount", "committed", "reason", "result"]
        assert result.schema.field("result").type == pa.int64()
    assert balances(engine) == {1: 1}


def test_a_batch_of_one(start: Start) -> None:
    engine = start(deposit)
    assert outcomes(engine.run(ledger(("deposit", None, 1, 5)))) == [5]
    assert outcomes(engine.run(ledger(("deposit", None, 1, 5)))) == [10]


def test_a_batch_with_one_key(start: Start) -> None:
    """Everything depends on the event before it."""
    engine = start(deposit)
    result = engine.run(ledger(*[("deposit", None, 1, 1)] * 500))
    assert outcomes(result) == list(range(1, 501))


def test_a_batch_with_many_keys(start: Start) -> None:
    """Tables and indexes grow while the batch's keys are looked up; no row may move or be lost."""
    engine = start(deposit, rows={n: n for n in range(100)})
    keys = [n * 0x9E3779B97F4A7C15 % 2**64 - 2**63 if n % 3 else n % 100 for n in range(3000)]
    expected = {n: n for n in range(100)}
    wanted = []
    for key in keys:
        expected[key] = expected.get(key, 0) + 1
        wanted.append(expected[key])
    assert outcomes(engine.run(ledger(*[("deposit", None, key, 1) for key in keys]))) == wanted
    assert balances(engine) == dict(sorted(expected.items()))


def test_string_keys(start: Start) -> None:
    """Equal text is one key; case, zero bytes and accents count."""
    engine = start(visit)
    names = ["a", "A", "a", "", "a\0", "ä", "a\u0308", "a" * 1000, "a" * 1000, ""]
    result = engine.run(pa.table({"who": names, "label": [str(n) for n in range(10)]}))
    never = "never"
    assert outcomes(result) == [never, never, "0", never, never, never, never, never, "7", "3"]
    assert engine.scan(Person)["name"].to_pylist() == sorted(set(names))
    assert engine.read(Person, "a") == {"name": "a", "visits": 2, "last": "2"}


def test_negative_keys_and_keys_near_the_limits(start: Start) -> None:
    """None of them may be mistaken for an empty slot or a marker."""
    keys = [-1, 0, 1, SMALLEST, SMALLEST + 1, LARGEST, LARGEST - 1, -2, 2**32, -(2**32), 2**53 + 1, 2**53]
    engine = start(deposit)
    assert outcomes(engine.run(ledger(*[("deposit", None, key, 1) for key in keys]))) == [1] * len(keys)
    assert outcomes(engine.run(ledger(*[("deposit", None, key, 1) for key in keys]))) == [2] * len(keys)
    assert balances(engine) == dict.fromkeys(sorted(keys), 2)
    assert list(balances(engine)) == sorted(keys)


def test_composite_keys(start: Start) -> None:
    """Both parts count, in this order, and a null or NaN in any part is a bad key."""
    engine = start(move)
    cars = [
        {"segment": 1, "vehicle": "a"}, {"segment": 1, "vehicle": "b"}, {"segment": 2, "vehicle": "a"},
        {"segment": 1, "vehicle": "a"}, {"segment": None, "vehicle": "a"}, {"segment": 1, "vehicle": None}, None,
    ]  # fmt: skip
    events = pa.table({"car": cars, "speed": [float(n) for n in range(1, 8)]})
    bad = "null key in column 'car'"
    assert outcomes(engine.run(events)) == [0.0, 0.0, 0.0, 1.0, bad, bad, bad]
    assert engine.scan(Position).to_pylist() == [
        {"segment": 1, "vehicle": "a", "speed": 4.0},
        {"segment": 1, "vehicle": "b", "speed": 2.0},
        {"segment": 2, "vehicle": "a", "speed": 3.0},
    ]
    assert engine.read(Position, (1, "b")) == {"segment": 1, "vehicle": "b", "speed": 2.0}


def test_a_composite_keys_fields_are_found_by_name(start: Start) -> None:
    """A struct may carry them in another order."""
    engine = start(move)
    kind = pa.struct([("vehicle", pa.string()), ("segment", pa.int64())])
    cars = pa.array([{"segment": 3, "vehicle": "x"}], kind)
    engine.run(pa.table({"car": cars, "speed": [1.0]}))
    assert engine.scan(Position).to_pylist() == [{"segment": 3, "vehicle": "x", "speed": 1.0}]


def test_events_out_of_order_inside_a_batch(start: Start) -> None:
    """They run by `order_by`, ties as they came, and the outcomes stand where the events stood."""
    engine = start(transfer, deposit)
    events = ledger(
        ("transfer", 1, 2, 10), ("deposit", None, 1, 4), ("deposit", None, 1, 6), ("transfer", 1, 2, 1),
        extra={"ts": [30, 10, 20, 10]},
    )  # fmt: skip
    result = engine.run(events, order_by="ts")
    assert outcomes(result) == ["insufficient funds", 4, 9, 3]
    assert result.drop_columns(["committed", "reason", "result"]).equals(events)
    assert balances(engine) == {1: 9, 2: 1}


@pytest.mark.parametrize("places", [[2.5, -1.0, 2.5], ["b", "a", "b"]], ids=["float", "str"])
def test_the_order_may_be_of_any_kind(start: Start, places: list[Any]) -> None:
    engine = start(deposit)
    events = ledger(*[("deposit", None, 1, amount) for amount in (1, 10, 100)], extra={"ts": places})
    assert outcomes(engine.run(events, order_by="ts")) == [11, 10, 111]


def test_a_null_in_the_order_column(start: Start) -> None:
    engine = start(deposit)
    events = ledger(("deposit", None, 1, 1), ("deposit", None, 1, 10), extra={"ts": [None, 1]})
    assert outcomes(engine.run(events, order_by="ts")) == ["null in order column 'ts'", 10]


def test_events_later_than_a_batch_already_done(start: Start) -> None:
    """They run in the batch in which they arrive: what was answered stays answered."""
    engine = start(transfer, deposit)
    first = ledger(("transfer", 1, 2, 5), extra={"ts": [10]})
    late = ledger(("deposit", None, 1, 5), ("transfer", 1, 2, 5), extra={"ts": [5, 11]})
    assert outcomes(engine.run(first, order_by="ts")) == ["insufficient funds"]
    assert outcomes(engine.run(late, order_by="ts")) == [5, 0]


def test_pythons_own_arithmetic(start: Start) -> None:
    """Floor division and modulo of negatives; the rest is in the compiler's tests."""

    def divide(src: Account, amount: int) -> int:
        src.limit = src.balance % amount
        src.balance = src.balance // amount
        return src.balance

    engine = start(divide, rows={1: -7, 2: 7, 3: SMALLEST})
    events = ledger(("divide", 1, None, 2), ("divide", 2, None, -2), ("divide", 3, None, -1))
    assert outcomes(engine.run(events)) == [-4, -4, "overflow"]
    assert engine.read(Account, 1) == {"id": 1, "balance": -4, "limit": 1}
    assert engine.read(Account, 2) == {"id": 2, "balance": -4, "limit": -1}


def test_no_fused_multiply_add(start: Start) -> None:
    """Fused, the product is not rounded and 2**-60 remains."""

    def fuse(car: Position, speed: float, offset: float) -> float:
        car.speed = speed * speed + offset
        return car.speed

    engine = start(fuse)
    x = 1.0 + 2.0**-30
    events = pa.table({"car": [{"segment": 1, "vehicle": "a"}], "speed": [x], "offset": [-(1.0 + 2.0**-29)]})
    assert outcomes(engine.run(events)) == [0.0]


def test_no_fast_math(start: Start) -> None:
    """(a + b) - a is not b, and x - x is not always zero."""

    def lose(car: Position, speed: float, offset: float) -> float:
        car.speed = (speed + offset) - speed
        return car.speed - car.speed

    engine = start(lose)
    cars = [{"segment": n, "vehicle": "a"} for n in range(3)]
    result = engine.run(pa.table({"car": cars, "speed": [1e16, 1.0, math.inf], "offset": [1.0, 2.0**-60, 1.0]}))
    assert outcomes(result)[:2] == [0.0, 0.0]
    assert math.isnan(outcomes(result)[2])
    assert engine.scan(Position)["speed"].to_pylist()[:2] == [0.0, 0.0]


def test_a_float_assigned_to_an_integer_field_is_refused_at_declaration() -> None:
    def halve(src: Account) -> None:
        src.balance = src.balance / 2

    with pytest.raises(tg.DefinitionError, match="balance"):
        tg.transaction(halve)


def test_a_reason_may_be_any_string(start: Start) -> None:
    engine = start(explain, rows={1: 10})
    events = pa.table({"src": [1, 2, 3], "label": ["a", "no such account", ""]})
    assert outcomes(engine.run(events)) == [10, "no such account", ""]


def test_reading_an_absent_row_gives_the_defaults_and_creates_nothing(start: Start) -> None:
    engine = start(look)
    assert outcomes(engine.run(pa.table({"src": [1, 2, 1]}))) == [1000, 1000, 1000]
    assert engine.scan(Account).num_rows == 0
    assert engine.read(Account, 1) is None


def test_a_bid_needs_the_price_and_the_quantity(start: Start) -> None:
    """A released peer accepts a bid when either is right."""

    def bid(item: Account, price: int, quantity: int) -> None:
        tg.require(price >= item.limit and quantity <= item.balance, "refused")
        item.balance -= quantity

    engine = start(bid, rows={1: 10})
    events = pa.table({"item": [1, 1, 1], "price": [999, 1000, 1000], "quantity": [5, 11, 10]})
    assert outcomes(engine.run(events)) == ["refused", "refused", None]
    assert balances(engine) == {1: 0}


def test_sliced_and_chunked_input(start: Start) -> None:
    """Arrow arrays may start at an offset and come in pieces, and their null bitmaps with them."""
    engine = start(transfer, rows={n: 10 for n in range(8)})
    whole = ledger(*[("transfer", n % 8 if n % 5 else None, (n * 3) % 8, n % 4) for n in range(41)])
    pieces = pa.concat_tables([whole.slice(0, 3), whole.slice(3, 18), whole.slice(21, 0), whole.slice(21)])
    other = start(transfer, rows={n: 10 for n in range(8)})
    assert outcomes(engine.run(pieces.slice(1))) == outcomes(other.run(whole.slice(1).combine_chunks()))
    assert balances(engine) == balances(other)


def test_sliced_lists_and_strings(start: Start) -> None:
    engine = start(collect, rows={n: 10 for n in range(5)})
    schema = pa.schema({"dst": pa.int64(), "others": pa.list_(pa.int64()), "amount": pa.int64()})
    whole = pa.table({"dst": [9, 0, 0, 9], "others": [[9], [1, 2], [], [3]], "amount": [1] * 4}, schema=schema)
    assert outcomes(engine.run(whole.slice(1, 2))) == [12, 12]
    visits = start(visit)
    people = pa.table({"who": ["z", "b", "c", "b"], "label": ["0", "1", "2", "3"]}).slice(1)
    assert outcomes(visits.run(people)) == ["never", "never", "1"]
