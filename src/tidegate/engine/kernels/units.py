"""Kernels that make scheduling units of operations, and layer them.

A unit is an operation, or a group: the operations that write one row, in timestamp order. Groups may
wait for each other in a circle; a circle is merged into one unit, whose operations run in the order of
time, which always satisfies the dependencies among them.

    rows A and B        A: o1 -> o4          o4 reads B after o3, o3 reads A after o1:
                        B: o3 -> o5          A waits for B and B for A: one unit o1 o3 o4 o5

A unit waits for a link when it can become visible only by what another unit does. With eager aborts a
write becomes visible when its transaction is decided, that is, when all of the transaction's operations ran;
with lazy aborts when its own operation ran.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegate.foundation.jit import inline, kernel


class Units(NamedTuple):
    """Scheduling units: their operations, in timestamp order."""

    unit: Any  # per operation
    member_first: Any  # per unit, and one more
    member: Any


@inline
def is_outside(graph, units, unit, write, eager):  # type: ignore[no-untyped-def]
    """Whether a write becomes visible to a unit by the doing of another unit."""
    operation = graph.operation[write]
    if not eager:
        return units.unit[operation] != unit
    transaction = graph.transaction[operation]
    for sibling in range(graph.operation_first[transaction], graph.operation_first[transaction + 1]):
        if units.unit[sibling] != unit:
            return True
    return False


@kernel
def group_by_row(shapes, graph, group_of_row, unit_out):  # type: ignore[no-untyped-def]
    """Put every operation in the group of the first row it writes (or reads, if it writes none)."""
    groups = 0
    for operation in range(graph.kind.shape[0]):
        first, stop = graph.access_first[operation], graph.access_first[operation + 1]
        chosen = first
        for access in range(first, stop):
            if graph.write[access] and graph.alias[access] == access:
                chosen = access
                break
        if first == stop:  # a list without elements
            unit_out[operation] = groups
            groups += 1
            continue
        row = shapes.row_base[graph.table[chosen]] + graph.slot[chosen]
        if group_of_row[row] < 0:
            group_of_row[row] = groups
            groups += 1
        unit_out[operation] = group_of_row[row]
    for access in range(graph.slot.shape[0]):
        group_of_row[shapes.row_base[graph.table[access]] + graph.slot[access]] = -1
    return groups


@kernel
def list_members(unit, first_out, member_out):  # type: ignore[no-untyped-def]
    """Sort operations by unit; within one they keep their order."""
    first_out[:] = 0
    for operation in range(unit.shape[0]):
        first_out[unit[operation] + 1] += 1
    for index in range(1, first_out.shape[0]):
        first_out[index] += first_out[index - 1]
    for operation in range(unit.shape[0]):
        member_out[first_out[unit[operation]]] = operation
        first_out[unit[operation]] += 1
    for index in range(first_out.shape[0] - 1, 0, -1):
        first_out[index] = first_out[index - 1]
    first_out[0] = 0


@inline
def _siblings(graph, write, eager):  # type: ignore[no-untyped-def]
    """The operations that must run before a write is visible, as a range."""
    operation = graph.operation[write]
    if not eager:
        return operation, operation + 1
    transaction = graph.transaction[operation]
    return graph.operation_first[transaction], graph.operation_first[transaction + 1]


@inline
def _is_inside(units, unit, begin, end):  # type: ignore[no-untyped-def]
    count = 0
    for sibling in range(begin, end):
        count += units.unit[sibling] == unit
    return count > 0


@kernel
def list_edges(graph, units, eager, first_out, target_out):  # type: ignore[no-untyped-def]
    """For every unit, the units that wait for it; returns how many there are, and lists them if there is room.

    A unit cannot wait for a transaction of which it holds a part: its other parts must come into the unit as
    well. An edge in each direction makes a circle of them, which is merged.
    """
    first_out[:] = 0
    total = 0
    for filling in range(2):
        for access in range(graph.slot.shape[0]):
            write = graph.link[access]
            if graph.alias[access] != access or write < 0:
                continue
            unit = units.unit[graph.operation[access]]
            begin, end = _siblings(graph, write, eager)
            inside = eager and _is_inside(units, unit, begin, end)
            for sibling in range(begin, end):
                source = units.unit[sibling]
                if source == unit:
                    continue
                if filling == 0:
                    first_out[source + 1] += 1
                    first_out[unit + 1] += inside
                    total += 1 + inside
                else:
                    target_out[first_out[source]] = unit
                    first_out[source] += 1
                    if inside:
                        target_out[first_out[unit]] = source
                        first_out[unit] += 1
        if filling == 0:
            if total > target_out.shape[0]:
                return total
            for index in range(1, first_out.shape[0]):
                first_out[index] += first_out[index - 1]
    for index in range(first_out.shape[0] - 1, 0, -1):
        first_out[index] = first_out[index - 1]
    first_out[0] = 0
    return total


@kernel
def merge_circles(edge_first, edge_target, work, merged_out):  # type: ignore[no-untyped-def]
    """Number the strongly connected components (Tarjan's way, without recursion); returns how many.

    `work` has five rows with one element per unit: order of discovery, lowest reachable, next edge, the
    path, and the stack of open units.
    """
    units = edge_first.shape[0] - 1
    found, lowest, edge, path, stack = work[0], work[1], work[2], work[3], work[4]
    found[:] = -1
    merged_out[:] = -1
    discovered, components, depth, height = 0, 0, 0, 0
    for start in range(units):
        if found[start] >= 0:
            continue
        path[0] = start
        depth = 1
        while depth > 0:
            unit = path[depth - 1]
            if found[unit] < 0:
                found[unit] = discovered
                lowest[unit] = discovered
                discovered += 1
                edge[unit] = edge_first[unit]
                stack[height] = unit
                height += 1
            if edge[unit] < edge_first[unit + 1]:
                target = edge_target[edge[unit]]
                edge[unit] += 1
                if found[target] < 0:
                    path[depth] = target
                    depth += 1
                elif merged_out[target] < 0:
                    lowest[unit] = min(lowest[unit], found[target])
                continue
            if lowest[unit] == found[unit]:
                while True:
                    height -= 1
                    merged_out[stack[height]] = components
                    if stack[height] == unit:
                        break
                components += 1
            depth -= 1
            if depth > 0:
                lowest[path[depth - 1]] = min(lowest[path[depth - 1]], lowest[unit])
    return components


@kernel
def renumber_units(merged, unit_out):  # type: ignore[no-untyped-def]
    """Give every operation the number of its merged unit."""
    for operation in range(unit_out.shape[0]):
        unit_out[operation] = merged[unit_out[operation]]
