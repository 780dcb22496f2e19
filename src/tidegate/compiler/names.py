"""The names of parameters, variables, constants and journals in generated code.

`operations.arrays` has the names of arrays, and the rule by which all names are formed.
"""

from __future__ import annotations

from tidegate.operations.arrays import column_array, exists_array, name_in_code
from tidegate.operations.layout import TableLayout


def variable_code(name: str) -> str:
    """A local variable."""
    return name_in_code("var", name)


def assigned_flag(name: str) -> str:
    """Whether a variable has been assigned."""
    return name_in_code("set", name)


def row_code(parameter: str) -> str:
    """The slot of a row."""
    return name_in_code("row", parameter)


def value_code(parameter: str) -> str:
    """A plain value."""
    return name_in_code("value", parameter)


def list_code(parameter: str) -> str:
    """A list of rows or values; `list_parts` names the three variables that carry it."""
    return name_in_code("list", parameter)


def list_parts(code: str) -> tuple[str, str, str]:
    """The array of a list, its first position there, and the position after its last."""
    return f"{code}__data", f"{code}__start", f"{code}__stop"


def window_code(parameter: str) -> str:
    """The offset of a window in the window heap."""
    return name_in_code("window", parameter)


def slid_flag(parameter: str) -> str:
    """Whether a window slid."""
    return name_in_code("slid", parameter)


def aggregate_slot(transaction: str, parameter: str, function: str, field: str) -> str:
    """The constant that says which structure of a window computes an aggregate."""
    return name_in_code("aggregate", transaction, parameter, function, field)


def table_number(table: str) -> str:
    """The constant that is a table's number."""
    return name_in_code("number", table)


def kept_time(table: str) -> str:
    """The constant that says for how long states of a table's rows are kept."""
    return name_in_code("kept_time", table)


class JournalNames:
    """The journal (undo log) of a table: the rows that the current group wrote, as they were before."""

    def __init__(self, table: TableLayout) -> None:
        name = table.name
        self.count, self.slots, self.exists, self.times, self.begins, self.touched, self.touched_count = (
            name_in_code(f"journal_{role}", name)
            for role in ("count", "slots", "exists", "times", "begins", "touched", "touched_count")
        )
        self.marks, self.step_begin = name_in_code("marks", name), name_in_code("step_begin", name)
        self.rows = exists_array(name)
        self.columns = {
            column_array(name, column.name): name_in_code("journal", name, column.name)
            for column in table.value_columns
        }
        """By column of the table: the array of its journalled values."""

    def note(self, row: str, now: str, place: str) -> list[str]:
        """Code that copies a row into the journal at `place`, which must be free.

        If the transaction has a time, the code also notes that time, and where in the journal its step began.
        """
        timed = [f"{self.times}[{place}] = {now}", f"{self.begins}[{place}] = {self.step_begin}"] if now else []
        return [
            f"{self.slots}[{place}] = {row}",
            *timed,
            f"{self.exists}[{place}] = {self.rows}[{row}]",
            *(f"{saved}[{place}] = {column}[{row}]" for column, saved in self.columns.items()),
            f"{self.count}[0] = {place} + 1",
        ]


class HistoryNames:
    """The earlier states of a table's rows."""

    def __init__(self, table: TableLayout) -> None:
        name = table.name
        self.state, self.heads, self.last_entry, self.before, self.time, self.slots, self.exists = (
            name_in_code(f"history_{role}", name)
            for role in ("state", "heads", "last_entry", "before", "time", "slots", "exists")
        )
        self.columns = {
            column_array(name, column.name): name_in_code("history", name, column.name)
            for column in table.value_columns
        }
        """By column of the table: the array of its earlier values."""
