"""Decimals as a value type: so many digits in all, and so many of them behind the point, scaled to an integer.

    Decimal("12.30") as digits(10, 2)     the word 1230

A 64-bit word holds 18 digits. What has more digits behind the point than declared is never rounded without being asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.operations.kinds import Carried, Mask, TooLarge, Unpacked, integers, within

DIGITS_MAX = 18
"""Decimals of more digits do not fit 64 bits."""


@dataclass(frozen=True, slots=True)
class Digits(Carried):
    """`Decimal` with so many digits in all, and so many of them behind the point; also what `tg.digits` makes."""

    precision: int
    scale: int

    @property
    def label(self) -> str:
        """As messages name it."""
        return f"decimal({self.precision}, {self.scale})"

    @property
    def family(self) -> str:
        """Whole numbers fit, too."""
        return "number"

    @property
    def arrow(self) -> pa.DataType:
        """The same digits."""
        return pa.decimal128(self.precision, self.scale)

    def fit(self, value: Any) -> Decimal:
        """A Decimal or an int, at the declared scale; ValueError if it has more digits behind the point."""
        if not isinstance(value, Decimal | int) or isinstance(value, bool):
            raise TypeError
        return self.decode(self.encode(value))

    def encode(self, value: Any) -> int:
        """The number of units of the last digit."""
        sign, digits, exponent = Decimal(value).as_tuple()
        if not isinstance(exponent, int):  # NaN, infinity
            raise TypeError
        whole = int("".join(map(str, digits)))
        shift = exponent + self.scale
        if shift < 0:
            whole, lost = divmod(whole, 10**-shift)
            if lost:
                raise ValueError(f"more than {self.scale} digits behind the point: write round(..., {self.scale})")
        elif whole and shift > DIGITS_MAX:
            raise TooLarge
        else:
            whole *= 10**shift
        if whole >= 10**self.precision:
            raise TooLarge
        found: int = -whole if sign else whole
        return found

    def decode(self, plain: Any) -> Decimal:
        """The Decimal of so many units."""
        return Decimal(int(plain)).scaleb(-self.scale)

    def take(self, found: Any) -> Decimal:
        """A Decimal or an int."""
        try:
            return self.fit(found)
        except (TypeError, OverflowError, InvalidOperation) as error:
            raise ValueError(f"no {self.label}") from error

    def accepts(self, found: pa.DataType) -> bool:
        """Decimals with at most as many digits behind the point, and integers."""
        if pa.types.is_null(found) or pa.types.is_integer(found):
            return True
        return bool(pa.types.is_decimal(found) and found.precision <= 38 and 0 <= found.scale <= self.scale)

    def advice(self, found: pa.DataType) -> str:
        """Fewer digits behind the point, or an exact type."""
        return f"cast the column to {self.label} before the transactions, which rounds"

    def unpack(self, column: pa.Array) -> Unpacked:
        """Units of the last digit; what has too many digits does not fit."""
        if pa.types.is_integer(column.type):
            values, unfit, shift = integers(column.cast(pa.int64())), None, self.scale
        else:
            if not pa.types.is_decimal128(column.type):
                column = column.cast(pa.decimal128(column.type.precision, column.type.scale))
            words = np.zeros((0, 2), np.int64)
            if len(column):
                words = np.frombuffer(column.buffers()[1], np.int64, 2 * len(column), 16 * column.offset).reshape(-1, 2)
            values, wide = words[:, 0], words[:, 1] != words[:, 0] >> 63
            unfit, shift = (wide if wide.any() else None), self.scale - column.type.scale
        limit = (10**self.precision - 1) // 10**shift
        found, outside = within(values, -limit, limit)
        unfit = outside if unfit is None else unfit if outside is None else unfit | outside
        return found * 10**shift, unfit

    def pack(self, values: Any, valid: Mask | None = None) -> pa.Array:
        """Words, each extended to 128 bits."""
        low = np.ascontiguousarray(values, np.int64)
        both = np.empty((len(low), 2), np.int64)
        both[:, 0], both[:, 1] = low, low >> 63
        bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
        return pa.Array.from_buffers(self.arrow, len(low), [bitmap, pa.py_buffer(both)])

    def to_json(self) -> Any:
        """The digits."""
        return {"digits": [self.precision, self.scale]}
