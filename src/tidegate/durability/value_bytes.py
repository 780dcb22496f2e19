"""Values as bytes, and back: what the records of commands are made of.

    int     zigzag varint: 7 bits a byte, the lowest first; 0, -1, 1, -2 are 0, 1, 2, 3
    float   8 bytes, bit by bit                       str     size, UTF-8
    bool    1 byte                                    list    count, items
    key     its fields in declared order              null    where values may be null, a byte before each: 0 for null
    other types, as the int or str that carries them; T | None always has the byte for null

A codec is a pair of functions: one appends a value, the other reads it at a place and returns where it ends. What
depends on a parameter's type is decided once, when its codec is made.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tidegate.operations.kinds import Carried, Kind, ValueType
from tidegate.operations.plan import Parameter, ValueParameter

Put = Callable[[bytearray, Any], None]
Get = Callable[[bytes, int], tuple[Any, int]]

_DOUBLE = struct.Struct("<d")
_WORD_MAX = (1 << 64) - 1
_EXACT_MAX = 1 << 53  # up to here every integer is a float


class Unusual(Exception):
    """A value is no plain one of its declared type."""


# --- plain values ---------------------------------------------------------------------------------------------------


def put_word(out: bytearray, word: int) -> None:
    """Write a number that is not negative."""
    while word > 0x7F:
        out.append(word & 0x7F | 0x80)
        word >>= 7
    out.append(word)


def get_word(data: bytes, at: int) -> tuple[int, int]:
    """Read one, of 64 bits at most."""
    byte = data[at]
    at += 1
    word, shift = byte & 0x7F, 7
    while byte > 0x7F:
        byte = data[at]
        at += 1
        word |= (byte & 0x7F) << shift
        shift += 7
        if word > _WORD_MAX or shift > 70:
            raise ValueError("a number of more than 64 bits")
    return word, at


def put_int(out: bytearray, value: Any) -> None:
    """Write an integer of 64 bits."""
    if type(value) is not int:
        if not isinstance(value, np.integer):
            raise Unusual
        value = int(value)
    word = value << 1 if value >= 0 else ~(value << 1)
    if word > _WORD_MAX:
        raise Unusual
    while word > 0x7F:  # as in put_word, whose call would take a quarter of the time
        out.append(word & 0x7F | 0x80)
        word >>= 7
    out.append(word)


def get_int(data: bytes, at: int) -> tuple[int, int]:
    """Read one."""
    word, at = get_word(data, at)
    return ~(word >> 1) if word & 1 else word >> 1, at


def _put_float(out: bytearray, value: Any) -> None:
    if type(value) not in (float, np.float64) and not (type(value) is int and -_EXACT_MAX <= value <= _EXACT_MAX):
        raise Unusual
    out += _DOUBLE.pack(value)


def _get_float(data: bytes, at: int) -> tuple[float, int]:
    return _DOUBLE.unpack_from(data, at)[0], at + _DOUBLE.size


def put_bool(out: bytearray, value: Any) -> None:
    """Write a bool."""
    if type(value) not in (bool, np.bool_):
        raise Unusual
    out.append(bool(value))


def get_bool(data: bytes, at: int) -> tuple[bool, int]:
    """Read one."""
    if data[at] > 1:
        raise ValueError(f"{data[at]} where 0 or 1 is required")
    return data[at] == 1, at + 1


def put_str(out: bytearray, value: Any) -> None:
    """Write a text; UnicodeEncodeError where UTF-8 cannot hold it."""
    if type(value) is not str:
        raise Unusual
    put_bytes(out, value.encode())


def get_str(data: bytes, at: int) -> tuple[str, int]:
    """Read one."""
    text, at = get_bytes(data, at)
    return text.decode(), at


def put_bytes(out: bytearray, data: bytes) -> None:
    """Write bytes with their size."""
    put_word(out, len(data))
    out += data


def get_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    """Read them."""
    size, at = get_word(data, at)
    if at + size > len(data):
        raise IndexError(f"{size} bytes where there are {len(data) - at}")
    return data[at : at + size], at + size


_VALUES: dict[Kind, tuple[Put, Get]] = {
    Kind.INT: (put_int, get_int),
    Kind.FLOAT: (_put_float, _get_float),
    Kind.BOOL: (put_bool, get_bool),
    Kind.STR: (put_str, get_str),
}


# --- values that are made of others -----------------------------------------------------------------------------------


def parameter_codec(parameter: Parameter, with_nulls: bool) -> tuple[Put, Get]:
    """How the arguments of a parameter are written and read."""
    if isinstance(parameter, ValueParameter):
        put, get = _value_codec(parameter.type, with_nulls)
    elif len(parameter.table.key) == 1:
        put, get = _value_codec(parameter.table.key_columns[0].type, with_nulls)
    else:
        fields = [(key.name, *_value_codec(key.type, with_nulls)) for key in parameter.table.key_columns]
        put, get = _composite_codec(fields)
        if with_nulls:
            put, get = null_codec(put, get)
    if not parameter.many:
        return put, get
    put, get = _list_codec(put, get)
    return null_codec(put, get) if with_nulls else (put, get)


def _value_codec(value_type: ValueType, with_nulls: bool) -> tuple[Put, Get]:
    put, get = _VALUES[value_type] if isinstance(value_type, Kind) else _carried_codec(value_type)
    return null_codec(put, get) if with_nulls and not value_type.optional else (put, get)


def _carried_codec(value_type: Carried) -> tuple[Put, Get]:
    put_plain, get_plain = _VALUES[value_type.kind]
    if value_type.optional:
        put_plain, get_plain = null_codec(put_plain, get_plain)

    def put(out: bytearray, value: Any) -> None:
        try:
            plain = value_type.encode(value_type.fit(value))
        except (TypeError, ValueError, OverflowError) as error:
            raise Unusual from error
        put_plain(out, plain)

    def get(data: bytes, at: int) -> tuple[Any, int]:
        plain, at = get_plain(data, at)
        return value_type.decode(plain), at

    return put, get


def null_codec(put_value: Put, get_value: Get) -> tuple[Put, Get]:
    """A codec for values that may be None."""

    def put(out: bytearray, value: Any) -> None:
        out.append(value is not None)
        if value is not None:
            put_value(out, value)

    def get(data: bytes, at: int) -> tuple[Any, int]:
        there, at = get_bool(data, at)
        return get_value(data, at) if there else (None, at)

    return put, get


def _composite_codec(fields: Sequence[tuple[str, Put, Get]]) -> tuple[Put, Get]:
    names, puts, gets = zip(*fields, strict=True)

    def put(out: bytearray, value: Any) -> None:
        if type(value) is dict:
            if not all(name in value for name in names):
                raise Unusual
            value = [value[name] for name in names]
        elif type(value) is not tuple or len(value) != len(names):
            raise Unusual
        for put_part, part in zip(puts, value, strict=True):
            put_part(out, part)

    def get(data: bytes, at: int) -> tuple[Any, int]:
        parts = []
        for get_part in gets:
            part, at = get_part(data, at)
            parts.append(part)
        return tuple(parts), at

    return put, get


def _list_codec(put_item: Put, get_item: Get) -> tuple[Put, Get]:
    def put(out: bytearray, value: Any) -> None:
        if type(value) not in (list, tuple):
            raise Unusual
        put_word(out, len(value))
        for item in value:
            put_item(out, item)

    def get(data: bytes, at: int) -> tuple[Any, int]:
        count, at = get_word(data, at)
        items = []
        for _ in range(count):
            item, at = get_item(data, at)
            items.append(item)
        return items, at

    return put, get
