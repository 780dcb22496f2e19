from __future__ import annotations

import math
import struct
import timeit
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

import tidegate as tg
from tidegate.compiler.program import build_program
from tidegate.durability.commands import Codec, Execute, Load, Record, Run, Step, Take, Void, plans, signatures
from tidegate.durability.log_format import Segment, encode_frame, encode_header
from tidegate.durability.scratch import Scratch
from tidegate.foundation.errors import InputError, RecoveryImpossible
from tidegate.operations.layout import Kind
from tidegate.operations.plan import TransactionPlan
from tidegate.workloads import ledger, streaming_ledger

from .sales import Account, Sale, change


@tg.transaction
def sell(sale: Sale, count: int) -> int:
    sale.count += count
    return sale.count


@tg.transaction
def spread(accounts: list[Account], sales: list[Sale], amounts: list[int]) -> int:
    total = 0
    for amount in amounts:
        total += amount
    for account in accounts:
        account.balance += total
    for sale in sales:
        sale.count += total
    return total


PROGRAM = [change, sell, spread]
CHANGE, SELL, SPREAD = range(3)
PLANS = build_program(PROGRAM).plan.transactions


def hand_made(*parameters: list[Any]) -> tuple[TransactionPlan, ...]:
    """One transaction with these parameters, and others before and behind it."""
    return plans([["before", []], ["this", parameters], *([f"behind {n}", []] for n in range(200))])


def decoded(codec: Codec, data: bytes) -> Record:
    (record,) = codec.decode(data)
    return record


def arguments_of(codec: Codec, number: int, arguments: dict[str, Any]) -> tuple[Any, ...]:
    record = decoded(codec, codec.execute(number, arguments)[0])
    assert isinstance(record, Execute) and record.transaction == number
    return record.arguments


def bits(value: Any) -> Any:
    """A value that is equal to another only if they are the same, NaNs and zeros included."""
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, (list, tuple)):
        return type(value), [bits(item) for item in value]
    return type(value), value


# --- sizes and times --------------------------------------------------------------------------------------------


def frame_size(codec: Codec, record: Execute, in_flight: int) -> int:
    header, _ = encode_header(Segment("state", 1, 1, "", "", [], 0.0))
    data, _ = encode_frame(header, header.start, header.end - in_flight, codec.encode(record))
    return len(data)


def test_a_transfer_of_the_ledger_takes_21_bytes_in_the_log() -> None:
    plan = build_program([ledger.deposit, ledger.transfer]).plan
    number = plan.names.index("transfer")
    assert {p.name for p in plan.transactions[number].parameters} == {"src", "dst", "amount"}
    record = Execute(number, (999_999, 999_998, 999_997))
    assert frame_size(Codec(plan.transactions), record, 0) == 21
    assert frame_size(Codec(plan.transactions), record, 5000) == 26  # behind others that are not synced yet


def test_a_transfer_of_the_streaming_ledger_takes_28_bytes_in_the_log_and_never_more_than_40() -> None:
    workload = streaming_ledger.StreamingLedger(streaming_ledger.MORPHSTREAM)
    plan = build_program(workload.program).plan
    number = plan.names.index("transfer")
    events = [event for event in workload.batch(0).to_pylist() if event["transaction"] == "transfer"]
    names = [parameter.name for parameter in plan.transactions[number].parameters]
    records = [Execute(number, tuple(event[name] for name in names)) for event in events]
    sizes = sorted(frame_size(Codec(plan.transactions), record, 0) for record in records)
    assert sizes[len(sizes) // 2] == 28
    assert sizes[-1] <= 40  # among them those that ask for far too much
    assert sorted(frame_size(Codec(plan.transactions), record, 5000) for record in records)[len(sizes) // 2] == 33


def test_a_call_with_ints_is_encoded_within_microseconds() -> None:
    codec = Codec(
        hand_made(["src", False, "A", [["id", "int"]]], ["dst", False, "A", [["id", "int"]]], ["n", False, "int"])
    )
    arguments = {"src": 999_999, "dst": 500_000, "n": 250}
    best = min(timeit.repeat(lambda: codec.execute(1, arguments), number=2000, repeat=20)) / 2000
    assert best < 20e-6  # 1.1 us on an idle machine; the bound is for a very busy one


# --- arguments --------------------------------------------------------------------------------------------------

ints = some.integers(-(2**63), 2**63 - 1)
floats = some.one_of(
    some.floats(), some.integers(0, 2**64 - 1).map(lambda word: struct.unpack("<d", struct.pack("<Q", word))[0])
)
texts = some.text(some.characters(codec="utf-8"), max_size=20)
VALUES = {Kind.INT: ints, Kind.FLOAT: floats, Kind.BOOL: some.booleans(), Kind.STR: texts}
kinds = some.sampled_from(list(Kind))


@some.composite
def parameters_and_values(draw: some.DrawFn) -> tuple[list[Any], Any]:
    """A parameter of any shape, and a plain value for it in the form in which it is decoded, nulls included."""
    nulls = draw(some.booleans())

    def value(strategy: some.SearchStrategy[Any]) -> some.SearchStrategy[Any]:
        return some.none() | strategy if nulls else strategy

    many, row = draw(some.booleans()), draw(some.booleans())
    if row:
        keys = draw(some.lists(kinds, min_size=1, max_size=3))
        listed: list[Any] = ["T", [[f"k{place}", kind.value] for place, kind in enumerate(keys)]]
        item = value(VALUES[keys[0]] if len(keys) == 1 else some.tuples(*(value(VALUES[kind]) for kind in keys)))
    else:
        kind = draw(kinds)
        listed, item = [kind.value], value(VALUES[kind])
    return [many, *listed], draw(value(some.lists(item, max_size=5)) if many else item)


@given(some.lists(parameters_and_values(), max_size=5), some.none() | ints | texts)
def test_arguments_of_any_shape_are_decoded_bit_by_bit(
    drawn: list[tuple[list[Any], Any]], key: int | str | None
) -> None:
    codec = Codec(hand_made(*([f"p{place}", *listed] for place, (listed, _) in enumerate(drawn))))
    record = Execute(1, tuple(value for _, value in drawn), key)
    data = codec.encode(record)
    found = decoded(codec, data)
    assert isinstance(found, Execute)
    assert bits(found.arguments) == bits(record.arguments) and bits(found.key) == bits(key)
    assert codec.encode(found) == data


@pytest.mark.parametrize("word", [0, 1 << 63, 0x7FF0000000000001, 0xFFF8000000000123, 0x7FF8000000000000])
def test_floats_keep_all_their_bits(word: int) -> None:
    (value,) = struct.unpack("<d", struct.pack("<Q", word))
    row = ["T", [["a", "float"], ["b", "int"]]]
    codec = Codec(hand_made(["x", False, "float"], ["key", False, *row], ["more", True, "float"]))
    found = arguments_of(codec, 1, {"x": value, "key": (value, 0), "more": [value, np.float64(value)]})
    assert bits(found) == bits((value, (value, 0), [value, value]))
    found = arguments_of(codec, 1, {"x": value, "key": (value, None), "more": [None, value]})
    assert bits(found) == bits((value, (value, None), [None, value]))


@pytest.mark.parametrize(
    ("value", "data"), [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (64, "8001"), (2**63 - 1, "feffffffffffffffff01")]
)
def test_ints_take_as_many_bytes_as_they_need(value: int, data: str) -> None:
    assert Codec(hand_made(["n", False, "int"])).execute(1, {"n": value})[0].hex() == "08" + data


def test_the_record_in_the_module_s_picture_is_what_is_written() -> None:
    row = ["A", [["id", "int"]]]
    codec = Codec(plans([["transfer", [["src", False, *row], ["dst", False, *row], ["amount", False, "int"]]]]))
    assert codec.execute(0, {"src": 1, "dst": 2, "amount": 250})[0].hex(" ") == "00 02 04 f4 03"


def test_a_composite_key_may_be_a_tuple_or_a_dict_in_any_order() -> None:
    codec = Codec(PLANS)
    wanted = (("north", 3, 1.5), 4)
    for key in (("north", 3, 1.5), {"price": 1.5, "day": 3, "region": "north", "more": None}):
        assert arguments_of(codec, SELL, {"count": 4, "sale": key}) == wanted


def test_plain_arguments_are_run_as_they_are() -> None:
    arguments = {"sale": ("north", 3, 1.5), "count": np.int64(4)}
    assert Codec(PLANS).execute(SELL, arguments)[1] is arguments


def test_an_argument_that_can_be_read_only_once_is_handed_back_to_be_run() -> None:
    codec = Codec(PLANS)
    given_once = {"accounts": iter([1, 2]), "sales": (key for key in [("x", 1, 2.0)]), "amounts": range(3)}
    data, taken = codec.execute(SPREAD, given_once)
    assert taken == {"accounts": [1, 2], "sales": [{"region": "x", "day": 1, "price": 2.0}], "amounts": [0, 1, 2]}
    assert decoded(codec, data) == Execute(SPREAD, ([1, 2], [("x", 1, 2.0)], [0, 1, 2]))


@pytest.mark.parametrize(
    "arguments",
    [
        {"account": 1, "amount": 2**63, "rate": 1.0, "opened": True, "note": ""},
        {"account": 1, "amount": 1.0, "rate": 1.0, "opened": True, "note": ""},
        {"account": 1, "amount": 1, "rate": 2**53 + 1, "opened": True, "note": ""},
        {"account": 1, "amount": 1, "rate": 1.0, "opened": 1, "note": ""},
        {"account": 1, "amount": 1, "rate": 1.0, "opened": True, "note": "\ud800"},
        {"account": 1, "amount": 1, "rate": 1.0, "opened": True, "note": b"bytes"},
        {"account": (1,), "amount": 1, "rate": 1.0, "opened": True, "note": ""},
    ],
)
def test_what_the_engine_refuses_is_refused_in_the_same_words_before_a_byte_is_made(arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError) as by_engine:
        tg.Engine(PROGRAM).execute(change, **arguments)
    with pytest.raises(InputError) as by_codec:
        Codec(PLANS).execute(CHANGE, arguments)
    assert str(by_codec.value) == str(by_engine.value)


@pytest.mark.parametrize("key", ["\udfff", 2**63, 1.5, True, b"k"])
def test_a_key_that_is_no_text_and_no_number_is_refused(key: Any) -> None:
    with pytest.raises(InputError, match="a call's key: required an int of 64 bits or a str"):
        Codec(PLANS).execute(SELL, {"sale": ("x", 1, 1.0), "count": 1}, key)


# --- replay -----------------------------------------------------------------------------------------------------


class Small(IntEnum):
    ONE = 1


class Text(str):
    """A str of another type."""


class Key(NamedTuple):
    region: Any
    day: Any
    price: Any


strange = some.one_of(
    some.none(),
    some.integers(-3, 3),
    ints,
    some.integers(),
    floats,
    some.booleans(),
    texts,
    some.sampled_from([np.int64(5), np.int32(-5), np.uint64(2**63), np.uint8(7), np.float32(0.1), np.float64("nan")]),
    some.sampled_from([np.bool_(True), Small.ONE, Text("t"), "\ud800", b"b", 2**53 + 1, -0.0, math.nan, np.str_("s")]),
)


@some.composite
def usually(draw: some.DrawFn, usual: some.SearchStrategy[Any]) -> Any:
    return draw(usual if draw(some.integers(0, 3)) else strange)


sale_parts = some.tuples(
    usually(some.sampled_from(["a", "b"])),
    usually(some.integers(0, 2)),
    usually(some.sampled_from([0.0, -0.0, 1.5, 2])),
)
sale_keys = usually(
    some.one_of(
        sale_parts,
        sale_parts.map(lambda parts: Key(*parts)),
        sale_parts.map(list),
        sale_parts.map(
            lambda parts: dict(zip(("price", "region", "day"), (parts[2], parts[0], parts[1]), strict=True))
        ),
        some.dictionaries(some.sampled_from(["region", "day", "price", "other"]), strange),
    )
)
accounts = usually(some.integers(0, 3))


def as_array(items: list[Any]) -> Any:
    array = np.empty(len(items), object)
    for place, item in enumerate(items):
        array[place] = item
    return array


@some.composite
def lists_of(draw: some.DrawFn, items: some.SearchStrategy[Any]) -> Any:
    made = draw(usually(some.lists(items, max_size=4)))
    if not isinstance(made, list):
        return made
    return draw(some.sampled_from([list, tuple, lambda found: found * 100, as_array]))(made)


calls = some.one_of(
    some.fixed_dictionaries(
        {
            "account": accounts,
            "amount": usually(some.integers(-9, 9)),
            "rate": usually(floats),
            "opened": usually(some.booleans()),
            "note": usually(texts),
        }
    ).map(lambda arguments: (CHANGE, arguments)),
    some.fixed_dictionaries({"sale": sale_keys, "count": usually(ints)}).map(lambda arguments: (SELL, arguments)),
    some.fixed_dictionaries(
        {"accounts": lists_of(accounts), "sales": lists_of(sale_keys), "amounts": lists_of(usually(ints))}
    ).map(lambda arguments: (SPREAD, arguments)),
)


@pytest.fixture(scope="module")
def engines() -> Iterator[tuple[tg.Engine, tg.Engine]]:
    with tg.Engine(PROGRAM) as first, tg.Engine(PROGRAM) as second:
        yield first, second


def outcome(engine: tg.Engine, number: int, arguments: Any) -> Any:
    try:
        found = engine.execute(PROGRAM[number], **arguments)
    except InputError as error:
        return str(error)
    return found.committed, found.reason, bits(found.result)


def rows(engine: tg.Engine) -> list[Any]:
    tables = [engine.scan(table) for table in (Account, Sale)]
    return [bits(column.to_pylist()) for table in tables for column in table.columns]


@settings(max_examples=400)
@given(some.lists(calls, min_size=1, max_size=3))
@example([(CHANGE, {"account": None, "amount": 1, "rate": 1.0, "opened": True, "note": ""})])
@example([(SELL, {"sale": ("a", None, 1.0), "count": 1})])
@example([(SELL, {"sale": ("a", 1, math.nan), "count": 1})])
@example([(SPREAD, {"accounts": None, "sales": [None], "amounts": []})])
def test_every_call_that_an_engine_takes_can_be_logged_and_replays_to_the_same(
    engines: tuple[tg.Engine, tg.Engine], made: list[tuple[int, dict[str, Any]]]
) -> None:
    codec = Codec(PLANS)
    first, second = engines
    for number, arguments in made:
        wanted = outcome(first, number, arguments)
        try:
            data, _ = codec.execute(number, arguments)
        except InputError as error:
            assert str(error) == wanted
            continue
        record = decoded(codec, data)
        assert isinstance(record, Execute)
        names = [parameter.name for parameter in PLANS[number].parameters]
        assert outcome(second, number, dict(zip(names, record.arguments, strict=True))) == wanted
    assert rows(first) == rows(second)


def test_a_null_key_is_logged_and_replays_to_its_reason(engines: tuple[tg.Engine, tg.Engine]) -> None:
    codec = Codec(PLANS)
    data, _ = codec.execute(SELL, {"sale": None, "count": 1})
    record = decoded(codec, data)
    assert record == Execute(SELL, (None, 1))
    found = engines[0].execute(sell, sale=None, count=1)
    assert not found.committed and found.reason is not None and "null" in found.reason


# --- other records ----------------------------------------------------------------------------------------------

EVENTS = pa.table(
    {
        "transaction": pa.array(["a", "b", "a"]).dictionary_encode(),
        "n": pa.array([1, None, -(2**63)]),
        "x": [0.0, -0.0, math.inf],
        "keys": pa.array(
            [[{"a": 1, "b": "x"}], [], None], pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())]))
        ),
    }
)
OTHERS: list[Record] = [
    Run(EVENTS, "n"),
    Run(EVENTS),
    Run(EVENTS, ""),
    Run(EVENTS.slice(0, 0)),
    Load("Account \N{SNOWMAN}", EVENTS),
    Take("alerts", 0),
    Take("alerts", 10**12),
    Step(3, 2**40, -1, b""),
    Step(0, 0, 0, bytes(300)),
    Void(),
    Execute(SELL, (("x", 1, 1.0), 7), "key"),
]


@pytest.mark.parametrize("record", OTHERS, ids=lambda record: type(record).__name__)
def test_every_kind_of_record_is_decoded_as_it_was(record: Record) -> None:
    codec = Codec(PLANS)
    found = decoded(codec, codec.encode(record))
    assert found == record and type(found) is type(record)


@given(some.lists(some.sampled_from(OTHERS), max_size=8))
def test_records_stand_back_to_back(records: list[Record]) -> None:
    codec = Codec(PLANS)
    assert list(codec.decode(b"".join(map(codec.encode, records)))) == records


def test_a_small_table_does_not_cost_what_it_was_cut_from() -> None:
    codec = Codec(PLANS)
    table = pa.table({"n": range(100_000), "s": ["some text"] * 100_000, "l": [[1, 2]] * 100_000})
    assert len(codec.encode(Run(table.slice(70_000, 2)))) < 1000
    described = table.slice(0, 2).replace_schema_metadata({"pandas": "x" * 5000})
    assert len(codec.encode(Run(described))) < 1000


def test_a_batch_that_is_encoded_later_gives_the_same_bytes_in_memory_that_is_used_again() -> None:
    codec, scratch = Codec(PLANS), Scratch()
    numbers = pa.table({"n": range(1_000), "s": ["some text"] * 1_000})
    pieces = pa.concat_tables([numbers.slice(place, 1) for place in range(100)])
    for batch in (Run(numbers, "n"), Run(numbers.slice(10, 3)), Run(pieces, "s"), Run(pa.table({}))):
        later = codec.encode_later(batch)
        data = later.encode(scratch)
        assert len(data) == later.size
        assert bytes(data) == codec.encode(batch)
    with pytest.raises(InputError, match="UTF-8"):
        codec.encode_later(Run(numbers, "\ud800"))


def test_a_table_of_small_chunks_is_logged_in_one_piece() -> None:
    codec = Codec(PLANS)
    table = pa.concat_tables([pa.table({"n": [number], "m": [1.0]}) for number in range(100)])
    data = codec.encode(Load("T", table))
    assert len(data) < 100 * 16 + 1000
    found = decoded(codec, data)
    assert isinstance(found, Load) and found.rows.equals(table)


def test_names_that_utf_8_cannot_hold_are_refused() -> None:
    for record in (Take("\ud800", 1), Load("\ud800", EVENTS), Run(EVENTS, "\ud800")):
        with pytest.raises(InputError, match="a text that UTF-8 can hold"):
            Codec(PLANS).encode(record)


# --- reading what was written elsewhere ---------------------------------------------------------------------------


def test_records_are_decoded_without_the_program() -> None:
    listed = signatures(PLANS)
    assert listed[SELL] == [
        "sell",
        [["sale", False, "Sale", [["region", "str"], ["day", "int"], ["price", "float"]]], ["count", False, "int"]],
    ]
    without = plans(listed)
    assert signatures(without) == listed
    for record in (Execute(SELL, (("x", 1, 1.0), 7), 9), Execute(SPREAD, ([1, None], None, [2]))):
        data = Codec(PLANS).encode(record)
        assert decoded(Codec(without), data) == record
        assert Codec(without).encode(record) == data


@given(some.binary(min_size=1, max_size=40))
@example(bytes([4, 0, 3, 1, 2, 3]))
@example(bytes([0x80]) * 20 + b"\0")
def test_bytes_that_are_no_record_are_named_as_such(data: bytes) -> None:
    codec = Codec(PLANS)
    try:
        records = list(codec.decode(data))
    except RecoveryImpossible as error:
        assert "cannot be read, at byte" in str(error) and "use the one that did" in str(error)
    else:
        assert records


@pytest.mark.parametrize("record", OTHERS[3:], ids=lambda record: type(record).__name__)
def test_a_record_that_is_cut_is_named_as_such(record: Record) -> None:
    codec = Codec(PLANS)
    data = codec.encode(record)
    for size in range(1, len(data)):
        with pytest.raises(RecoveryImpossible, match="record 0 of a logged command cannot be read"):
            list(codec.decode(data[:size]))


@pytest.mark.parametrize("data", [b"\x80" * 10 + b"\0", b"\xff" * 9 + b"\x02"])
def test_a_number_of_more_than_64_bits_is_named(data: bytes) -> None:
    with pytest.raises(RecoveryImpossible, match="a number of more than 64 bits"):
        list(Codec(PLANS).decode(data))


def test_a_truth_value_that_is_neither_is_named() -> None:
    codec = Codec(hand_made(["flag", False, "bool"]))
    with pytest.raises(RecoveryImpossible, match="2 where 0 or 1 is required"):
        list(codec.decode(codec.execute(1, {"flag": True})[0][:-1] + b"\2"))


def test_a_transaction_that_the_program_does_not_have_is_named() -> None:
    codec = Codec(hand_made())
    with pytest.raises(RecoveryImpossible, match="transaction 100, required: less than 3"):
        list(Codec(PLANS).decode(codec.encode(Execute(100, ()))))
