"""Writes the steps of a dataflow graph: what happens to one tuple in one transaction.

    step_<number>(q, arrays)     its rows by their keys, its windows, its body

Everything that a step may change is journalled first (an undo log): rows per table, windows in a separate journal,
streams by their counters. Every function takes the arrays of the program as one tuple and unpacks those that it names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tidegate.compiler.names import (
    JournalNames,
    aggregate_slot,
    kept_time,
    row_code,
    slid_flag,
    table_number,
    value_code,
    window_code,
)
from tidegate.operations.arrays import (
    WINDOWS,
    ArraySpec,
    exists_array,
    graph_arrays,
    key_array,
    limit_code,
    limits_array,
    name_in_code,
    stream_array,
    time_code,
    wanted_array,
)
from tidegate.operations.flow import FlowsPlan, MemberPlan, structures_of
from tidegate.operations.layout import Kind, TableLayout, ValueType
from tidegate.operations.plan import Binding, RowParameter, TransactionPlan, body_name, generated_name


def unpack(arrays: Sequence[ArraySpec], body: list[str]) -> list[str]:
    """Lines that unpack from the tuple `arrays` those arrays that a body names."""
    words = set(re.findall(r"\w+", "\n".join(body)))
    return [f"    {spec.name} = arrays[{place}]" for place, spec in enumerate(arrays) if spec.name in words]


class StepWriter:
    """Writes the steps of a program's graphs, and knows the arrays that they work on."""

    def __init__(
        self,
        flows: FlowsPlan,
        plans: tuple[TransactionPlan, ...],
        tables: tuple[TableLayout, ...],
        bindings: tuple[tuple[Binding, ...], tuple[Binding, ...]],
        entries: Sequence[int],
        results: Sequence[ValueType],
        arrays: tuple[ArraySpec, ...],
        places: tuple[tuple[int, ...], ...],
        calls: dict[int, str],
        reasons: int,
    ) -> None:
        self.flows, self.plans, self.tables = flows, plans, tables
        self.rows, self.values = bindings
        self.entries, self.places, self.calls = entries, places, calls
        self.reasons: list[str] = []
        self.reason_sources: list[tuple[int, str]] = []
        """For each of the reasons, which transaction fails and why."""
        self._first_reason = reasons
        written = {t for member in flows.members for t in self._written_tables(member)}
        self.journalled = tuple(table for table in tables if table.name in written)
        looked_up = [
            table
            for member in flows.members
            for table in (plans[member.transaction].lookups if member.border else plans[member.transaction].tables)
        ]
        self.keeps = dict(flows.remembered)
        remembered = [table for table in tables if table.name in self.keeps]
        indexed = tuple(dict.fromkeys(looked_up))
        self.clocked = any(table.expires for table in tables)
        self.arrays = arrays + graph_arrays(flows, self.journalled, remembered, indexed, results, self.clocked)

    def _unpack(self, body: list[str]) -> list[str]:
        return unpack(self.arrays, body)

    def constants(self) -> str:
        """Constants that bodies name: table numbers, retention times, and the slot of each window aggregate."""
        lines = [f"{table_number(table.name)} = {number}" for number, table in enumerate(self.tables)]
        lines += [f"{kept_time(name)} = {keep}" for name, keep in self.keeps.items()]
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
        return rows | set(plan.lookup_writes) | {table.name for table in plan.lookups if table.expires}

    def _step(self, number: int) -> str:
        member = self.flows.members[number]
        plan = self.plans[member.transaction]
        position = "i" if member.border else "q"
        body: list[str] = [f"    hits[{number}] += 1"]
        passed = {"i": "i" if member.gives_results else "0"}
        passed |= {name: f"{name}_{self.flows.stage_of_member(number)}" for name in WINDOWS}
        limits = {t.name: f"{limits_array(t.name)}[moment[0]]" for t in self.tables if t.expires}
        passed |= {limit_code(table): limit for table, limit in limits.items()}
        for parameter in plan.parameters:
            if isinstance(parameter, RowParameter):
                body += self._row(member, parameter)
                passed[row_code(parameter.name)] = row_code(parameter.name)
            else:
                passed[value_code(parameter.name)] = self._field(member, parameter.name, 0, position)
        passed["now"] = self._field(member, plan.time, 0, position) if plan.time else ""
        body += self._windows(number, member, plan, position)
        if plan.time or any(table.expires for table in plan.lookups):
            journals = [JournalNames(t) for t in self.journalled if t.name in self._written_tables(member)]
            body += [f"    {journal.step_begin} = {journal.count}[0]" for journal in journals]
        for parameter in plan.parameters:  # after the triggers, which may write these rows at their own time
            if isinstance(parameter, RowParameter) and parameter.name in plan.written:
                row, indent = row_code(parameter.name), ""
                if parameter.name not in plan.assigned:
                    table, indent = parameter.table, "    "
                    expired = f"{time_code(table, row)} < {limits[table.name]}"
                    body.append(f"    if {exists_array(table.name)}[{row}] and {expired}:")
                body += [f"{indent}{line}" for line in self._push(parameter.table, row, passed["now"])]
        for window in plan.windows:
            found = self._window_number(member, window.name)
            passed[window_code(window.name)] = self._base(found)
            passed[slid_flag(window.name)] = "True" if member.on_window == found else f"slid_{found}"
        results = "results" if passed["i"] == "i" else "void"
        for place_in_plan, place in enumerate(self.places[member.transaction]):
            passed[f"result_{place_in_plan}"] = f"{results}_{place}"
        passed["valid"] = "valid" if results == "results" else "void_valid"
        arguments = [passed.get(name, name) for name in plan.arguments]
        body.append(f"    return {body_name(generated_name(plan.name))}({', '.join(arguments)})")
        return "\n".join([f"@inline\ndef step_{number}({position}, arrays):", *self._unpack(body), *body])

    def _entry_binding(self, member: MemberPlan, name: str, table: TableLayout | None) -> tuple[str, int]:
        """The bound column that holds a border stream's field: "rows" or "values", and its position there."""
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
        """Code that reads one part of a field of the tuple at `position`."""
        stream = self.flows.streams[member.stream]
        if not member.border:
            return f"{stream_array(stream.name, name, part)}[{position}]"
        field = stream.field(name)
        assert field is not None
        family, place = self._entry_binding(member, name, field.table)
        if field.table is None:
            return f"{family}_{place}[{position}]"
        keys = key_array(field.table.name, field.table.key_columns[part].kind)
        return f"{keys}[{family}_{place}[{position}], {part}]"

    def _row(self, member: MemberPlan, parameter: RowParameter) -> list[str]:
        table, name = parameter.table.name, row_code(parameter.name)
        if member.border:
            family, place = self._entry_binding(member, parameter.name, parameter.table)
            return [f"    {name} = {family}_{place}[i]"]
        lines = []
        for part, key in enumerate(parameter.table.key_columns):
            value = self._field(member, parameter.name, part, "q")
            if key.kind is Kind.FLOAT:
                lines += [f"    {wanted_array(table, key.kind)}[0, {part}] = {value} + 0.0"]
                lines += [
                    f"    if {value} != {value}:",
                    f"        return {self._reason(member, f'NaN key in column {parameter.name!r}')}",
                ]
            else:
                lines.append(f"    {wanted_array(table, key.kind)}[0, {part}] = {value}")
        return [
            *lines,
            f"    {name} = slot_of({name_in_code('index', table)}, {wanted_array(table, Kind.INT)})",
            f"    if {name} < 0:",
            f"        control[WHICH] = {table_number(table)}",
            "        return ROOM - TABLE_FULL",
        ]

    def _reason(self, member: MemberPlan, text: str, shown: str | None = None) -> int:
        """The status that stands for the failure of a member; events show its text, or another one."""
        self.reasons.append(text if shown is None else shown)
        self.reason_sources.append((member.transaction, text))
        return self._first_reason + len(self.reasons)

    def _push(self, table: TableLayout, row: str, now: str) -> list[str]:
        """Journal a row before it is written."""
        journal = JournalNames(table)
        return [
            f"    m = {journal.count}[0]",
            f"    if m >= {journal.slots}.shape[0]:",
            f"        control[WHICH] = {table_number(table.name)}",
            "        return ROOM - JOURNAL_FULL",
            *(f"    {line}" for line in journal.note(row, now, "m")),
        ]

    def _base(self, window: int) -> str:
        """Code for the offset of a window in the window heap of its stage."""
        stage, place = self.flows.place_of_window(window)
        return f"window_bases_{stage}[{place}]"

    def _windows(self, number: int, member: MemberPlan, plan: TransactionPlan, position: str) -> list[str]:
        """Lines that insert the tuple into the member's own windows, and run the triggers of those that slide."""
        lines: list[str] = []
        own = self.flows.stage_of_member(number)
        for window in plan.windows:
            found = self._window_number(member, window.name)
            if self.flows.owners[found] != number:
                continue
            column = 0
            for field in window.stream.fields:
                for part, kind in enumerate(field.kinds):
                    array = f"window_floats_{own}" if kind is Kind.FLOAT else f"window_words_{own}"
                    lines.append(f"    {array}[{column}] = {self._field(member, field.name, part, position)}")
                    column += 1
            time = self._field(member, window.time, 0, position) if window.time else "0"
            lines += [
                f"    slid_{found} = window_insert(window_heap_{own}, window_journal_{own}, window_state_{own}, "
                f"{self._base(found)}, window_words_{own}, {time})",
                f"    if window_state_{own}[WINDOW_NEEDS] != 0:",
                "        return ROOM - WINDOW_FULL",
            ]
            for other, trigger in enumerate(self.flows.members):
                if trigger.on_window == found:
                    lines += [
                        f"    if slid_{found}:",
                        f"        s = step_{other}({position}, arrays)",
                        "        if s != 0:",
                        "            return s",
                    ]
        return lines
