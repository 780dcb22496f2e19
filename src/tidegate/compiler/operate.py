"""Writes `operate`: the part of a program's module that executes one operation on chosen rows.

`run` owns a batch and finds each event's rows itself. `operate` is told the slots, so that the same
generated body works in place on the rows of a table or on versions of them in spare slots. Each kind
of operation has a function of its own that makes views of just the arrays that it uses:

    @generated
    def operation_0(context, i, slots):
        addresses = integers_at(context)
        slot = integers_at(slots)
        values_0 = integers_at(addresses[0])
        ...
        valid[i] = False
        return x_transfer(i, slot[0], slot[1], values_0[i], ...)

    @entry
    def operate(context, kind, event, slots):
        if kind == 0:
            return operation_0(context, event, slots)
        ...
        return -1

The order of the addresses is told in `tidegate.operations.plan`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tidegate.operations.layout import Kind, TableLayout
from tidegate.operations.plan import (
    ESCAPE,
    Binding,
    Operation,
    RowParameter,
    TransactionPlan,
    column_array,
    generated_name,
)

_VIEWS = {Kind.INT: "integers_at", Kind.FLOAT: "floats_at", Kind.BOOL: "flags_at", Kind.STR: "integers_at"}


def list_operations(
    plans: tuple[TransactionPlan, ...], in_graphs: frozenset[int]
) -> tuple[tuple[Operation, ...], tuple[tuple[int, ...], ...]]:
    """The operations of a program, and for each transaction the kinds that it splits into.

    A transaction that runs in a dataflow graph has its number among them and touches nothing: it is never scheduled.
    """
    operations = []
    for number, plan in enumerate(plans):
        parameters = () if number in in_graphs else plan.parameters
        rows = tuple(parameter.name for parameter in parameters if isinstance(parameter, RowParameter))
        writes = tuple(name for name in rows if name in plan.written)
        operations.append(Operation(number, rows, writes, first_failure=0, whole=True, text=""))
    split = []
    for number, plan in enumerate(plans):
        split.append(tuple(range(len(operations), len(operations) + len(plan.slices))))
        operations += [
            Operation(number, part.rows, part.writes, part.first_failure, whole=False, text=part.text)
            for part in plan.slices
        ]
    return tuple(operations), tuple(split)


class OperateWriter:
    """Writes the text of `operate` and of the functions that it chooses from."""

    def __init__(
        self,
        plans: tuple[TransactionPlan, ...],
        operations: tuple[Operation, ...],
        slices: tuple[tuple[int, ...], ...],
        rows: tuple[Binding, ...],
        values: tuple[Binding, ...],
        places: tuple[tuple[int, ...], ...],
        scratch_of: list[list[int]],
        in_graphs: frozenset[int],
    ) -> None:
        self.plans, self.operations, self.slices = plans, operations, slices
        self.scheduled = [plan.compiled and number not in in_graphs for number, plan in enumerate(plans)]
        self.rows, self.values = rows, values
        self.places, self.scratch_of = places, scratch_of
        self._views: dict[str, str] = {}

    def list_addresses(
        self, tables: Sequence[TableLayout], results: Sequence[Kind], scratch: Sequence[tuple[int, Kind]]
    ) -> None:
        """Fix which array has which place in the context."""
        for position, binding in enumerate(self.values):
            parameter = binding.parameter
            assert not isinstance(parameter, RowParameter)
            if parameter.many:
                self._list(f"values_{position}_offsets", "integers_at")
            self._list(f"values_{position}", _VIEWS[parameter.kind])
        for position, binding in enumerate(self.rows):
            if binding.parameter.many:
                self._list(f"rows_{position}_offsets", "integers_at")
        for table in tables:
            self._list(f"e_{table.name}", "flags_at")
            self._list(f"k_{table.name}", "key_words_at", f", {len(table.key)}")
            self._list(f"f_{table.name}", "key_floats_at", f", {len(table.key)}")
            for column in table.value_columns:
                self._list(column_array(table.name, column.name), _VIEWS[column.kind])
        self._list("valid", "flags_at")
        for position, kind in enumerate(results):
            self._list(f"results_{position}", _VIEWS[kind])
        self._list("literals", "integers_at")
        for position, (_, kind) in enumerate(scratch):
            self._list(f"undo_{position}", _VIEWS[kind])

    def _list(self, name: str, view: str, width: str = "") -> None:
        self._views[name] = f"{view}(addresses[{len(self._views)}]{width})"

    def text(self) -> str:
        """The functions of all operations, and `operate`."""
        parts = [part for kind, operation in enumerate(self.operations) for part in self._operation(kind, operation)]
        lines = ["@entry", "def operate(context, kind, event, slots):"]
        for kind, operation in enumerate(self.operations):
            if self.scheduled[operation.transaction]:
                lines += [f"    if kind == {kind}:", f"        return operation_{kind}(context, event, slots)"]
        return "\n\n\n".join([*parts, "\n".join([*lines, f"    return {ESCAPE}"])])

    def _operation(self, kind: int, operation: Operation) -> list[str]:
        plan = self.plans[operation.transaction]
        if not self.scheduled[operation.transaction]:
            return []
        passed, slots = self._slots(operation)
        passed |= self._event_values(operation.transaction)
        for position, place in enumerate(self.places[operation.transaction]):
            passed[f"result_{position}"] = f"results_{place}"
        if operation.whole:
            name, arguments = generated_name(plan.name), list(plan.arguments)
            arguments += [f"undo_{index}" for index in self.scratch_of[operation.transaction]]
        else:
            part = plan.slices[self.slices[operation.transaction].index(kind)]
            name, arguments = part.name, list(part.arguments)
        given = [passed.get(argument, argument) for argument in arguments]
        call = f"    return {name}({', '.join(given)})"
        mentioned = [view for view in self._views if any(_mentions(line, view) for line in (*slots, call))]
        header = [
            f"@generated\ndef operation_{kind}(context, i, slots):",
            "    addresses = integers_at(context)",
            "    slot = integers_at(slots)",
            *(f"    {view} = {self._views[view]}" for view in mentioned),
        ]
        fresh = ["    valid[i] = False"] if "valid" in mentioned else []  # it may have run before, on other rows
        return ["\n".join([*header, *fresh, *slots, call])]

    def _slots(self, operation: Operation) -> tuple[dict[str, str], list[str]]:
        """Where each row parameter's slots are, and the lines that find the ends of lists."""
        passed: dict[str, str] = {}
        lines: list[str] = []
        before, fixed = "", 0
        for name in operation.rows:
            position, binding = next(
                (index, binding)
                for index, binding in enumerate(self.rows)
                if binding.parameter.name == name and operation.transaction in binding.users
            )
            start = f"{before} + {fixed}" if before and fixed else before or str(fixed)
            if not binding.parameter.many:
                passed[f"r_{name}"] = f"slot[{start}]"
                fixed += 1
                continue
            offsets, end = f"rows_{position}_offsets", f"end_{len(lines)}"
            lines.append(f"    {end} = {start} + {offsets}[i + 1] - {offsets}[i]")
            passed |= {f"l_{name}_data": "slot", f"l_{name}_start": start, f"l_{name}_stop": end}
            before, fixed = end, 0
        return passed, lines

    def _event_values(self, transaction: int) -> dict[str, str]:
        passed = {}
        for position, binding in enumerate(self.values):
            name, array = binding.parameter.name, f"values_{position}"
            if transaction not in binding.users:
                continue
            if binding.parameter.many:
                passed[f"l_{name}_data"] = array
                passed[f"l_{name}_start"] = f"{array}_offsets[i]"
                passed[f"l_{name}_stop"] = f"{array}_offsets[i + 1]"
            else:
                passed[f"p_{name}"] = f"{array}[i]"
        return passed


def _mentions(line: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", line) is not None
