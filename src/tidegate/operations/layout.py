"""Table layouts: the description of a table that compiler, engine and files share.

A layout is a user's table class without the Python: a name, typed columns with defaults, and
which columns form the key. It compares by value, can be pickled, and is written into every
state file, so that a later program can be checked against it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa

Value = int | float | bool | str


def encodable(text: str) -> bool:
    """Whether a string can be stored: half of a surrogate pair has no bytes in UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class Kind(enum.Enum):
    """The type of one value: what a field, a key or a parameter may hold."""

    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    STR = "str"

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type in which values of this kind enter and leave."""
        return _ARROW[self]

    @property
    def dtype(self) -> type[np.generic]:
        """The NumPy type of arrays of such values; a string is represented by its number in the string pool."""
        return _DTYPES[self]

    @property
    def zero(self) -> Value:
        """What a field without a declared default reads as in an absent row."""
        return _ZERO[self]


_ARROW = {Kind.INT: pa.int64(), Kind.FLOAT: pa.float64(), Kind.BOOL: pa.bool_(), Kind.STR: pa.string()}
_DTYPES = {Kind.INT: np.int64, Kind.FLOAT: np.float64, Kind.BOOL: np.bool_, Kind.STR: np.int64}
_ZERO: dict[Kind, Value] = {Kind.INT: 0, Kind.FLOAT: 0.0, Kind.BOOL: False, Kind.STR: ""}


@dataclass(frozen=True, slots=True)
class Column:
    """One field of a table; `default` is what it reads as in an absent row."""

    name: str
    kind: Kind
    default: Value


@dataclass(frozen=True, slots=True)
class TableLayout:
    """A table's columns in declared order and the names of those that form its key.

    Its rows expire if `ttl` is given: a row is gone once the clock is more than `ttl` past its column `by`.
    """

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    ttl: int | float | None = None
    by: str = ""

    @property
    def expires(self) -> bool:
        """Whether its rows have a time to live."""
        return self.ttl is not None

    @property
    def by_kind(self) -> Kind:
        """The kind of the column `by`, and so of the clock that its rows expire by."""
        return next(column.kind for column in self.columns if column.name == self.by)

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """The key's columns, in the order in which the key names them."""
        by_name = {column.name: column for column in self.columns}
        return tuple(by_name[name] for name in self.key)

    @property
    def value_columns(self) -> tuple[Column, ...]:
        """The columns outside the key, in declared order."""
        return tuple(column for column in self.columns if column.name not in self.key)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema of the table's rows: every column in declared order, none of them null."""
        return pa.schema([pa.field(c.name, c.kind.arrow, nullable=False) for c in self.columns])

    def to_json(self) -> dict[str, Any]:
        """The layout as plain JSON values, as state files record it."""
        return {
            "name": self.name,
            "columns": [[c.name, c.kind.value, c.default] for c in self.columns],
            "key": list(self.key),
            **({"ttl": self.ttl, "by": self.by} if self.expires else {}),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TableLayout:
        """The layout that `to_json` wrote."""
        columns = tuple(
            Column(name, Kind(kind), cast(Value, float(default) if kind == "float" else default))
            for name, kind, default in data["columns"]
        )
        return cls(data["name"], columns, tuple(data["key"]), data.get("ttl"), data.get("by", ""))
