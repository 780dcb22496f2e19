"""What the compiler hands to the engine: transactions and programs as data.

    user's function --compiler--> TransactionPlan --linking--> ProgramPlan --> engine

A `TransactionPlan` says which event columns a transaction needs, which rows and fields it reads and
writes and under which conditions, why it may abort, what it returns, and how its generated function
is called. A `ProgramPlan` joins several of them: the columns and tables that they share are listed
once, and `source` is the Python text of one function `run` that executes a batch in order:

    run(start, stop, order, kinds, status_out, arrays)

`arrays` is a tuple in the order of `ProgramPlan.arrays`. `run` returns the position of the first event that plain
Python must execute (`ESCAPE`), or `stop`.

For execution out of order the same module has `operate`, which executes one operation: a whole
transaction, or where it can be split one of its slices, on rows that the caller chooses:

    operate(context, kind, event, slots) -> 0 done, ESCAPE, or why it failed

`kind` is an index of `ProgramPlan.operations`. `context` is the address of a list with the addresses of the same
arrays. `slots` is the address of the operation's slots: one for each of its rows in their order, or as many as the
event's list has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidegate.foundation.places import Place
from tidegate.operations.arrays import ArraySpec, name_in_code
from tidegate.operations.flow import NO_GRAPHS, FlowsPlan, WindowParameter
from tidegate.operations.layout import Kind, TableLayout

COMMITTED = 0
ESCAPE = -1


def generated_name(transaction: str) -> str:
    """The name of a transaction's function in generated code, clear of every other name there."""
    return name_in_code("transaction", transaction)


def body_name(transaction: str) -> str:
    """The function that is the transaction's body alone, by the name of the one that undoes what an abort leaves."""
    return f"body_of_{transaction}"


@dataclass(frozen=True, slots=True)
class RowParameter:
    """A parameter that is a row, or a list of rows, of a table; its event column carries the key."""

    name: str
    table: TableLayout
    many: bool


@dataclass(frozen=True, slots=True)
class ValueParameter:
    """A parameter that is a plain event column, or a list of values."""

    name: str
    kind: Kind
    many: bool


Parameter = RowParameter | ValueParameter


@dataclass(frozen=True, slots=True)
class Access:
    """One place where a transaction touches a field of a row.

    `action` is "read", "write" or "delete"; `conditions` are the tests, as source text, under which
    this place is reached. The field `exists` stands for the row's existence.
    """

    parameter: str
    field: str
    action: str
    conditions: tuple[str, ...]
    line: int


@dataclass(frozen=True, slots=True)
class ResultType:
    """What a transaction returns: one value (`name` empty) or the named fields of a struct."""

    fields: tuple[tuple[str, Kind], ...]
    struct: bool

    @property
    def arrow(self) -> pa.DataType:
        """The type of the result column."""
        if self.struct:
            return pa.struct([pa.field(name, kind.arrow) for name, kind in self.fields])
        return self.fields[0][1].arrow


@dataclass(frozen=True, slots=True)
class Operation:
    """A kind of work that is scheduled as one piece: a whole transaction, or a slice of one.

    `rows` are the row parameters that it touches and `writes` those of them that it writes, both in the
    order of the signature. A whole transaction undoes what it wrote when it aborts, and its failure is a
    status, as `run` gives it. A slice undoes nothing; its failure is `failure(position, status)`, where
    the position is that of the failing statement, and of all failures of a transaction's slices the one
    with the smallest position is what Python reports. `first_failure` is the smallest position at which
    it can fail or escape, NEVER where it cannot; `text` is the slice as Python source.
    """

    transaction: int
    rows: tuple[str, ...]
    writes: tuple[str, ...]
    first_failure: int
    whole: bool
    text: str


NEVER = (1 << 31) - 1


def failure(position: int, status: int) -> int:
    """What a slice returns that fails at a position."""
    return (position << 32) + status


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a transaction that writes rows of its own: its generated function and what it touches."""

    name: str
    rows: tuple[str, ...]
    writes: tuple[str, ...]
    first_failure: int
    text: str
    accesses: tuple[Access, ...]
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TransactionPlan:
    """One transaction, compiled; `source` is empty when it runs interpreted.

    `slices` are empty where it runs as one operation, and then `unsplit` says why. `speculative` is
    whether its operations may run on values that are taken back later: they come to an end on any.
    """

    name: str
    place: Place
    parameters: tuple[Parameter, ...]
    accesses: tuple[Access, ...]
    reasons: tuple[str, ...]
    literals: tuple[str, ...]
    result: ResultType | None
    source: str
    arguments: tuple[str, ...]
    undo_lists: tuple[tuple[str, Kind], ...]
    slices: tuple[Slice, ...]
    speculative: bool
    unsplit: str
    windows: tuple[WindowParameter, ...] = ()
    aggregates: tuple[tuple[str, str, str], ...] = ()
    """What the body asks of its windows: parameter, function, field."""
    lookups: tuple[TableLayout, ...] = ()
    """The tables whose rows it looks up while it runs, and the names of those that it may write that way."""
    lookup_writes: tuple[str, ...] = ()
    lookup_classes: tuple[type, ...] = ()
    time: str = ""
    """The parameter that carries the transaction's own time; empty where it has none."""
    histories: tuple[tuple[TableLayout, int], ...] = ()
    """The tables of whose rows it asks for earlier states, and how far back."""

    @property
    def compiled(self) -> bool:
        """Whether the transaction runs as machine code."""
        return bool(self.source)

    @property
    def may_delete(self) -> bool:
        """Whether it may delete rows; plain Python may do anything."""
        return not self.compiled or any(access.action == "delete" for access in self.accesses)

    @property
    def tables(self) -> tuple[TableLayout, ...]:
        """The tables of its row parameters, in order of first use."""
        own = [parameter.table for parameter in self.parameters if isinstance(parameter, RowParameter)]
        return tuple(dict.fromkeys([*own, *self.lookups]))

    @property
    def written(self) -> frozenset[str]:
        """The row parameters that may be written; all of them where the body is not known."""
        if not self.compiled:
            return frozenset(p.name for p in self.parameters if isinstance(p, RowParameter))
        return frozenset(access.parameter for access in self.accesses if access.action != "read")


@dataclass(frozen=True, slots=True)
class Binding:
    """An event column as some transactions use it: as keys of a table, or as values of a kind.

    `users` are the indices of the transactions that need it; `writers` those that may write the row, without those that
    run in dataflow graphs: graphs note the rows that they wrote in their journals.
    """

    parameter: Parameter
    users: tuple[int, ...]
    writers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ProgramPlan:
    """Several transactions that run over one event stream and share tables.

    The first operations are the whole transactions, by their numbers; `slices` lists for each transaction
    the operations that it splits into, none where it runs as one.
    """

    tables: tuple[TableLayout, ...]
    transactions: tuple[TransactionPlan, ...]
    rows: tuple[Binding, ...]
    values: tuple[Binding, ...]
    reasons: tuple[str, ...]
    literals: tuple[str, ...]
    result_arrays: tuple[Kind, ...]
    result_places: tuple[tuple[int, ...], ...]
    result: pa.DataType
    result_by_transaction: bool
    scratch: tuple[tuple[int, Kind], ...]
    operations: tuple[Operation, ...]
    slices: tuple[tuple[int, ...], ...]
    source: str
    arrays: tuple[ArraySpec, ...] = ()
    """What `run` takes, and `operate` by their addresses."""
    event_names: tuple[str, ...] = ()
    """Per transaction: what events call it; a border transaction goes by its stream's name, an interior one by none."""
    entries: tuple[int, ...] = ()
    """The transactions that events can name."""
    flows: FlowsPlan = NO_GRAPHS

    @property
    def names(self) -> tuple[str, ...]:
        """The transactions' names, in the order of their numbers."""
        return tuple(transaction.name for transaction in self.transactions)

    @property
    def columns(self) -> dict[str, Parameter]:
        """Every event column that some transaction needs, with one parameter that needs it."""
        return {b.parameter.name: b.parameter for b in (*self.rows, *self.values)}


@dataclass(frozen=True, slots=True)
class Program:
    """A plan with the Python that it came from: what an engine runs."""

    plan: ProgramPlan
    functions: tuple[Callable[..., Any], ...]
    classes: dict[str, type]
