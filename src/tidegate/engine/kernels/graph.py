"""Kernels that build the task precedence graph of a batch, in two phases that both run in parallel.

Phase one walks the events, each worker a range of them, and writes down their operations and accesses.
Which operations touched a row before is not known yet, so every access (a read is what the literature
calls a proxy operation) is put in the list of its row's partition:

    worker 0    partition 0: a0 -> a3 -> a4      partition 1: a1 -> a2
    worker 1    partition 0: a6                  partition 1: a5 -> a7

Phase two walks the partitions, each worker some of them, worker 0's list first: the accesses of a row
come by in timestamp order, and each finds the write before it (`link`).

    operation       o0            o1            o2
    accesses        a0 w(A)       a1 r(A)       a3 w(A)
                                  a2 w(B)
    link            base row      a0            a0          temporal: a0 <- a3, parametric: a0 <- a1
    readers of a0   a3 -> a1

An access of a row that its own operation already touched is an alias and shares the slot of the first.
An operation never sees a write of another operation of its own transaction: slices are cut so that none
needs to; their link goes to the version before the transaction.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegate.foundation.atomics import peek
from tidegate.foundation.jit import inline, kernel

SKIPPED = 0
WHOLE = 1
SPLIT = 2

TRANSACTIONS = 0
OPERATIONS = 1
ACCESSES = 2
VERSIONS = 3  # the first table's; one counter for each table follows

PARTITION_ROWS = 16  # neighbours share a partition, so that two workers rarely write to one cache line


class Shapes(NamedTuple):
    """The program, for kernels: what each kind of operation touches, and where its slots lie."""

    kind_first: Any  # per kind: its first parameter
    parameter_row: Any  # per parameter: which row column of the batch
    parameter_table: Any
    parameter_write: Any
    slice_first: Any  # per transaction: the first of its slices
    slice_kind: Any
    row_slots: Any  # per row column: address of its slots
    row_offsets: Any  # per row column: address of its lists' offsets, 0 for single rows
    row_base: Any  # per table: what makes its slots different from other tables'


class Graph(NamedTuple):
    """The operations of a batch and what they touch; ids follow the order of time."""

    event: Any  # per transaction
    operation_first: Any  # per transaction, and one more
    kind: Any  # per operation
    transaction: Any  # per operation
    access_first: Any  # per operation, and one more
    operation: Any  # per access, as all below
    table: Any
    slot: Any  # the row itself
    write: Any
    version: Any  # the slot of the row's new version, for writes
    link: Any  # the write before, or -1
    alias: Any  # the first access of the same row in the same operation
    reader_first: Any  # for writes: the accesses that link here
    reader_next: Any
    now: Any  # the slot that the operation is given when it runs


@inline
def rows_of(shapes, parameter, event):  # type: ignore[no-untyped-def]
    """How many rows a parameter stands for."""
    offsets = shapes.row_offsets[shapes.parameter_row[parameter]]
    if offsets == 0:
        return 1
    return peek(offsets, event + 1) - peek(offsets, event)


@inline
def _has_alias(shapes, kind, event):  # type: ignore[no-untyped-def]
    """Whether two parameters may be the same row."""
    first, stop = shapes.kind_first[kind], shapes.kind_first[kind + 1]
    for one in range(first, stop):
        for other in range(first, one):
            if shapes.parameter_table[one] == shapes.parameter_table[other]:
                column, before = shapes.parameter_row[one], shapes.parameter_row[other]
                if shapes.row_offsets[column] != 0 or shapes.row_offsets[before] != 0:
                    return True
                if peek(shapes.row_slots[column], event) == peek(shapes.row_slots[before], event):
                    return True
    return False


@inline
def _count(shapes, kind, event, counts_out):  # type: ignore[no-untyped-def]
    counts_out[OPERATIONS] += 1
    for parameter in range(shapes.kind_first[kind], shapes.kind_first[kind + 1]):
        rows = rows_of(shapes, parameter, event)
        counts_out[ACCESSES] += rows
        if shapes.parameter_write[parameter]:
            counts_out[VERSIONS + shapes.parameter_table[parameter]] += rows


@kernel
def choose(shapes, order, kinds, status, split, start, stop, choice_out, counts_out):  # type: ignore[no-untyped-def]
    """Say for each event whether it is skipped, one operation, or split; count what they need."""
    for position in range(start, stop):
        event = order[position]
        choice_out[position] = SKIPPED
        if status[event] != 0:
            continue
        kind = kinds[event]
        counts_out[TRANSACTIONS] += 1
        slices = shapes.slice_first[kind + 1] - shapes.slice_first[kind]
        if split and slices > 0 and not _has_alias(shapes, kind, event):
            choice_out[position] = SPLIT
            for index in range(shapes.slice_first[kind], shapes.slice_first[kind + 1]):
                _count(shapes, shapes.slice_kind[index], event, counts_out)
        else:
            choice_out[position] = WHOLE
            _count(shapes, kind, event, counts_out)


@inline
def _add(shapes, graph, kind, event, next_out, lists):  # type: ignore[no-untyped-def]
    """Write down one operation."""
    heads, tails = lists
    operation = next_out[OPERATIONS]
    next_out[OPERATIONS] += 1
    graph.kind[operation] = kind
    graph.transaction[operation] = next_out[TRANSACTIONS]
    access = next_out[ACCESSES]
    graph.access_first[operation] = access
    for parameter in range(shapes.kind_first[kind], shapes.kind_first[kind + 1]):
        column, table = shapes.parameter_row[parameter], shapes.parameter_table[parameter]
        offsets, slots = shapes.row_offsets[column], shapes.row_slots[column]
        begin, end = event, event + 1
        if offsets != 0:
            begin, end = peek(offsets, event), peek(offsets, event + 1)
        for element in range(begin, end):
            slot = peek(slots, element)
            graph.operation[access] = operation
            graph.table[access] = table
            graph.slot[access] = slot
            graph.write[access] = shapes.parameter_write[parameter]
            graph.alias[access] = access
            graph.reader_first[access] = -1
            graph.reader_next[access] = -1
            if shapes.parameter_write[parameter]:
                graph.version[access] = next_out[VERSIONS + table]
                next_out[VERSIONS + table] += 1
            if heads.shape[0] > 1:  # one worker alone links all accesses as they stand
                partition = ((shapes.row_base[table] + slot) // PARTITION_ROWS) & (heads.shape[0] - 1)
                if tails[partition] < 0:
                    heads[partition] = access
                else:
                    graph.reader_next[tails[partition]] = access
                tails[partition] = access
            access += 1
    next_out[ACCESSES] = access


@kernel
def decompose(shapes, graph, order, kinds, choice, start, stop, next_out, heads_out, tails_out):  # type: ignore[no-untyped-def]
    """Phase one for a range of events: their operations, and their accesses in partitions' lists."""
    for position in range(start, stop):
        if choice[position] == SKIPPED:
            continue
        event = order[position]
        transaction = next_out[TRANSACTIONS]
        graph.event[transaction] = event
        graph.operation_first[transaction] = next_out[OPERATIONS]
        kind = kinds[event]
        if choice[position] == SPLIT:
            for index in range(shapes.slice_first[kind], shapes.slice_first[kind + 1]):
                _add(shapes, graph, shapes.slice_kind[index], event, next_out, (heads_out, tails_out))
        else:
            _add(shapes, graph, kind, event, next_out, (heads_out, tails_out))
        next_out[TRANSACTIONS] = transaction + 1


@inline
def _link(graph, access, row, latest_write, latest):  # type: ignore[no-untyped-def]
    before = latest[row]
    latest[row] = access
    if before >= 0 and graph.operation[before] == graph.operation[access]:
        first = graph.alias[before]
        graph.alias[access] = first
        if graph.write[access] and not graph.write[first]:
            graph.write[first] = 1
            graph.version[first] = graph.version[access]
            latest_write[row] = first
        return
    write = latest_write[row]
    if write >= 0 and graph.transaction[graph.operation[write]] == graph.transaction[graph.operation[access]]:
        write = graph.link[write]
    graph.link[access] = write
    graph.reader_next[access] = -1
    if write >= 0:
        graph.reader_next[access] = graph.reader_first[write]
        graph.reader_first[write] = access
    if graph.write[access]:
        latest_write[row] = access


@kernel
def link_partitions(shapes, graph, heads, start, stop, latest_write_out, latest_out):  # type: ignore[no-untyped-def]
    """Phase two for some partitions: every access finds the write before it."""
    for partition in range(start, stop):
        for worker in range(heads.shape[0]):
            access = heads[worker, partition]
            while access >= 0:
                following = graph.reader_next[access]
                row = shapes.row_base[graph.table[access]] + graph.slot[access]
                _link(graph, access, row, latest_write_out, latest_out)
                access = following


@kernel
def link_all(shapes, graph, latest_write_out, latest_out):  # type: ignore[no-untyped-def]
    """Phase two where one worker does all of it."""
    for access in range(graph.slot.shape[0]):
        row = shapes.row_base[graph.table[access]] + graph.slot[access]
        _link(graph, access, row, latest_write_out, latest_out)


@kernel
def forget_rows(shapes, graph, latest_write_out, latest_out):  # type: ignore[no-untyped-def]
    """Make the per-row arrays ready for the next batch; costs what the batch touched."""
    for access in range(graph.slot.shape[0]):
        row = shapes.row_base[graph.table[access]] + graph.slot[access]
        latest_write_out[row] = -1
        latest_out[row] = -1


@kernel
def measure(graph, latest_count_out):  # type: ignore[no-untyped-def]
    """Writes; temporal, parametric and logical dependencies; and the longest chain of writes of one row.

    `latest_count_out` has one element per access: how many writes its row saw up to here.
    """
    writes, temporal, parametric, logical, longest = 0, 0, 0, 0, 0
    for transaction in range(graph.event.shape[0]):
        logical += graph.operation_first[transaction + 1] - graph.operation_first[transaction] - 1
    for access in range(graph.slot.shape[0]):
        latest_count_out[access] = 0
        if graph.alias[access] != access:
            continue
        link = graph.link[access]
        length = 0 if link < 0 else latest_count_out[link]
        if graph.write[access]:
            length += 1
            writes += 1
            if link >= 0:
                temporal += 1
        elif link >= 0:
            parametric += 1
        latest_count_out[access] = length
        longest = max(longest, length)
    return writes, temporal, parametric, logical, longest
