"""Generates code for what needs more than a batch's own rows: `tg.emit`, windows, `tg.lookup` and `tg.history`.

The tuples of a stream lie in arrays, one for each field (or part of a key). `tg.emit` writes at the position that the
stream's counter gives, and increments it. All windows lie in one array of words, each at its `base`; the kernels of
`engine.kernels.windows` know the layout. A row whose key is computed by the body is found, or created, in the table's
index, and journalled before anything may write it.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator

from tidegate.api.stream import Stream
from tidegate.api.table import layout_of
from tidegate.compiler import values
from tidegate.compiler.built_ins import sum_up
from tidegate.compiler.calls import Calls
from tidegate.compiler.names import (
    HistoryNames,
    JournalNames,
    aggregate_slot,
    kept_time,
    list_parts,
    slid_flag,
    table_number,
    window_code,
)
from tidegate.compiler.numbers import INTERPRET
from tidegate.compiler.types import (
    NOTHING,
    NUMBERS,
    HistoryOf,
    Row,
    StateOf,
    Term,
    ValueList,
    WindowOf,
    WindowRow,
    describe,
)
from tidegate.compiler.unit import Unit
from tidegate.operations.arrays import (
    column_array,
    exists_array,
    limit_code,
    name_in_code,
    stream_array,
    stream_count,
    time_array,
    time_code,
    wanted_array,
)
from tidegate.operations.flow import TOP_WORDS, StreamField, column_of
from tidegate.operations.layout import Column, Kind, TableLayout, ValueType
from tidegate.operations.plan import Access

TOP_MAX = 256
"""The most values that `window.top` returns."""

_ANY, _NUMBERS = (Kind.INT, Kind.BOOL, Kind.STR), (Kind.INT, Kind.BOOL, Kind.FLOAT)
_AGGREGATES: dict[str, tuple[Kind, ...]] = {
    "sum": _NUMBERS,
    "min": _NUMBERS,
    "max": _NUMBERS,
    "distinct": _ANY,
    "frequency": _ANY,
    "top": (Kind.INT, Kind.FLOAT),
}


LOOKED_UP = "tg.lookup"
"""The origin of rows that are not parameters."""


class Streaming(Calls):
    """Streams, windows and look-ups of one function."""

    unit: Unit

    # --- rows whose keys the body computes ----------------------------------------------------------------------

    def look_up(self, node: ast.Call) -> Term:
        """tg.lookup(Table, key)."""
        if len(node.args) != 2 or node.keywords:
            self.refuse(node, "lookup() takes a table and a key")
        found = self.source.resolve(node.args[0])
        table = layout_of(found)
        if table is None:
            self.refuse(node, f"lookup() takes a table first, got {ast.unparse(node.args[0])!r}")
        self.unit.lookups[table.name] = (table, found)
        keys = table.key_columns
        given = list(node.args[1].elts) if isinstance(node.args[1], ast.Tuple) else [node.args[1]]
        if len(given) != len(keys):
            self.refuse(node, f"the key of {table.name} is ({', '.join(table.key)}), got {len(given)} values")
        name = table.name
        terms = [self.value(part) for part in given]
        for position, (key, term) in enumerate(zip(keys, terms, strict=True)):
            term = values.plain(self, term) if isinstance(key.type, Kind) else term
            if key.type is Kind.FLOAT and term.type in NUMBERS:
                code = self.keep(self.real(term, node).code)
                with self.block(f"if {code} != {code}:"):
                    self.leave(self.reason(f"NaN key of {name}"))
                self.emit(f"{self.array(wanted_array(name, key.kind))}[0, {position}] = {code} + 0.0")
            else:
                code = values.stored(self, term, key.type, node, f"the key {key.name!r} of {name}")
                self.emit(f"{self.array(wanted_array(name, key.kind))}[0, {position}] = {code}")
        index, wanted = self.array(name_in_code("index", name)), self.array(wanted_array(name, Kind.INT))
        row = self.keep(f"slot_of({index}, {wanted})")
        with self.block(f"if {row} < 0:"):
            self.emit(f"{self.array('control')}[WHICH] = {table_number(name)}")
            self.leave("ROOM - TABLE_FULL")
        if table.expires:
            self.expire_looked_up(table, row)
            self.accesses.append(Access(LOOKED_UP, "exists", "expire", (), self.source.place(node).line))
        if name in self.unit.lookup_writes:
            self.journal_row(table, row)
        return Term(row, Row(table, frozenset({LOOKED_UP})))

    def journal_row(self, table: TableLayout, row: str) -> None:
        """Emit code that copies a row into the journal before the body may write it."""
        journal = JournalNames(table)
        place = self.keep(f"{self.array(journal.count)}[0]")
        with self.block(f"if {place} >= {self.array(journal.slots)}.shape[0]:"):
            self.emit(f"{self.array('control')}[WHICH] = {table_number(table.name)}")
            self.leave("ROOM - JOURNAL_FULL")
        timed = (journal.times, journal.begins, journal.step_begin) if self.unit.flowing.time else ()
        for array in (*timed, journal.exists, journal.rows, *journal.columns.keys(), *journal.columns.values()):
            self.array(array)
        for line in journal.note(row, self.now(), place):
            self.emit(line)

    def reset(self, table: TableLayout, row: str) -> None:
        """Emit code that lets a row not exist: it reads as the defaults."""
        for column in table.value_columns:
            self.emit(f"{self.array(column_array(table.name, column.name))}[{row}] = {self.default_of(column)}")
        self.emit(f"{self.array(exists_array(table.name))}[{row}] = False")

    def if_expired(self, table: TableLayout, row: str) -> contextlib.AbstractContextManager[None]:
        """A block that runs if a row has expired."""
        exists, limit = self.array(exists_array(table.name)), self.array(limit_code(table.name))
        self.array(time_array(table))
        return self.block(f"if {exists}[{row}] and {time_code(table, row)} < {limit}:")

    def expire_looked_up(self, table: TableLayout, row: str) -> None:
        """Emit code that resets a row if it had expired before the step began.

        A row that the step itself wrote, whatever its time is now, was journalled by the step.
        """
        journal = JournalNames(table)
        with self.if_expired(table, row):
            old, place = self.keep("True"), self.fresh()
            with self.block(f"for {place} in range({self.array(journal.step_begin)}, {self.array(journal.count)}[0]):"):
                self.emit(f"{old} = {old} and {self.array(journal.slots)}[{place}] != {row}")
            with self.block(f"if {old}:"):
                self.journal_row(table, row)
                self.reset(table, row)

    def default_of(self, column: Column) -> str:
        """Code for what an absent row holds in a column."""
        if column.default is None:
            return values.stored(self, Term("0", NOTHING), column.type, self.source.tree, column.name)
        return self.constant(column.default, self.source.tree).code

    # --- earlier states of rows -----------------------------------------------------------------------------

    def now(self) -> str:
        """Code for the transaction's own time, in its body and in its helpers; empty if it declares none."""
        return self.array("now") if self.unit.flowing.time else ""

    def remember(self, node: ast.Call) -> Term:
        """tg.history(row, last=...)."""
        match node:
            case ast.Call(args=[row_node], keywords=[ast.keyword(arg="last", value=wanted)]):
                pass
            case _:
                self.refuse(node, "history() takes a row, and last= by name")
        row = self.value(row_node)
        if not isinstance(row.type, Row):
            self.refuse(node, f"history() takes a row, got {describe(row.type)}")
        last = wanted.value if isinstance(wanted, ast.Constant) else self.source.resolve(wanted)
        if not isinstance(last, int) or isinstance(last, bool) or not 0 < last < 1 << 62:
            self.refuse(node, f"last is a positive constant, got {ast.unparse(wanted)!r}")
        if not self.unit.flowing.time:
            self.refuse(node, "its own time is not known", 'say which parameter it is: @tg.transaction(time="ts")')
        table = row.type.table
        known = self.unit.histories.get(table.name, (table, 0))[1]
        self.unit.histories[table.name] = (table, max(last, known))
        self.access(row.type, "history", "read", node)
        return Term(self.keep(row.code), HistoryOf(table, last))

    @contextlib.contextmanager
    def each_state(self, term: Term) -> Iterator[Term]:
        """A loop over the states of a row, the newest first."""
        assert isinstance(term.type, HistoryOf)
        name = term.type.table.name
        names = HistoryNames(term.type.table)
        state, times, before, heads = map(self.array, (names.state, names.time, names.before, names.heads))
        now = self.now()
        oldest = self.checked(f"subtract({now}, {term.type.last})", Kind.INT).code
        link = self.keep(f"{heads}[{term.code}]")
        with self.block(f"while {link} > {state}[HISTORY_FIRST]:"):
            place = self.keep(f"({link} - 1) & ({times}.shape[0] - 1)")
            self.emit(f"{link} = {before}[{place}]")
            found = self.keep(f"{times}[{place}]")
            gone = f"is_forgotten({found}, {state}[HISTORY_LATEST], {kept_time(name)})"
            with self.block(f"if {found} > {now} or {found} <= {oldest} or {gone}:"):
                self.emit("continue")
            yield Term(place, StateOf(term.type.table))

    def state_field(self, term: Term, field: str, node: ast.AST) -> Term:
        """A field of an earlier state."""
        assert isinstance(term.type, StateOf)
        table = term.type.table
        names = HistoryNames(table)
        known = {c.name: (names.columns[column_array(table.name, c.name)], c.type) for c in table.value_columns}
        known |= {"time": (names.time, Kind.INT), "exists": (names.exists, Kind.BOOL)}
        if field in known:
            array, of = known[field]
            return Term(self.keep(f"{self.array(array)}[{term.code}]"), values.in_body(of))
        fields = ", ".join(column.name for column in table.value_columns)
        self.refuse(
            node, f"an earlier state of {table.name} has no field {field!r}", f"fields are: {fields}, time, exists"
        )

    # --- emit ------------------------------------------------------------------------------------------------

    def send(self, node: ast.Call) -> None:
        """tg.emit(stream, field=value, ...)."""
        target = self.source.resolve(node.args[0]) if len(node.args) == 1 else None
        if not isinstance(target, Stream):
            self.refuse(node, "emit() takes a stream of the module first, then its fields by name")
        name = target.name
        if all(stream.name != name for stream in self.unit.flowing.emits):
            self.refuse(node, f"it emits into {name!r}, which it does not declare", f"write emits=[{name}, ...]")
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        wanted = [field.name for field in target.layout.fields]
        if set(given) != set(wanted) or len(given) != len(node.keywords):
            self.refuse(node, f"stream {name!r} has the fields {', '.join(wanted)}; each is given by name")
        terms = {str(arg): self.value(value) for arg, value in given.items()}
        values = {field.name: self.field_parts(field, terms[field.name], node) for field in target.layout.fields}
        counter = self.array(stream_count(name))
        place = self.keep(f"{counter}[0]")
        first = self.array(stream_array(name, wanted[0], 0))
        with self.block(f"if {place} >= {first}.shape[0]:"):
            self.leave("NO_ROOM")
        for field, parts in values.items():
            for number, code in enumerate(parts):
                self.emit(f"{self.array(stream_array(name, field, number))}[{place}] = {code}")
        self.emit(f"{counter}[0] = {place} + 1")
        self.unit.emitted.add(name)

    def field_parts(self, field: StreamField, term: Term, node: ast.Call) -> list[str]:
        """The values that carry a field: one, or the parts of a row's key."""
        if isinstance(term.type, Row):
            if field.table is None or term.type.table != field.table:
                self.refuse(node, f"field {field.name!r} carries {_shown(field)}, got {describe(term.type)}")
            return [self.key_field(term.code, term.type, key.name).code for key in field.table.key_columns]
        if len(field.kinds) > 1:
            self.refuse(node, f"field {field.name!r} carries a key of several fields", "give the row itself")
        code = values.stored(self, term, field.types[0], node, f"field {field.name!r}")
        if field.types[0] is Kind.FLOAT and field.table is not None:
            code = f"({code} + 0.0)"  # as a key, -0.0 is 0.0
        return [self.keep(code)]

    # --- windows ---------------------------------------------------------------------------------------------

    def window_or_none(self, node: ast.expr) -> Term | None:
        """The window, window row or earlier state that an expression stands for; None for anything else."""
        if isinstance(node, ast.Name):
            term = self.variable(node)
            return term if term is not None and isinstance(term.type, WindowOf | WindowRow | StateOf) else None
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            term = self.variable(node.value)
            if term is not None and isinstance(term.type, WindowOf):
                return self.window_element(node, term)
        return None

    def window_element(self, node: ast.Subscript, term: Term) -> Term:
        """window[i]: the row at that position."""
        assert isinstance(term.type, WindowOf)
        if isinstance(node.slice, ast.Slice):
            self.refuse(node, "a window is indexed by one number", INTERPRET)
        index = self.keep(self.integer(self.number(node.slice), node.slice).code)
        count = self.keep(self.window_length(term))
        position = self.keep(f"{index} if {index} >= 0 else {index} + {count}")
        with self.block(f"if {position} < 0 or {position} >= {count}:"):
            self.leave(self.reason("IndexError"))
        return Term(position, WindowRow(term.type.parameter))

    def window_length(self, term: Term) -> str:
        """Code for len(window)."""
        return f"window_count({self.array('window_heap')}, {term.code})"

    def window_field(self, term: Term, field: str, node: ast.AST) -> Term:
        """window.slid, or a field of a window's row or of an earlier state."""
        if isinstance(term.type, StateOf):
            return self.state_field(term, field, node)
        if isinstance(term.type, WindowOf):
            if field != "slid":
                self.refuse(node, f"a window has no {field!r}", f"it has slid, len(), rows, {', '.join(_AGGREGATES)}")
            return Term(slid_flag(term.type.parameter.name), Kind.BOOL)
        assert isinstance(term.type, WindowRow)
        parameter = term.type.parameter
        found = parameter.stream.field(field)
        if found is None or len(found.kinds) > 1:
            fields = ", ".join(f.name for f in parameter.stream.fields if len(f.kinds) == 1)
            self.refuse(node, f"the rows of window {parameter.name!r} have no field {field!r}", f"fields are: {fields}")
        column, of = column_of(parameter.stream.fields, field), values.in_body(found.types[0])
        heap, base = self.array("window_heap"), window_code(parameter.name)
        return self.window_value(f"window_word({heap}, {base}, {column}, {term.code})", of)

    def window_value(self, read: str, of: ValueType) -> Term:
        """A word of a window as a value."""
        if of.kind is Kind.FLOAT:
            self.emit(f"{self.array('window_words')}[0] = {read}")
            return Term(self.keep(f"{self.array('window_floats')}[0]"), of)
        return Term(self.keep(f"{read} != 0" if of.kind is Kind.BOOL else read), of)

    def window_call(self, term: Term, function: str, node: ast.Call) -> Term:
        """window.sum("field") and its like."""
        assert isinstance(term.type, WindowOf)
        parameter, kinds = term.type.parameter, _AGGREGATES.get(function)
        if kinds is None:
            self.refuse(node, f"a window has no {function}()", f"it has {', '.join(_AGGREGATES)}")
        count = 2 if function in ("frequency", "top") else 1
        if len(node.args) != count or node.keywords or not isinstance(node.args[0], ast.Constant):
            self.refuse(node, f"{function}() takes the name of a field, written out{', and one more' * (count - 1)}")
        field = str(node.args[0].value)
        found = parameter.stream.field(field)
        if found is None or len(found.types) > 1 or found.types[0] not in kinds:
            allowed = ", ".join(kind.value for kind in kinds)
            self.refuse(
                node,
                f"{function}() needs a field of {parameter.stream.name!r} of type {allowed}, got {field!r}",
                "go through the rows instead: for row in the window",
            )
        if function == "sum" and found.kinds[0] is Kind.FLOAT:
            return self.sum_of_rows(node, field)
        key = (parameter.name, function, field)
        self.unit.aggregates[key] = None
        slot = aggregate_slot(self.unit.name, *key)
        return self.aggregate(term, function, slot, found.kinds[0], node)

    def aggregate(self, term: Term, function: str, slot: str, kind: Kind, node: ast.Call) -> Term:
        """Code for an aggregate of a window."""
        heap = self.array("window_heap")
        if function in ("min", "max"):
            with self.block(f"if {self.window_length(term)} == 0:"):
                self.leave(self.reason("ValueError"))
            return self.window_value(f"window_{function}({heap}, {term.code}, {slot})", kind)
        if function == "sum":
            with self.block(f"if not window_sum_fits({heap}, {term.code}, {slot}):"):
                self.leave(self.reason("overflow"))
            return Term(self.keep(f"window_sum({heap}, {term.code}, {slot})"), Kind.INT)
        if function == "distinct":
            return Term(self.keep(f"window_distinct({heap}, {term.code}, {slot})"), Kind.INT)
        if function == "frequency":
            value = self.value(node.args[1])
            if value.type is not kind and {value.type, kind} != {Kind.INT, Kind.BOOL}:
                self.refuse(node, f"frequency() counts {kind.value}, got {describe(value.type)}")
            word = value.code if kind is Kind.STR else self.integer(value, node).code
            return Term(self.keep(f"window_frequency({heap}, {term.code}, {slot}, {word})"), Kind.INT)
        return self.window_top(term, slot, kind, node)

    def sum_of_rows(self, node: ast.Call, field: str) -> Term:
        """window.sum("field") of floats: what a loop over the visible rows gives."""
        assert isinstance(node.func, ast.Attribute)
        row = ast.Attribute(ast.Name("row", ast.Load()), field, ast.Load())
        rows = ast.GeneratorExp(row, [ast.comprehension(ast.Name("row", ast.Store()), node.func.value, [], 0)])
        return sum_up(self, ast.fix_missing_locations(ast.copy_location(ast.Call(node.func, [rows], []), node)))

    def window_top(self, term: Term, slot: str, kind: Kind, node: ast.Call) -> Term:
        """window.top("field", k): a list that is valid until the body ends."""
        wanted = node.args[1]
        limit = wanted.value if isinstance(wanted, ast.Constant) else self.source.resolve(wanted)
        if not isinstance(limit, int) or isinstance(limit, bool) or not 0 <= limit <= TOP_MAX:
            self.refuse(node, f"top() takes a constant of at most {TOP_MAX}, got {ast.unparse(wanted)!r}")
        found = self.fresh()
        data, start, stop = list_parts(found)
        scratch = self.array("window_tops")
        place = self.unit.top_places.setdefault(ast.dump(node) + f"{node.lineno}:{node.col_offset}", self.unit.top_used)
        if place == self.unit.top_used:
            self.unit.top_used += limit
        if self.unit.top_used > TOP_WORDS:
            self.refuse(node, f"all calls of top() together give more than {TOP_WORDS} values", "ask for fewer")
        self.emit(f"{data} = {self.array('window_float_tops') if kind is Kind.FLOAT else scratch}")
        self.emit(f"{start} = {place}")
        heap = self.array("window_heap")
        self.emit(f"{stop} = {place} + window_top({heap}, {term.code}, {slot}, {limit}, {scratch}[{place}:])")
        return Term(found, ValueList(kind))


def _shown(field: StreamField) -> str:
    return field.type.label if field.type is not None else f"the key of {field.table.name}"  # type: ignore[union-attr]
