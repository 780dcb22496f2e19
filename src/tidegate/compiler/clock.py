"""The clock of a program in which rows expire: which value carries the time of an event.

    @tg.table(key="id", ttl=3600, by="seen_at")       the rows expire by an int: so the clock is an int
    class Session: ...

    @tg.transaction(time="ts")                        an event of `visit` has the time in its column `ts`
    def visit(session: Session, ts: int): ...

An event of a dataflow graph has the time that a transaction on its border stream declares. What interior transactions
declare does not count: they run at the clock of the event that started their round.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.foundation.errors import DefinitionError
from tidegate.operations.flow import FlowsPlan
from tidegate.operations.layout import Kind, TableLayout
from tidegate.operations.plan import Binding, ClockPlan, TransactionPlan


def plan_clock(
    plans: Sequence[TransactionPlan],
    flows: FlowsPlan,
    tables: Sequence[TableLayout],
    entries: Sequence[int],
    values: Sequence[Binding],
) -> ClockPlan | None:
    """The clock of a program; None where no row expires.

    `entries` has for each transaction the number under which its events arrive, or -1.
    """
    expiring = tuple(table for table in tables if table.expires)
    if not expiring:
        return None
    first = expiring[0]
    for table in expiring:
        if table.by_type != first.by_type:
            raise DefinitionError(
                f"the rows of {first.name} expire by {first.by!r} ({first.by_type.label}), those of {table.name} by "
                f"{table.by!r} ({table.by_type.label}); a program has one clock: declare both fields with the same type"
            )
        if table.name in dict(flows.remembered):
            raise DefinitionError(
                f"the program asks for earlier states (tg.history) of {table.name}, whose rows expire; leave out its "
                "ttl, or keep what you need of earlier states in fields of the row"
            )
    times, untimed = [-1] * len(plans), []
    for number in dict.fromkeys(entry for entry in entries if entry >= 0):
        name = _time_of(number, plans, entries)
        if name:
            times[number] = next(n for n, b in enumerate(values) if b.parameter.name == name and number in b.users)
            found = values[times[number]].parameter.type  # type: ignore[union-attr]
            if found != first.by_type and (found, first.by_type) != (Kind.INT, Kind.FLOAT):
                raise DefinitionError(
                    f"transaction {plans[number].name!r}: its time {name!r} is {found.label}, and the rows of "
                    f"{first.name} expire by {first.by!r} ({first.by_type.label}); declare both with the same type"
                )
        elif any(table.expires for plan in _started_by(number, plans, flows) for table in plan.tables):
            untimed.append(plans[number].name)
    return ClockPlan(first.by_type, expiring, tuple(times), tuple(untimed))


def _time_of(number: int, plans: Sequence[TransactionPlan], entries: Sequence[int]) -> str:
    """The parameter that carries the time of a transaction's events; empty if nobody declares one."""
    arriving = [plans[n] for n, entry in enumerate(entries) if entry == number]
    declared = list(dict.fromkeys(plan.time for plan in arriving if plan.time))
    if len(declared) > 1:
        raise DefinitionError(
            f"the transactions {' and '.join(plan.name for plan in arriving)} take the same events and declare "
            f"different times, {' and '.join(map(repr, declared))}; rows expire by one of them: declare the same one"
        )
    return declared[0] if declared else ""


def _started_by(number: int, plans: Sequence[TransactionPlan], flows: FlowsPlan) -> list[TransactionPlan]:
    """The transactions that an event of this one may start: itself, or those of its dataflow graph."""
    for flow in flows.flows:
        members = {flows.members[m].transaction for group in flow.groups for m in group.members}
        if number in members:
            return [plans[member] for member in members]
    return [plans[number]]
