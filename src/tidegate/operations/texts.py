"""Bytes and UUIDs as value types: texts that compare and sort as the values do.

bytes   the text of the same code points (latin-1)         UUID    the canonical text, in lower case
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operations.kinds import Carried, Kind, Mask, Plain, Unpacked


@dataclass(frozen=True, slots=True)
class Bytes(Carried):
    """`bytes`: as the text of the same code points, whose order is that of the bytes."""

    kind: ClassVar[Kind] = Kind.STR
    label: ClassVar[str] = "bytes"
    arrow: ClassVar[pa.DataType] = pa.binary()

    def fit(self, value: Any) -> bytes:
        """Bytes, not a bytearray, which may change."""
        if not isinstance(value, bytes):
            raise TypeError
        return bytes(value)

    def encode(self, value: Any) -> str:
        """A text of as many code points."""
        return str(value.decode("latin-1"))

    def decode(self, plain: Any) -> bytes:
        """The bytes of such a text."""
        return bytes(plain.encode("latin-1"))

    def accepts(self, found: pa.DataType) -> bool:
        """Binary columns of any form."""
        types = pa.types
        fixed = types.is_fixed_size_binary(found) and not isinstance(found, pa.BaseExtensionType)
        return bool(types.is_null(found) or types.is_binary(found) or types.is_large_binary(found) or fixed)

    def unpack(self, column: pa.Array) -> Unpacked:
        """Texts: all bytes are converted at once, and the offsets follow from how many of them take two bytes."""
        column = pa.concat_arrays([column.cast(pa.large_binary())])  # drops an offset
        offsets, data = _offsets(column)
        wide = np.concatenate([[0], np.cumsum(np.frombuffer(data, np.uint8) >= 0x80)])
        texts = data.decode("latin-1").encode()
        return _strings(offsets + wide[offsets], texts), None

    def pack(self, values: Any, valid: Mask | None = None) -> pa.Array:
        """The same, the other way."""
        column = pa.concat_arrays([values.cast(pa.large_string())])
        offsets, data = _offsets(column)
        inner = np.concatenate([[0], np.cumsum(np.frombuffer(data, np.uint8) & 0xC0 == 0x80)])
        buffers = [None, pa.py_buffer(offsets - inner[offsets]), pa.py_buffer(data.decode().encode("latin-1"))]
        found = pa.Array.from_buffers(pa.large_binary(), len(column), buffers).cast(pa.binary())
        return found if valid is None else pc.if_else(pa.array(valid), found, pa.scalar(None, pa.binary()))


_UUID = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"


@dataclass(frozen=True, slots=True)
class Uuid(Carried):
    """`UUID`: its canonical text, whose order is that of the UUIDs."""

    kind: ClassVar[Kind] = Kind.STR
    label: ClassVar[str] = "UUID"
    family: ClassVar[str] = "str"
    arrow: ClassVar[pa.DataType] = pa.string()
    zero: ClassVar[Plain] = str(uuid.UUID(int=0))

    def fit(self, value: Any) -> uuid.UUID:
        """A UUID."""
        if not isinstance(value, uuid.UUID):
            raise TypeError
        return uuid.UUID(int=value.int)

    def encode(self, value: Any) -> str:
        """Its text."""
        return str(value)

    def decode(self, plain: Any) -> uuid.UUID:
        """The UUID of a text."""
        return uuid.UUID(plain)

    def take(self, found: Any) -> uuid.UUID:
        """A UUID, its text with hyphens, or its 16 bytes."""
        if isinstance(found, bytes) and len(found) == 16:
            return uuid.UUID(bytes=found)
        if isinstance(found, str):
            column, unfit = self.unpack(pa.array([found], pa.string()))
            if unfit is not None:
                raise ValueError("no UUID")
            return uuid.UUID(column[0].as_py())
        return uuid.UUID(int=self.fit(found).int)

    def give(self, value: Any) -> Any:
        """Its text."""
        return str(value)

    def accepts(self, found: pa.DataType) -> bool:
        """Strings, and 16 bytes each."""
        return Kind.STR.accepts(found) or _is_sixteen(found)

    def unpack(self, column: pa.Array) -> Unpacked:
        """Texts in lower case; what is no UUID does not fit."""
        if _is_sixteen(column.type):
            return _uuid_texts(column), None
        texts, _ = Kind.STR.unpack(column)
        texts = pc.ascii_lower(texts.cast(pa.string()))
        fits = pc.match_substring_regex(texts.fill_null(str(self.zero)), _UUID).to_numpy(zero_copy_only=False)
        return texts, None if fits.all() else ~fits

    def pack(self, values: Any, valid: Mask | None = None) -> pa.Array:
        """Texts."""
        return Kind.STR.pack(values, valid)


# --- columns --------------------------------------------------------------------------------------------------


def _offsets(column: pa.Array) -> tuple[npt.NDArray[np.int64], bytes]:
    """The offsets and bytes of a large string or binary column that begins with its first byte."""
    if len(column) == 0:
        return np.zeros(1, np.int64), b""
    _, offsets, data = column.buffers()
    positions = np.frombuffer(offsets, np.int64, len(column) + 1, 8 * column.offset)
    first, last = int(positions[0]), int(positions[-1])
    return positions - first, data.to_pybytes()[first:last] if data is not None else b""


def _strings(offsets: npt.NDArray[np.int64], data: bytes) -> pa.Array:
    return pa.Array.from_buffers(
        pa.large_string(), len(offsets) - 1, [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(data)]
    )


def _is_sixteen(found: pa.DataType) -> bool:
    inner = found.storage_type if isinstance(found, pa.BaseExtensionType) else found
    return bool(pa.types.is_fixed_size_binary(inner) and inner.byte_width == 16)


def _uuid_texts(column: pa.Array) -> pa.Array:
    """The texts of 16 bytes each; where the column is null they mean nothing."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    data = column.fill_null(bytes(16)).cast(pa.binary()).cast(pa.large_binary())
    digits = np.frombuffer(_offsets(data)[1].hex().encode(), np.uint8).reshape(-1, 32)
    texts = np.full((len(digits), 36), ord("-"), np.uint8)
    texts[:, [n for n in range(36) if n not in (8, 13, 18, 23)]] = digits
    return _strings(np.arange(len(digits) + 1, dtype=np.int64) * 36, texts.tobytes())
