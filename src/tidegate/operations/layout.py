"""Table layouts: the description of a table that compiler, engine and files share.

A layout is a user's table class without the Python: a name, typed columns with defaults, and
which columns form the key. It compares by value, can be pickled, and is written into every
state file, so that a later program can be checked against it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa

from tidegate.operations.kinds import Kind, Plain, ValueType, encodable
from tidegate.operations.times import DateTime
from tidegate.operations.values import Value, from_json

__all__ = ["Column", "Kind", "TableLayout", "Value", "ValueType", "encodable"]


@dataclass(frozen=True, slots=True)
class Column:
    """One field of a table; `default` is the plain form of what it reads as in an absent row."""

    name: str
    type: ValueType
    default: Plain | None

    @property
    def kind(self) -> Kind:
        """What arrays of its values hold."""
        return self.type.kind

    @property
    def default_scalar(self) -> pa.Scalar:
        """The default as Arrow has it."""
        return pa.scalar(self.type.give(self.type.decode(self.default)), self.type.arrow)


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
    def by_type(self) -> ValueType:
        """The type of the column `by`, and so of the clock that its rows expire by."""
        return next(column.type for column in self.columns if column.name == self.by)

    @property
    def by_kind(self) -> Kind:
        """What arrays of its values hold."""
        return self.by_type.kind

    @property
    def lifetime(self) -> int | float | timedelta | None:
        """`ttl` as a user gives it: it is in words, microseconds for a datetime."""
        return timedelta(microseconds=self.ttl) if self.ttl and isinstance(self.by_type, DateTime) else self.ttl

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
        """The schema of the table's rows: every column in declared order, null only where None is a value."""
        return pa.schema([pa.field(c.name, c.type.arrow, nullable=c.type.optional) for c in self.columns])

    def to_json(self) -> dict[str, Any]:
        """The layout as plain JSON values, as state files record it."""
        return {
            "name": self.name,
            "columns": [[c.name, c.type.to_json(), c.default] for c in self.columns],
            "key": list(self.key),
            **({"ttl": self.ttl, "by": self.by} if self.expires else {}),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TableLayout:
        """The layout that `to_json` wrote."""
        columns = []
        for name, described, default in data["columns"]:
            found = from_json(described)
            whole = found.kind is Kind.FLOAT and default is not None
            columns.append(Column(name, found, float(default) if whole else default))
        return cls(data["name"], tuple(columns), tuple(data["key"]), data.get("ttl"), data.get("by", ""))
