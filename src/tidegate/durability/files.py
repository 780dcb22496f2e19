"""The bytes of one version file, every one of them under a checksum.

    offset 0    magic "TIDEGATE"                         8 bytes
           8    format number                            4 bytes, little endian like all numbers
          12    where the header ends                    4 bytes
          16    crc32c of bytes 0-15 and of the header   4 bytes
          20    header: JSON (ASCII), filled up with spaces to a multiple of 64
     header's   section 0: Arrow IPC stream, zeros, crc32c in the last 4 bytes;
          end              its size is a multiple of 64
                section 1 ...

The header holds the caller's fields and lists the sections: kind, table, rows, size. So one small read tells what is in
the file, how long it is and where each section lies. A section's checksum continues the header's: a sound section of
another file does not pass. Sections are aligned to 64 bytes, so Arrow uses them in place. A file's hash is BLAKE2b over
its header, which holds a random number, so no two files have the same.

Arrow counts sizes before a byte is encoded; checksums follow what they protect. So a file of any size is written with
one section in memory. A section may even be made only when it is written (`Deferred`), if its size is known.

Large tables are cut into sections of about 2 MB (`pieces`): a checksum, which holds Python's lock, then takes 0.2 ms,
and a thread that reads or writes a large file stops a running engine for no longer.

Invariant: a flipped bit, a missing tail or a foreign byte is reported as `StorageCorrupted` by the read that touches
it; nothing of a damaged section is ever handed out.

Not here: what the fields mean, which files there are, how layouts change (versions.py, evolution.py).
"""

from __future__ import annotations

import hashlib
import json
import struct
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa

from tidegate.durability.table_streams import read_stream, stream_size, write_stream
from tidegate.foundation.errors import RecoveryImpossible, StorageCorrupted
from tidegate.foundation.storage import Bytes, Storage

FORMAT = 2
EVENTS_FORMAT = 3
"""The format of files with events in place of rows: who does not know of these must not take them for empty."""

WHOLE_FORMAT = 4
"""The format of change files with all rows of their version: who does not know of these must not add them to others."""

EVENTS = "events"
"""The kind of the sections that hold a batch's events."""

MAGIC = b"TIDEGATE"
ALIGNMENT = 64
FIRST_READ_SIZE = 4096  # holds the header of a file with a handful of tables
PIECE_SIZE = 4 << 20  # large enough that an object store's answer time does not count
SECTION_BYTES = 2 << 20

_PREAMBLE = struct.Struct("<8sIII")
_CHECKED = 16  # the part of the preamble that its checksum covers
_CHECKSUM = struct.Struct("<I")

Order = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Deferred:
    """The contents of a section, made when it is written; `size` is what `section_size` says of them."""

    rows: int
    size: int
    make: Callable[[], pa.Table]

    def __len__(self) -> int:
        return self.rows


Body = tuple[str, str, pa.Table | Order | Deferred]
"""What becomes a section: its kind, the name of the table or of the record, its contents."""


@dataclass(frozen=True, slots=True)
class Section:
    """Where something lies in its file.

    `kind` says what it is: rows of a table ("table"), a record ("record"), the order of a batch ("order"), its events
    ("events"), what was served ("served"); `table` is the name of the table or of the record.
    """

    kind: str
    table: str
    rows: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says of itself; `size` is that of the whole file, `end` where the first section starts."""

    fields: dict[str, Any]
    sections: tuple[Section, ...]
    checksum: int
    hash: str
    end: int
    size: int


def encode(fields: Mapping[str, Any], bodies: Sequence[Body], whole: bool = False) -> tuple[Header, Iterator[Bytes]]:
    """The header and the parts of a file, each part made when it is asked for.

    A name may occur several times in `bodies`; its rows are then a table in several sections. `whole` is a change file
    that holds all rows of its version.
    """
    bodies = [
        (kind, name, np.ascontiguousarray(body, dtype="<i8") if isinstance(body, np.ndarray) else body)
        for kind, name, body in bodies
    ]
    listing = [[kind, name, len(body), section_size(body)] for kind, name, body in bodies]
    content = {"fields": dict(fields), "sections": listing, "random": uuid.uuid4().hex}
    text = json.dumps(content, separators=(",", ":")).encode("ascii")
    end = _aligned(_PREAMBLE.size + len(text))
    text = text.ljust(end - _PREAMBLE.size)
    number = WHOLE_FORMAT if whole else EVENTS_FORMAT if any(kind == EVENTS for kind, _, _ in bodies) else FORMAT
    start = _PREAMBLE.pack(MAGIC, number, end, 0)[:_CHECKED]
    checksum = google_crc32c.value(start + text)
    header = _header(dict(fields), listing, checksum, _hash(start, text), end)

    def parts() -> Iterator[Bytes]:
        yield start + _CHECKSUM.pack(checksum) + text
        for section, (_, _, body) in zip(header.sections, bodies, strict=True):
            contents = body.make() if isinstance(body, Deferred) else body
            assert len(contents) == section.rows, "a deferred section is made of the rows that were announced"
            yield _encode_section(contents, section.size, checksum)

    return header, parts()


def decode_header(file: str, data: pa.Buffer) -> Header:
    """The header of the file that `data` is the beginning of; `file` is its name in messages."""
    end = _header_end(file, data)
    _require(file, data.size, end, data.size, "bytes in the header")
    start, text = data.slice(0, _CHECKED), data.slice(_PREAMBLE.size, end - _PREAMBLE.size)
    checksum = google_crc32c.extend(google_crc32c.value(start), text)
    _, number, _, stored = _PREAMBLE.unpack(data.slice(0, _PREAMBLE.size))
    if checksum != stored:
        raise _corrupted(file, 0, f"header checksum {stored:08x}", f"{checksum:08x}")
    if number not in (FORMAT, EVENTS_FORMAT, WHOLE_FORMAT):
        raise RecoveryImpossible(
            f"{file}: written in format {number}, this Tidegate reads formats {FORMAT} to {WHOLE_FORMAT}. "
            "Use the version of Tidegate that wrote it, or a newer one."
        )
    content = json.loads(bytes(text))
    return _header(content["fields"], content["sections"], checksum, _hash(start, text), end)


def decode_section(file: str, header: Header, section: Section, data: pa.Buffer) -> pa.Table | Order:
    """The rows of a section; `data` is what lies in the file at the section's offset."""
    _require(file, section.offset + data.size, section.size, data.size, f"bytes in {_described(section)}")
    body = data.slice(0, section.size - _CHECKSUM.size)
    (stored,) = _CHECKSUM.unpack(data.slice(section.size - _CHECKSUM.size, _CHECKSUM.size))
    checksum = google_crc32c.extend(header.checksum, body)
    if checksum != stored:
        raise _corrupted(file, section.offset, f"checksum {stored:08x} of {_described(section)}", f"{checksum:08x}")
    if section.kind == "order":
        return np.frombuffer(body, dtype="<i8", count=section.rows).astype(np.int64, copy=False)
    return read_stream(body)


def read_header(storage: Storage, name: str) -> Header:
    """The header of a stored file: one small read, or two when the header is a large one."""
    file = described(storage, name)
    data = storage.read(name, 0, FIRST_READ_SIZE)
    end = _header_end(file, data)
    return decode_header(file, data if end <= data.size else storage.read(name, 0, end))


def read_file(storage: Storage, name: str) -> tuple[Header, list[pa.Table | Order]]:
    """The whole of a stored file, by one read; the rows of each section in the header's order."""
    file, data = described(storage, name), storage.read(name)
    header = decode_header(file, data)
    _require_size(file, header, data.size)
    return header, [
        decode_section(file, header, section, data.slice(section.offset, section.size)) for section in header.sections
    ]


def read_sections(storage: Storage, name: str, header: Header) -> Iterator[tuple[Section, pa.Table | Order]]:
    """The sections of a stored file one after the other: a large file never lies in memory as a whole."""
    file = described(storage, name)
    _require_size(file, header, storage.size(name))
    for section in header.sections:
        yield section, read_section(storage, name, header, section)


def read_section(storage: Storage, name: str, header: Header, section: Section) -> pa.Table | Order:
    """One section of a stored file: the rest of the file is not read."""
    file = described(storage, name)
    return decode_section(file, header, section, storage.read(name, section.offset, section.size))


def read_pieces(storage: Storage, name: str, header: Header, size_max: int = PIECE_SIZE) -> Iterator[pa.Buffer]:
    """All bytes of a stored file in pieces, to copy or check it; nothing is decoded.

    The last piece of a section is given out after the section's checksum was found right.
    """
    file = described(storage, name)
    _require_size(file, header, storage.size(name))
    start = storage.read(name, 0, header.end)
    found = decode_header(file, start).hash
    if found != header.hash:
        raise _corrupted(file, 0, f"the header with the hash {header.hash}", found)
    yield start
    step = max(ALIGNMENT, size_max // ALIGNMENT * ALIGNMENT)  # so that a checksum never lies in two pieces
    for section in header.sections:
        checksum, end = header.checksum, section.offset + section.size
        for offset in range(section.offset, end, step):
            wanted = min(step, end - offset)
            data = storage.read(name, offset, wanted)
            _require(file, offset + data.size, wanted, data.size, f"bytes in {_described(section)}")
            is_last = offset + wanted == end
            checksum = google_crc32c.extend(checksum, data.slice(0, wanted - _CHECKSUM.size) if is_last else data)
            if is_last:
                (stored,) = _CHECKSUM.unpack(data.slice(wanted - _CHECKSUM.size))
                if checksum != stored:
                    expected = f"checksum {stored:08x} of {_described(section)}"
                    raise _corrupted(file, section.offset, expected, f"{checksum:08x}")
            yield data


def described(storage: Storage, name: str) -> str:
    """A stored file as messages name it."""
    return f"{storage.path.rstrip('/')}/{name}"


def _hash(*parts: Bytes) -> str:
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        found.update(part)
    return found.hexdigest()


def _header(fields: dict[str, Any], listing: Sequence[Sequence[Any]], checksum: int, name: str, end: int) -> Header:
    sections, offset = [], end
    for kind, table, rows, size in listing:
        sections.append(Section(kind, table, rows, offset, size))
        offset += size
    return Header(fields, tuple(sections), checksum, name, end, offset)


def _header_end(file: str, data: pa.Buffer) -> int:
    """Where the header says that it ends; not yet checked by its checksum."""
    magic = bytes(data.slice(0, min(len(MAGIC), data.size)))
    if magic != MAGIC:
        raise _corrupted(file, 0, f"the mark {MAGIC!r} of a state file", repr(magic))
    _require(file, data.size, _PREAMBLE.size, data.size, "bytes before the header")
    end = int(_PREAMBLE.unpack(data.slice(0, _PREAMBLE.size))[2])
    if end < _PREAMBLE.size or end % ALIGNMENT:
        raise _corrupted(file, 12, f"a header that ends at a multiple of {ALIGNMENT}", str(end))
    return end


def pieces(table: pa.Table) -> Iterator[pa.Table]:
    """A table cut into parts of about `SECTION_BYTES`, each of whole rows; none when it is empty."""
    count = -(-table.nbytes // SECTION_BYTES)
    rows = -(-table.num_rows // max(count, 1))
    for start in range(0, table.num_rows, max(rows, 1)):
        yield table.slice(start, rows)


def section_size(body: pa.Table | Order | Deferred) -> int:
    """How many bytes of a file a section takes."""
    if isinstance(body, Deferred):
        return body.size
    if isinstance(body, np.ndarray):
        return _aligned(body.nbytes + _CHECKSUM.size)
    return _aligned(stream_size(body) + _CHECKSUM.size)


def _encode_section(body: pa.Table | Order, size: int, seed: int) -> pa.Buffer:
    buffer = pa.allocate_buffer(size)
    writer = pa.FixedSizeBufferWriter(buffer)
    if isinstance(body, np.ndarray):
        writer.write(body)
    else:
        write_stream(body, writer)
    writer.write(bytes(size - _CHECKSUM.size - writer.tell()))
    writer.write(_CHECKSUM.pack(google_crc32c.extend(seed, buffer.slice(0, size - _CHECKSUM.size))))
    return buffer


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _described(section: Section) -> str:
    if section.kind == "order":
        return "the order of the batch"
    if section.kind == EVENTS:
        return "the events of the batch"
    return f"the rows of {section.kind} {section.table}"


def _require(file: str, offset: int, size: int, found: int, what: str) -> None:
    if found < size:
        raise _corrupted(file, offset, f"{size} {what}", f"the file's end after {found}")


def _require_size(file: str, header: Header, found: int) -> None:
    if found != header.size:
        raise _corrupted(file, min(found, header.size), f"a file of {header.size} bytes", f"{found} bytes")


def _corrupted(file: str, offset: int, expected: str, found: str) -> StorageCorrupted:
    return StorageCorrupted(
        f"{file}: damaged at offset {offset}: expected {expected}, found {found}. Restore the file from a "
        "backup; `tidegate state verify` tells which versions are sound, and each of those can be loaded."
    )
