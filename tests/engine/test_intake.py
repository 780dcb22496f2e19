"""Tables of events that do not fit the program raise before anything runs, naming column and type.

What is wrong with single events (a null, an unknown name) is an outcome and tested with the traps.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0
    rate: float = 0.0
    owner: str = ""


@tg.table(key=("part", "serial"))
class Item:
    part: int
    serial: str
    stock: int = 0


@tg.transaction
def deposit(dst: Account, amount: int) -> int:
    dst.balance += amount
    return dst.balance


@tg.transaction
def rename(dst: Account, owner: str, rate: float) -> str:
    before = dst.owner
    dst.owner = owner
    dst.rate = rate
    return before


@tg.transaction
def take(items: list[Item], counts: list[int]) -> int:
    total = 0
    for item, count in zip(items, counts):  # noqa: B905
        item.stock += count
        total += item.stock
    return total


def test_a_missing_column_is_named_with_its_type_and_the_columns_that_are_there() -> None:
    with pytest.raises(tg.InputError, match=r"'amount' is missing.*int.*dst, amont"):
        tg.Engine([deposit]).run(pa.table({"dst": [1], "amont": [1]}))


def test_a_missing_transaction_column_is_named_with_the_choices() -> None:
    events = pa.table({"dst": [1], "amount": [1], "owner": ["a"], "rate": [0.5]})
    with pytest.raises(tg.InputError, match=r"'transaction' is missing.*deposit, rename"):
        tg.Engine([deposit, rename]).run(events)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("amount", pa.array(["1"])),
        ("amount", pa.array([1.0])),
        ("amount", pa.array([True])),
        ("amount", pa.array([[1]])),
        ("amount", pa.array([{"a": 1}])),
        ("dst", pa.array(["1"])),
        ("dst", pa.array([1.5])),
        ("dst", pa.array([[1]])),
        ("dst", pa.array([{"id": 1}])),
    ],
)
def test_a_wrong_type_is_named_with_what_is_required(column: str, values: pa.Array) -> None:
    engine = tg.Engine([deposit])
    events = pa.table({"dst": pa.array([1]), "amount": pa.array([1]), column: values})
    with pytest.raises(tg.InputError, match=f"'{column}'.*required: int") as error:
        engine.run(events)
    assert str(values.type) in str(error.value)
    assert engine.scan(Account).num_rows == 0


def test_a_decimal_is_refused_with_a_cast_that_loses_no_cents() -> None:
    amount = pa.array([Decimal("1.25")], pa.decimal128(18, 2))
    with pytest.raises(tg.InputError, match="multiplied by 100: a cast to a whole number drops"):
        tg.Engine([deposit]).run(pa.table({"dst": [1], "amount": amount}))


@pytest.mark.parametrize(
    "items",
    [
        pa.array([[1]]),
        pa.array([{"part": 1, "serial": "a"}]),
        pa.array([[{"part": 1}]]),
        pa.array([[{"part": "1", "serial": "a"}]]),
        pa.array([["1"]]),
    ],
)
def test_a_list_of_composite_keys_must_be_a_list_of_structs_with_those_fields(items: pa.Array) -> None:
    with pytest.raises(tg.InputError, match=r"'items'.*part: int, serial: str"):
        tg.Engine([take]).run(pa.table({"items": items, "counts": pa.array([[1]])}))


@pytest.mark.parametrize(
    ("transaction", "message"), [(pa.array([1]), "int64"), (pa.array([[b"a"]]), "list"), (pa.array([b"a"]), "binary")]
)
def test_the_transaction_column_holds_names(transaction: pa.Array, message: str) -> None:
    events = {"transaction": transaction, "dst": [1], "amount": [1], "owner": ["a"], "rate": [0.5]}
    with pytest.raises(tg.InputError, match=f"'transaction'.*{message}"):
        tg.Engine([deposit, rename]).run(pa.table(events))


@pytest.mark.parametrize("name", ["committed", "reason", "result"])
def test_a_column_that_is_called_like_an_outcome_is_refused(name: str) -> None:
    with pytest.raises(tg.InputError, match=f"'{name}'"):
        tg.Engine([deposit]).run(pa.table({"dst": [1], "amount": [1], name: [1]}))


def test_a_missing_order_column_is_named() -> None:
    with pytest.raises(tg.InputError, match=r"'ts' is missing.*dst, amount"):
        tg.Engine([deposit]).run(pa.table({"dst": [1], "amount": [1]}), order_by="ts")


def test_an_order_column_that_has_no_order_is_refused() -> None:
    with pytest.raises(tg.InputError, match=r"'ts'.*list"):
        tg.Engine([deposit]).run(pa.table({"dst": [1], "amount": [1], "ts": [[1]]}), order_by="ts")


@pytest.mark.parametrize("events", [None, {"dst": 1}, [1], "events"])
def test_events_are_a_table(events: Any) -> None:
    with pytest.raises(tg.InputError, match="Table"):
        tg.Engine([deposit]).run(events)


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()])
def test_narrower_integers_are_read_as_they_are(kind: pa.DataType) -> None:
    events = pa.table({"dst": pa.array([1, 2], kind), "amount": pa.array([100, 7], kind)})
    outcomes = tg.Engine([deposit]).run(events)
    assert outcomes["result"].to_pylist() == [100, 7]
    assert outcomes.schema.field("dst").type == kind


def test_an_unsigned_integer_beyond_64_bits_names_the_column() -> None:
    events = pa.table({"dst": [1], "amount": pa.array([2**63], pa.uint64())})
    with pytest.raises(tg.InputError, match="'amount'"):
        tg.Engine([deposit]).run(events)


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string()), pa.string_view()], ids=str
)
def test_strings_may_come_in_any_arrow_form(kind: pa.DataType) -> None:
    owners = pa.array(["a", "b", None, "a"], pa.string()).cast(kind)
    engine = tg.Engine([rename])
    outcomes = engine.run(pa.table({"dst": [1, 1, 1, 1], "owner": owners, "rate": [1, 2, 3, 4]}))
    assert outcomes["result"].to_pylist() == ["", "a", None, "b"]
    assert outcomes.schema.field("owner").type == kind
    assert engine.read(Account, 1) == {"id": 1, "balance": 0, "rate": 4.0, "owner": "a"}


@pytest.mark.parametrize(
    "wide", [pa.list_, pa.large_list, lambda inner: pa.list_(inner, 2)], ids=["list", "large", "fixed"]
)
def test_lists_may_come_in_any_arrow_form(wide: Any) -> None:
    key = pa.struct([("serial", pa.string()), ("part", pa.int32())])
    items = pa.array(
        [[{"part": 1, "serial": "a"}, {"part": 1, "serial": "b"}], [{"part": 1, "serial": "b"}] * 2], wide(key)
    )
    counts = pa.array([[1, 2], [3, 4]], wide(pa.int16()))
    engine = tg.Engine([take])
    assert engine.run(pa.table({"items": items, "counts": counts}))["result"].to_pylist() == [3, 5 + 9]
    assert engine.scan(Item).to_pylist() == [
        {"part": 1, "serial": "a", "stock": 1},
        {"part": 1, "serial": "b", "stock": 9},
    ]


def test_a_column_of_nulls_only_is_a_null_in_every_event() -> None:
    outcomes = tg.Engine([deposit]).run(pa.table({"dst": [1, 2], "amount": pa.nulls(2)}))
    assert outcomes["reason"].to_pylist() == ["null in column 'amount'"] * 2


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"balance": [1]}, "'id'.*missing"),
        ({"id": [1], "balanse": [1]}, "'balanse'.*id, balance, rate, owner"),
        ({"id": ["1"]}, "'id'.*string.*int"),
        ({"id": [1], "balance": [1.5]}, "'balance'.*double.*int"),
        ({"id": [1, None]}, "'id'.*null.*1"),
        ({"id": [1], "owner": pa.array([None], pa.string())}, "'owner'.*null.*0"),
        ({"id": [1, 2, 1]}, "(?s)1.*row 0.*row 2"),
    ],
)
def test_rows_that_do_not_fit_their_table_are_refused_and_nothing_is_loaded(rows: dict, message: str) -> None:
    engine = tg.Engine([deposit])
    engine.load(Account, pa.table({"id": [1], "balance": [5]}))
    with pytest.raises(tg.InputError, match=message):
        engine.load(Account, pa.table(rows))
    assert engine.scan(Account).to_pylist() == [{"id": 1, "balance": 5, "rate": 0.0, "owner": ""}]


def test_loading_replaces_rows_and_fills_in_defaults() -> None:
    engine = tg.Engine([deposit])
    engine.load(Account, pa.table({"id": [1, 2], "balance": [5, 6], "owner": ["a", "b"]}))
    engine.load(Account, pa.table({"owner": ["c"], "id": [2]}))
    assert engine.scan(Account).to_pylist() == [
        {"id": 1, "balance": 5, "rate": 0.0, "owner": "a"},
        {"id": 2, "balance": 0, "rate": 0.0, "owner": "c"},
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dst": 1}, "missing amount"),
        ({"dst": 1, "amount": 1, "more": 2}, "more"),
        ({"dst": "a", "amount": 1}, "'dst'"),
        ({"dst": 1, "amount": 2**63}, "'amount'"),
        ({"dst": 1, "amount": 1.5}, "'amount'"),
        ({"dst": [1], "amount": 1}, "'dst'"),
    ],
)
def test_execute_names_the_argument_that_does_not_fit(arguments: dict, message: str) -> None:
    with pytest.raises(tg.InputError, match=message):
        tg.Engine([deposit]).execute(deposit, **arguments)


def test_execute_takes_composite_keys_as_tuples_or_dicts() -> None:
    engine = tg.Engine([take])
    keys = [(1, "a"), {"serial": "a", "part": 1}]
    assert engine.execute(take, items=keys, counts=[1, 2]).result == 1 + 3


def test_a_transaction_or_a_table_of_another_program_is_refused() -> None:
    engine = tg.Engine([deposit])
    with pytest.raises(tg.TidegateError, match="take"):
        engine.execute(take, items=[], counts=[])
    with pytest.raises(tg.TidegateError, match="Item"):
        engine.scan(Item)
    with pytest.raises(tg.TidegateError, match="Item"):
        engine.load(Item, pa.table({"part": [1], "serial": ["a"]}))
    with pytest.raises(tg.TidegateError, match="int"):
        engine.read(int, 1)


@pytest.mark.parametrize("key", ["a", 1.5, (1, 2), None, 2**63, [1]])
def test_a_key_that_does_not_fit_is_refused(key: Any) -> None:
    with pytest.raises(tg.InputError, match="key"):
        tg.Engine([deposit]).read(Account, key)
