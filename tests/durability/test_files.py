from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some

from tidegate.durability import files
from tidegate.foundation.errors import RecoveryImpossible, StorageCorrupted
from tidegate.foundation.storage import Storage, open_storage

ACCOUNTS = pa.table({"id": [1, 2, -(2**63)], "name": ["a", "\N{SNOWMAN}", ""], "exists": [True, False, True]})
PRICES = pa.table({"price": [0.1, -0.0, math.inf, 5e-324]})
ORDER = np.array([2, 0, 1], dtype=np.int64)
FIELDS: dict[str, Any] = {"version": 7, "high": 0.1, "query": "a\N{SNOWMAN}"}


def encoded(
    fields: dict[str, Any] = FIELDS,
    tables: tuple[tuple[str, pa.Table], ...] = (("Account", ACCOUNTS), ("Price", PRICES)),
    order: Any = ORDER,
) -> bytes:
    bodies: list[files.Body] = [("table", name, table) for name, table in tables]
    bodies += [] if order is None else [("order", "", order)]
    return b"".join(bytes(part) for part in files.encode(fields, bodies)[1])


def stored(data: bytes) -> Storage:
    storage = open_storage("memory://files")
    storage.write("f.change", [data], exclusive=False)
    return storage


def test_checksums_are_computed_by_compiled_code() -> None:
    assert google_crc32c.implementation == "c"


def test_what_was_encoded_is_read_back() -> None:
    header, contents = files.read_file(stored(encoded()), "f.change")
    assert header.fields == FIELDS
    assert [(s.kind, s.table, s.rows) for s in header.sections] == [
        ("table", "Account", 3),
        ("table", "Price", 4),
        ("order", "", 3),
    ]
    assert contents[0].equals(ACCOUNTS)
    assert contents[1].equals(PRICES)
    assert math.copysign(1, contents[1]["price"][1].as_py()) == -1
    assert contents[2].tolist() == [2, 0, 1] and contents[2].dtype == np.int64
    assert header.size == len(encoded())


def test_a_file_read_whole_and_section_by_section_is_the_same() -> None:
    storage = stored(encoded())
    header = files.read_header(storage, "f.change")
    assert header == files.read_file(storage, "f.change")[0]
    sections = [content for _, content in files.read_sections(storage, "f.change", header)]
    assert sections[0].equals(ACCOUNTS) and sections[1].equals(PRICES) and sections[2].tolist() == [2, 0, 1]


def test_sections_start_where_arrow_can_use_them_in_place() -> None:
    data = pa.py_buffer(encoded())
    header = files.decode_header("f", data)
    assert all(section.offset % 64 == 0 and section.size % 64 == 0 for section in header.sections)
    section = header.sections[1]
    prices = files.decode_section("f", header, section, data.slice(section.offset, section.size))
    address = prices["price"].chunk(0).buffers()[1].address
    assert data.address <= address < data.address + data.size


@pytest.mark.parametrize(
    ("fields", "tables", "order"),
    [
        ({}, (), None),
        ({"x": "y" * 10_000}, (("T", PRICES),), None),  # a header that the first read does not hold
        ({}, (), np.array([], dtype=np.int64)),
        ({}, (("T", PRICES.slice(0, 0)),), None),
        ({}, (("T", PRICES.slice(1, 2)), ("T", PRICES.slice(0, 1)), ("order", PRICES)), ORDER[::-1]),
        ({}, (("T", pa.concat_tables([PRICES, PRICES])),), ORDER.astype(np.int32)),
    ],
)
def test_files_of_every_shape_are_read_back(fields: Any, tables: Any, order: Any) -> None:
    storage = stored(encoded(fields, tables, order))
    header, contents = files.read_file(storage, "f.change")
    assert files.read_header(storage, "f.change") == header
    assert header.fields == fields
    for (name, table), section, content in zip(tables, header.sections, contents, strict=False):
        assert section.table == name and content.equals(table)
    assert len(contents) == len(tables) + (order is not None)
    if order is not None:
        assert contents[-1].tolist() == order.tolist()


@given(some.dictionaries(some.text(), some.none() | some.integers() | some.floats(allow_nan=False) | some.text()))
def test_header_values_are_exact_and_strings_may_be_any(fields: dict[str, Any]) -> None:
    found = files.decode_header("f", pa.py_buffer(encoded(fields, (), None))).fields
    assert found == fields
    assert [type(value) for value in found.values()] == [type(value) for value in fields.values()]


def test_a_lone_surrogate_in_a_header_value_survives() -> None:
    assert files.decode_header("f", pa.py_buffer(encoded({"q": "\ud800"}, (), None))).fields == {"q": "\ud800"}


def read_every_way(data: bytes) -> list[str]:
    """The messages of reading a damaged file whole, and section by section."""
    storage, messages = stored(data), []
    with pytest.raises(StorageCorrupted) as whole:
        files.read_file(storage, "f.change")
    messages.append(str(whole.value))
    with pytest.raises(StorageCorrupted) as pieces:
        list(files.read_sections(storage, "f.change", files.read_header(storage, "f.change")))
    messages.append(str(pieces.value))
    return messages


def require_full_message(message: str) -> None:
    assert message.startswith("memory://files/f.change: damaged at offset ")
    assert ": expected " in message and ", found " in message and "Restore" in message


def test_every_flipped_bit_of_a_file_is_found() -> None:
    data = encoded()
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            for message in read_every_way(bytes(damaged)):
                require_full_message(message)


def test_every_truncation_and_every_added_byte_is_found() -> None:
    data = encoded()
    for length in range(len(data)):
        for message in read_every_way(data[:length]):
            require_full_message(message)
    for added in (b"\0", b"x" * 64, data):
        for message in read_every_way(data + added):
            require_full_message(message)


def test_damage_is_reported_with_the_place_and_both_checksums() -> None:
    data = bytearray(encoded())
    section = files.decode_header("f", pa.py_buffer(bytes(data))).sections[1]
    expected = struct.unpack("<I", data[section.offset + section.size - 4 : section.offset + section.size])[0]
    data[section.offset + 100] ^= 1
    for message in read_every_way(bytes(data)):
        assert f"offset {section.offset}: expected checksum {expected:08x} of the rows of table Price" in message


def test_a_sound_section_of_another_file_is_found() -> None:
    one, other = encoded({"version": 1}), encoded({"version": 2})
    section = files.decode_header("f", pa.py_buffer(one)).sections[0]
    end = section.offset + section.size
    mixed = one[: section.offset] + other[section.offset : end] + one[end:]
    assert len(one) == len(other) and mixed != one
    for message in read_every_way(mixed):
        assert f"offset {section.offset}" in message


def test_a_foreign_file_is_refused() -> None:
    for data in (b"", b"PAR1" * 100, b"TIDE"):
        for message in read_every_way(data):
            assert "expected the mark b'TIDEGATE' of a state file" in message


def test_a_file_of_a_later_format_asks_for_a_later_tidegate() -> None:
    data = bytearray(encoded({}, (), None))
    data[8:12] = struct.pack("<I", 5)
    data[16:20] = struct.pack("<I", google_crc32c.value(bytes(data[:16] + data[20:])))
    with pytest.raises(RecoveryImpossible, match="format 5, this Tidegate reads formats 2 to 4"):
        files.read_file(stored(bytes(data)), "f.change")


@pytest.mark.parametrize("size_max", [1, 64, 192, 1 << 20])
def test_the_pieces_of_a_file_are_its_bytes(size_max: int) -> None:
    storage = stored(encoded())
    header = files.read_header(storage, "f.change")
    pieces = [bytes(piece) for piece in files.read_pieces(storage, "f.change", header, size_max)]
    assert b"".join(pieces) == bytes(storage.read("f.change"))
    assert all(len(piece) <= max(64, size_max) for piece in pieces[1:])


def test_a_flipped_bit_anywhere_is_found_before_the_last_piece_is_given_out() -> None:
    data = encoded()
    header = files.read_header(stored(data), "f.change")
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        storage, seen = stored(bytes(damaged)), 0
        with pytest.raises((StorageCorrupted, RecoveryImpossible)):
            for piece in files.read_pieces(storage, "f.change", header, 64):
                seen += piece.size
        assert seen < len(data)
    for wrong in (data[:-64], data + bytes(64)):
        with pytest.raises(StorageCorrupted):
            list(files.read_pieces(stored(wrong), "f.change", header))


def test_a_deferred_section_is_made_when_it_is_written(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    rows = pa.table({"id": [1, 2, 3]})
    made: list[int] = []

    def make() -> pa.Table:
        made.append(1)
        return rows

    body = files.Deferred(3, files.section_size(rows), make)
    header, parts = files.encode({}, [("table", "Account", body), ("table", "Account", rows)])
    assert not made
    storage.write("file", parts, exclusive=True)
    assert made == [1]
    found, contents = files.read_file(storage, "file")
    assert found == header and [content.to_pylist() for content in contents] == [rows.to_pylist()] * 2


@pytest.mark.parametrize("rows", [0, 1, 2, 999, 10_000])
def test_a_table_is_cut_into_pieces_of_the_usual_size(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SECTION_BYTES", 1000)
    table = pa.table({"id": list(range(rows)), "text": [f"{number}" for number in range(rows)]})
    cut = list(files.pieces(table))
    assert all(0 < piece.nbytes <= 1100 for piece in cut) and sum(piece.num_rows for piece in cut) == rows
    assert not cut or pa.concat_tables(cut).equals(table)
