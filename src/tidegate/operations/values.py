"""Value types: what fields, keys, parameters, list elements and results may be, and how each is carried.

    Python                        word                         Arrow outside
    int, float, bool, str         itself (`kinds.Kind`)        int64, double, bool, string
    date                          days since 1970-01-01        date32
    datetime without a zone       microseconds                 timestamp("us")
    Annotated[datetime, UTC]      microseconds, an instant     timestamp("us", "UTC")
    timedelta                     microseconds                 duration("us")
    Annotated[Decimal, digits]    scaled by 10**scale          decimal128
    bytes                         its latin-1 text             binary
    UUID                          its canonical text           string
    Enum, Literal                 the member's value           string or int64
    T or None                     that of T, or a reserved one the type of T, with nulls

Arrays and generated code know words only; everything outside them sees Arrow's or Python's own types. Values that do
not fit are found where they enter: a column of a wrong type as a whole, a value that is none of its type by itself.

Types compare by value, can be pickled, and have a JSON form for state files. An enumeration remembers its Python class,
which does not count in comparisons: a type that was read from a file has none, and gives members as their values.
"""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operations.decimals import DIGITS_MAX, Digits
from tidegate.operations.kinds import (
    FLOAT_NONE_BITS,
    INT_NONE,
    STR_NONE,
    Carried,
    Kind,
    Mask,
    Plain,
    TooLarge,
    Unpacked,
    ValueType,
)
from tidegate.operations.texts import Bytes, Uuid
from tidegate.operations.times import Date, DateTime, Duration

Value = int | float | str | bytes | date | timedelta | Decimal | uuid.UUID | enum.Enum | None
"""A value as users have it; a bool is an int, and a datetime is a date."""


@dataclass(frozen=True, slots=True)
class Choice(Carried):
    """One of a few values, all texts or all whole numbers: `Literal`, and what enumerations are carried by."""

    values: tuple[int | str, ...]

    @property
    def kind(self) -> Kind:  # type: ignore[override]
        """That of the values."""
        return Kind.STR if isinstance(self.values[0], str) else Kind.INT

    @property
    def label(self) -> str:
        """As messages name it."""
        return f"Literal[{', '.join(map(repr, self.values))}]"

    @property
    def family(self) -> str:
        """That of the values."""
        return self.kind.family

    @property
    def arrow(self) -> pa.DataType:
        """That of the values."""
        return self.kind.arrow

    @property
    def zero(self) -> Plain:
        """The first value."""
        return self.values[0]

    def fit(self, value: Any) -> Any:
        """One of the values; ValueError for another one."""
        if isinstance(value, bool):
            raise TypeError
        plain = self.kind.fit(value)
        if plain not in self.values:
            raise ValueError(f"none of {', '.join(map(repr, self.values))}")
        return plain

    def encode(self, value: Any) -> Plain:
        """Itself."""
        plain: Plain = value
        return plain

    def decode(self, plain: Any) -> Any:
        """Itself."""
        return plain

    def accepts(self, found: pa.DataType) -> bool:
        """What carries the values."""
        return self.kind.accepts(found)

    def unpack(self, column: pa.Array) -> Unpacked:
        """The values; others do not fit."""
        found, _ = self.kind.unpack(column)
        texts = found if self.kind is Kind.STR else pa.array(found)
        known = pc.is_in(texts, pa.array(self.values, self.kind.arrow).cast(texts.type))
        fits = known.to_numpy(zero_copy_only=False) | column.is_null().to_numpy(zero_copy_only=False)
        return found, None if fits.all() else ~fits

    def pack(self, values: Any, valid: Mask | None = None) -> pa.Array:
        """The values."""
        return self.kind.pack(values, valid)

    def to_json(self) -> Any:
        """The values."""
        return {"literal": list(self.values)}


@dataclass(frozen=True, slots=True)
class Enumeration(Choice):
    """An `Enum`: its members' values. `python` is the class; without it (read from a file) members are their values."""

    name: str
    names: tuple[str, ...]
    python: type[enum.Enum] | None = field(default=None, compare=False)

    @property
    def label(self) -> str:
        """As messages name it."""
        return self.name

    def fit(self, value: Any) -> Any:
        """A member."""
        if self.python is None:
            return Choice.fit(self, value)
        if not isinstance(value, enum.Enum) or type(value).__name__ != self.python.__name__:
            raise TypeError
        return self.decode(value.value)

    def encode(self, value: Any) -> Plain:
        """The member's value."""
        plain: Plain = value.value if isinstance(value, enum.Enum) else value
        return plain

    def decode(self, plain: Any) -> Any:
        """The member with a value."""
        return plain if self.python is None else self.python(plain)

    def take(self, found: Any) -> Any:
        """The member with a value."""
        value = found.value if isinstance(found, enum.Enum) else found
        if isinstance(value, bool) or value not in self.values:
            raise ValueError(f"no {self.label}")
        return self.decode(value)

    def give(self, value: Any) -> Any:
        """The member's value."""
        return self.encode(value)

    def to_json(self) -> Any:
        """The name, and the members."""
        return {"enum": self.name, "members": [list(pair) for pair in zip(self.names, self.values, strict=True)]}


# --- None -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Optional(Carried):
    """`T | None`: words of T, and a reserved one for None, so that nothing that holds words need know of it."""

    base: ValueType
    optional: ClassVar[bool] = True

    @property
    def kind(self) -> Kind:  # type: ignore[override]
        """That of T; a bool becomes an integer, which has room for a third value."""
        return Kind.INT if self.base.kind is Kind.BOOL else self.base.kind

    @property
    def label(self) -> str:
        """As messages name it."""
        return f"{self.base.label} | None"

    @property
    def family(self) -> str:
        """That of T."""
        return self.base.family

    @property
    def arrow(self) -> pa.DataType:
        """That of T."""
        return self.base.arrow

    @property
    def zero(self) -> None:
        """A field without a declared default is None."""
        return

    @property
    def none(self) -> int | float:
        """The word of None."""
        return none_word(self.kind)

    def fit(self, value: Any) -> Any:
        """None, or a T; the integer whose word None has does not fit."""
        if value is None:
            return None
        fitted = self.base.fit(value)
        if self.kind is Kind.INT and self.base.encode(fitted) == INT_NONE:
            raise TooLarge
        return fitted

    def encode(self, value: Any) -> Any:
        """None, or as T."""
        if value is None:
            return None
        plain = self.base.encode(value)
        return int(plain) if self.base is Kind.BOOL else plain

    def decode(self, plain: Any) -> Any:
        """None, or as T."""
        if plain is None:
            return None
        return bool(plain) if self.base is Kind.BOOL else self.base.decode(plain)

    def take(self, found: Any) -> Any:
        """None, or as T."""
        if found is None:
            return None
        value = self.base.take(found)
        if self.kind is Kind.INT and self.base.encode(value) == INT_NONE:
            raise ValueError(f"no {self.label}")
        return value

    def give(self, value: Any) -> Any:
        """None, or as T."""
        return None if value is None else self.base.give(value)

    def accepts(self, found: pa.DataType) -> bool:
        """As T."""
        return self.base.accepts(found)

    def advice(self, found: pa.DataType) -> str:
        """As T."""
        return self.base.advice(found)

    def unpack(self, column: pa.Array) -> Unpacked:
        """As T; nulls are the caller's, who knows their place among the words."""
        values, unfit = self.base.unpack(column)
        if self.kind is Kind.STR:
            return values, unfit
        values = values.astype(np.int64) if self.base is Kind.BOOL else values
        if self.kind is Kind.INT and (values == INT_NONE).any():
            taken = values == INT_NONE
            unfit = taken if unfit is None else unfit | taken
        return values, unfit

    def pack(self, values: Any, valid: Mask | None = None) -> pa.Array:
        """As T."""
        return self.base.pack(values != 0 if self.base is Kind.BOOL else values, valid)

    def to_json(self) -> Any:
        """The type of T."""
        return {"optional": self.base.to_json()}


_NONE_FLOAT = float(np.array([FLOAT_NONE_BITS], np.int64).view(np.float64)[0])
_NONE_WORDS: dict[Kind, int | float] = {Kind.INT: INT_NONE, Kind.STR: STR_NONE, Kind.FLOAT: _NONE_FLOAT}


def none_word(kind: Kind) -> int | float:
    """The word of None in types that a kind carries."""
    return _NONE_WORDS[kind]


def none_mask(words: npt.NDArray[Any]) -> Mask:
    """Which words of an optional type that is not carried by strings are None."""
    if words.dtype == np.float64:
        return np.asarray(np.ascontiguousarray(words).view(np.int64) == FLOAT_NONE_BITS)
    return np.asarray(words == INT_NONE)


def holds_all_of(wider: ValueType, stored: ValueType) -> bool:
    """Whether every value of a stored type is one of another type, with the same word."""
    if isinstance(wider, Optional):
        return holds_all_of(wider.base, stored.base if isinstance(stored, Optional) else stored)
    if isinstance(wider, Digits) and isinstance(stored, Digits):
        return wider.scale == stored.scale and wider.precision >= stored.precision
    if isinstance(wider, Choice) and type(wider) is type(stored):
        return set(stored.values) <= set(wider.values)
    return wider == stored


def described(value_type: ValueType) -> str:
    """A type as a message tells it from another one."""
    if not isinstance(value_type, Enumeration):
        return value_type.label
    return f"{value_type.label} ({', '.join(map(repr, value_type.values))})"


def from_json(data: Any) -> ValueType:
    """The type that `to_json` wrote."""
    if isinstance(data, str):
        return _NAMED[data]
    if "optional" in data:
        return Optional(from_json(data["optional"]))
    if "digits" in data:
        return Digits(*data["digits"])
    if "literal" in data:
        return Choice(tuple(data["literal"]))
    names, values = zip(*data["members"], strict=True)
    return Enumeration(tuple(values), data["enum"], tuple(names))


def type_of_column(found: pa.DataType) -> ValueType | None:
    """The type that values of a column have, as far as Arrow tells; None if it tells none."""
    if pa.types.is_decimal(found) and found.precision <= DIGITS_MAX and found.scale >= 0:
        return Digits(found.precision, found.scale)
    return next((of for of in _SIMPLE if not pa.types.is_null(found) and of.accepts(found)), None)


_SIMPLE: tuple[ValueType, ...] = (*Kind, Date(), DateTime(False), DateTime(True), Duration(), Bytes(), Uuid())
_NAMED: dict[str, ValueType] = {value_type.label: value_type for value_type in _SIMPLE}
