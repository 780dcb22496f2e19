"""Links transactions into a program: shared columns and tables appear once, and one `run` executes a batch.

The generated `run` walks the events in their order and calls each event's transaction:

    for j in range(start, stop):
        i = order[j]
        if status[i] != 0:          # refused on arrival: a null key, an unknown name
            continue
        k = kinds[i]
        if k == 0:
            s = transaction__transfer(i, rows_0[i], rows_1[i], values_0[i], ...)
        ...
        if s == ESCAPE:             # plain Python must run this one
            return j
        status[i] = s
    return stop

The module also has `operate`, which executes a single operation (see `tidegate.compiler.operate`).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import pyarrow as pa

from tidegate.api.dataflow import Dataflow
from tidegate.api.outside import require_unchanged
from tidegate.api.stream import Stream
from tidegate.api.transaction import ProgramPart, Transaction, triggers_on
from tidegate.api.window import Window
from tidegate.compiler.clock import plan_clock
from tidegate.compiler.flow_steps import unpack
from tidegate.compiler.flows import FlowWriter
from tidegate.compiler.graphs import lay_out
from tidegate.compiler.operate import OperateWriter, list_operations, passed_column, passed_limits
from tidegate.compiler.stages import find_stages
from tidegate.foundation.arguments import items, one_of, shown
from tidegate.foundation.errors import DefinitionError, TidegateWarning
from tidegate.operations.arrays import ArraySpec, program_arrays
from tidegate.operations.flow import FlowsPlan, event_name
from tidegate.operations.layout import Kind, ValueType
from tidegate.operations.plan import (
    Binding,
    Parameter,
    Program,
    ProgramPlan,
    ResultForm,
    ResultType,
    RowParameter,
    TransactionPlan,
    ValueParameter,
    generated_name,
)


def members_of(transactions: Sequence[ProgramPart] | ProgramPart) -> list[Transaction]:
    """The transactions of a program, those of its dataflow graphs among them."""
    if isinstance(transactions, ProgramPart):
        transactions = [transactions]
    transactions = items("transactions", transactions, "a list of functions declared with @tg.transaction")
    if not transactions:
        raise DefinitionError("a program needs at least one transaction, got an empty list")
    members: list[Transaction] = []
    for part in transactions:
        if not isinstance(part, Transaction | Dataflow):
            raise DefinitionError(
                f"a program is a list of functions declared with @tg.transaction, got {shown(part)}; decorate the "
                "function"
            )
        if isinstance(part, Transaction) and part.on is not None:
            raise DefinitionError(
                f"transaction {part.__name__!r} is on a stream; give the engine the dataflow that it belongs to: "
                "tg.dataflow([...])"
            )
        members += part.transactions if isinstance(part, Dataflow) else [part]
    return members


def build_program(transactions: Sequence[ProgramPart] | ProgramPart, result: ResultForm = "auto") -> Program:
    """Build a program from a list of transactions and dataflow graphs."""
    one_of("result", result, get_args(ResultForm))
    members = members_of(transactions)
    require_unchanged(outside for member in members for outside in member.outside)
    _warn_of_missing_triggers(members)
    classes: dict[str, type] = {}
    for transaction in members:
        streams = [stream for stream in (transaction.on, *transaction.emits) if isinstance(stream, Stream)]
        mentioned = [transaction.classes, *(stream.tables for stream in streams)]
        for name, found in ((name, found) for tables in mentioned for name, found in tables.items()):
            other = classes.setdefault(name, found)
            if other is not found and other.__dict__["__tidegate_layout__"] != found.__dict__["__tidegate_layout__"]:
                raise DefinitionError(
                    f"transaction {transaction.__name__!r}: table {name!r} is declared differently elsewhere in "
                    "this program; rename one of the two tables"
                )
    plans = tuple(transaction.plan for transaction in members)
    names = [plan.name for plan in plans]
    for name in names:
        if names.count(name) > 1:
            raise DefinitionError(f"two transactions of the program are named {name!r}; rename one")
    functions = tuple(transaction.__wrapped__ for transaction in members)
    parts = [transactions] if isinstance(transactions, ProgramPart) else transactions
    dataflows = [part for part in parts if isinstance(part, Dataflow)]
    return Program(_formed(link(plans, lay_out(dataflows, members)), result), functions, classes)


def _formed(plan: ProgramPlan, result: ResultForm) -> ProgramPlan:
    """A program whose results are given in this form. The code is the same for all forms."""
    if result != "struct":
        return replace(plan, result_json=result == "json")
    returning = [(each.name, each.result) for each in plan.transactions if each.result is not None]
    if not returning:
        raise DefinitionError(
            'result="struct" needs a transaction that returns a value, and this program has none: a struct without '
            'fields cannot be written; use result="json", or leave result out'
        )
    return replace(plan, result=_by_transaction(returning), result_by_transaction=True)


def _warn_of_missing_triggers(members: Sequence[Transaction]) -> None:
    """Warn of triggers that would run inside a member if their dataflow listed them.

    A warning, not a refusal: a part of a graph may be run by itself, as tests do.
    """
    listed = {member.__name__ for member in members}
    for member in members:
        places: list[Stream | Window] = [*member.emits, *member.windows.values()]
        for place, trigger in ((found, trigger) for found in places for trigger in triggers_on(found)):
            name, where = trigger.__name__, trigger.plan.place
            if name not in listed:
                warnings.warn(
                    f"{where.file}:{where.line}: trigger {name!r} is on {place!r} of transaction {member.__name__!r}, "
                    "but the dataflow does not list it, so it never runs; list it: "
                    f"tg.dataflow([{member.__name__}, {name}, ...])",
                    TidegateWarning,
                    stacklevel=4,
                )


def link(plans: tuple[TransactionPlan, ...], flows: FlowsPlan) -> ProgramPlan:
    """Join transaction plans, and the graphs that some of them run in, into a program plan."""
    entries = entries_of(plans, flows)
    rows, values = _bindings(plans, entries, flows)
    result, by_transaction = _result_type(plans)
    results, result_places = _result_arrays(plans, by_transaction)
    results, part_places = _with_part_arrays(results, plans)
    places = tuple(own + parts for own, parts in zip(result_places, part_places, strict=True))
    carried = [field.table for stream in flows.streams for field in stream.fields]
    mentioned = [
        *(table for plan in plans for table in plan.tables),
        *(table for table in carried if table is not None),
    ]
    tables = tuple(dict.fromkeys(mentioned))
    scratch, scratch_of = _scratch(plans, rows)
    in_graphs = frozenset(member.transaction for member in flows.members)
    writer = _RunWriter(plans, rows, values, places, scratch_of, in_graphs)
    operations, slices = list_operations(plans, in_graphs)
    used = frozenset(name for plan in plans for name in plan.arguments)
    arrays = program_arrays(rows, values, tables, results, scratch, used)
    reasons = tuple(reason for plan in plans for reason in plan.reasons)
    sources = [(number, reason) for number, plan in enumerate(plans) for reason in plan.reasons]
    operate = OperateWriter(plans, operations, slices, rows, values, places, scratch_of, in_graphs, arrays)
    flows = replace(flows, stages=find_stages(flows, plans))
    constants, parts = "", [operate.text()]
    if in_graphs:
        plain = [(n, plan) for n, plan in enumerate(plans) if n not in in_graphs]
        calls = {n: writer.call(n, plan) if plan.source else "-1" for n, plan in plain}
        graph = FlowWriter(flows, plans, tables, (rows, values), entries, results, arrays, places, calls, len(reasons))
        constants, parts = graph.constants(), [*parts, graph.text()]
        reasons += tuple(graph.reasons)
        sources += graph.reason_sources
        flows = replace(flows, arrays=graph.arrays, journalled=tuple(table.name for table in graph.journalled))
    source = "\n\n\n".join([writer.text(arrays, constants), *parts])
    names = [_event_name(number, plans, entries, flows) for number in range(len(plans))]
    return ProgramPlan(
        tables=tables,
        transactions=plans,
        rows=rows,
        values=values,
        reasons=reasons,
        literals=tuple(literal for plan in plans for literal in plan.literals),
        result_arrays=results,
        result_places=result_places,
        part_places=part_places,
        result=result,
        result_by_transaction=by_transaction,
        scratch=scratch,
        operations=operations,
        slices=slices,
        source=f"{source}\n",
        arrays=arrays,
        event_names=tuple(names),
        entries=tuple(dict.fromkeys(entry for entry in entries if entry >= 0)),
        flows=flows,
        reason_sources=tuple(sources),
        clock=plan_clock(plans, flows, tables, entries, values),
    )


def _event_name(number: int, plans: tuple[TransactionPlan, ...], entries: list[int], flows: FlowsPlan) -> str:
    """The name by which events refer to a transaction: for a border transaction, that of its stream."""
    for member in flows.members:
        if member.transaction == number:
            return event_name(flows.streams[member.stream].name) if entries[number] == number else f"\0{number}"
    return plans[number].name


def entries_of(plans: tuple[TransactionPlan, ...], flows: FlowsPlan) -> list[int]:
    """Per transaction: the number under which its events arrive; -1 for one that only other transactions start."""
    entries = list(range(len(plans)))
    first: dict[int, int] = {}
    for member in flows.members:
        if member.border and member.on_window < 0:
            first.setdefault(member.stream, member.transaction)
    for member in flows.members:
        entries[member.transaction] = first[member.stream] if member.border else -1
    return entries


def _bindings(
    plans: tuple[TransactionPlan, ...], entries: list[int], flows: FlowsPlan
) -> tuple[tuple[Binding, ...], tuple[Binding, ...]]:
    """The event columns, one binding for each role (row or value, type) in which transactions use a column."""
    users: dict[Parameter, list[int]] = {}
    writers: dict[Parameter, list[int]] = {}
    in_graphs = {member.transaction for member in flows.members}
    for number, plan in enumerate(plans):
        for parameter in plan.parameters if entries[number] >= 0 else ():
            users.setdefault(parameter, []).append(entries[number])
            if parameter.name in plan.assigned and number not in in_graphs:
                writers.setdefault(parameter, []).append(entries[number])
    for member in flows.members:
        if member.border:  # an event carries every field of its stream
            for field in flows.streams[member.stream].fields:
                whole = RowParameter(field.name, field.table, False) if field.table is not None else None
                found = whole or ValueParameter(field.name, field.types[0], False)
                users.setdefault(found, []).append(entries[member.transaction])
    _refuse_two_shapes(users, plans)
    found_all = [
        Binding(parameter, tuple(dict.fromkeys(numbers)), tuple(dict.fromkeys(writers.get(parameter, ()))))
        for parameter, numbers in users.items()
    ]
    rows = tuple(binding for binding in found_all if isinstance(binding.parameter, RowParameter))
    return rows, tuple(binding for binding in found_all if binding not in rows)


def _refuse_two_shapes(users: dict[Parameter, list[int]], plans: tuple[TransactionPlan, ...]) -> None:
    """Refuse an event column that has different shapes, such as list and number, in two transactions."""
    seen: dict[str, tuple[Any, str]] = {}
    for parameter, numbers in users.items():
        shape, user = _shape(parameter), plans[numbers[0]].name
        other, other_user = seen.setdefault(parameter.name, (shape, user))
        if other != shape:
            raise DefinitionError(
                f"the event column {parameter.name!r} is {shape} for transaction {user!r} but {other} for "
                f"{other_user!r}; no column can be both: rename one of the parameters"
            )


def _shape(parameter: Parameter) -> str:
    if isinstance(parameter, RowParameter):
        keys = parameter.table.key_columns
        inner = "a struct" if len(keys) > 1 else keys[0].type.family
    else:
        inner = parameter.type.family
    return f"a list of {inner}" if parameter.many else inner


def _result_type(plans: tuple[TransactionPlan, ...]) -> tuple[pa.DataType, bool]:
    """The type of the result column, and whether it has one field per transaction."""
    returning = [(plan.name, plan.result) for plan in plans if plan.result is not None]
    kinds = {result for _, result in returning}
    if not returning:
        return pa.int64(), False
    if len(kinds) == 1:
        return returning[0][1].arrow, False
    return _by_transaction(returning), True


def _by_transaction(returning: Sequence[tuple[str, ResultType]]) -> pa.DataType:
    return pa.struct([pa.field(name, result.arrow) for name, result in returning])


def _result_arrays(
    plans: tuple[TransactionPlan, ...], by_transaction: bool
) -> tuple[tuple[ValueType, ...], tuple[tuple[int, ...], ...]]:
    """The arrays that hold results, and for each transaction which of them are its own."""
    arrays: list[ValueType] = []
    places: list[tuple[int, ...]] = []
    shared: tuple[int, ...] | None = None
    for plan in plans:
        if plan.result is None:
            places.append(())
            continue
        if shared is None or by_transaction:
            shared = tuple(range(len(arrays), len(arrays) + len(plan.result.fields)))
            arrays.extend(kind for _, kind in plan.result.fields)
        places.append(shared)
    return tuple(arrays), tuple(places)


def _with_part_arrays(
    results: tuple[ValueType, ...], plans: tuple[TransactionPlan, ...]
) -> tuple[tuple[ValueType, ...], tuple[tuple[int, ...], ...]]:
    """The arrays with those for parts of strings, which all transactions share, and which of these are whose."""
    arrays = list(results)
    places: list[tuple[int, ...]] = []
    for plan in plans:
        own: list[int] = []
        for kind in plan.part_kinds:
            free = [n for n in range(len(results), len(arrays)) if arrays[n] is kind and n not in own]
            if not free:
                free = [len(arrays)]
                arrays.append(kind)
            own.append(free[0])
        places.append(tuple(own))
    return tuple(arrays), tuple(places)


def _scratch(
    plans: tuple[TransactionPlan, ...], rows: tuple[Binding, ...]
) -> tuple[tuple[tuple[int, Kind], ...], list[list[int]]]:
    """Undo arrays for written lists: the list that each one saves, and those that each transaction uses."""
    scratch: list[tuple[int, Kind]] = []
    used: list[list[int]] = []
    for number, plan in enumerate(plans):
        own = []
        for name, kind in plan.undo_lists:
            binding = next(i for i, b in enumerate(rows) if b.parameter.name == name and number in b.users)
            own.append(len(scratch))
            scratch.append((binding, kind))
        used.append(own)
    return tuple(scratch), used


def _may_loop(arrays: Sequence[ArraySpec]) -> bool:
    return any(spec.name == "signals" for spec in arrays)


class _RunWriter:
    """Writes the transactions' functions and `run`."""

    def __init__(
        self,
        plans: tuple[TransactionPlan, ...],
        rows: tuple[Binding, ...],
        values: tuple[Binding, ...],
        places: tuple[tuple[int, ...], ...],
        scratch_of: list[list[int]],
        in_graphs: frozenset[int],
    ) -> None:
        self.plans = plans
        self.rows, self.values = rows, values
        self.places, self.scratch_of = places, scratch_of
        self.in_graphs = in_graphs

    def text(self, arrays: Sequence[ArraySpec], constants: str) -> str:
        """The part of the module that `run` needs."""
        lines = [
            "    for j in range(start, stop):",
            "        i = order[j]",
            "        if status[i] != 0:",
            "            continue",
            "        k = kinds[i]",
        ]
        for number, plan in enumerate(self.plans):
            lines.append(f"        {'if' if number == 0 else 'elif'} k == {number}:")
            direct = plan.source and number not in self.in_graphs
            lines.append(f"            s = {self.call(number, plan)}" if direct else "            s = ESCAPE")
        lines += [
            "        else:",
            "            continue",
            "        if s == ESCAPE:",
            "            return j",
            *(("        if s == INTERRUPTED:", "            return s") if _may_loop(arrays) else ()),
            "        status[i] = s",
            "    return stop",
        ]
        head = ["@kernel_or_plain", "def run(start, stop, order, kinds, status, arrays):", *unpack(arrays, lines)]
        sources = [plan.source for plan in self.plans if plan.source]
        return "\n\n\n".join([self._constants() + constants, *sources, "\n".join([*head, *lines])])

    def _constants(self) -> str:
        text, reasons, literals = "", 0, 0
        for plan in self.plans:
            name = generated_name(plan.name)
            text += f"reasons_of_{name} = {reasons}\nliterals_of_{name} = {literals}\n"
            reasons += len(plan.reasons)
            literals += len(plan.literals)
        return text

    def call(self, number: int, plan: TransactionPlan) -> str:
        """The call of a transaction for event i."""
        passed: dict[str, str] = {"i": "i", **passed_limits(plan)}
        for family, bindings in (("rows", self.rows), ("values", self.values)):
            for position, binding in enumerate(bindings):
                if number in binding.users:
                    passed |= passed_column(family, position, binding)
        for position, place in enumerate(self.places[number]):
            passed[f"result_{position}"] = f"results_{place}"
        arguments = [passed.get(name, name) for name in plan.arguments]
        arguments += [f"undo_{index}" for index in self.scratch_of[number]]
        return f"{generated_name(plan.name)}({', '.join(arguments)})"
