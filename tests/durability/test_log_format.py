from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from tidegate.durability import log_format
from tidegate.durability.log_format import (
    FORMAT,
    MARK,
    SECTOR_SIZE,
    End,
    Frame,
    Header,
    Segment,
    Tail,
    decode_header,
    encode_frame,
    encode_header,
    frames,
)
from tidegate.durability.scratch import Scratch
from tidegate.foundation.errors import RecoveryImpossible, StorageCorrupted

SEGMENT = Segment("7f3a", 3, 42, "00c0ffee", "5eed", [["transfer", [["src", "Account", [["id", "int"]], False]]]], 1.5)
FILE = "state/000000000042.log"


class Written:
    """A segment with frames, and where each of them lies."""

    def __init__(self, payloads: Iterable[tuple[bytes, bool]], segment: Segment = SEGMENT) -> None:
        """Payloads in order, each with whether a sync followed it."""
        self.header, head = encode_header(segment)
        self.data, self.payloads, self.ends = head, [], [self.header.start]
        self.synced, self.synced_count = self.header.end, 0
        scratch = Scratch()
        for payload, sync in payloads:
            data, end = encode_frame(self.header, self.ends[-1], self.synced, payload, scratch)
            assert end.offset == len(self.data) + len(data)
            self.data += data
            self.payloads.append(payload)
            self.ends.append(end)
            if sync:
                self.synced, self.synced_count = end.offset, len(self.payloads)

    @property
    def boundaries(self) -> list[int]:
        return [end.offset for end in self.ends]


def read(data: bytes, header: Header | None = None) -> tuple[list[bytes], Tail]:
    *found, tail = frames(FILE, data, header)
    assert isinstance(tail, Tail)
    return [frame.payload for frame in found if isinstance(frame, Frame)], tail


def judged(written: Written, data: bytes) -> list[bytes] | None:
    """What is read, checked against what was written; None where it is refused."""
    try:
        found, tail = read(data, written.header)
    except StorageCorrupted:
        return None
    assert found == written.payloads[: len(found)]
    assert tail.end == written.ends[len(found)]
    assert tail.torn == bool(data[tail.end.offset :].strip(b"\0"))
    assert tail.remains_until == (len(data.rstrip(b"\0")) if tail.torn else tail.end.offset)
    return found


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def zeroed(data: bytes, start: int, stop: int) -> bytes:
    return data[:start] + bytes(len(data[start:stop])) + data[stop:]


# --- frames -----------------------------------------------------------------------------------------------------

nasty_bytes = some.sampled_from([0, 0, 0, MARK, 0x53, 0x6C, 0x9A, 1, 255])
payloads = some.one_of(
    some.binary(min_size=1, max_size=30),
    some.lists(nasty_bytes, min_size=1, max_size=40).map(bytes),
    some.integers(1, 1600).map(bytes),
    some.builds(lambda byte, size: bytes([byte]) * size, nasty_bytes, some.integers(1, 1600)),
    some.integers(470, 530).map(lambda size: bytes([7]) * size),
)
writes = some.lists(some.tuples(payloads, some.booleans()), max_size=8)


@given(writes, some.integers(0, 3000))
def test_frames_are_read_as_they_were_written(wanted: list[tuple[bytes, bool]], ahead: int) -> None:
    written = Written(wanted)
    found, tail = read(written.data + bytes(ahead))
    assert found == written.payloads
    assert tail == Tail(written.ends[-1], False, len(written.data))


def test_a_frame_says_where_it_starts_and_what_chain_goes_on_behind_it() -> None:
    written = Written([(b"one", True), (b"two", False)])
    first, second, _ = frames(FILE, written.data)
    assert first == Frame(written.header.end, b"one", written.ends[1])
    assert second == Frame(written.ends[1].offset, b"two", written.ends[2])
    assert written.ends[2].hash == f"{written.ends[2].chain:08x}"


@pytest.mark.parametrize("synced", [True, False])
@pytest.mark.parametrize("size", [1, 255, 256, 65_535, 65_536, 1_000_003])
def test_a_frame_has_the_smallest_form_that_holds_it(size: int, synced: bool) -> None:
    written = Written([(b"x", synced), (bytes(size), False), (b"y", True)])
    assert read(written.data)[0] == written.payloads
    start, stop = written.boundaries[1:3]
    head = 10 if synced and size <= 255 else 15 if size <= 65_535 else 25
    sectors = stop // SECTOR_SIZE - start // SECTOR_SIZE
    assert stop - start in (head + size + sectors, head + size + 1 + sectors)  # an end mark may be a sector's, too


def test_more_in_flight_than_a_medium_frame_can_say_makes_a_large_one() -> None:
    header, _ = encode_header(SEGMENT)
    end = End(header.end + (1 << 33), header.checksum)
    assert len(encode_frame(header, end, header.end, b"x")[0]) == 27
    assert len(encode_frame(header, end, end.offset - (1 << 32) + 1, b"x")[0]) == 17


@pytest.mark.parametrize("before", range(480, 525))
@pytest.mark.parametrize("size", [1, 500, 511, 512])
def test_frames_may_start_and_end_anywhere_in_a_sector(before: int, size: int) -> None:
    written = Written([(bytes([1]) * before, True), (bytes([2]) * size, True), (b"end", False)])
    assert read(written.data)[0] == written.payloads
    sectors = range(written.header.end + SECTOR_SIZE - 1, len(written.data), SECTOR_SIZE)
    assert {written.data[at] for at in sectors} == {MARK}


def test_a_segment_is_read_from_any_kind_of_buffer() -> None:
    written = Written([(bytes([200]) * 700, True)])
    for data in (written.data, bytearray(written.data), memoryview(written.data), pa.py_buffer(written.data)):
        assert [frame.payload for frame in frames(FILE, data) if isinstance(frame, Frame)] == written.payloads


def test_a_frame_in_flight_says_so_and_needs_only_truth() -> None:
    header, _ = encode_header(SEGMENT)
    with pytest.raises(AssertionError, match="synced up to"):
        encode_frame(header, header.start, header.end + 1, b"x")
    with pytest.raises(AssertionError, match="a frame of 0 bytes"):
        encode_frame(header, header.start, header.end, b"")


# --- crashes ----------------------------------------------------------------------------------------------------


def prefixes(written: Written) -> Iterator[bytes]:
    """What a process leaves that is killed in mid-write."""
    for size in range(written.synced, len(written.data)):
        yield written.data[:size]
        yield zeroed(written.data, size, len(written.data)) + bytes(700)


def sector_subsets(written: Written, at_most: int = 3000) -> Iterator[bytes]:
    """What a power failure leaves: each sector as it was after some write since the last sync."""
    start, stop = written.synced, len(written.data)
    choices = []
    for sector in range(start - start % SECTOR_SIZE, stop, SECTOR_SIZE):
        begin, end = max(start, sector), min(stop, sector + SECTOR_SIZE)
        choices.append([(cut, end) for cut in {begin, end, *(b for b in written.boundaries if begin < b < end)}])
    count = math.prod(map(len, choices))
    chosen = random.Random(count)
    every = itertools.product(*choices)
    for cuts in every if count <= at_most else ([chosen.choice(c) for c in choices] for _ in range(at_most)):
        data = written.data
        for cut, end in cuts:
            data = zeroed(data, cut, end)
        yield data
        yield data.rstrip(b"\0").ljust(start, b"\0")


def test_every_tear_of_some_frames_is_a_tear_and_costs_no_synced_frame() -> None:
    sizes = [30, 460, 3, 495, 600, 1, 25, 1100, 12]
    for synced in (0, 1, 2, 4, 8):
        written = Written(((bytes([5, 0, MARK, 0]) * 300)[:size], number < synced) for number, size in enumerate(sizes))
        for data in (*prefixes(written), *sector_subsets(written)):
            found = judged(written, data)
            assert found is not None, "a tear was taken for damage"
            assert len(found) >= written.synced_count


@settings(max_examples=60)
@given(writes, some.data())
def test_a_tear_is_never_taken_for_damage(wanted: list[tuple[bytes, bool]], choose: some.DataObject) -> None:
    last = choose.draw(some.integers(0, len(wanted)))
    written = Written([(payload, sync and number < last) for number, (payload, sync) in enumerate(wanted)])
    for data in (*prefixes(written), *sector_subsets(written, 100)):
        found = judged(written, data)
        assert found is not None, "a tear was taken for damage"
        assert len(found) >= written.synced_count


def test_of_frames_in_flight_those_that_are_whole_are_read() -> None:
    written = Written([(b"a" * 100, True), (b"b" * 100, False), (b"c" * 900, False), (b"d" * 100, False)])
    sector = written.header.end + SECTOR_SIZE
    found, tail = read(zeroed(written.data, sector, sector + SECTOR_SIZE))
    assert found == written.payloads[:2]
    assert tail == Tail(written.ends[2], True, len(written.data))


@given(writes, payloads, some.data())
def test_the_log_goes_on_behind_a_torn_tail_that_was_cut_off(
    wanted: list[tuple[bytes, bool]], more: bytes, choose: some.DataObject
) -> None:
    written = Written(wanted)
    size = choose.draw(some.integers(written.synced, len(written.data)))
    found, tail = read(written.data[:size])
    data = written.data[: tail.end.offset]
    added, _ = encode_frame(written.header, tail.end, tail.end.offset, more)
    assert read(data + added)[0] == [*found, more]


# --- damage -----------------------------------------------------------------------------------------------------


def test_every_flipped_bit_of_a_small_segment_is_damage_where_it_was_synced_and_behind_its_end() -> None:
    written = Written([(b"first", True), (bytes(40), True), (bytes(500), True), (b"\xa5\0\0", True)])
    data = written.data + bytes(1500)
    for bit in range(8 * len(data)):
        with pytest.raises(StorageCorrupted):
            read(flipped(data, bit))


@settings(max_examples=200)
@given(writes, some.data(), some.integers(0, 1100))
@example([(bytes(1600), True)], None, 0)
def test_a_flipped_bit_in_what_was_synced_is_damage(
    wanted: list[tuple[bytes, bool]], choose: some.DataObject | None, ahead: int
) -> None:
    written = Written(wanted)
    data = written.data + bytes(ahead)
    bits = range(8 * written.synced)
    for bit in bits[-6000:] if choose is None else [choose.draw(some.integers(0, 8 * written.synced - 1))]:
        with pytest.raises(StorageCorrupted, match=r"damaged at offset \d+: expected .+, found "):
            read(flipped(data, bit))


@settings(max_examples=200)
@given(writes, some.data())
def test_a_flipped_bit_is_damage_whatever_a_crash_left_behind_it(
    wanted: list[tuple[bytes, bool]], choose: some.DataObject
) -> None:
    written = Written(wanted)
    torn = choose.draw(some.sampled_from([*sector_subsets(written, 40), written.data[: written.synced + 5]]))
    bit = choose.draw(some.integers(0, 8 * written.synced - 1))
    with pytest.raises(StorageCorrupted):
        read(flipped(torn, bit))


@given(writes, some.integers(0, 1500), some.integers(1, 255))
def test_a_byte_among_the_zeros_behind_the_end_is_noticed(
    wanted: list[tuple[bytes, bool]], place: int, byte: int
) -> None:
    written = Written((payload, True) for payload, _ in wanted)
    data = bytearray(written.data + bytes(1501))
    data[len(written.data) + place] = byte
    found = judged(written, bytes(data))  # which says that a tail that is read is torn
    assert found in (None, written.payloads)
    assert found is None or byte in (MARK, 0x53, 0x6C, 0x9A)


@given(writes, some.data())
def test_bytes_that_change_at_random_are_damage_or_look_torn_but_never_read_as_something_else(
    wanted: list[tuple[bytes, bool]], choose: some.DataObject
) -> None:
    written = Written(wanted)
    data = bytearray(written.data + bytes(20))
    places = some.tuples(some.integers(0, len(data) - 1), some.integers(0, 255))
    for place, byte in choose.draw(some.lists(places, min_size=1, max_size=10)):
        data[place] = byte
    try:
        header = decode_header(FILE, data)
    except StorageCorrupted:
        return
    assert header == written.header
    judged(written, bytes(data))


def test_a_wiped_sector_is_damage_as_soon_as_any_later_frame_witnesses_that_it_was_synced() -> None:
    written = Written([(bytes([number]) * 200, True) for number in range(1, 20)] + [(b"in flight" * 80, False)])
    last = written.boundaries[-2]
    for sector in range(written.header.end, last - SECTOR_SIZE, SECTOR_SIZE):
        with pytest.raises(StorageCorrupted, match="witnesses that it was synced"):
            read(zeroed(written.data, sector, sector + SECTOR_SIZE))


def test_a_frame_that_starts_with_its_sector_is_a_witness_though_no_mark_stands_before_it() -> None:
    written = Written([(b"a" * 1007, True), (b"b", True)])
    assert written.boundaries[1] == written.header.end + 2 * SECTOR_SIZE
    with pytest.raises(StorageCorrupted, match=f"the frame at offset {written.boundaries[1]} witnesses"):
        read(zeroed(written.data, written.header.end + SECTOR_SIZE, written.boundaries[1]))


def test_what_a_crash_left_is_damage_when_a_bit_of_its_marks_is_flipped_as_well() -> None:
    written = Written([(b"a" * 1800, False), (b"b", False)])
    start, stop = written.boundaries[:2]
    missing = zeroed(written.data, start + SECTOR_SIZE, start + 2 * SECTOR_SIZE)
    cut = written.data[: start + 700]
    assert read(missing)[1].torn and read(cut)[1].torn
    for torn, mark in ((missing, stop - 1), (missing, start + 511), (cut, start + 511)):
        with pytest.raises(StorageCorrupted, match="marks that no crash leaves so"):
            read(flipped(torn, 8 * mark))


def test_a_frame_that_is_lost_moved_or_foreign_is_damage() -> None:
    written = Written([(bytes([number]) * 20, True) for number in range(1, 5)])
    foreign = Written([(bytes([number]) * 20, True) for number in range(1, 5)], Segment("7f3a", 4, 42, "", "", [], 1.5))
    assert len(foreign.data) == len(written.data)
    _, first, second, third, stop = written.boundaries
    data = written.data
    for changed in (
        data[:first] + data[second:],
        data[:first] + data[second:third] + data[first:second] + data[third:],
        data[:first] + foreign.data[first:second] + data[second:],
        data[:third] + foreign.data[third:stop],
        data[:third] + data[second:third],
    ):
        with pytest.raises(StorageCorrupted, match=f"{FILE}: damaged at offset"):
            read(changed)


def test_an_older_frame_of_the_same_place_does_not_pass() -> None:
    """What was written behind a torn tail that was cut off, and what had been there before."""
    header, head = encode_header(SEGMENT)
    old, old_end = encode_frame(header, header.start, header.end, b"old")
    new, _ = encode_frame(header, header.start, header.end, b"new")
    behind_old, _ = encode_frame(header, old_end, header.end, b"behind")
    assert len(old) == len(new)
    with pytest.raises(StorageCorrupted, match="expected checksum"):
        read(head + new + behind_old)


def test_damage_says_what_to_do() -> None:
    written = Written([(b"hello", True)])
    with pytest.raises(StorageCorrupted, match="`tidegate recover PATH --to VERSION` goes on from"):
        read(flipped(written.data, 8 * (written.header.end + 12)))


# --- the header -------------------------------------------------------------------------------------------------


def test_a_header_is_read_as_it_was_written() -> None:
    header, data = encode_header(SEGMENT)
    assert decode_header(FILE, data) == header
    assert header.segment.name == "000000000042.log"
    assert len(data) == header.end and header.end % SECTOR_SIZE == 0


def test_a_header_that_is_cut_or_foreign_is_damage() -> None:
    _, data = encode_header(SEGMENT)
    for size in range(len(data)):
        with pytest.raises(StorageCorrupted, match=FILE):
            decode_header(FILE, data[:size])
    with pytest.raises(StorageCorrupted, match="the mark"):
        decode_header(FILE, b"TIDEGATE" + data[8:])


def test_a_newer_format_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_format, "FORMAT", FORMAT + 1)
    _, data = encode_header(SEGMENT)
    monkeypatch.undo()
    with pytest.raises(RecoveryImpossible, match=f"log format {FORMAT + 1}, this Tidegate reads format {FORMAT}"):
        decode_header(FILE, data)


@pytest.mark.parametrize("before", [1, 479, *range(490, 503), 520])
@pytest.mark.parametrize("sectors", [15, 16, 17])
def test_every_sector_of_a_large_frame_ends_in_a_mark_and_nothing_else_is_added(before: int, sectors: int) -> None:
    for rest in (0, 1, 2, 495, 510):
        payload = bytes(value % 251 + 1 for value in range(sectors * 511 + rest))
        written = Written([(bytes([1]) * before, True), (payload, True), (b"end", False)])
        assert read(written.data)[0] == written.payloads
        start, stop = written.boundaries[1:3]
        marks = {at for at in range(start, stop) if at % SECTOR_SIZE == SECTOR_SIZE - 1} | {stop - 1}
        assert all(written.data[at] == MARK for at in marks)
        content = bytes(written.data[at] for at in range(start, stop) if at not in marks)
        assert content.endswith(payload) and len(content) == len(payload) + 15
