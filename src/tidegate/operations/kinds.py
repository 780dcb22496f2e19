"""Machine kinds: the four ways in which arrays and generated code hold a value.

    INT      a 64-bit integer               FLOAT    a double
    BOOL     a byte                         STR      the number of a string in the engine's pool

A kind is also the simplest value type: Python's own int, float, bool or str. The other value types (`values`) are each
carried by a kind. All of them answer the same questions, so whoever moves values need not ask which one it is.
"""

from __future__ import annotations

import abc
import enum
import operator
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Plain = int | float | bool | str
"""A value as Python's own types hold it: what the word of a value type means before strings are numbered."""

Mask = npt.NDArray[np.bool_]
Unpacked = tuple[Any, Mask | None]
"""The values of a column (an array, or an Arrow string column), and which of them do not fit; None where all do."""

INT_NONE = -(2**63)
"""The word of None in types that an INT carries."""

FLOAT_NONE_BITS = 0x7FF8_0000_0000_4E4F
"""The bits of None in `float | None`: a quiet NaN that no arithmetic gives."""

STR_NONE = 1
"""The word of None in types that a STR carries: every pool holds bytes under this number that are no text."""


def encodable(text: str) -> bool:
    """Whether a string can be stored: half of a surrogate pair has no bytes in UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class TooLarge(OverflowError):
    """A value of the right type that its words cannot hold: storing it aborts with "overflow"."""


class Kind(enum.Enum):
    """How a value is held; and the type of a value that is just that."""

    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    STR = "str"

    @property
    def kind(self) -> Kind:
        """A kind carries itself."""
        return self

    @property
    def label(self) -> str:
        """The type as messages name it."""
        return self.value

    @property
    def family(self) -> str:
        """What a column must be to carry values of this type, roughly: columns of two families are never the same."""
        return _FAMILIES[self]

    @property
    def optional(self) -> bool:
        """Whether None is a value of the type."""
        return False

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type in which values of this kind enter and leave."""
        return _ARROW[self]

    @property
    def dtype(self) -> type[np.generic]:
        """The NumPy type of arrays of such values; a string is represented by its number in the string pool."""
        return _DTYPES[self]

    @property
    def zero(self) -> Plain:
        """What a field without a declared default reads as in an absent row."""
        return _ZERO[self]

    # --- Python values ----------------------------------------------------------------------------

    def fit(self, value: Any) -> Any:
        """A Python value as this type holds it; TypeError if it is none, TooLarge if it has no word."""
        if self is Kind.INT:
            if isinstance(value, float | str) or not hasattr(value, "__index__"):
                raise TypeError
            whole = operator.index(value)
            if not -(2**63) <= whole < 2**63:
                raise TooLarge
            return whole
        if self is Kind.FLOAT:
            if isinstance(value, str) or not hasattr(value, "__float__"):
                raise TypeError
            return float(value)
        if self is Kind.BOOL:
            if not isinstance(value, bool) and type(value).__name__ != "bool":
                raise TypeError
            return bool(value)
        if not isinstance(value, str):
            raise TypeError
        if not encodable(value):
            raise UnicodeEncodeError("utf-8", value, 0, len(value), "half of a surrogate pair cannot be stored")
        return str.__str__(value)

    def encode(self, value: Any) -> Any:
        """A fitted Python value in its plain form."""
        return value

    def decode(self, plain: Any) -> Any:
        """The Python value of a plain form."""
        return plain

    def take(self, found: Any) -> Any:
        """The Python value of what an Arrow column gives; ValueError if it is none."""
        return float(found) if self is Kind.FLOAT else found

    def give(self, value: Any) -> Any:
        """A Python value as an Arrow column takes it."""
        return value

    # --- Arrow columns ------------------------------------------------------------------------------

    def accepts(self, found: pa.DataType) -> bool:
        """Whether a column of an Arrow type can carry values of this kind."""
        types = pa.types
        if types.is_null(found):
            return True
        if self is Kind.INT:
            return bool(types.is_integer(found))
        if self is Kind.FLOAT:
            return bool(types.is_floating(found) or types.is_integer(found))
        if self is Kind.BOOL:
            return bool(types.is_boolean(found))
        if types.is_dictionary(found):
            found = found.value_type
        return bool(types.is_string(found) or types.is_large_string(found) or types.is_string_view(found))

    def advice(self, found: pa.DataType) -> str:
        """What to do with a column that is not accepted."""
        advice = "cast the column before the transactions"
        if not pa.types.is_decimal(found) or found.scale <= 0:
            return advice
        return (
            f"{advice}, multiplied by {10**found.scale}: a cast to a whole number drops all that is behind the point; "
            f"or declare Annotated[Decimal, tg.digits({min(found.precision, 18)}, {found.scale})]"
        )

    def unpack(self, column: pa.Array) -> Unpacked:
        """The values of a column that is accepted; where it is null they mean nothing."""
        if self is Kind.STR:
            return (column.dictionary_decode() if pa.types.is_dictionary(column.type) else column), None
        if column.type != self.arrow:
            column = column.cast(self.arrow, safe=self is not Kind.FLOAT)
        if self is Kind.BOOL:
            return np.ascontiguousarray(column.fill_null(False).to_numpy(zero_copy_only=False)), None
        if len(column) == 0:
            return np.empty(0, self.dtype), None
        # The values under nulls are whatever Arrow left there: an event that needs them is refused.
        return np.frombuffer(column.buffers()[1], self.dtype, len(column), 8 * column.offset), None

    def pack(self, values: Any, valid: Mask | None = None) -> pa.Array:
        """Values as a column; null where `valid` is false."""
        if self is Kind.STR:
            return values if valid is None else pc.if_else(pa.array(valid), values, pa.scalar(None, pa.string()))
        return pa.array(values, mask=None if valid is None else ~valid, from_pandas=False)

    def to_json(self) -> Any:
        """The type as state files record it."""
        return self.value


_FAMILIES = {Kind.INT: "number", Kind.FLOAT: "number", Kind.BOOL: "bool", Kind.STR: "str"}
_ARROW = {Kind.INT: pa.int64(), Kind.FLOAT: pa.float64(), Kind.BOOL: pa.bool_(), Kind.STR: pa.string()}
_DTYPES = {Kind.INT: np.int64, Kind.FLOAT: np.float64, Kind.BOOL: np.bool_, Kind.STR: np.int64}
_ZERO: dict[Kind, Plain] = {Kind.INT: 0, Kind.FLOAT: 0.0, Kind.BOOL: False, Kind.STR: ""}


# --- types that a kind carries -----------------------------------------------------------------------------------


class Carried(abc.ABC):
    """A value type that a kind carries; `Kind` says what the methods mean."""

    kind: ClassVar[Kind] = Kind.INT
    optional: ClassVar[bool] = False

    @property
    @abc.abstractmethod
    def label(self) -> str:
        """The type as messages name it."""

    @property
    def family(self) -> str:
        """What a column must be, roughly."""
        return self.label

    @property
    @abc.abstractmethod
    def arrow(self) -> pa.DataType:
        """The Arrow type outside."""

    @property
    def dtype(self) -> type[np.generic]:
        """The NumPy type of words."""
        return self.kind.dtype

    @property
    def zero(self) -> Plain | None:
        """The plain form of what a field without a declared default reads as."""
        return self.kind.zero

    @abc.abstractmethod
    def fit(self, value: Any) -> Any:
        """A Python value as this type holds it."""

    @abc.abstractmethod
    def encode(self, value: Any) -> Any:
        """A fitted Python value in its plain form."""

    @abc.abstractmethod
    def decode(self, plain: Any) -> Any:
        """The Python value of a plain form."""

    def take(self, found: Any) -> Any:
        """The Python value of what an Arrow column gives; ValueError if it is none."""
        try:
            return self.fit(found)
        except (TypeError, OverflowError) as error:
            raise ValueError(f"no {self.label}") from error

    def give(self, value: Any) -> Any:
        """A Python value as an Arrow column takes it."""
        return value

    @abc.abstractmethod
    def accepts(self, found: pa.DataType) -> bool:
        """Whether a column of an Arrow type can carry values of this type."""

    def advice(self, found: pa.DataType) -> str:
        """What to do with a column that is not accepted."""
        return "cast the column before the transactions"

    @abc.abstractmethod
    def unpack(self, column: pa.Array) -> Unpacked:
        """The words of a column, strings as Arrow texts."""

    def pack(self, values: Any, valid: Mask | None = None) -> pa.Array:
        """Words as a column, strings given as Arrow texts; null where `valid` is false."""
        return Kind.INT.pack(values, valid).view(self.arrow)

    def to_json(self) -> Any:
        """The type as state files record it."""
        return self.label


ValueType = Kind | Carried


def integers(column: pa.Array) -> npt.NDArray[np.int64]:
    """A column of integers as an array, 0 where it is null."""
    return np.asarray(column.fill_null(0).to_numpy(zero_copy_only=False))


def within(values: npt.NDArray[np.int64], least: int, most: int) -> Unpacked:
    """Values, those outside of a range as 0, and which these are."""
    outside = (values < least) | (values > most)
    return (np.where(outside, 0, values), outside) if outside.any() else (values, None)
