from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as some

import tidegate as tg
from tidegate.compiler.program import build_program
from tidegate.durability import log_format, log_reading
from tidegate.durability.commands import Codec, Execute, Load, Record, Run, Step, Take, Void
from tidegate.durability.log_format import MARK, SECTOR_SIZE, End, Frame, Header, Tail
from tidegate.durability.log_reading import CommandReader, ExecuteBatch, Payloads, scan
from tidegate.foundation.errors import RecoveryImpossible, StorageCorrupted
from tidegate.operations.plan import ProgramPlan

from .sales import Account, Sale, change
from .test_log_format import FILE, Written, flipped, prefixes, read, sector_subsets, writes, zeroed

# --- frames -----------------------------------------------------------------------------------------------------

Found = tuple[list[Frame], Tail | str]


def slowly(data: Any, header: Header | None = None) -> Found:
    return gathered(log_format.frames(FILE, data, header))


def quickly(data: Any, header: Header | None = None) -> Found:
    return gathered(one_by_one(scan(FILE, data, header)))


def gathered(found: Iterator[Frame | Tail]) -> Found:
    """All frames, and the tail or what the error says."""
    frames: list[Frame] = []
    try:
        for part in found:
            if isinstance(part, Tail):
                return frames, part
            frames.append(part)
    except StorageCorrupted as error:
        return frames, str(error)
    raise AssertionError("no tail")


def one_by_one(scanned: Iterator[Payloads | Tail]) -> Iterator[Frame | Tail]:
    start = 512
    for part in scanned:
        if isinstance(part, Tail):
            yield part
            continue
        for number in range(len(part)):
            yield Frame(start, part.payload(number), part.end(number))
            start = part.end(number).offset


@pytest.fixture(params=[1 << 23, 700, 1], ids=lambda size: f"{size} bytes at once")
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reading, "PIECE_BYTES", request.param)


MANY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.usefixtures("piece")
@MANY
@given(writes, some.integers(0, 1500))
def test_scanning_gives_the_frames_that_were_written(wanted: list[tuple[bytes, bool]], ahead: int) -> None:
    written = Written(wanted)
    frames, tail = quickly(written.data + bytes(ahead))
    assert [frame.payload for frame in frames] == written.payloads
    assert [frame.end for frame in frames] == written.ends[1:]
    assert tail == Tail(written.ends[-1], False, len(written.data))


@pytest.mark.usefixtures("piece")
@settings(MANY, max_examples=60)
@given(writes, some.data())
def test_what_a_crash_leaves_is_what_the_slow_reader_says(
    wanted: list[tuple[bytes, bool]], choose: some.DataObject
) -> None:
    last = choose.draw(some.integers(0, len(wanted)))
    written = Written([(payload, sync and number < last) for number, (payload, sync) in enumerate(wanted)])
    torn = [*itertools.islice(prefixes(written), 400), *sector_subsets(written, 50)]
    for data in torn:
        assert quickly(data) == slowly(data)


def test_every_flipped_bit_of_a_small_segment_is_what_the_slow_reader_says() -> None:
    written = Written([(b"first", True), (bytes(40), False), (bytes(500), True), (bytes(300), True), (b"\xa5\0", True)])
    data = written.data + bytes(600)
    for bit in range(8 * written.header.end, 8 * len(data)):
        changed = flipped(data, bit)
        found = quickly(changed, written.header)
        assert found == slowly(changed, written.header)
        assert isinstance(found[1], str) or bit >= 8 * len(written.data)


@pytest.mark.usefixtures("piece")
@settings(MANY, max_examples=200)
@given(writes, some.data(), some.integers(0, 600))
def test_bytes_that_change_at_random_are_what_the_slow_reader_says(
    wanted: list[tuple[bytes, bool]], choose: some.DataObject, ahead: int
) -> None:
    written = Written(wanted)
    data = bytearray(written.data + bytes(ahead))
    places = some.tuples(
        some.integers(written.header.end, max(written.header.end, len(data) - 1)), some.integers(0, 255)
    )
    for place, byte in choose.draw(some.lists(places, min_size=1, max_size=4)):
        data[place : place + 1] = bytes([byte])
    assert quickly(bytes(data), written.header) == slowly(bytes(data), written.header)


@pytest.mark.parametrize("sizes", [[65_535, 65_536, 1, 300, 1_000_003, 2], [1_000_003], [200_000, 1]])
def test_large_frames_are_left_to_the_slow_reader_and_others_behind_them_are_not(sizes: list[int]) -> None:
    written = Written((bytes([size % 251]) * size, True) for size in sizes)
    assert quickly(written.data) == slowly(written.data)
    assert [frame.payload for frame in quickly(written.data)[0]] == written.payloads
    parts = [part for part in scan(FILE, written.data) if not isinstance(part, Tail)]
    assert len(parts) < len(sizes) or len(sizes) < 3


@pytest.mark.parametrize("before", range(480, 525))
@pytest.mark.parametrize("size", [1, 240, 255, 500, 511, 512, 1022])
def test_scanned_frames_may_start_and_end_anywhere_in_a_sector(before: int, size: int) -> None:
    for synced in (True, False):
        written = Written([(bytes([1]) * before, synced), (bytes([2]) * size, True), (b"end", False)])
        (found, tail) = scan(FILE, written.data)
        assert isinstance(found, Payloads) and len(found) == 3, "no frame is left to the slow reader"
        assert [found.payload(number) for number in range(3)] == written.payloads
        assert tail == slowly(written.data)[1]
        mark = written.header.end + SECTOR_SIZE - 1
        assert written.data[mark] == MARK
        assert quickly(flipped(written.data, 8 * mark)) == slowly(flipped(written.data, 8 * mark))


def test_a_frame_without_payload_is_what_the_slow_reader_says() -> None:
    written = Written([(b"one", True)])
    end = written.ends[-1]
    fields = bytes([0x53, 0])
    chain = log_format.google_crc32c.extend(end.chain, fields)
    start = fields + struct.pack("<I", chain)
    check = log_format.google_crc32c.extend(written.header.checksum, struct.pack("<Q", end.offset) + start)
    data = written.data + start + struct.pack("<I", check) + bytes([MARK])
    assert quickly(data) == slowly(data)
    assert quickly(data + bytes(10)) == slowly(data + bytes(10))


def test_scanning_takes_any_kind_of_buffer() -> None:
    written = Written([(bytes([200]) * 700, True), (b"x", True)])
    for data in (written.data, bytearray(written.data), memoryview(written.data), pa.py_buffer(written.data)):
        assert quickly(data) == slowly(written.data)


def test_the_first_frames_of_some_can_be_taken_alone() -> None:
    written = Written([(bytes([number + 1]) * number, True) for number in range(1, 9)])
    found = next(scan(FILE, written.data))
    assert isinstance(found, Payloads)
    some_of_them = found.first(3)
    assert len(some_of_them) == 3 and some_of_them.end(2) == written.ends[3]
    assert [some_of_them.payload(number) for number in range(3)] == written.payloads[:3]
    assert [found.end(number) for number in range(8)] == written.ends[1:]


def test_a_log_goes_on_where_the_scan_says_that_it_ends() -> None:
    written = Written([(b"a" * 40, True), (b"b" * 900, False)])
    *_, tail = scan(FILE, written.data[:-300])
    assert isinstance(tail, Tail) and tail.torn
    added, end = log_format.encode_frame(written.header, tail.end, tail.end.offset, b"c")
    frames, tail = quickly(written.data[: tail.end.offset] + added)
    assert [frame.payload for frame in frames] == [b"a" * 40, b"c"] and tail == Tail(end, False, end.offset)
    assert isinstance(read(written.data)[1].end, End)
    assert quickly(zeroed(written.data, 600, 700)) == slowly(zeroed(written.data, 600, 700))


# --- commands ---------------------------------------------------------------------------------------------------


@tg.table(key="name")
class Shop:
    name: str
    visits: int = 0


@tg.table(key="at")
class Point:
    at: float
    hits: int = 0


@tg.transaction
def sell(sale: Sale, count: int) -> int:
    sale.count += count
    tg.require(sale.count < 1000, "sold out")
    return sale.count


@tg.transaction
def spread(accounts: list[Account], sales: list[Sale], names: list[str], rates: list[float], flags: list[bool]) -> int:
    total = 0
    for rate in rates:
        if rate > 1.0:
            total += 1
    for flag in flags:
        if flag:
            total += 1
    for name in names:
        if name == "ab":
            total += 10
    for account in accounts:
        account.balance += total
    for sale in sales:
        sale.count += total
    return total


@tg.transaction
def visit(shop: Shop, point: Point) -> str:
    shop.visits += 1
    point.hits += 1
    return shop.name


@tg.transaction
def close(account: Account) -> bool:
    there = account.exists  # type: ignore[attr-defined]
    tg.delete(account)
    return bool(there)


@tg.transaction(compiled=False)
def rename(account: Account, note: str, amount: int) -> str:
    account.note = note[::-1]
    account.balance += 10 // amount
    return account.note


CALLS = [change, sell, spread, visit, close, rename]
CHANGE, SELL, SPREAD, VISIT, CLOSE, RENAME = range(6)
PROGRAM = build_program(CALLS)

ints = some.integers(-(2**63), 2**63 - 1) | some.integers(-3, 3) | some.sampled_from([-(2**63), 2**63 - 1, 64, -65])
floats = some.floats() | some.sampled_from([0.0, -0.0, math.inf, -math.inf, 5e-324])
texts = some.text(some.characters(codec="utf-8"), max_size=8) | some.sampled_from(["", "ab", "\0", "käse", "x" * 90])
sales = some.tuples(texts, ints, floats)


def listed(item: some.SearchStrategy[Any]) -> some.SearchStrategy[Any]:
    return some.lists(item, max_size=4)


plain_calls = some.one_of(
    some.tuples(some.just(CHANGE), some.tuples(ints, ints, floats, some.booleans(), texts)),
    some.tuples(some.just(SELL), some.tuples(sales, ints)),
    some.tuples(
        some.just(SPREAD),
        some.tuples(listed(ints), listed(sales), listed(texts), listed(floats), listed(some.booleans())),
    ),
    some.tuples(some.just(VISIT), some.tuples(texts, floats)),
    some.tuples(some.just(CLOSE), some.tuples(ints)),
    some.tuples(some.just(RENAME), some.tuples(ints, texts, some.integers(-1, 1))),
).map(lambda call: Execute(*call))
unusual_records = some.one_of(
    plain_calls.flatmap(
        lambda call: (some.integers() | texts).map(lambda key: Execute(call.transaction, call.arguments, _key(key)))
    ),
    some.sampled_from(
        [
            Execute(SELL, (None, 1)),
            Execute(SELL, (("a", None, 1.0), 1)),
            Execute(CHANGE, (1, None, 1.0, True, "x")),
            Execute(SPREAD, ([1, None], [], ["a"], None, [])),
            Void(),
            Take("s", 3),
            Step(0, 1, 2, b"x"),
            Run(pa.table({"x": [1, 2]}), "x"),
            Load("Account", pa.table({"id": [1]})),
        ]
    ),
)
records = some.one_of(plain_calls, plain_calls, plain_calls, unusual_records)


def _key(value: int | str) -> int | str:
    return value if isinstance(value, str) else value % 2**63


def payloads_of(payloads: Sequence[bytes]) -> Payloads:
    bounds = np.concatenate([[0], np.cumsum([len(payload) for payload in payloads])]).astype(np.int64)
    content = np.frombuffer(b"".join(payloads), np.uint8)
    nothing = np.zeros(len(payloads), np.int64)
    return Payloads(content, bounds, nothing, nothing)


def decoded(codec: Codec, payloads: Sequence[bytes]) -> Iterator[Record]:
    for payload in payloads:
        yield from codec.decode(payload)


def calls_of(batch: ExecuteBatch, plan: ProgramPlan) -> Iterator[Execute]:
    """The calls that the rows of a batch are."""
    for row in batch.events.to_pylist():
        number = plan.names.index(row["transaction"])
        arguments = []
        for parameter in plan.transactions[number].parameters:
            value = row[parameter.name]
            items = value if parameter.many else [value]
            items = [tuple(item.values()) if isinstance(item, dict) else item for item in items]
            arguments.append(items if parameter.many else items[0])
        yield Execute(number, tuple(arguments))


def exact(record: Record) -> Any:
    if isinstance(record, Execute):
        return record.transaction, exact_value(record.arguments), record.key
    return record


def exact_value(value: Any) -> Any:
    if isinstance(value, float):
        return struct.pack("<d", value)
    return (type(value), [exact_value(v) for v in value]) if isinstance(value, list | tuple) else (type(value), value)


@pytest.fixture
def smallest_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reading, "ROWS_MIN", 1)


def check_commands(reader: CommandReader, plan: ProgramPlan, payloads: Sequence[bytes]) -> list[Any]:
    """Reads payloads both ways, and returns what the fast one gave."""
    found = list(reader.commands(payloads_of(payloads)))
    flat: list[Record] = []
    for part in found:
        if isinstance(part, ExecuteBatch):
            calls = list(calls_of(part, plan))
            assert len(part) == len(calls)
            flat += calls
        else:
            flat.append(part)
    assert [exact(record) for record in flat] == [exact(r) for r in decoded(Codec(plan.transactions), payloads)]
    return found


LIMITS = {
    "nothing": {},
    "rows": {"ROWS_MAX": 3},
    "bytes": {"BATCH_BYTES_MAX": 40},
    "a record": {"RECORD_BYTES_MAX": 30},
}


@pytest.mark.usefixtures("smallest_batches")
@pytest.mark.parametrize("limited", LIMITS)
@MANY
@given(some.lists(some.lists(records, max_size=12), max_size=6))
@example([[Execute(CHANGE, (2**63 - 1, -(2**63), -0.0, True, "\U0001f600"))]])
def test_commands_are_the_records_that_were_logged(limited: str, wanted: list[list[Record]]) -> None:
    codec = Codec(PROGRAM.plan.transactions)
    payloads = [b"".join(map(codec.encode, group)) for group in wanted]  # one may hold nothing
    with pytest.MonkeyPatch.context() as patch:
        for name, limit in LIMITS[limited].items():
            patch.setattr(log_reading, name, limit)
        reader = CommandReader(PROGRAM.plan)
        found = check_commands(reader, PROGRAM.plan, payloads)
        check_commands(reader, PROGRAM.plan, payloads)  # a reader reads many segments
    if limited == "rows":
        assert all(len(part) <= 3 for part in found if isinstance(part, ExecuteBatch))
    if limited == "nothing":
        plain = [
            type(r) is Execute and r.key is None and b"".join(map(codec.encode, [r]))[0] & 7 == 0
            for g in wanted
            for r in g
        ]
        batches = sum(1 for is_plain, _ in itertools.groupby(plain) if is_plain)
        assert sum(isinstance(part, ExecuteBatch) for part in found) == batches, "calls in a row are one batch"


def test_few_calls_among_other_records_are_given_one_by_one_and_many_as_a_batch() -> None:
    codec, plan = Codec(PROGRAM.plan.transactions), PROGRAM.plan
    few = [codec.encode(Execute(CLOSE, (number,))) for number in range(log_reading.ROWS_MIN - 1)]
    sales = [codec.encode(Execute(SELL, ((f"r{number}", number, 0.5), 1))) for number in range(log_reading.ROWS_MIN)]
    void = codec.encode(Void())
    found = check_commands(CommandReader(plan), plan, [*few, void, *few, void, b"".join(sales), void, *few])
    kinds = [type(part) for part in found]
    assert kinds == [Execute] * 63 + [Void] + [Execute] * 63 + [Void, ExecuteBatch, Void] + [Execute] * 63
    table = found[63 * 2 + 2].events
    assert set(table.column_names) == {"transaction", *plan.columns}
    assert table["account"].to_pylist() == [0] * log_reading.ROWS_MIN, "zeros, not what other calls left there"


def test_batches_are_bounded() -> None:
    codec, plan = Codec(PROGRAM.plan.transactions), PROGRAM.plan
    count = log_reading.ROWS_MAX + 1000
    found = list(CommandReader(plan).commands(payloads_of([codec.encode(Execute(CLOSE, (1,)))] * count)))
    assert [len(part) for part in found if isinstance(part, ExecuteBatch)] == [log_reading.ROWS_MAX, 1000]


def test_a_call_longer_than_a_batch_takes_is_given_alone() -> None:
    codec, plan = Codec(PROGRAM.plan.transactions), PROGRAM.plan
    long = Execute(CHANGE, (1, 1, 1.0, True, "x" * (log_reading.RECORD_BYTES_MAX + 1)))
    many = Execute(SPREAD, ([1] * (1 << 20), [], [], [], []))
    calls = [codec.encode(Execute(CLOSE, (1,)))] * 100
    found = check_commands(
        CommandReader(plan), plan, [b"".join([*calls, codec.encode(long), *calls, codec.encode(many), *calls])]
    )
    assert [type(part) for part in found] == [ExecuteBatch, Execute, ExecuteBatch, Execute, ExecuteBatch]


def attempt(found: Iterator[Any]) -> tuple[list[Any], str]:
    taken = []
    try:
        for part in found:
            taken += map(exact, calls_of(part, PROGRAM.plan) if isinstance(part, ExecuteBatch) else [part])
    except RecoveryImpossible as error:
        return taken, str(error)
    return taken, ""


@pytest.mark.usefixtures("smallest_batches")
@MANY
@given(some.lists(plain_calls, max_size=5), some.binary(min_size=1, max_size=30), some.lists(plain_calls, max_size=3))
@example([], bytes([0x80]) * 20, [])
@example([], bytes([VISIT << 3, 2, 0xC3, 0x28]) + bytes(8), [])  # not UTF-8
@example([], bytes([CHANGE << 3, 2, 2]) + bytes(8) + b"\2\0", [])  # neither true nor false
@example([], bytes([CLOSE << 3, *[0x80] * 9, 1]), [])
@example([], bytes([CLOSE << 3, *[0x80] * 9, 2]), [])
@example([], bytes([CLOSE << 3, 0x80, 0x80, 0]), [])  # zero in three bytes
@example([], bytes([SPREAD << 3, *[0xFF] * 9, 1]), [])
@example([], bytes([VISIT << 3, *[0xFF] * 9, 1]), [])
@example([], bytes([VISIT << 3, 100]), [])
def test_bytes_that_are_no_record_are_named_as_the_decoder_names_them(
    before: list[Execute], broken: bytes, behind: list[Execute]
) -> None:
    codec = Codec(PROGRAM.plan.transactions)
    first, last = (b"".join(map(codec.encode, calls)) for calls in (before, behind))
    payloads = [part for part in (first, first + broken + last, last) if part]
    wanted = attempt(decoded(codec, payloads))
    assert attempt(CommandReader(PROGRAM.plan).commands(payloads_of(payloads))) == wanted


@pytest.mark.usefixtures("smallest_batches")
@MANY
@given(some.lists(plain_calls, min_size=1, max_size=4), some.data())
def test_a_payload_that_is_cut_is_named_as_the_decoder_names_it(calls: list[Execute], choose: some.DataObject) -> None:
    codec = Codec(PROGRAM.plan.transactions)
    whole = b"".join(map(codec.encode, calls))
    cut = whole[: choose.draw(some.integers(1, len(whole)))]
    wanted = attempt(decoded(codec, [cut, whole]))
    assert attempt(CommandReader(PROGRAM.plan).commands(payloads_of([cut, whole]))) == wanted
