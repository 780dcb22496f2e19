"""The types of values inside a transaction's body.

A body works with plain values, values of other types in the words that carry them, rows (the slot where the row is
stored, and the parameters it may have come from), the two kinds of lists that parameters may be, windows and histories,
and structs that can only be returned. Operators of ordered pipelines also have records and the list that they return.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.compiler.names import list_parts
from tidegate.operations.flow import WindowParameter
from tidegate.operations.kinds import Carried, Plain
from tidegate.operations.layout import Kind, TableLayout, ValueType
from tidegate.operations.pipeline import RecordLayout


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table; `origins` are the parameters through which it may have been reached."""

    table: TableLayout
    origins: frozenset[str]


@dataclass(frozen=True, slots=True)
class RowList:
    """A list of rows; `origins` holds the parameter that it is."""

    table: TableLayout
    origins: frozenset[str]


@dataclass(frozen=True, slots=True)
class ValueList:
    """A list of values."""

    type: ValueType


@dataclass(frozen=True, slots=True)
class WindowOf:
    """A window, which is a parameter."""

    parameter: WindowParameter


@dataclass(frozen=True, slots=True)
class WindowRow:
    """A row of a window; the term's code is its position among the visible rows."""

    parameter: WindowParameter


@dataclass(frozen=True, slots=True)
class HistoryOf:
    """The earlier states of a row; the term's code is the row's slot."""

    table: TableLayout
    last: int


@dataclass(frozen=True, slots=True)
class StateOf:
    """One earlier state of a row; the term's code is its position among all states that are kept."""

    table: TableLayout


@dataclass(frozen=True, slots=True)
class RecordOf:
    """A record, which is the values of its fields; it may be None if it is `optional`."""

    layout: RecordLayout
    optional: bool = False


@dataclass(frozen=True, slots=True)
class RecordList:
    """The list of records that an operator returns; the term's code is how many it holds."""

    layout: RecordLayout


@dataclass(frozen=True, slots=True)
class Nothing:
    """The type of None, which a function without a return value returns."""


@dataclass(frozen=True, slots=True)
class Mixed:
    """A float that may still be the int it started as: `x = 0`, and `x += row.price` only in some cases.

    Python keeps the int until it meets a float. The difference shows in few places (-0 is 0 but -0.0 is
    not, products above 2**53 are rounded), and there generated code escapes to plain Python.
    """


Type = (
    Kind
    | Carried
    | Row
    | RowList
    | ValueList
    | WindowOf
    | WindowRow
    | HistoryOf
    | StateOf
    | RecordOf
    | RecordList
    | Nothing
    | Mixed
)
NOTHING = Nothing()
MIXED = Mixed()
NUMBERS = (Kind.INT, Kind.FLOAT, Kind.BOOL, MIXED)


@dataclass(frozen=True, slots=True)
class Term:
    """A value in generated code: its text, its type, and its value if that is known at compile time."""

    code: str
    type: Type
    constant: Plain | None = None


def carriers(code: str, value_type: Type) -> tuple[str, ...]:
    """The variables that carry a term: three for a list; for a record one for each field, and whether it is one."""
    match value_type:
        case RowList() | ValueList():
            return list_parts(code)
        case RecordOf(layout, optional):
            fields = tuple(f"{code}__{position}" for position in range(len(layout.fields)))
            return (given_code(code), *fields) if optional else fields
    return (code,)


def given_code(record: str) -> str:
    """The variable that says whether an optional record is not None."""
    return f"{record}__given"


def describe(value_type: Type) -> str:
    """The type as error messages name it."""
    match value_type:
        case Kind() | Carried():
            return value_type.label
        case Row(table):
            return f"a row of {table.name}"
        case RowList(table):
            return f"a list of {table.name} rows"
        case ValueList(of):
            return f"a list of {of.label}"
        case HistoryOf(table):
            return f"the history of a row of {table.name}"
        case StateOf(table):
            return f"an earlier state of a row of {table.name}"
        case WindowOf(parameter):
            return f"the window {parameter.name}"
        case WindowRow(parameter):
            return f"a row of the window {parameter.name}"
        case RecordOf(layout, optional):
            return f"a record {layout.name}{' or None' if optional else ''}"
        case RecordList(layout):
            return f"a list of {layout.name} records"
        case Mixed():
            return "float or int"
    return "None"
