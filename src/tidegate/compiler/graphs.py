"""Lays out dataflow graphs as data: streams, windows, members and groups get their numbers in the program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidegate.api.dataflow import Dataflow
from tidegate.api.stream import Stream
from tidegate.api.transaction import Transaction
from tidegate.api.window import Window
from tidegate.foundation.errors import DefinitionError
from tidegate.operations.flow import (
    FlowPlan,
    FlowsPlan,
    GroupPlan,
    MemberPlan,
    StreamField,
    StreamLayout,
    WindowParameter,
    own_stream,
)
from tidegate.operations.layout import Kind
from tidegate.operations.plan import RowParameter, TransactionPlan, ValueParameter


def lay_out(dataflows: Sequence[Dataflow], transactions: Sequence[Transaction]) -> FlowsPlan:
    """The plan of all graphs of a program; `transactions` are all of its transactions in their order."""
    number_of = {id(transaction): number for number, transaction in enumerate(transactions)}
    _require_apart(dataflows)
    streams = {stream.name: stream.layout for dataflow in dataflows for stream in _streams(dataflow)}
    plain = {t.__name__ for t in transactions if t.on is None}
    for dataflow in dataflows:
        for border in dataflow.borders:
            if border.name in plain:
                raise DefinitionError(
                    f"a stream and a transaction are both named {border.name!r}; events name either: rename one"
                )
    numbers = {name: number for number, name in enumerate(streams)}
    members = [member for dataflow in dataflows for member in dataflow.transactions]
    windows, owners = _windows(members)
    consumed = {m.on.name for m in members if isinstance(m.on, Stream)}
    plans = [_member(m, number_of, numbers, windows, dataflows) for m in members]
    flows: list[FlowPlan] = []
    place = {id(member): number for number, member in enumerate(members)}
    for dataflow in dataflows:
        groups = tuple(
            GroupPlan(
                tuple(place[id(member)] for member in group),
                tuple(dict.fromkeys(numbers[stream.name] for member in group for stream in member.emits)),
            )
            for group in dataflow.members
        )
        borders = tuple(numbers[stream.name] for stream in dataflow.borders)
        flows.append(FlowPlan(dataflow.name, groups, borders, dataflow.atomic_batch, _groups(flows)))
    remembered = _remembered(transactions)
    for number, transaction in enumerate(transactions):
        plan = transaction.plan
        if transaction.on is None and (plan.lookups or plan.histories or _written(plan) & set(remembered)):
            stream_name = own_stream(transaction.__name__)
            streams[stream_name] = StreamLayout(stream_name, _arguments(transaction))
            consumed.add(stream_name)
            plans.append(MemberPlan(number, len(streams) - 1, border=True))
            flows.append(FlowPlan("", (GroupPlan((len(plans) - 1,), ()),), (len(streams) - 1,), 1, _groups(flows)))
    first_on = {m.stream: n for n, m in reversed(list(enumerate(plans))) if m.border and m.on_window < 0}
    plans = [replace(m, gives_results=first_on.get(m.stream) == n) for n, m in enumerate(plans)]
    return FlowsPlan(
        streams=tuple(streams.values()),
        outputs=tuple(name not in consumed for name in streams),
        windows=tuple(windows),
        owners=tuple(owners),
        members=tuple(plans),
        flows=tuple(flows),
        remembered=tuple(remembered.items()),
    )


def _remembered(transactions: Sequence[Transaction]) -> dict[str, int]:
    """The tables that keep earlier states of their rows, and for how long; their writers must declare a time."""
    keeps: dict[str, int] = {}
    for transaction in transactions:
        for table, last in transaction.plan.histories:
            keeps[table.name] = max(last, keeps.get(table.name, 0))
    for transaction in transactions:
        plan = transaction.plan
        for name in sorted((_written(plan) | {table.name for table, _ in plan.histories}) & set(keeps)):
            if not any(p.name == plan.time and p.type is Kind.INT for p in _values(plan)):
                raise DefinitionError(
                    f"transaction {plan.name!r} uses {name}, of which the program asks for earlier states "
                    f'(tg.history), and does not say its time as an int; write @tg.transaction(time="...") with the '
                    "name of the int parameter that carries it"
                )
    return keeps


def _values(plan: TransactionPlan) -> list[ValueParameter]:
    return [parameter for parameter in plan.parameters if isinstance(parameter, ValueParameter)]


def _written(plan: TransactionPlan) -> set[str]:
    """The tables whose rows a transaction may write."""
    rows = {p.table.name for p in plan.parameters if isinstance(p, RowParameter) and p.name in plan.written}
    return rows | set(plan.lookup_writes)


def _arguments(transaction: Transaction) -> tuple[StreamField, ...]:
    """The fields of the stream that stands for a plain transaction's events."""
    fields = []
    for parameter in transaction.plan.parameters:
        if parameter.many:
            raise DefinitionError(
                f"transaction {transaction.__name__!r}: parameter {parameter.name!r} is a list, and it looks rows up, "
                "or has to do with earlier states (tg.history); lists are not possible there: use tg.lookup for each "
                "row"
            )
        if isinstance(parameter, RowParameter):
            fields.append(StreamField(parameter.name, None, parameter.table))
        else:
            fields.append(StreamField(parameter.name, parameter.type))
    return tuple(fields)


def _require_apart(dataflows: Sequence[Dataflow]) -> None:
    """Refuse dataflows that share a stream or a name: states and histories identify dataflows by name."""
    owner_of: dict[str, Dataflow] = {}
    named: dict[str, Dataflow] = {}
    for dataflow in dataflows:
        for stream in _streams(dataflow):
            other = owner_of.setdefault(stream.name, dataflow)
            if other is not dataflow:
                both = f"{other!r} and {dataflow!r}"
                raise DefinitionError(
                    f"the stream {stream.name!r} belongs to two dataflows, {both}; put their transactions into one, "
                    "tg.dataflow([...]), or declare a stream for each"
                )
        if named.setdefault(dataflow.name, dataflow) is not dataflow:
            raise DefinitionError(
                f"two dataflows are named {dataflow.name!r}: {named[dataflow.name]!r} and {dataflow!r}; give one "
                "another name: tg.dataflow([...], name=...)"
            )


def _streams(dataflow: Dataflow) -> list[Stream]:
    found: dict[str, Stream] = {}
    for member in dataflow.transactions:
        source = member.on.stream if isinstance(member.on, Window) else member.on
        for stream in (source, *member.emits):
            assert stream is not None
            found.setdefault(stream.name, stream)
    return list(found.values())


def _windows(members: Sequence[Transaction]) -> tuple[list[WindowParameter], list[int]]:
    """All windows, and the member that owns each."""
    windows: list[WindowParameter] = []
    owners: list[int] = []
    kept: dict[str, str] = {}
    for number, member in enumerate(members):
        for parameter in member.plan.windows:
            if isinstance(member.on, Window) and member.on.identity == parameter.identity:
                continue
            stored = f"{member.__name__}_{parameter.name}"
            if stored in kept:
                raise DefinitionError(
                    f"the windows {kept[stored]} and {member.__name__}({parameter.name}) would both be kept as "
                    f"{stored!r}; rename one of the parameters"
                )
            kept[stored] = f"{member.__name__}({parameter.name})"
            windows.append(parameter)
            owners.append(number)
    return windows, owners


def _groups(flows: Sequence[FlowPlan]) -> int:
    return sum(len(flow.groups) for flow in flows)


def _member(
    member: Transaction,
    number_of: dict[int, int],
    numbers: dict[str, int],
    windows: list[WindowParameter],
    dataflows: Sequence[Dataflow],
) -> MemberPlan:
    borders = {stream.name for dataflow in dataflows for stream in dataflow.borders}
    emits = tuple(numbers[stream.name] for stream in member.emits)
    assert member.on is not None
    found, name = -1, ""
    if isinstance(member.on, Window):
        identity, name = member.on.identity, member.on.stream.name
        found = next(number for number, window in enumerate(windows) if window.identity == identity)
    else:
        name = member.on.name
    return MemberPlan(number_of[id(member)], numbers[name], name in borders, emits, found)
