"""Writes `operate`: the part of a program's module that executes one operation on chosen rows.

`run` processes a batch and finds each event's rows itself. `operate` receives the slots, so that the same
generated body works in place on the rows of a table or on versions of them in spare slots. Each kind
of operation has its own function, which makes views of only the arrays that it uses:

    @inline
    def operation_0(context, i, slots):
        addresses = integers_at(context)
        slot = integers_at(slots)
        values_0 = integers_at(addresses[2])
        ...
        valid[i] = False
        return transaction__transfer(i, slot[0], slot[1], values_0[i], ...)

    @entry
    def operate(context, kind, event, slots):
        if kind == 0:
            return operation_0(context, event, slots)
        ...
        return ESCAPE

The addresses are those of the program's arrays, in their order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from tidegate.compiler.names import list_code, list_parts, row_code, value_code
from tidegate.operations.arrays import ArraySpec, limit_code, limits_array
from tidegate.operations.plan import Binding, Operation, RowParameter, TransactionPlan, generated_name


def list_operations(
    plans: tuple[TransactionPlan, ...], in_graphs: frozenset[int]
) -> tuple[tuple[Operation, ...], tuple[tuple[int, ...], ...]]:
    """The operations of a program, and for each transaction the kinds that it splits into.

    A transaction of a dataflow graph keeps its number among them, but with no rows: it is never scheduled.
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
        arrays: Sequence[ArraySpec],
    ) -> None:
        self.plans, self.operations, self.slices = plans, operations, slices
        self.scheduled = [plan.compiled and number not in in_graphs for number, plan in enumerate(plans)]
        self.rows, self.values = rows, values
        self.places, self.scratch_of = places, scratch_of
        self._views = {spec.name: view_code(place, spec) for place, spec in enumerate(arrays)}

    def text(self) -> str:
        """The functions of all operations, and `operate`."""
        parts = [part for kind, operation in enumerate(self.operations) for part in self._operation(kind, operation)]
        lines = ["@entry", "def operate(context, kind, event, slots):"]
        for kind, operation in enumerate(self.operations):
            if self.scheduled[operation.transaction]:
                lines += [f"    if kind == {kind}:", f"        return operation_{kind}(context, event, slots)"]
        return "\n\n\n".join([*parts, "\n".join([*lines, "    return ESCAPE"])])

    def _operation(self, kind: int, operation: Operation) -> list[str]:
        plan = self.plans[operation.transaction]
        if not self.scheduled[operation.transaction]:
            return []
        passed, slots = self._slots(operation)
        passed |= self._event_values(operation.transaction)
        passed |= passed_limits(plan)
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
            f"@inline\ndef operation_{kind}(context, i, slots):",
            "    addresses = integers_at(context)",
            "    slot = integers_at(slots)",
            *(f"    {view} = {self._views[view]}" for view in mentioned),
        ]
        fresh = ["    valid[i] = False"] if "valid" in mentioned else []  # it may be a re-run, on other rows
        return ["\n".join([*header, *fresh, *slots, call])]

    def _slots(self, operation: Operation) -> tuple[dict[str, str], list[str]]:
        """The code for each row parameter's slots, and the lines that compute the ends of lists."""
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
                passed[row_code(name)] = f"slot[{start}]"
                fixed += 1
                continue
            offsets, end = f"rows_{position}_offsets", f"end_{len(lines)}"
            lines.append(f"    {end} = {start} + {offsets}[i + 1] - {offsets}[i]")
            passed |= dict(zip(list_parts(list_code(name)), ("slot", start, end), strict=True))
            before, fixed = end, 0
        return passed, lines

    def _event_values(self, transaction: int) -> dict[str, str]:
        passed: dict[str, str] = {}
        for position, binding in enumerate(self.values):
            if transaction in binding.users:
                passed |= passed_column("values", position, binding)
        return passed


def passed_column(family: str, position: int, binding: Binding) -> dict[str, str]:
    """The arguments of event i for a parameter that is bound to a column; `family` is "rows" or "values"."""
    name = binding.parameter.name
    if not binding.parameter.many:
        return {(row_code if family == "rows" else value_code)(name): f"{family}_{position}[i]"}
    offsets = f"{family}_{position}_offsets"
    given = (f"{family}_{position}_data", f"{offsets}[i]", f"{offsets}[i + 1]")
    return dict(zip(list_parts(list_code(name)), given, strict=True))


def passed_limits(plan: TransactionPlan) -> dict[str, str]:
    """The arguments that say for event i which rows have expired."""
    return {limit_code(table.name): f"{limits_array(table.name)}[i]" for table in plan.tables if table.expires}


_VIEWS = {
    (np.int64, False): "integers_at",
    (np.float64, False): "floats_at",
    (np.bool_, False): "flags_at",
    (np.int64, True): "key_words_at",
    (np.float64, True): "key_floats_at",
}


def view_code(place: int, spec: ArraySpec) -> str:
    """Code for an array view of the memory whose address is at `place` in the context."""
    assert spec.dtype is not None
    width = f", {spec.width}" if spec.width else ""
    return f"{_VIEWS[spec.dtype, spec.width > 0]}(addresses[{place}]{width})"


def _mentions(line: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", line) is not None
