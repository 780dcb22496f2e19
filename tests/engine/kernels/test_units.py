"""Scheduling units and their layers, against definitions written as sets."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidegate.engine.execution.scheduler import Run
from tidegate.engine.kernels import execution
from tidegate.engine.kernels.units import Units, list_edges, list_members, merge_circles

from ...accounts import transfer
from ..example_graphs import SHAPES, Built, built, price, random_events, random_program, swap

Partition = set[frozenset[int]]
EAGER = pytest.mark.parametrize("eager", [True, False], ids=["eager", "lazy"])


# --- the definitions -----------------------------------------------------------------------------------------


def reachable(edges: set[tuple[int, int]], count: int) -> Any:
    """A matrix that says which nodes lead to which (Warshall)."""
    found = np.eye(count, dtype=bool)
    for source, target in edges:
        found[source, target] = True
    for middle in range(count):
        found |= np.outer(found[:, middle], found[middle])
    return found


def strongly_connected(edges: set[tuple[int, int]], count: int) -> list[int]:
    """For each node the smallest node that it shares a circle with."""
    found = reachable(edges, count)
    return [int(np.argmax(found[node] & found[:, node])) for node in range(count)]


def needed_operations(graph: Any, write: int, eager: bool) -> range:
    """What must have run before a write can be read: its transaction, or its operation."""
    operation = int(graph.operation[write])
    if not eager:
        return range(operation, operation + 1)
    transaction = graph.transaction[operation]
    return range(graph.operation_first[transaction], graph.operation_first[transaction + 1])


def dependencies(graph: Any, eager: bool) -> list[tuple[int, range]]:
    """Pairs: an operation, and the operations that must have run before it because of one row."""
    return [
        (int(graph.operation[access]), needed_operations(graph, graph.link[access], eager))
        for access in range(len(graph.slot))
        if graph.alias[access] == access and graph.link[access] >= 0
    ]


def waits(graph: Any, unit: list[int], eager: bool) -> set[tuple[int, int]]:
    """Pairs of units: the second waits for the first. What a unit does itself, all of it, it need not wait for."""
    found = set()
    for operation, needed in dependencies(graph, eager):
        sources = {unit[other] for other in needed}
        if sources != {unit[operation]}:
            found |= {(source, unit[operation]) for source in sources}
    return found


def merged_naively(graph: Any, unit: list[int], eager: bool) -> list[int]:
    """Join units in circles, and all that hold a part of what one of them needs and holds a part of, until none do."""
    while True:
        edges = waits(graph, unit, eager)
        for operation, needed in dependencies(graph, eager):
            sources = {unit[other] for other in needed}
            if unit[operation] in sources:
                edges |= {(one, other) for one in sources for other in sources}
        joined = strongly_connected(edges, max(unit, default=-1) + 1)
        following = [joined[number] for number in unit]
        if following == unit:
            return unit
        unit = following


def as_sets(unit: Any) -> Partition:
    members: dict[int, set[int]] = {}
    for operation, number in enumerate(unit):
        members.setdefault(int(number), set()).add(operation)
    return {frozenset(each) for each in members.values()}


# --- groups --------------------------------------------------------------------------------------------------


def check_members(units: Units, operations: int) -> None:
    """The lists and the numbers say the same, and every list is in the order of time."""
    listed = [
        units.member[first:stop].tolist()
        for first, stop in zip(units.member_first[:-1], units.member_first[1:], strict=True)
    ]
    assert sorted(itertools.chain.from_iterable(listed)) == list(range(operations))
    for number, members in enumerate(listed):
        assert members and members == sorted(members)
        assert all(units.unit[member] == number for member in members)


def row_of_group(found: Built, operation: int) -> Any:
    """The row whose group an operation belongs to: the first that it writes, else the first that it reads."""
    graph = found.plan.graph
    own = range(graph.access_first[operation], graph.access_first[operation + 1])
    roots = [access for access in own if graph.alias[access] == access]
    chosen = [access for access in roots if graph.write[access]] or roots
    return (graph.table[chosen[0]], graph.slot[chosen[0]]) if chosen else ("alone", operation)


def random_graph(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    program = random_program(rng) if seed % 3 else SHAPES
    keys = int(rng.choice([1, 2, 5, 12]))
    return built(program, random_events(rng, program, int(rng.integers(1, 70)), keys), split=seed % 4 != 3)


@pytest.mark.parametrize("seed", range(30))
def test_operations_of_one_row_are_a_group(seed: int) -> None:
    with random_graph(seed) as found:
        units, groups = found.core.runner._scheduler._chains(found.start())
        operations = found.plan.operations
        check_members(units, operations)
        assert groups == len(units.member_first) - 1
        rows: dict[Any, set[int]] = {}
        for operation in range(operations):
            rows.setdefault(row_of_group(found, operation), set()).add(operation)
        assert as_sets(units.unit) == {frozenset(each) for each in rows.values()}
        assert np.all(found.builder.group_of_row == -1)


@EAGER
@pytest.mark.parametrize("seed", range(30))
def test_groups_that_wait_for_each_other_are_merged_and_no_others(seed: int, eager: bool) -> None:
    with random_graph(seed) as found:
        graph, scheduler = found.plan.graph, found.core.runner._scheduler
        chains, _ = scheduler._chains(found.start())
        expected = merged_naively(graph, chains.unit.tolist(), eager)
        units = scheduler._make_units(found.start(), "group", eager)
        check_members(units, found.plan.operations)
        assert as_sets(units.unit) == as_sets(expected)
        assert not any(source == target for source, target in waits(graph, units.unit.tolist(), eager))


def test_the_random_graphs_have_circles() -> None:
    """What the tests above compare is not only graphs in which there is nothing to merge."""
    merged = []
    for seed in range(30):
        with random_graph(seed) as found:
            run = found.start()
            found.core.runner._scheduler._make_units(run, "group", True)
            merged.append(run.properties["merged groups"])
    assert sum(count > 0 for count in merged) >= 8 and sum(count == 0 for count in merged) >= 5


def test_a_transaction_of_which_a_unit_holds_a_part_comes_in_as_a_whole() -> None:
    """Every swap's four operations lie in four groups, and the next swap of the same rows waits for all four."""
    keys = {"src": [1] * 6, "dst": [2] * 6, "have": [1] * 6, "want": [2] * 6}
    with built([swap], pa.table({"transaction": ["swap"] * 6, **keys, "value": [1] * 6})) as found:
        scheduler = found.core.runner._scheduler
        assert len(scheduler._make_units(found.start(), "group", True).member_first) - 1 == 1
        lazy = scheduler._make_units(found.start(), "group", False)
        assert 1 < len(lazy.member_first) - 1 <= 4


@pytest.mark.parametrize("seed", range(40))
def test_circles_of_random_graphs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 40))
    edges = {(int(a), int(b)) for a, b in rng.integers(0, count, (int(rng.integers(0, 3 * count)), 2)) if a != b}
    ordered = sorted(edges)
    first = np.searchsorted([source for source, _ in ordered], np.arange(count + 1)).astype(np.int64)
    merged = np.full(count, -7, np.int32)
    target = np.array([target for _, target in ordered], np.int32)
    components = merge_circles(first, target, np.full((5, count), -9, np.int32), merged)
    assert as_sets(merged) == as_sets(strongly_connected(edges, count))
    assert sorted(set(merged.tolist())) == list(range(components))


def test_a_long_circle_needs_no_recursion() -> None:
    count = 200_000
    merged = np.empty(count, np.int32)
    ring = np.roll(np.arange(count, dtype=np.int32), -1)
    assert merge_circles(np.arange(count + 1), ring, np.empty((5, count), np.int32), merged) == 1
    ring[-1] = count - 2  # open, but for the last two
    assert merge_circles(np.arange(count + 1), ring, np.empty((5, count), np.int32), merged) == count - 1


@EAGER
def test_edges_that_need_more_room_are_counted_and_not_written(eager: bool) -> None:
    events = random_events(np.random.default_rng(2), [transfer, price], 60, 4)
    with built([transfer, price], events) as found:
        units, groups = found.core.runner._scheduler._chains(found.start())
        first, none = np.empty(groups + 1, np.int64), np.empty(0, np.int32)
        total = list_edges(found.plan.graph, units, eager, first, none)
        target = np.full(total, -1, np.int32)
        assert list_edges(found.plan.graph, units, eager, first, target) == total > 0
        assert first[0] == 0 and first[-1] == total and np.all(target >= 0)


def test_members_of_units_without_operations_are_empty() -> None:
    first, member = np.full(5, 9, np.int32), np.full(3, 9, np.int32)
    list_members(np.array([3, 1, 3], np.int32), first, member)
    assert first.tolist() == [0, 0, 1, 1, 3] and member.tolist() == [1, 0, 2]


# --- layers --------------------------------------------------------------------------------------------------


def layers_of(run: Run, units: Units, eager: bool) -> list[list[int]]:
    """The units of each layer, as the explorations see them."""
    graph, progress = run.plan.graph, run.progress
    execution.count_pending(graph, units, progress, eager)
    total = len(progress.pending)
    order, first = np.full(total, -1, np.int32), np.full(total + 2, -1, np.int32)
    depth = execution.layer(graph, units, progress, eager, order, first)
    return [order[first[n] : first[n + 1]].tolist() for n in range(depth)]


@EAGER
@pytest.mark.parametrize("unit", ["operation", "group"])
@pytest.mark.parametrize("seed", range(20))
def test_a_unit_lies_just_behind_the_last_that_it_waits_for(seed: int, unit: str, eager: bool) -> None:
    with random_graph(seed) as found:
        run = found.start()
        units = found.core.runner._scheduler._make_units(run, unit, eager)
        count = len(units.member_first) - 1
        run.progress = run.progress._replace(pending=np.empty(count, np.int32))
        layers = layers_of(run, units, eager)
        depth = {number: layer for layer, numbers in enumerate(layers) for number in numbers}
        assert len(depth) == count and sum(map(len, layers)) == count
        behind = dict.fromkeys(range(count), 0)
        for source, target in waits(found.plan.graph, units.unit.tolist(), eager):
            behind[target] = max(behind[target], depth[source] + 1)
        assert depth == behind


@pytest.mark.parametrize("seed", range(10))
def test_layers_of_some_operations_leave_the_others_out(seed: int) -> None:
    """What is explored again waits for what is explored again, and for nothing else."""
    with random_graph(seed) as found:
        run = found.start()
        graph = found.plan.graph
        units = found.core.runner._scheduler._make_units(run, "operation", False)
        run.progress = run.progress._replace(pending=np.empty(found.plan.operations, np.int32))
        run.progress.active[:] = np.random.default_rng(seed).random(found.plan.operations) < 0.5
        close_over_readers(graph, run.progress.active)
        layers = layers_of(run, units, False)
        depth = {number: layer for layer, numbers in enumerate(layers) for number in numbers}
        assert len(depth) == found.plan.operations
        for operation, needed in dependencies(graph, False):
            if run.progress.active[operation] and run.progress.active[needed[0]]:
                assert depth[operation] > depth[needed[0]]
        assert all(depth[n] == 0 for n in range(found.plan.operations) if not run.progress.active[n])


def close_over_readers(graph: Any, active: Any) -> None:
    """What reads from an active operation is active, too: as it is after aborts are taken back."""
    for operation, needed in sorted(dependencies(graph, False), key=lambda pair: pair[0]):
        active[operation] |= active[needed[0]]
