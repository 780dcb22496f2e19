"""Compiles a transaction: its body, and a wrapper that undoes the body's writes when it aborts.

    def transaction__transfer(i, row__src, row__dst, value__amount, table__Account__balance, exists__Account, ...):
        u0 = table__Account__balance[row__src]            # every field that the body may write
        u1 = table__Account__balance[row__dst]
        ...
        status = body_of_transaction__transfer(...)
        if status != 0:
            table__Account__balance[row__src] = u0
            ...
        return status

Saving at entry makes aliases harmless: two parameters that are the same row save the same values.

If the body can be split, each slice also becomes a separate function (see `slices`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidegate.api.outside import OutsideName
from tidegate.compiler.functions import FunctionCompiler, parameter_codes
from tidegate.compiler.names import list_code, list_parts, row_code
from tidegate.compiler.numbers import INTERPRET
from tidegate.compiler.slices import ObservedBody, Split, lower_slices
from tidegate.compiler.source import WRAPPED, FunctionSource
from tidegate.compiler.types import Row, RowList
from tidegate.compiler.unit import NOT_FLOWING, Flowing
from tidegate.foundation.places import Place
from tidegate.operations.arrays import column_array, exists_array
from tidegate.operations.layout import Kind
from tidegate.operations.plan import Parameter, TransactionPlan, body_name


def compile_transaction(
    function: Callable[..., Any],
    place: Place,
    parameters: tuple[Parameter, ...],
    annotation: Any,
    flowing: Flowing = NOT_FLOWING,
) -> tuple[TransactionPlan, tuple[OutsideName, ...]]:
    """The plan of a transaction with its generated source, and the names from outside that this text depends on."""
    source = FunctionSource(function, f"transaction {function.__name__!r}")
    if hasattr(function, "__wrapped__"):
        source.refuse(source.tree, f"it is {WRAPPED}", f"leave the decorator out, {INTERPRET}")
    compiler = ObservedBody(source, parameters, annotation, flowing)
    compiler.compile()
    for stream in flowing.emits:
        if stream.name not in compiler.unit.emitted:
            source.refuse(
                source.tree,
                f"it declares emits=[{stream.name}], but never says tg.emit({stream.name}, ...): nobody would feed it",
            )
    name = compiler.unit.name
    arrays = tuple(sorted(compiler.arrays))
    header = ["i"] + [c for n, t in compiler.parameters.items() for c in parameter_codes(n, t)]
    undo = Undo(compiler)
    arguments = [*header, *arrays, *(a for a in undo.arrays if a not in arrays)]
    listed = ", ".join(arguments)
    body = [f"@inline\ndef {body_name(name)}({listed}):", *compiler.lines]
    wrapper = [
        f"@inline\ndef {name}({', '.join([*arguments, *undo.scratch])}):",
        *undo.save,
        f"    status = {body_name(name)}({listed})",
        *(["    if status != 0:", *undo.restore] if undo.restore else []),
        "    return status",
    ]
    lookups, histories = compiler.unit.lookups, compiler.unit.histories
    in_graph = bool(flowing.streaming or lookups or histories)  # then its group undoes its writes
    split = _WHOLE if in_graph else lower_slices(compiler)
    functions = [helper.source for helper in compiler.unit.helpers.values()]
    functions += ["\n".join(body), *([] if in_graph else ["\n".join(wrapper)]), *split.functions]
    plan = TransactionPlan(
        name=function.__name__,
        place=place,
        parameters=parameters,
        accesses=tuple(compiler.accesses),
        reasons=tuple(compiler.unit.reasons),
        literals=tuple(compiler.unit.literals),
        in_python=tuple(compiler.unit.in_python),
        result=compiler.result,
        texts=tuple(compiler.unit.texts.values()),
        part_kinds=tuple(kind for kind, _ in compiler.unit.part_places),
        source="\n\n\n".join(functions),
        arguments=tuple(arguments),
        undo_lists=tuple(undo.lists),
        slices=split.slices,
        speculative=split.speculative,
        unsplit=split.unsplit,
        windows=flowing.windows,
        aggregates=tuple(compiler.unit.aggregates),
        lookups=tuple(table for table, _ in lookups.values()),
        lookup_writes=tuple(sorted(compiler.unit.lookup_writes)),
        lookup_classes=tuple(found for _, found in lookups.values()),
        time=flowing.time,
        histories=tuple(histories.values()),
    )
    return plan, tuple(found for each in compiler.unit.sources for found in each.outside.values())


_WHOLE = Split((), (), False, "it is a step of a dataflow graph, or looks rows up while it runs: it runs as a whole")


class Undo:
    """The code that saves what a body may write, and restores it."""

    def __init__(self, compiler: FunctionCompiler) -> None:
        self.save: list[str] = []
        self.restore: list[str] = []
        self.arrays: list[str] = []
        self.scratch: list[str] = []
        self.lists: list[tuple[str, Kind]] = []
        written: dict[str, dict[str, Kind]] = {}
        for access in compiler.accesses:
            parameter = compiler.parameters.get(access.parameter)
            if access.action != "read" and isinstance(parameter, Row | RowList):
                kinds = {column.name: column.kind for column in parameter.table.value_columns}
                fields = written.setdefault(access.parameter, {"exists": Kind.BOOL})
                if access.action == "expire":
                    fields |= kinds
                elif access.field != "exists":
                    fields[access.field] = kinds[access.field]
        for name, fields in written.items():
            parameter = compiler.parameters[name]
            assert isinstance(parameter, Row | RowList)
            for field, kind in fields.items():
                table = parameter.table.name
                array = exists_array(table) if field == "exists" else column_array(table, field)
                self.arrays.append(array)
                (self._row if isinstance(parameter, Row) else self._list)(name, array, kind)

    def _row(self, name: str, array: str, _kind: Kind) -> None:
        saved = f"u{len(self.save)}"
        self.save.append(f"    {saved} = {array}[{row_code(name)}]")
        self.restore.append(f"        {array}[{row_code(name)}] = {saved}")

    def _list(self, name: str, array: str, kind: Kind) -> None:
        scratch = f"scratch_{len(self.lists)}"
        self.scratch.append(scratch)
        self.lists.append((name, kind))
        data, start, stop = list_parts(list_code(name))
        span, element = f"range({stop} - {start})", f"{array}[{data}[{start} + q]]"
        self.save += [f"    for q in {span}:", f"        {scratch}[q] = {element}"]
        self.restore += [f"        for q in {span}:", f"            {element} = {scratch}[q]"]
