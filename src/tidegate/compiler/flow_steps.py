"""Writes the steps of a dataflow graph: what happens to one tuple in one transaction.

    step_<number>(q, env)     its rows by their keys, its windows, its body

Everything that a step may change is journalled before: rows by table, windows in a journal of their own, streams by
their counters. `env` is a tuple of tuples of arrays; every function unpacks what it names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tidegate.compiler.streams import aggregate_slot, journal_lines
from tidegate.operations.flow import (
    JOURNAL_FULL,
    ROOM,
    TABLE_FULL,
    WHICH,
    WINDOW_FULL,
    FlowsPlan,
    MemberPlan,
    round_ends,
    round_span,
    stream_array,
    stream_count,
    structures_of,
)
from tidegate.operations.layout import Kind, TableLayout
from tidegate.operations.plan import (
    Binding,
    RowParameter,
    TransactionPlan,
    binding_arrays,
    column_array,
    generated_name,
    table_arrays,
)

HEADER = """\
from tidegate.engine.kernels.flows import is_forgotten, slot_of, tick, touch
from tidegate.engine.kernels.windows import (
    undo, window_count, window_distinct, window_frequency, window_insert, window_max, window_min,
    window_sum, window_sum_fits, window_top, window_word,
)
"""


WINDOW_ARRAYS = ("wheap", "wjournal", "wstate", "wbases", "wwords", "wwords_floats", "wscratch")
"""What windows lie in: each stage has its own."""


class StepWriter:
    """Writes the steps of a program's graphs, and knows the arrays that they work on."""

    def __init__(
        self,
        flows: FlowsPlan,
        plans: tuple[TransactionPlan, ...],
        tables: tuple[TableLayout, ...],
        bindings: tuple[tuple[Binding, ...], tuple[Binding, ...]],
        entries: Sequence[int],
        results: int,
        places: tuple[tuple[int, ...], ...],
        scratch_of: list[list[int]],
        calls: dict[int, str],
        reasons: int,
    ) -> None:
        self.flows, self.plans, self.tables = flows, plans, tables
        self.rows, self.values = bindings
        self.entries, self.places, self.scratch_of, self.calls = entries, places, scratch_of, calls
        self.results = results
        self.reasons: list[str] = []
        self._first_reason = reasons
        written = {t for member in flows.members for t in self._written_tables(member)}
        self.journalled = tuple(table for table in tables if table.name in written)
        looked_up = [
            table
            for member in flows.members
            for table in (plans[member.transaction].lookups if member.border else plans[member.transaction].tables)
        ]
        self.indexed = tuple(dict.fromkeys(looked_up))
        self.keeps = dict(flows.remembered)

    # --- names ---------------------------------------------------------------------------------------------

    def environment(self) -> dict[str, list[str]]:
        """The arrays of `env`, in their order, by the tuple that holds them."""
        streams: list[str] = []
        for number, stream in enumerate(self.flows.streams):
            streams += [stream_array(stream.name, f.name, p) for f in stream.fields for p in range(len(f.kinds))]
            streams.append(stream_count(stream.name))
            if self.flows.outputs[number]:
                streams.append(f"b_{stream.name}")
            if number in self.flows.crossing:
                streams += [round_ends(stream.name), round_span(stream.name)]
        journals: list[str] = []
        for table in self.journalled:
            name = table.name
            columns = [f"j{column_array(name, column.name)}" for column in table.value_columns]
            journals += [f"jn_{name}", f"jr_{name}", f"jt_{name}", f"jb_{name}", f"je_{name}", *columns]
            journals += [f"tn_{name}", f"tt_{name}", f"tm_{name}"]
        histories: list[str] = []
        for table in self.tables:
            if table.name in self.keeps:
                own = [f"{prefix}_{table.name}" for prefix in ("hs", "hh", "hl", "hp", "ht", "hr", "he")]
                histories += [*own, *(f"h{column_array(table.name, column.name)}" for column in table.value_columns)]
        borders = [number for flow in self.flows.flows for number in flow.borders]
        return {
            "rows": [n for i, b in enumerate(self.rows) for n in binding_arrays("rows", i, b)],
            "values": [n for i, b in enumerate(self.values) for n in binding_arrays("values", i, b)],
            "tables": [name for table in self.tables for name in table_arrays(table)],
            "results": ["valid", *(f"results_{i}" for i in range(self.results))],
            "void": ["void_valid", *(f"void_{i}" for i in range(self.results))],
            "scratch": [f"undo_{i}" for own in self.scratch_of for i in own],
            "indexes": [n for t in self.indexed for n in (f"ix_{t.name}", f"want_{t.name}", f"fwant_{t.name}")],
            "streams": streams,
            "journals": journals,
            "histories": histories,
            "windows": [f"{name}_{stage}" for stage in range(len(self.flows.stages)) for name in WINDOW_ARRAYS],
            "state": [
                "literals",
                "status",
                "refused",
                "control",
                "hits",
                "log",
                *(("mine", "roles", "rounds_before") if len(self.flows.stages) > 1 else ()),
                *(f"{x}_{b}" for b in borders for x in ("open", "opened")),
            ],
        }

    def _unpack(self, body: list[str], indent: str = "    ") -> list[str]:
        """The lines that take from `env` what a body names."""
        words = set(re.findall(r"\w+", "\n".join(body)))
        lines = []
        for place, (family, names) in enumerate(self.environment().items()):
            if words & set(names):
                lines.append(f"{indent}in_{family} = env[{place}]")
                lines += [f"{indent}{name} = in_{family}[{n}]" for n, name in enumerate(names) if name in words]
        return lines

    def constants(self) -> str:
        """Constants that bodies name: tables by their number, and which part of a window answers which question."""
        lines = [f"number_of_{table.name} = {number}" for number, table in enumerate(self.tables)]
        lines += [f"keep_{name} = {keep}" for name, keep in self.keeps.items()]
        for member in self.flows.members:
            plan = self.plans[member.transaction]
            for parameter, function, field in plan.aggregates:
                window = self._window_number(member, parameter)
                slot = structures_of(self.flows, self.plans, window).index((function, field))
                lines.append(f"{aggregate_slot(generated_name(plan.name), parameter, function, field)} = {slot}")
        return "\n".join([*lines, ""])

    def _window_number(self, member: MemberPlan, parameter: str) -> int:
        plan = self.plans[member.transaction]
        return self.flows.window(next(w.identity for w in plan.windows if w.name == parameter))

    def _written_tables(self, member: MemberPlan) -> set[str]:
        plan = self.plans[member.transaction]
        rows = {p.table.name for p in plan.parameters if isinstance(p, RowParameter) and p.name in plan.written}
        return rows | set(plan.lookup_writes)

    def _step(self, number: int) -> str:
        member = self.flows.members[number]
        plan = self.plans[member.transaction]
        position = "i" if member.border else "q"
        body: list[str] = [f"    hits[{number}] += 1"]
        passed = {"i": "i" if member.gives_results else "0"}
        passed |= {name: f"{name}_{self.flows.stage_of_member(number)}" for name in WINDOW_ARRAYS}
        for parameter in plan.parameters:
            if isinstance(parameter, RowParameter):
                body += self._row(member, parameter)
                passed[f"r_{parameter.name}"] = f"r_{parameter.name}"
            else:
                passed[f"p_{parameter.name}"] = self._field(member, parameter.name, 0, position)
        passed["now"] = self._field(member, plan.time, 0, position) if plan.time else ""
        body += self._windows(number, member, plan, position)
        if plan.time:
            body += [f"    begin_{name} = jn_{name}[0]" for name in sorted(self._written_tables(member))]
        for parameter in plan.parameters:  # only now: a trigger may have written the rows, at its own time
            if isinstance(parameter, RowParameter) and parameter.name in plan.written:
                body += self._push(parameter.table, f"r_{parameter.name}", passed["now"])
        for window in plan.windows:
            found = self._window_number(member, window.name)
            passed[f"w_{window.name}"] = self._base(found)
            passed[f"slid_{window.name}"] = "True" if member.on_window == found else f"slid_{found}"
        results = "results" if passed["i"] == "i" else "void"
        for place_in_plan, place in enumerate(self.places[member.transaction]):
            passed[f"result_{place_in_plan}"] = f"{results}_{place}"
        passed["valid"] = "valid" if results == "results" else "void_valid"
        arguments = [passed.get(name, name) for name in plan.arguments]
        body.append(f"    return {generated_name(plan.name)}({', '.join(arguments)})")
        return "\n".join([f"@generated\ndef step_{number}({position}, env):", *self._unpack(body), *body])

    def _entry_binding(self, member: MemberPlan, name: str, table: TableLayout | None) -> tuple[str, int]:
        """Where a border stream's field lies among the bound columns."""
        for family, bindings in (("rows", self.rows), ("values", self.values)):
            for position, binding in enumerate(bindings):
                parameter = binding.parameter
                same = isinstance(parameter, RowParameter) == (table is not None)
                used = self.entries[member.transaction] in binding.users
                fits = table is None or (isinstance(parameter, RowParameter) and parameter.table == table)
                if parameter.name == name and same and used and fits:
                    return family, position
        raise AssertionError(f"no column is bound for {name!r}")

    def _field(self, member: MemberPlan, name: str, part: int, position: str) -> str:
        """Code for a part of a field of the tuple at hand."""
        stream = self.flows.streams[member.stream]
        if not member.border:
            return f"{stream_array(stream.name, name, part)}[{position}]"
        field = stream.field(name)
        assert field is not None
        family, place = self._entry_binding(member, name, field.table)
        if field.table is None:
            return f"{family}_{place}[{position}]"
        keys = "f" if field.table.key_columns[part].kind is Kind.FLOAT else "k"
        return f"{keys}_{field.table.name}[{family}_{place}[{position}], {part}]"

    def _row(self, member: MemberPlan, parameter: RowParameter) -> list[str]:
        table, name = parameter.table.name, f"r_{parameter.name}"
        if member.border:
            family, place = self._entry_binding(member, parameter.name, parameter.table)
            return [f"    {name} = {family}_{place}[i]"]
        lines = []
        for part, key in enumerate(parameter.table.key_columns):
            value = self._field(member, parameter.name, part, "q")
            if key.kind is Kind.FLOAT:
                lines += [f"    fwant_{table}[0, {part}] = {value} + 0.0"]
                lines += [
                    f"    if {value} != {value}:",
                    f"        return {self._reason(f'NaN key in column {parameter.name!r}')}",
                ]
            else:
                lines.append(f"    want_{table}[0, {part}] = {value}")
        return [
            *lines,
            f"    {name} = slot_of(ix_{table}, want_{table})",
            f"    if {name} < 0:",
            f"        control[{WHICH}] = number_of_{table}",
            f"        return {ROOM - TABLE_FULL}",
        ]

    def _reason(self, text: str) -> int:
        if text not in self.reasons:
            self.reasons.append(text)
        return self._first_reason + self.reasons.index(text) + 1

    def _push(self, table: TableLayout, row: str, now: str) -> list[str]:
        """Journal a row before it is written."""
        name = table.name
        return [
            f"    m = jn_{name}[0]",
            f"    if m >= jr_{name}.shape[0]:",
            f"        control[{WHICH}] = number_of_{name}",
            f"        return {ROOM - JOURNAL_FULL}",
            *(f"    {line}" for line in journal_lines(table, row, now, "m")),
        ]

    def _base(self, window: int) -> str:
        """Where a window begins among those of its stage."""
        stage, place = self.flows.place_of_window(window)
        return f"wbases_{stage}[{place}]"

    def _windows(self, number: int, member: MemberPlan, plan: TransactionPlan, position: str) -> list[str]:
        """Let the member's own windows take in the tuple, and run the triggers of those that slide."""
        lines: list[str] = []
        own = self.flows.stage_of_member(number)
        for window in plan.windows:
            found = self._window_number(member, window.name)
            if self.flows.owners[found] != number:
                continue
            column = 0
            for field in window.stream.fields:
                for part, kind in enumerate(field.kinds):
                    array = f"wwords_floats_{own}" if kind is Kind.FLOAT else f"wwords_{own}"
                    lines.append(f"    {array}[{column}] = {self._field(member, field.name, part, position)}")
                    column += 1
            time = self._field(member, window.time, 0, position) if window.time else "0"
            lines += [
                f"    slid_{found} = window_insert(wheap_{own}, wjournal_{own}, wstate_{own}, {self._base(found)}, "
                f"wwords_{own}, {time})",
                f"    if wstate_{own}[1] != 0:",
                f"        return {ROOM - WINDOW_FULL}",
            ]
            for other, trigger in enumerate(self.flows.members):
                if trigger.on_window == found:
                    lines += [
                        f"    if slid_{found}:",
                        f"        s = step_{other}({position}, env)",
                        "        if s != 0:",
                        "            return s",
                    ]
        return lines
