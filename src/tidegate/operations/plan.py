"""What the compiler hands to the engine: transactions and programs as data.

    user's function --compiler--> TransactionPlan --linking--> ProgramPlan --> engine

A `TransactionPlan` says which event columns a transaction needs, which rows and fields it reads and
writes and under which conditions, why it may abort, what it returns, and how its generated function
is called. A `ProgramPlan` joins several transactions: the columns and tables that they share are listed
once, and `source` is the Python text of a function `run` that executes a batch in order:

    run(start, stop, order, kinds, status_out, arrays)

`arrays` is a tuple in the order of `ProgramPlan.arrays`. `run` returns the position of the first event that plain
Python must execute (`ESCAPE`), or `stop`.

For execution out of order, the same module has `operate`. It executes one operation (a whole transaction,
or one of its slices if it can be split) on rows that the caller chooses:

    operate(context, kind, event, slots) -> 0 done, ESCAPE, or why it failed

`kind` is an index into `ProgramPlan.operations`. `context` is the address of a list with the addresses of the same
arrays. `slots` is the address of the operation's slots: one for each row parameter, in order; a list of rows has one
slot per element.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from tidegate.foundation.places import Place
from tidegate.operations.arrays import ArraySpec, name_in_code
from tidegate.operations.flow import NO_GRAPHS, FlowsPlan, WindowParameter
from tidegate.operations.layout import Kind, TableLayout, ValueType

ESCAPE, INTERRUPTED = -1, -3
"""What a body returns instead of a status: plain Python must run the transaction; the user pressed Ctrl-C in a loop."""

ResultForm = Literal["auto", "struct", "json"]
"""How the column `result` holds what transactions return: as one type or, if they differ, by transaction; always by
transaction; as JSON text."""


def generated_name(transaction: str) -> str:
    """The name of a transaction's function in generated code; it collides with no other name there."""
    return name_in_code("transaction", transaction)


def body_name(transaction: str) -> str:
    """The name of the function with the body alone; `transaction` names the function that also undoes aborts."""
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
    type: ValueType
    many: bool

    @property
    def kind(self) -> Kind:
        """What arrays of its values hold."""
        return self.type.kind


Parameter = RowParameter | ValueParameter


@dataclass(frozen=True, slots=True)
class Access:
    """One place where a transaction touches a field of a row.

    `action` is "read", "write", "delete" or "expire"; `conditions` are the tests, as source text, that must hold
    for this place to be reached. The field `exists` stands for the row's existence. A row that may have expired is
    reset before the body runs, which is a write of all its fields.
    """

    parameter: str
    field: str
    action: str
    conditions: tuple[str, ...]
    line: int


@dataclass(frozen=True, slots=True)
class ResultType:
    """What a transaction returns: one value (`name` empty) or the named fields of a struct."""

    fields: tuple[tuple[str, ValueType], ...]
    struct: bool

    @property
    def arrow(self) -> pa.DataType:
        """The type of the result column."""
        if self.struct:
            return pa.struct([pa.field(name, kind.arrow) for name, kind in self.fields])
        return self.fields[0][1].arrow

    def take(self, found: Any) -> Any:
        """The Python value of what the result column gives."""
        return self._converted(found, lambda value_type, part: value_type.take(part))

    def encode(self, result: Any) -> Any:
        """A result that `take` gave as plain values, which JSON can hold."""
        return self._converted(result, lambda value_type, part: value_type.encode(part))

    def decode(self, plain: Any) -> Any:
        """The result that `encode` was given."""
        return self._converted(plain, lambda value_type, part: value_type.decode(part))

    def _converted(self, found: Any, convert: Callable[[ValueType, Any], Any]) -> Any:
        if found is None:
            return None
        if not self.struct:
            return convert(self.fields[0][1], found)
        return {name: convert(value_type, found[name]) for name, value_type in self.fields}


@dataclass(frozen=True, slots=True)
class MadeText:
    """A new string in a result, which is put together after the run (`engine.made_texts`).

    `field` is its place among the result's fields; `template` is a Python expression over `part_0`, `part_1` and so on;
    `parts` has for each the array of the transaction that holds it, among its `part_kinds`, and its type.
    """

    field: int
    template: str
    parts: tuple[tuple[int, ValueType], ...]


def text_word(number: int) -> int:
    """What a result array holds in place of a string's number where the transaction's n-th text is to be put."""
    return -1 - number


@dataclass(frozen=True, slots=True)
class Operation:
    """A kind of work that is scheduled as one piece: a whole transaction, or a slice of one.

    `rows` are the row parameters that it touches and `writes` those that it writes, both in the order of
    the signature. A whole transaction undoes its writes when it aborts, and returns its failure as a status,
    as `run` does. A slice undoes nothing and returns its failure as `failure(position, status)`, where
    `position` is that of the failing statement. If several slices of a transaction fail, the failure with the
    smallest position is the one that Python would report. `first_failure` is the smallest position at which
    the operation can fail or escape, or NEVER; `text` is the slice as Python source.
    """

    transaction: int
    rows: tuple[str, ...]
    writes: tuple[str, ...]
    first_failure: int
    whole: bool
    text: str


NEVER = (1 << 31) - 1


def failure(position: int, status: int) -> int:
    """What a slice returns when it fails at a position."""
    return (position << 32) + status


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a transaction that writes rows no other part writes: its generated function and what it touches."""

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

    `slices` is empty if the transaction runs as one operation; then `unsplit` says why. `speculative` says
    whether its operations may run on values that may be undone later: they terminate whatever the values are.
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
    in_python: tuple[tuple[int, str], ...] = ()
    texts: tuple[MadeText, ...] = ()
    part_kinds: tuple[Kind, ...] = ()
    """What a compiled body leaves to plain Python whenever it gets there: line and text."""
    windows: tuple[WindowParameter, ...] = ()
    aggregates: tuple[tuple[str, str, str], ...] = ()
    """The aggregates that the body asks its windows for: parameter, function, field."""
    lookups: tuple[TableLayout, ...] = ()
    """The tables whose rows it looks up while it runs; `lookup_writes` names those that it may write that way."""
    lookup_writes: tuple[str, ...] = ()
    lookup_classes: tuple[type, ...] = ()
    time: str = ""
    """The parameter that carries the transaction's own time; empty if it has none."""
    histories: tuple[tuple[TableLayout, int], ...] = ()
    """The tables whose earlier row states it asks for, and how far back."""

    @property
    def compiled(self) -> bool:
        """Whether the transaction runs as machine code."""
        return bool(self.source)

    @property
    def may_delete(self) -> bool:
        """Whether it may delete rows; plain Python may do anything."""
        return not self.compiled or any(access.action in ("delete", "expire") for access in self.accesses)

    @property
    def tables(self) -> tuple[TableLayout, ...]:
        """The tables of its row parameters, in order of first use, and then those that it looks rows up in."""
        own = [parameter.table for parameter in self.parameters if isinstance(parameter, RowParameter)]
        return tuple(dict.fromkeys([*own, *self.lookups]))

    @property
    def written(self) -> frozenset[str]:
        """The row parameters that may be written; all of them if the transaction is not compiled."""
        if not self.compiled:
            return frozenset(p.name for p in self.parameters if isinstance(p, RowParameter))
        return frozenset(access.parameter for access in self.accesses if access.action != "read")

    @property
    def assigned(self) -> frozenset[str]:
        """Those of them that the body itself may write; the others are written only if they have expired."""
        if not self.compiled:
            return self.written
        return frozenset(access.parameter for access in self.accesses if access.action not in ("read", "expire"))


@dataclass(frozen=True, slots=True)
class Binding:
    """An event column as some transactions use it: as keys of a table, or as values of a kind.

    `users` are the indices of the transactions that need it. `writers` are those that may write the row, except
    transactions in dataflow graphs: graphs record the rows that they write in their journals.
    """

    parameter: Parameter
    users: tuple[int, ...]
    writers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ClockPlan:
    """The clock of a program in which rows expire: the highest event time so far.

    `times` has for each transaction the value binding that carries the time of its events, or -1. `untimed` are the
    transactions that touch rows that expire and whose events have no such value: their time is `order_by`.
    """

    type: ValueType
    tables: tuple[TableLayout, ...]
    times: tuple[int, ...]
    untimed: tuple[str, ...]

    @property
    def kind(self) -> Kind:
        """What arrays of times hold."""
        return self.type.kind


@dataclass(frozen=True, slots=True)
class ProgramPlan:
    """Several transactions that run over one event stream and share tables.

    `operations` begins with the whole transactions, in the order of their numbers. `slices` lists for each
    transaction the operations that it splits into; none if it runs as one.
    """

    tables: tuple[TableLayout, ...]
    transactions: tuple[TransactionPlan, ...]
    rows: tuple[Binding, ...]
    values: tuple[Binding, ...]
    reasons: tuple[str, ...]
    literals: tuple[str, ...]
    result_arrays: tuple[ValueType, ...]
    result_places: tuple[tuple[int, ...], ...]
    part_places: tuple[tuple[int, ...], ...]
    result: pa.DataType
    result_by_transaction: bool
    scratch: tuple[tuple[int, Kind], ...]
    operations: tuple[Operation, ...]
    slices: tuple[tuple[int, ...], ...]
    source: str
    arrays: tuple[ArraySpec, ...] = ()
    """The arrays that `run` takes, and that `operate` takes by address."""
    event_names: tuple[str, ...] = ()
    """Per transaction, its name in events: a border transaction has its stream's name, an interior one has none."""
    entries: tuple[int, ...] = ()
    """The transactions that events can name."""
    flows: FlowsPlan = NO_GRAPHS
    result_json: bool = False
    """Whether results leave the engine as JSON text."""
    reason_sources: tuple[tuple[int, str], ...] = ()
    """For each of `reasons`, the transaction that fails, and why: an event of a graph may read who undid its round."""
    clock: ClockPlan | None = None
    """None where no row expires."""

    @property
    def result_column(self) -> pa.DataType:
        """The type of the column `result` as users see it."""
        return pa.string() if self.result_json else self.result

    @property
    def may_loop(self) -> bool:
        """Whether a transaction may never end, until the user interrupts it: by a `while`, or in plain Python."""
        return any(spec.name == "signals" for spec in self.arrays) or not all(t.compiled for t in self.transactions)

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
