"""Dates and times as value types: days and microseconds since 1970-01-01, in 64 bits.

A `datetime` without a zone and an instant (`Annotated[datetime, UTC]`) are two types, as they are in Arrow and Spark:
nothing converts one to the other by itself. Values outside of Python's years 1 to 9999, and fractions of a microsecond,
do not fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from tidegate.operations.kinds import Carried, Kind, Mask, Unpacked, integers, within

DAY = 86_400_000_000
"""The microseconds of a day."""

_EPOCH_DAY, _EPOCH = date(1970, 1, 1).toordinal(), datetime(1970, 1, 1)
_EPOCH_UTC = _EPOCH.replace(tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
DAY_MIN, DAY_MAX = date.min.toordinal() - _EPOCH_DAY, date.max.toordinal() - _EPOCH_DAY
TIME_MIN, TIME_MAX = DAY_MIN * DAY, (DAY_MAX + 1) * DAY - 1
_PER_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1}


@dataclass(frozen=True, slots=True)
class Date(Carried):
    """`date`: days since 1970-01-01."""

    label: ClassVar[str] = "date"
    arrow: ClassVar[pa.DataType] = pa.date32()

    def fit(self, value: Any) -> date:
        """A date, and no datetime: Python takes one for the other, and then they never compare equal."""
        if not isinstance(value, date) or isinstance(value, datetime):
            raise TypeError
        return date(value.year, value.month, value.day)

    def encode(self, value: Any) -> int:
        """Days."""
        return int(value.toordinal() - _EPOCH_DAY)

    def decode(self, plain: Any) -> date:
        """The date of a day."""
        return date.fromordinal(int(plain) + _EPOCH_DAY)

    def accepts(self, found: pa.DataType) -> bool:
        """date32, date64."""
        return bool(pa.types.is_date(found) or pa.types.is_null(found))

    def unpack(self, column: pa.Array) -> Unpacked:
        """Days; those outside of Python's years do not fit."""
        days = column.cast(pa.date32()).view(pa.int32()).cast(pa.int64())
        return within(integers(days), DAY_MIN, DAY_MAX)

    def pack(self, values: Any, valid: Mask | None = None) -> pa.Array:
        """Days as dates."""
        return Kind.INT.pack(np.asarray(values).astype(np.int32), valid).view(pa.date32())


@dataclass(frozen=True, slots=True)
class DateTime(Carried):
    """`datetime` without a zone, or an instant (`Annotated[datetime, UTC]`): microseconds since 1970-01-01."""

    instant: bool

    @property
    def label(self) -> str:
        """As messages name it."""
        return "datetime in UTC" if self.instant else "datetime"

    @property
    def arrow(self) -> pa.DataType:
        """Microseconds."""
        return pa.timestamp("us", "UTC" if self.instant else None)

    def fit(self, value: Any) -> datetime:
        """A datetime with or without a zone, as declared; an instant in UTC."""
        if not isinstance(value, datetime) or (value.tzinfo is not None) != self.instant:
            raise TypeError
        if self.instant:
            value = value.astimezone(UTC)
        parts = (value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond)
        return datetime(*parts, UTC if self.instant else None)

    def encode(self, value: Any) -> int:
        """Microseconds."""
        return int((value - (_EPOCH_UTC if self.instant else _EPOCH)) // _MICROSECOND)

    def decode(self, plain: Any) -> datetime:
        """The datetime of a microsecond."""
        return (_EPOCH_UTC if self.instant else _EPOCH) + timedelta(microseconds=int(plain))

    def accepts(self, found: pa.DataType) -> bool:
        """Timestamps with a zone, whichever, or without, as declared."""
        if pa.types.is_null(found):
            return True
        return bool(pa.types.is_timestamp(found) and (found.tz is not None) == self.instant)

    def advice(self, found: pa.DataType) -> str:
        """A zone too many, or one too few."""
        if not pa.types.is_timestamp(found):
            return "cast the column before the transactions"
        if self.instant:
            return (
                "the column has no zone: declare plain datetime, or say which zone its times are in "
                "(in Spark, cast timestamp_ntz to timestamp)"
            )
        return (
            "the column has a zone: declare Annotated[datetime, UTC], which holds instants, or drop the zone "
            "(in Spark, cast timestamp to timestamp_ntz)"
        )

    def unpack(self, column: pa.Array) -> Unpacked:
        """Microseconds; fractions of one, and what is outside of Python's years, do not fit."""
        return _microseconds(column, TIME_MIN, TIME_MAX)


@dataclass(frozen=True, slots=True)
class Duration(Carried):
    """`timedelta`: microseconds."""

    label: ClassVar[str] = "timedelta"
    arrow: ClassVar[pa.DataType] = pa.duration("us")

    def fit(self, value: Any) -> timedelta:
        """A timedelta of 64 bits of microseconds: 292,471 years."""
        if not isinstance(value, timedelta):
            raise TypeError
        return self.decode(Kind.INT.fit(value // _MICROSECOND))

    def encode(self, value: Any) -> int:
        """Microseconds."""
        return int(value // _MICROSECOND)

    def decode(self, plain: Any) -> timedelta:
        """The timedelta of so many microseconds."""
        return timedelta(microseconds=int(plain))

    def accepts(self, found: pa.DataType) -> bool:
        """Durations of any unit."""
        return bool(pa.types.is_duration(found) or pa.types.is_null(found))

    def unpack(self, column: pa.Array) -> Unpacked:
        """Microseconds; fractions of one do not fit."""
        return _microseconds(column, -(2**63), 2**63 - 1)


def is_time(of: Any) -> bool:
    """Whether values of a type can be the times of events, and of rows that expire."""
    return of in (Kind.INT, Kind.FLOAT) or isinstance(of, DateTime)


def _microseconds(column: pa.Array, least: int, most: int) -> Unpacked:
    values = integers(column.view(pa.int64()))
    if column.type.unit == "ns":
        values, lost = np.divmod(values, 1000)
        found, outside = within(values, least, most)
        if lost.any():
            outside = lost != 0 if outside is None else outside | (lost != 0)
        return found, outside
    factor = _PER_UNIT[column.type.unit]
    found, outside = within(values, -(-least // factor), most // factor)
    return found * factor, outside
