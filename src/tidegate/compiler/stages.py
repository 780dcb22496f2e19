"""Finds the stages of a program's graphs: parts that share nothing but streams, and so can run side by side.

Two groups belong to the same stage if the order in which they run could be observed other than through a stream:

    a table that both touch                      rows
    a border stream that both consume            the outcome of its events
    a stream that both emit into                 the order of its tuples
    a cycle through both                         each would have to wait for the other

Other groups may overlap: while a stage runs round 7, the stage after it may run round 5. Each stage still sees its
rows, windows and batches in exactly the order in which a single worker would have run everything.

    orders ──> check (Stock) ──> packed ──> invoice (Account)        two stages: they have no table in common
    orders ──> check (Stock) ──> packed ──> restock (Stock)          one

A plain transaction belongs to the stage whose tables it touches; if it touches tables of several stages, these become
one. All plain transactions that share no table with a group form one more stage, whatever tables they touch: what can
run in parallel among them is decided in each batch, row by row (`engine.planning`). Without graphs, it is the only one.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.operations.flow import FlowsPlan, StagePlan
from tidegate.operations.plan import TransactionPlan


def find_stages(flows: FlowsPlan, plans: Sequence[TransactionPlan]) -> tuple[StagePlan, ...]:
    """The stages, each after those whose streams it consumes."""
    groups = [group for flow in flows.flows for group in flow.groups]
    streaming = {member.transaction for member in flows.members}
    plain = [number for number in range(len(plans)) if number not in streaming]
    shared: dict[tuple[str, object], list[int]] = {}
    emitters: dict[int, int] = {}
    for number, group in enumerate(groups):
        for member in (flows.members[m] for m in group.members):
            for table in plans[member.transaction].tables:
                shared.setdefault(("table", table.name), []).append(number)
            if member.border:
                shared.setdefault(("border", member.stream), []).append(number)
        for stream in group.emits:
            shared.setdefault(("stream", stream), []).append(number)
            emitters[stream] = number
    for place, transaction in enumerate(plain):
        for table in plans[transaction].tables:
            shared.setdefault(("table", table.name), []).append(len(groups) + place)
    edges = {
        (emitters[member.stream], number)
        for number, group in enumerate(groups)
        for member in (flows.members[m] for m in group.members)
        if member.stream in emitters
    }
    stage_of = _joined(len(groups) + len(plain), list(shared.values()), edges)
    without_groups = [unit for unit in range(len(stage_of)) if stage_of[unit] >= len(groups)]
    for unit in without_groups:
        stage_of[unit] = len(groups)
    found = []
    for stage in _in_order(stage_of, edges):
        own = tuple(number for number in range(len(groups)) if stage_of[number] == stage)
        consumed = {flows.members[m].stream for number in own for m in groups[number].members}
        takes = tuple(sorted(s for s in consumed if s in emitters and stage_of[emitters[s]] != stage))
        transactions = tuple(t for place, t in enumerate(plain) if stage_of[len(groups) + place] == stage)
        found.append(StagePlan(own, transactions, takes))
    return tuple(found)


def _joined(count: int, shared: list[list[int]], edges: set[tuple[int, int]]) -> list[int]:
    """For each unit (group or plain transaction) the smallest unit of its stage."""
    stage_of = list(range(count))

    def join(units: Sequence[int]) -> None:
        stages = {stage_of[unit] for unit in units}
        stage_of[:] = [min(stages) if stage in stages else stage for stage in stage_of]

    for units in shared:
        join(units)
    while (cycle := _there_and_back(stage_of, edges)) is not None:
        join(cycle)
    return stage_of


def _there_and_back(stage_of: list[int], edges: set[tuple[int, int]]) -> tuple[int, int] | None:
    """Two stages on a cycle: each comes after the other."""
    behind = {(stage_of[first], stage_of[second]) for first, second in edges if stage_of[first] != stage_of[second]}
    while True:
        further = {(a, d) for a, b in behind for c, d in behind if b == c} - behind
        if not further:
            break
        behind |= further
    return next(((a, b) for a, b in sorted(behind) if a != b and (b, a) in behind), None)


def _in_order(stage_of: list[int], edges: set[tuple[int, int]]) -> list[int]:
    """The stages in topological order."""
    waiting = sorted(set(stage_of))
    ordered: list[int] = []
    while waiting:
        for stage in waiting:
            before = {stage_of[first] for first, second in edges if stage_of[second] == stage} - {stage}
            if before <= set(ordered):
                ordered.append(stage)
                waiting.remove(stage)
                break
    return ordered
